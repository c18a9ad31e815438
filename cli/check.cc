// `dyncp check DRIVER`: runs cases of one driver, or judges tensors that another implementation
// recorded. docs/check.md.
#include "runtime/check.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/case_options.h"
#include "cli/commands.h"
#include "reference/error.h"
#include "runtime/candidate.h"
#include "runtime/files.h"
#include "runtime/problem.h"
#include "runtime/report.h"

namespace dyncp {
namespace {

struct Options {
  Problem problem;
  std::vector<std::string> sweeps;  // "cp=1,2,4"
  std::string batch;
  std::string candidate;
  double deadline_s = 30;
  bool verbose = false;
  ReportFiles files;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Every combination of the swept values, the last sweep fastest.
std::vector<Problem> cross_product(const Driver& driver, const Problem& base,
                                   const std::vector<std::string>& sweeps) {
  std::vector<Problem> problems = {base};
  std::set<std::string> seen;
  for (const std::string& sweep : sweeps) {
    const std::size_t equals = sweep.find('=');
    if (equals == std::string::npos || equals + 1 == sweep.size()) {
      throw InvalidInput("--sweep '" + sweep + "': expected OPTION=VALUE,VALUE,... as in cp=1,2,4");
    }
    const std::string name = sweep.substr(0, equals);
    const ProblemOption& option = find_problem_option(name);
    if (std::find(driver.options.begin(), driver.options.end(), name) == driver.options.end()) {
      throw InvalidInput("driver " + std::string(driver.name) + " does not read --" + name);
    }
    if (name == "lengths" || name == "padded") {
      throw InvalidInput("--sweep '" + sweep + "': lists cannot be swept");
    }
    if (!seen.insert(name).second) throw InvalidInput("--" + name + " is swept twice");
    std::vector<Problem> next;
    for (const Problem& problem : problems) {
      for (const std::string& value : split(sweep.substr(equals + 1), ',')) {
        next.push_back(problem);
        option.set(next.back(), value);
      }
    }
    problems = std::move(next);
  }
  return problems;
}

// Problem lines of a file: '#' comments, and `--batch FILE` relative to it.
void read_batch(const std::string& path, int depth, std::vector<Problem>& problems) {
  if (depth > 8) throw InvalidInput("batch files are nested more than 8 deep at " + path);
  std::istringstream text(read_file(path));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
    try {
      if (line.rfind("--batch ", 0) == 0) {
        const std::size_t slash = path.rfind('/');
        const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
        read_batch(folder + line.substr(8), depth + 1, problems);
      } else {
        problems.push_back(parse_command(line));
      }
    } catch (const InvalidInput& error) {
      const std::string what = error.what();
      // The innermost file and line are the ones to mend.
      throw InvalidInput(what.rfind("batch ", 0) == 0
                             ? what
                             : "batch " + path + ":" + std::to_string(number) + ": " + what);
    }
  }
}

void print_case(const CaseRun& run) {
  for (const std::string& line : run.result.details()) say("  {}\n", line);
  for (const Finding& finding : run.result.findings()) {
    say("  FAILED {} ({}): {}\n", finding.check, to_string(finding.kind), finding.message);
  }
  const std::string reason = run.result.findings().empty() ? run.result.reason() : "";
  say("{}{}{}\n", to_string(run.result.status()), reason.empty() ? "" : ": ", reason);
  if (run.result.status() == Status::kPassed) {
    std::string checks;
    for (const std::string& check : run.result.checks_run()) checks += " " + check;
    say("checked:{}\n", checks);
  }
}

int judge(const Driver& driver, const Options& options) {
  if (driver.judge == nullptr) {
    throw InvalidInput("driver " + std::string(driver.name) + " judges no recorded tensors");
  }
  const Safetensors file = read_safetensors(options.candidate);
  const Problem problem = read_candidate(file).problem;
  if (problem.driver != driver.name) {
    throw InvalidInput(options.candidate + " was recorded for driver " + problem.driver + ", not " +
                       std::string(driver.name));
  }
  say("candidate: {}\ncase: {}\n", options.candidate, print_command(problem));
  Report report;
  report.title = "dyncp check " + std::string(driver.name) + " --candidate";
  report.runs.push_back({problem, driver.judge(problem, file)});
  print_case(report.runs.back());
  options.files.write(report);
  say("{}\n", summary_line(report));
  return exit_code(report, true);
}

int check(const Driver& driver, const Options& options) {
  if (!options.candidate.empty()) return judge(driver, options);
  std::vector<Problem> problems;
  if (!options.batch.empty()) {
    read_batch(options.batch, 0, problems);
  } else {
    problems = cross_product(driver, options.problem, options.sweeps);
  }
  if (options.deadline_s <= 0) throw InvalidInput("--deadline must be above 0 seconds");
  const bool in_full = problems.size() <= 4 || options.verbose;
  RunOptions run_options;
  run_options.deadline = std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(options.deadline_s, 1e9) * 1000));
  run_options.on_start = [&](const Problem& problem) {
    // Before the case runs: a crash must leave the command that repeats it.
    if (in_full) {
      say("run: {}\n", print_command(problem));
      std::fflush(stdout);
    }
  };
  run_options.on_done = [&](const CaseRun& run, std::size_t, std::size_t) {
    if (in_full) print_case(run);
  };
  Report report = run_cases(problems, run_options);
  report.title = "dyncp check " + std::string(driver.name);
  if (!in_full || report.abandoned) say("{}", failed_list(report));
  options.files.write(report);
  say("{}\n", summary_line(report));
  const int code = exit_code(report, true);
  leave_if_abandoned(report, code);
  return code;
}

}  // namespace

void add_check_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("check", "Run cases of one driver, or judge recorded tensors");
  command->require_subcommand(1);
  for (const Driver* driver : drivers()) {
    const auto options = std::make_shared<Options>();
    options->problem.driver = driver->name;
    CLI::App* sub =
        command->add_subcommand(std::string(driver->name), std::string(driver->summary));
    add_problem_options(*sub, driver->options, options->problem);
    sub->add_option("--sweep", options->sweeps, "run every value: cp=1,2,4; repeat for a product")
        ->type_name("OPTION=V,V");
    sub->add_option("--batch", options->batch, "run the problem lines of a file")
        ->type_name("FILE");
    if (driver->judge != nullptr) {
      sub->add_option("--candidate", options->candidate,
                      "judge recorded tensors instead (docs/candidates.md)")
          ->type_name("FILE");
    }
    sub->add_option("--deadline", options->deadline_s, "seconds a case may take (30)")
        ->type_name("SECONDS");
    sub->add_flag("-v,--verbose", options->verbose, "print every case in full");
    options->files.add_options(*sub);
    sub->callback([driver, options, &exit_code] { exit_code = check(*driver, *options); });
  }
}

}  // namespace dyncp
