#include "runtime/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "reference/error.h"

namespace dyncp {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr Status kStatuses[] = {Status::kPassed, Status::kFailed, Status::kMistrusted,
                                Status::kSkipped, Status::kInvalid};

// Shared with the worker threads and kept alive by them: one that hangs outlives the run.
struct Work {
  std::vector<Problem> problems;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0;
  bool stop = false;
  struct Slot {
    bool begun = false;
    bool done = false;
    Clock::time_point begun_at;
    CaseResult result;
  };
  std::vector<Slot> slots;
  int threads_left = 0;
};

void work_on(const std::shared_ptr<Work>& work) {
  std::unique_lock lock(work->mutex);
  while (!work->stop && work->next < work->problems.size()) {
    const std::size_t index = work->next++;
    work->slots[index].begun = true;
    work->slots[index].begun_at = Clock::now();
    work->changed.notify_all();
    lock.unlock();
    CaseResult result = run_case(work->problems[index]);
    lock.lock();
    work->slots[index].result = std::move(result);
    work->slots[index].done = true;
    work->changed.notify_all();
  }
  --work->threads_left;
  work->changed.notify_all();
}

struct DriverCoverage {
  int cases = 0;
  std::map<Status, int> statuses;
  std::set<std::string> checks;
  std::set<int> cp_sizes;
};

std::map<std::string, DriverCoverage> coverage_of(const Report& report) {
  std::map<std::string, DriverCoverage> coverage;
  for (const CaseRun& run : report.runs) {
    DriverCoverage& driver = coverage[run.problem.driver];
    ++driver.cases;
    ++driver.statuses[run.result.status()];
    driver.checks.insert(run.result.checks_run().begin(), run.result.checks_run().end());
    if (run.problem.driver != "schedule") driver.cp_sizes.insert(run.problem.cp);
  }
  return coverage;
}

std::string sizes_text(const std::set<int>& sizes) {
  return fmt::format("{}", fmt::join(sizes, " "));
}

// A long command is cut for tables; the reports' files hold it whole.
std::string shorten(const std::string& text, std::size_t most = 300) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

bool is_bad(Status status) { return status == Status::kFailed || status == Status::kInvalid; }

constexpr std::string_view kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{0}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }}
td.number, th.number {{ text-align: right; }}
code {{ font-size: .9em; overflow-wrap: anywhere; }}
.verdict {{ font-size: 1.2rem; font-weight: 600; padding: .5rem .9rem; border-left: .4rem solid; }}
.good {{ border-color: #2e8b57; }} .bad {{ border-color: #c0392b; }} .warn {{ border-color: #d08b00; }}
details {{ margin: .3rem 0; }}
</style></head><body>
<h1>{0}</h1>
)";

}  // namespace

CaseResult run_case(const Problem& problem) {
  CaseResult result;
  try {
    const Driver& driver = find_driver(problem.driver);
    if (driver.run == nullptr) {
      result.skip(fmt::format("driver {} is not built", driver.name));
      return result;
    }
    return driver.run(problem);
  } catch (const InvalidInput& error) {
    result.invalid(error.what());
  } catch (const Infeasible& error) {
    result.invalid(error.what());
  } catch (const std::exception& error) {
    const std::string what = error.what();
    result.expect(problem.driver + ".exception", Kind::kState, false,
                  [&] { return "the driver threw: " + what; });
  }
  return result;
}

Report run_cases(const std::vector<Problem>& problems, const RunOptions& options) {
  const auto work = std::make_shared<Work>();
  work->problems = problems;
  work->slots.resize(problems.size());
  const auto wanted = static_cast<std::size_t>(std::max(1, options.threads));
  const std::size_t count = std::min(wanted, problems.size());
  work->threads_left = static_cast<int>(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([work] { work_on(work); });

  Report report;
  std::unique_lock lock(work->mutex);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Work::Slot& slot = work->slots[i];
    if (options.on_start) {
      lock.unlock();
      options.on_start(problems[i]);
      lock.lock();
    }
    work->changed.wait(lock, [&] { return slot.begun || work->threads_left == 0; });
    const bool in_time =
        work->changed.wait_until(lock, slot.begun_at + options.deadline, [&] { return slot.done; });
    if (!in_time) {
      report.abandoned = true;
      break;
    }
    report.runs.push_back({problems[i], slot.result});
    if (options.on_done) {
      lock.unlock();
      options.on_done(report.runs.back(), report.runs.size(), problems.size());
      lock.lock();
    }
  }
  if (!report.abandoned) {
    lock.unlock();
    for (std::thread& thread : threads) thread.join();
    return report;
  }
  // One case hangs: take what the others have finished, and name the rest.
  work->stop = true;
  work->changed.wait_for(lock, options.deadline, [&] { return work->threads_left <= 1; });
  for (std::size_t i = report.runs.size(); i < problems.size(); ++i) {
    const Work::Slot& slot = work->slots[i];
    CaseResult result = slot.result;
    if (!slot.done && slot.begun) {
      result = {};
      result.expect(problems[i].driver + ".deadline", Kind::kCommunication, false, [&] {
        return fmt::format("the case ran past its deadline of {} s",
                           std::chrono::duration<double>(options.deadline).count());
      });
    } else if (!slot.done) {
      result = {};
      result.skip("not begun: an earlier case ran past its deadline");
    }
    report.runs.push_back({problems[i], std::move(result)});
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.detach();
  return report;
}

std::map<Status, int> count_statuses(const Report& report) {
  std::map<Status, int> counts;
  for (const Status status : kStatuses) counts[status] = 0;
  for (const CaseRun& run : report.runs) ++counts[run.result.status()];
  return counts;
}

std::string summary_line(const Report& report) {
  std::map<Status, int> counts = count_statuses(report);
  return fmt::format("tests:{} passed:{} failed:{} mistrusted:{} skipped:{} invalid:{}",
                     report.runs.size(), counts[Status::kPassed], counts[Status::kFailed],
                     counts[Status::kMistrusted], counts[Status::kSkipped],
                     counts[Status::kInvalid]);
}

int exit_code(const Report& report, bool allow_mistrusted) {
  std::map<Status, int> counts = count_statuses(report);
  if (counts[Status::kFailed] + counts[Status::kInvalid] > 0) return 1;
  if (!allow_mistrusted && counts[Status::kMistrusted] > 0) return 1;
  // Nothing checked is nothing proved.
  return counts[Status::kPassed] + counts[Status::kMistrusted] > 0 ? 0 : 1;
}

std::string failed_list(const Report& report) {
  constexpr int kShown = 10;
  std::string text;
  int bad = 0;
  for (const CaseRun& run : report.runs) {
    if (!is_bad(run.result.status()) || bad++ >= kShown) continue;
    const std::string check =
        run.result.findings().empty() ? "" : " " + run.result.findings().front().check;
    text += fmt::format("{}{}: {}\n  repeat: {}\n", to_string(run.result.status()), check,
                        run.result.reason(), print_command(run.problem));
  }
  if (bad > kShown) text += fmt::format("and {} more\n", bad - kShown);
  return text;
}

std::string coverage_table(const Report& report) {
  std::string text = fmt::format("{:<10} {:>6} {:>7} {:>7} {:>11}  {}\n", "driver", "cases",
                                 "passed", "checks", "mistrusted", "CP sizes");
  for (const Driver* driver : drivers()) {
    const auto coverage = coverage_of(report);
    const auto found = coverage.find(std::string(driver->name));
    if (found == coverage.end()) continue;
    DriverCoverage here = found->second;
    text += fmt::format("{:<10} {:>6} {:>7} {:>7} {:>11}  {}\n", driver->name, here.cases,
                        here.statuses[Status::kPassed], here.checks.size(),
                        here.statuses[Status::kMistrusted],
                        here.cp_sizes.empty() ? "from the schedule" : sizes_text(here.cp_sizes));
  }
  return text;
}

std::string escape_markup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // Control characters other than line ends are not allowed in XML.
        result += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return result;
}

std::string to_junit(const Report& report) {
  std::map<Status, int> counts = count_statuses(report);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" "
      "tests=\"{}\" "
      "failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n",
      escape_markup(report.title), report.runs.size(),
      counts[Status::kFailed] + counts[Status::kMistrusted], counts[Status::kInvalid],
      counts[Status::kSkipped]);
  for (const CaseRun& run : report.runs) {
    const Status status = run.result.status();
    text +=
        fmt::format("<testcase classname=\"dyncp.{}\" name=\"{}\"",
                    escape_markup(run.problem.driver), escape_markup(print_command(run.problem)));
    if (status == Status::kPassed) {
      text += "/>\n";
      continue;
    }
    const char* element = status == Status::kSkipped   ? "skipped"
                          : status == Status::kInvalid ? "error"
                                                       : "failure";
    text += fmt::format(">\n<{} message=\"{}: {}\">", element, to_string(status),
                        escape_markup(run.result.reason()));
    for (const Finding& finding : run.result.findings()) {
      text += fmt::format("{} ({}): {}\n", escape_markup(finding.check), to_string(finding.kind),
                          escape_markup(finding.message));
    }
    text += fmt::format("</{}>\n</testcase>\n", element);
  }
  return text + "</testsuite>\n</testsuites>\n";
}

std::string to_json_text(const Report& report) {
  json runs = json::array();
  for (const CaseRun& run : report.runs) {
    json findings = json::array();
    for (const Finding& finding : run.result.findings()) {
      findings.push_back({{"check", finding.check},
                          {"kind", to_string(finding.kind)},
                          {"message", finding.message}});
    }
    runs.push_back({{"driver", run.problem.driver},
                    {"command", print_command(run.problem)},
                    {"status", to_string(run.result.status())},
                    {"reason", run.result.reason()},
                    {"checks", run.result.checks_run()},
                    {"findings", std::move(findings)},
                    {"details", run.result.details()}});
  }
  json counts;
  for (const auto& [status, count] : count_statuses(report)) {
    counts[std::string(to_string(status))] = count;
  }
  return json{{"title", report.title},       {"summary", summary_line(report)},
              {"counts", std::move(counts)}, {"notes", report.notes},
              {"left_out", report.left_out}, {"runs", std::move(runs)}}
             .dump(1, ' ', true, json::error_handler_t::replace) +
         "\n";
}

std::string to_html(const Report& report) {
  std::map<Status, int> counts = count_statuses(report);
  const int bad = counts[Status::kFailed] + counts[Status::kInvalid];
  const char* colour = bad > 0 ? "bad" : (counts[Status::kMistrusted] > 0 ? "warn" : "good");
  std::string page = fmt::format(kPageHead, escape_markup(report.title));
  page += fmt::format("<p class=\"verdict {}\">{}</p>\n", colour, summary_line(report));
  for (const std::string& note : report.notes) page += "<p>" + escape_markup(note) + "</p>\n";

  page +=
      "<h2>What was checked</h2>\n<table><thead><tr><th>driver</th><th class=\"number\">cases</th>";
  for (const Status status : kStatuses) {
    page += fmt::format("<th class=\"number\">{}</th>", to_string(status));
  }
  page += "<th>CP sizes</th></tr></thead><tbody>\n";
  for (auto& [name, driver] : coverage_of(report)) {
    page += fmt::format("<tr><td>{}</td><td class=\"number\">{}</td>", escape_markup(name),
                        driver.cases);
    for (const Status status : kStatuses) {
      page += fmt::format("<td class=\"number\">{}</td>", driver.statuses[status]);
    }
    page +=
        fmt::format("<td>{}</td></tr>\n",
                    driver.cp_sizes.empty() ? "from the schedule" : sizes_text(driver.cp_sizes));
  }
  page +=
      "</tbody></table>\n<h2>Checks</h2>\n<table><thead><tr><th>check</th><th "
      "class=\"number\">cases "
      "that ran it</th></tr></thead><tbody>\n";
  std::map<std::string, int> checks;
  for (const CaseRun& run : report.runs) {
    for (const std::string& check : run.result.checks_run()) ++checks[check];
  }
  for (const auto& [check, count] : checks) {
    page += fmt::format("<tr><td><code>{}</code></td><td class=\"number\">{}</td></tr>\n",
                        escape_markup(check), count);
  }
  page += "</tbody></table>\n<h2>What was not checked</h2>\n";
  if (report.left_out.empty()) page += "<p>Nothing was left out.</p>\n";
  if (!report.left_out.empty()) page += "<ul>\n";
  for (const std::string& line : report.left_out) page += "<li>" + escape_markup(line) + "</li>\n";
  if (!report.left_out.empty()) page += "</ul>\n";

  const auto cases = [&](const char* heading, auto wanted, std::size_t most) {
    std::size_t shown = 0, total = 0;
    std::string rows;
    for (const CaseRun& run : report.runs) {
      if (!wanted(run.result.status())) continue;
      if (total++ >= most) continue;
      ++shown;
      rows += fmt::format(
          "<tr><td>{}</td><td>{}<details><summary>repeat</summary><code>{}</code>"
          "</details></td></tr>\n",
          to_string(run.result.status()), escape_markup(run.result.reason()),
          escape_markup(print_command(run.problem)));
    }
    if (total == 0) return;
    page += fmt::format(
        "<h2>{} ({} of {} shown)</h2>\n<table><thead><tr><th>status</th><th>why</th></tr>"
        "</thead><tbody>\n{}</tbody></table>\n",
        heading, shown, total, rows);
  };
  cases("Failed cases", is_bad, 200);
  cases(
      "Cases that prove nothing or were not run",
      [](Status s) { return s == Status::kMistrusted || s == Status::kSkipped; }, 50);

  page += "<h2>Every case</h2>\n<details><summary>Show all</summary><table><tbody>\n";
  for (const CaseRun& run : report.runs) {
    page += fmt::format("<tr><td>{}</td><td><code>{}</code></td></tr>\n",
                        to_string(run.result.status()),
                        escape_markup(shorten(print_command(run.problem))));
  }
  return page + "</tbody></table></details>\n</body></html>\n";
}

}  // namespace dyncp
