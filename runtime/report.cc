#include "runtime/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace dyncp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostCases = 10;     // told to a person, in a list
constexpr std::size_t kMostFindings = 20;  // of one case, in text and JUnit

bool is_bad(Status status) { return status == Status::kFailed || status == Status::kInvalid; }

bool proves_nothing(Status status) {
  return status == Status::kMistrusted || status == Status::kSkipped;
}

std::string status_and_reason(const CaseResult& result) {
  const std::string reason = result.reason();
  return fmt::format("{}{}{}", to_string(result.status()), reason.empty() ? "" : " ", reason);
}

// The findings of a case, a line each.
std::string finding_lines(const CaseResult& result, std::string_view before) {
  std::string text;
  for (std::size_t i = 0; i < result.findings().size(); ++i) {
    if (i == kMostFindings) {
      text += fmt::format("{}and {} more findings\n", before, result.findings().size() - i);
      break;
    }
    const Finding& finding = result.findings()[i];
    text += fmt::format("{}{} ({}): {}\n", before, finding.check, to_string(finding.kind),
                        finding.message);
  }
  return text;
}

std::string sizes_text(const std::map<int, std::int64_t>& sizes) {
  std::string text;
  for (const auto& [size, cases] : sizes) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", size);
  }
  return text;
}

Json counts_json(const Counts& counts) {
  return {{"tests", counts.tests},     {"passed", counts.passed},
          {"failed", counts.failed},   {"mistrusted", counts.mistrusted},
          {"skipped", counts.skipped}, {"invalid", counts.invalid}};
}

Json histogram_json(const std::map<int, std::int64_t>& sizes) {
  Json object = Json::object();
  for (const auto& [size, cases] : sizes) object[std::to_string(size)] = cases;
  return object;
}

// Findings and commands may hold any bytes of somebody's input: what is no UTF-8 is replaced.
std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Length of the UTF-8 sequence at text[i] when it is a character that XML 1.0 allows, else 0.
std::size_t xml_character(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const unsigned first = byte(i);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' ? 1 : 0;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  unsigned point = first & (0x7FU >> length);
  for (std::size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80) return 0;
    point = point << 6 | (byte(i + k) & 0x3FU);
  }
  const unsigned smallest = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (point < smallest || point > 0x10FFFF || surrogate || point == 0xFFFE || point == 0xFFFF) {
    return 0;
  }
  return length;
}

}  // namespace

void Counts::add(Status status) {
  ++tests;
  switch (status) {
    case Status::kPassed:
      ++passed;
      break;
    case Status::kFailed:
      ++failed;
      break;
    case Status::kMistrusted:
      ++mistrusted;
      break;
    case Status::kSkipped:
      ++skipped;
      break;
    case Status::kInvalid:
      ++invalid;
      break;
  }
}

Counts count_statuses(const Report& report) {
  Counts counts;
  for (const CaseRun& run : report.runs) counts.add(run.result.status());
  return counts;
}

std::string summary_line(const Report& report) {
  const Counts counts = count_statuses(report);
  return fmt::format("tests:{} passed:{} failed:{} mistrusted:{} skipped:{} invalid:{}",
                     counts.tests, counts.passed, counts.failed, counts.mistrusted, counts.skipped,
                     counts.invalid);
}

int exit_code(const Report& report) {
  const Counts counts = count_statuses(report);
  if (counts.failed + counts.invalid > 0) return 1;
  if (report.mistrusted_fails && counts.mistrusted > 0) return 1;
  return counts.passed + counts.mistrusted > 0 ? 0 : 1;
}

std::string case_text(const CaseRun& run) {
  std::string text;
  for (const std::string& line : run.result.details()) text += fmt::format("  {}\n", line);
  if (!run.result.findings().empty()) return text + finding_lines(run.result, "FAILED ");
  text += status_and_reason(run.result);
  if (!run.result.checks_run().empty()) {
    text += fmt::format("{} {}", run.result.reason().empty() ? ":" : "; checked:",
                        fmt::join(run.result.checks_run(), ", "));
  }
  return text + "\n";
}

std::string failed_list(const Report& report) {
  std::string text;
  std::size_t bad = 0;
  for (const CaseRun& run : report.runs) {
    const CaseResult& result = run.result;
    if (!is_bad(result.status()) || ++bad > kMostCases) continue;
    const std::string check = result.findings().empty() ? "" : " " + result.findings()[0].check;
    text += fmt::format("{}{}: {}\n  repeat: {}\n", to_string(result.status()), check,
                        result.reason(), run.command);
  }
  if (bad > kMostCases) {
    text += fmt::format("and {} more; --json FILE has all of them\n", bad - kMostCases);
  }
  return text;
}

std::string not_checked_list(const Report& report) {
  std::string text;
  std::size_t reasons = 0;
  for (const DriverSummary& summary : summarize(report)) {
    for (const auto& [reason, entry] : summary.not_checked) {
      if (++reasons > kMostCases) continue;
      text += fmt::format("{} ({} case{})\n  repeat: {}\n", reason, entry.cases,
                          entry.cases == 1 ? "" : "s", entry.command);
    }
  }
  if (reasons > kMostCases) {
    text += fmt::format("and {} more reasons; --json FILE has all of them\n", reasons - kMostCases);
  }
  return text;
}

std::vector<DriverSummary> summarize(const Report& report) {
  std::vector<DriverSummary> summaries;
  for (const CaseRun& run : report.runs) {
    const auto found = std::find_if(
        summaries.begin(), summaries.end(),
        [&](const DriverSummary& summary) { return summary.name == run.driver->name; });
    DriverSummary& summary = found != summaries.end() ? *found : summaries.emplace_back();
    summary.name = run.driver->name;
    const auto reads = [&](std::string_view option) {
      const auto& options = run.driver->options;
      return std::find(options.begin(), options.end(), option) != options.end();
    };
    const Problem& problem = run.problem;
    summary.counts.add(run.result.status());
    for (const std::string& check : run.result.checks_run()) ++summary.checks[check];
    for (const Finding& finding : run.result.findings()) ++summary.findings[finding.check];
    if (reads("cp")) ++summary.cp_sizes[problem.cp];
    if (reads("ranks")) ++summary.rank_domains[problem.ranks];
    for (const std::int64_t length : problem.lengths) {
      if (summary.sequences++ == 0) summary.shortest = summary.longest = length;
      if (reads("cp")) summary.unaligned += length % padding_multiple(problem.cp, 1) != 0 ? 1 : 0;
      summary.shortest = std::min(summary.shortest, length);
      summary.longest = std::max(summary.longest, length);
    }
    if (proves_nothing(run.result.status())) {
      NotChecked& entry = summary.not_checked[status_and_reason(run.result)];
      if (entry.cases++ == 0) entry.command = run.command;
    }
  }
  return summaries;
}

std::string coverage_table(const Report& report) {
  std::string text =
      fmt::format("{:<10} {:>6} {:>7} {:>7} {:>11} {:>8} {:>7}  {:<16} {}\n", "driver", "cases",
                  "passed", "failed", "mistrusted", "skipped", "checks", "lengths", "group sizes");
  for (const DriverSummary& summary : summarize(report)) {
    const Counts& counts = summary.counts;
    std::string sizes = sizes_text(summary.cp_sizes);
    if (!sizes.empty()) sizes.insert(0, "CP ");
    if (!summary.rank_domains.empty()) {
      sizes +=
          fmt::format("{}of {} ranks", sizes.empty() ? "" : ", ", sizes_text(summary.rank_domains));
    }
    text += fmt::format("{:<10} {:>6} {:>7} {:>7} {:>11} {:>8} {:>7}  {:<16} {}\n", summary.name,
                        counts.tests, counts.passed, counts.failed + counts.invalid,
                        counts.mistrusted, counts.skipped, summary.checks.size(),
                        fmt::format("{}..{}", summary.shortest, summary.longest), sizes);
  }
  return text;
}

LengthFigures figures_of(const LengthSet& set) {
  LengthFigures figures;
  std::vector<std::int64_t> sorted = set.lengths;
  std::sort(sorted.begin(), sorted.end());
  figures.count = static_cast<std::int64_t>(sorted.size());
  if (sorted.empty()) return figures;
  figures.shortest = sorted.front();
  figures.median = sorted[sorted.size() / 2];
  figures.longest = sorted.back();
  for (const std::int64_t length : sorted) figures.total += length;
  return figures;
}

std::string escape_markup(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = xml_character(text, i);
    const std::string_view character = text.substr(i, std::max<std::size_t>(length, 1));
    i += character.size();
    if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else if (character == "&") {
      result += "&amp;";
    } else if (character == "<") {
      result += "&lt;";
    } else if (character == ">") {
      result += "&gt;";
    } else if (character == "\"") {
      result += "&quot;";
    } else {
      result += character;
    }
  }
  return result;
}

std::string to_junit(const Report& report) {
  struct Suite {
    std::string cases;
    std::int64_t tests = 0, failures = 0, errors = 0, skipped = 0;
  };
  std::vector<std::pair<std::string_view, Suite>> suites;  // by driver, in the order of first use
  Suite all;
  for (const CaseRun& run : report.runs) {
    auto found = std::find_if(suites.begin(), suites.end(),
                              [&](const auto& entry) { return entry.first == run.driver->name; });
    if (found == suites.end()) found = suites.insert(found, {run.driver->name, Suite()});
    Suite& suite = found->second;
    const Status status = run.result.status();
    const bool failed =
        status == Status::kFailed || (status == Status::kMistrusted && report.mistrusted_fails);
    const bool invalid = status == Status::kInvalid;
    const bool skipped = !failed && proves_nothing(status);
    for (Suite* count : {&suite, &all}) {
      ++count->tests;
      count->failures += failed ? 1 : 0;
      count->errors += invalid ? 1 : 0;
      count->skipped += skipped ? 1 : 0;
    }
    suite.cases += fmt::format("<testcase classname=\"dyncp.{}\" name=\"{}\"",
                               escape_markup(run.driver->name), escape_markup(run.command));
    if (status == Status::kPassed) {
      suite.cases += "/>\n";
      continue;
    }
    const char* const element = failed ? "failure" : invalid ? "error" : "skipped";
    suite.cases +=
        fmt::format(">\n<{0} message=\"{1}\">{2}</{0}>\n</testcase>\n", element,
                    escape_markup(status_and_reason(run.result)),
                    escape_markup(finding_lines(run.result, "") + "repeat: " + run.command));
  }
  // The root has no "skipped": the schema that most readers follow knows it on suites only.
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
      escape_markup(report.title), all.tests, all.failures, all.errors);
  for (const auto& [driver, suite] : suites) {
    text += fmt::format(
        "<testsuite name=\"dyncp.{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
        "skipped=\"{}\">\n{}</testsuite>\n",
        escape_markup(driver), suite.tests, suite.failures, suite.errors, suite.skipped,
        suite.cases);
  }
  return text + "</testsuites>\n";
}

std::string to_json_text(const Report& report) {
  Json json;
  json["dyncp"] = report.version;
  json["title"] = report.title;
  json["exit_code"] = exit_code(report);
  json["summary"] = counts_json(count_statuses(report));
  json["drivers"] = Json::array();
  for (const DriverSummary& summary : summarize(report)) {
    Json driver;
    driver["driver"] = summary.name;
    driver["summary"] = counts_json(summary.counts);
    driver["checks"] = Json::object();
    for (const auto& [check, cases] : summary.checks) {
      const auto findings = summary.findings.find(check);
      driver["checks"][check] = {
          {"cases", cases},
          {"findings", findings == summary.findings.end() ? 0 : findings->second}};
    }
    driver["cp_sizes"] = histogram_json(summary.cp_sizes);
    driver["rank_domains"] = histogram_json(summary.rank_domains);
    driver["sequences"] = {{"count", summary.sequences},
                           {"unaligned", summary.unaligned},
                           {"shortest", summary.shortest},
                           {"longest", summary.longest}};
    driver["not_checked"] = Json::object();
    for (const auto& [reason, entry] : summary.not_checked) {
      driver["not_checked"][reason] = {{"cases", entry.cases}, {"first", entry.command}};
    }
    json["drivers"].push_back(std::move(driver));
  }
  json["length_sets"] = Json::array();
  for (const LengthSet& set : report.length_sets) {
    const LengthFigures figures = figures_of(set);
    json["length_sets"].push_back({{"name", set.name},
                                   {"count", figures.count},
                                   {"shortest", figures.shortest},
                                   {"median", figures.median},
                                   {"longest", figures.longest},
                                   {"total", figures.total}});
  }
  json["left_out"] = Json::array();
  for (const LeftOut& entry : report.left_out) {
    json["left_out"].push_back({{"what", entry.what}, {"why", entry.why}});
  }
  json["cases"] = Json::array();
  for (const CaseRun& run : report.runs) {
    Json one;
    one["driver"] = run.driver->name;
    one["command"] = run.command;
    one["status"] = to_string(run.result.status());
    one["reason"] = run.result.reason();
    one["checks"] = run.result.checks_run();
    one["findings"] = Json::array();
    for (const Finding& finding : run.result.findings()) {
      one["findings"].push_back({{"check", finding.check},
                                 {"kind", to_string(finding.kind)},
                                 {"message", finding.message}});
    }
    if (run.result.status() != Status::kPassed) one["details"] = run.result.details();
    json["cases"].push_back(std::move(one));
  }
  return dumped(json);
}

std::string timings_text(const Report& report) {
  Json json;
  json["drivers"] = Json::object();
  json["cases"] = Json::array();
  std::map<std::string_view, double> seconds;
  for (const CaseRun& run : report.runs) {
    seconds[run.driver->name] += run.seconds;
    json["cases"].push_back({{"command", run.command}, {"seconds", run.seconds}});
  }
  for (const auto& [driver, sum] : seconds) json["drivers"][std::string(driver)] = sum;
  return dumped(json);
}

}  // namespace dyncp
