#include "cli/case_options.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "runtime/files.h"

namespace dyncp {

void add_problem_options(CLI::App& command, const std::vector<std::string_view>& names,
                         Problem& problem) {
  for (const std::string_view name : names) {
    const ProblemOption& option = find_problem_option(name);
    const std::string flag = "--" + std::string(name);
    if (option.flag) {
      command.add_flag_callback(
          flag, [&option, &problem] { option.set(problem, "1"); }, std::string(option.help));
      continue;
    }
    const std::string fallback = option.text(Problem{});
    command
        .add_option_function<std::string>(
            flag, [&option, &problem](const std::string& text) { option.set(problem, text); },
            std::string(option.help))
        ->type_name(fallback.empty() ? "VALUE" : "(" + fallback + ")");
  }
}

void ReportFiles::add_options(CLI::App& command) {
  command.add_option("--junit", junit, "write a JUnit XML file")->type_name("FILE");
  command.add_option("--json", json, "write a JSON file")->type_name("FILE");
  command.add_option("--html", html, "write a self-contained HTML page")->type_name("FILE");
}

void ReportFiles::write(const Report& report) const {
  if (!junit.empty()) write_file(junit, to_junit(report));
  if (!json.empty()) write_file(json, to_json_text(report));
  if (!html.empty()) write_file(html, to_html(report));
}

std::vector<std::string> left_out_here() {
  std::vector<std::string> lines;
  lines.emplace_back("CUDA kernels and GPUs: no part of this build runs on them");
  lines.emplace_back("multi-rank training runs: ranks are simulated in one thread");
  return lines;
}

void leave_if_abandoned(const Report& report, int exit_code) {
  if (!report.abandoned) return;
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(exit_code);
}

}  // namespace dyncp
