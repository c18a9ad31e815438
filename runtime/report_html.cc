// The HTML page of runtime/report.h: one file, no script, nothing from elsewhere.
// Every table has a caption and header cells; a status is told in words, colour only repeats it.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/report.h"

namespace dyncp {
namespace {

constexpr std::size_t kMostFailed = 200;  // cases shown in full
constexpr std::size_t kMostOfAll = 2000;  // cases in the list of every case

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{0}</title>
<style>
:root {{ color-scheme: light dark; --line: #d0d3d8; --soft: #f3f4f6; --dim: #55595f;
  --good: #1a6b3c; --bad: #b3261e; --warn: #8a5800; }}
@media (prefers-color-scheme: dark) {{ :root {{ --line: #3c4047; --soft: #22252a; --dim: #a9aeb6;
  --good: #62c98d; --bad: #ff8a80; --warn: #f0b64e; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1.5rem; }}
h1 {{ font-size: 1.5rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .4rem; }}
p {{ margin: .4rem 0; }}
code {{ font: .875em/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }}
.verdict {{ border-left: .4rem solid; padding: .4rem .9rem; font-weight: 600;
  background: var(--soft); }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }} .warn {{ color: var(--warn); }}
.dim {{ color: var(--dim); }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: var(--dim); padding: .2rem 0 .4rem; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .35rem .9rem .35rem 0; text-align: left;
  vertical-align: top; }}
thead th {{ white-space: nowrap; }} tbody th {{ font-weight: 500; }}
.n {{ text-align: right; }}
article {{ border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .9rem;
  margin: .7rem 0; }}
pre {{ background: var(--soft); border-radius: .3rem; padding: .5rem .7rem; margin: .5rem 0 .2rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .875em/1.45 ui-monospace, monospace; }}
summary {{ cursor: pointer; }}
</style>
</head>
<body>
<main>
<h1><code>{0}</code></h1>
)";

// Opens a table in a region that scrolls by itself on a narrow screen; `columns` that begin with '#'
// hold numbers.
std::string open_table(std::string_view caption, const std::vector<std::string>& columns) {
  std::string text = fmt::format(
      "<div class=\"scroll\" role=\"region\" aria-label=\"{0}\" tabindex=\"0\">\n<table>\n"
      "<caption>{0}</caption>\n<thead><tr>",
      escape_markup(caption));
  for (const std::string& column : columns) {
    const bool number = column.front() == '#';
    text += fmt::format("<th scope=\"col\"{}>{}</th>", number ? " class=\"n\"" : "",
                        escape_markup(number ? column.substr(1) : column));
  }
  return text + "</tr></thead>\n<tbody>\n";
}

constexpr std::string_view kCloseTable = "</tbody>\n</table>\n</div>\n";

std::string number_cell(std::int64_t number, std::string_view colour = "") {
  const bool told = number != 0 && !colour.empty();
  return fmt::format("<td class=\"n{}{}\">{}</td>", told ? " " : "", told ? colour : "", number);
}

std::string text_cell(std::string_view text) {
  return fmt::format("<td>{}</td>", escape_markup(text));
}

// The sizes alone; how many cases each had stands in the JSON file.
std::string sizes_cell(const DriverSummary& summary) {
  std::string text;
  const auto add = [&](std::string_view label, const std::map<int, std::int64_t>& sizes) {
    if (sizes.empty()) return;
    text += fmt::format("{}{}", text.empty() ? "" : "; ", label);
    for (const auto& entry : sizes) text += fmt::format(" {}", entry.first);
  };
  add("CP", summary.cp_sizes);
  add("ranks", summary.rank_domains);
  return text_cell(text.empty() ? "-" : text);
}

std::string lengths_text(const DriverSummary& summary) {
  if (summary.sequences == 0) return "-";
  std::string text =
      fmt::format("{} sequence{} of {} to {} tokens", summary.sequences,
                  summary.sequences == 1 ? "" : "s", summary.shortest, summary.longest);
  if (!summary.cp_sizes.empty()) {
    text += fmt::format(
        ", {:.0f} % not a multiple of 2*size",
        100.0 * static_cast<double>(summary.unaligned) / static_cast<double>(summary.sequences));
  }
  return text;
}

// For tables; the JSON file has every command whole.
std::string shorten(const std::string& command) {
  constexpr std::size_t kLongest = 300;
  return command.size() <= kLongest ? command : command.substr(0, kLongest) + " ...";
}

std::string verdict(const Report& report) {
  const Counts counts = count_statuses(report);
  const bool bad = counts.failed + counts.invalid > 0;
  const bool good = exit_code(report) == 0 && counts.mistrusted == 0;
  std::string_view words = "Every check held.";
  if (bad) {
    words = "Not everything held.";
  } else if (counts.passed + counts.mistrusted == 0) {
    words = "Nothing was checked.";
  } else if (counts.mistrusted > 0) {
    words = "All held, but some cases could not have failed.";
  }
  return fmt::format("<p class=\"verdict {}\">{} Exit code {}.<br><code>{}</code></p>\n",
                     bad ? "bad" : (good ? "good" : "warn"), words, exit_code(report),
                     summary_line(report));
}

std::string drivers_section(const std::vector<DriverSummary>& summaries) {
  std::string page = "<h2>What was checked</h2>\n";
  page += open_table("Cases by driver and status, group sizes and lengths",
                     {"Driver", "#Cases", "#Passed", "#Failed", "#Mistrusted", "#Skipped",
                      "#Invalid", "Group sizes", "Lengths"});
  for (const DriverSummary& summary : summaries) {
    const Counts& counts = summary.counts;
    page += fmt::format("<tr><th scope=\"row\">{}</th>", escape_markup(summary.name));
    page += number_cell(counts.tests) + number_cell(counts.passed) +
            number_cell(counts.failed, "bad") + number_cell(counts.mistrusted, "warn") +
            number_cell(counts.skipped, "warn") + number_cell(counts.invalid, "bad");
    page += sizes_cell(summary) + text_cell(lengths_text(summary)) + "</tr>\n";
  }
  return page + std::string(kCloseTable);
}

std::string failed_section(const Report& report) {
  std::string cards;
  std::size_t bad = 0;
  for (const CaseRun& run : report.runs) {
    const Status status = run.result.status();
    if (status != Status::kFailed && status != Status::kInvalid) continue;
    if (++bad > kMostFailed) continue;
    cards += fmt::format("<article>\n<p><strong class=\"bad\">{}</strong> {}</p>\n",
                         to_string(status), escape_markup(run.driver->name));
    if (run.result.findings().empty()) {
      cards += fmt::format("<p>{}</p>\n", escape_markup(run.result.reason()));
    } else {
      cards += "<ul>\n";
      for (const Finding& finding : run.result.findings()) {
        cards += fmt::format("<li><code>{}</code> <span class=\"dim\">({})</span> {}</li>\n",
                             escape_markup(finding.check), to_string(finding.kind),
                             escape_markup(finding.message));
      }
      cards += "</ul>\n";
    }
    cards += fmt::format("<p class=\"dim\">Repeat with</p>\n<pre>{}</pre>\n</article>\n",
                         escape_markup(run.command));
  }
  if (bad == 0) return "<h2>Failing cases</h2>\n<p>None.</p>\n";
  std::string page = fmt::format("<h2>Failing cases ({})</h2>\n", bad);
  if (bad > kMostFailed) page += fmt::format("<p>The first {} of them.</p>\n", kMostFailed);
  return page + cards;
}

std::string not_checked_section(const Report& report, const std::vector<DriverSummary>& summaries) {
  std::string rows;
  for (const LeftOut& entry : report.left_out) {
    rows += "<tr>" + text_cell(entry.what) + text_cell(entry.why) +
            "<td class=\"n\">-</td><td>-</td></tr>\n";
  }
  for (const DriverSummary& summary : summaries) {
    for (const auto& [reason, entry] : summary.not_checked) {
      rows += "<tr>" + text_cell("Cases of " + summary.name) + text_cell(reason) +
              number_cell(entry.cases) +
              fmt::format("<td><code>{}</code></td></tr>\n", escape_markup(shorten(entry.command)));
    }
  }
  if (rows.empty()) return "<h2>What was not checked</h2>\n<p>Nothing was left out.</p>\n";
  return "<h2>What was not checked</h2>\n" +
         open_table("Left out, skipped, or run without the power to fail",
                    {"What", "Why", "#Cases", "First of them"}) +
         rows + std::string(kCloseTable);
}

std::string checks_section(const std::vector<DriverSummary>& summaries) {
  std::string page =
      "<h2>Checks</h2>\n" + open_table("Every check that ran", {"Check", "#Cases", "#Findings"});
  for (const DriverSummary& summary : summaries) {
    for (const auto& [check, cases] : summary.checks) {
      const auto findings = summary.findings.find(check);
      page += fmt::format(
          "<tr><th scope=\"row\"><code>{}</code></th>{}{}</tr>\n", escape_markup(check),
          number_cell(cases),
          number_cell(findings == summary.findings.end() ? 0 : findings->second, "bad"));
    }
  }
  return page + std::string(kCloseTable);
}

std::string lengths_section(const Report& report) {
  if (report.length_sets.empty()) return "";
  std::string page = "<h2>Lengths</h2>\n" +
                     open_table("The length sets the cases were drawn from, in tokens",
                                {"Set", "#Lengths", "#Shortest", "#Median", "#Longest", "#Total"});
  for (const LengthSet& set : report.length_sets) {
    const LengthFigures figures = figures_of(set);
    page += fmt::format("<tr><th scope=\"row\">{}</th>", escape_markup(set.name));
    for (const std::int64_t figure :
         {figures.count, figures.shortest, figures.median, figures.longest, figures.total}) {
      page += number_cell(figure);
    }
    page += "</tr>\n";
  }
  return page + std::string(kCloseTable);
}

std::string every_case_section(const Report& report) {
  std::string page = "<h2>Every case</h2>\n<details>\n<summary>Show the commands</summary>\n";
  page += open_table("Status and command of every case", {"Status", "Command"});
  std::size_t shown = 0;
  for (const CaseRun& run : report.runs) {
    if (shown++ == kMostOfAll) break;
    page += fmt::format("<tr><td>{}</td><td><code>{}</code></td></tr>\n",
                        to_string(run.result.status()), escape_markup(shorten(run.command)));
  }
  page += kCloseTable;
  if (report.runs.size() > kMostOfAll) {
    page += fmt::format("<p>And {} more, in the JSON file.</p>\n", report.runs.size() - kMostOfAll);
  }
  return page + "</details>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  const std::vector<DriverSummary> summaries = summarize(report);
  std::string page = fmt::format(kHead, escape_markup(report.title));
  page += verdict(report);
  page += drivers_section(summaries);
  page += failed_section(report);
  page += not_checked_section(report, summaries);
  page += lengths_section(report);
  page += checks_section(summaries);
  page += every_case_section(report);
  page += fmt::format("<p class=\"dim\">dyncp {}. Repeat this run with <code>{}</code></p>\n",
                      escape_markup(report.version), escape_markup(report.title));
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace dyncp
