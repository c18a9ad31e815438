// `dyncp check DRIVER`: runs cases of one driver, or judges tensors that another implementation
// recorded. docs/check.md.
#include "runtime/check.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
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
  ProblemWords problem;
  std::vector<std::string> sweeps;
  std::string batch;
  std::string candidate;
  RunSettings run;
  ReportFiles files;
};

// The case that judges a recorded file; its command names the file.
Case candidate_case(const Driver& driver, const std::string& path) {
  if (driver.judge == nullptr) {
    throw InvalidInput(fmt::format("driver {} judges no recorded tensors", driver.name));
  }
  auto file = std::make_shared<const Safetensors>(read_safetensors(path));
  const Problem problem = read_candidate(*file).problem;
  if (problem.driver != driver.name) {
    throw InvalidInput(fmt::format("{}: was recorded for check {}, expected {}", one_line(path),
                                   problem.driver, driver.name));
  }
  const std::vector<std::string> words = {"dyncp", "check", problem.driver, "--candidate", path};
  return {&driver, problem, join_words(words),
          [&driver, problem, file] { return driver.judge(problem, *file); }};
}

// The cases of the command line, and the command that repeats the whole run.
std::pair<std::vector<Case>, std::string> cases_of(const Driver* driver, const Options& options) {
  std::vector<std::string> command = {"dyncp", "check"};
  if (driver != nullptr) command.emplace_back(driver->name);
  const std::vector<std::string> words =
      driver == nullptr ? std::vector<std::string>() : options.problem.words();
  const bool from_file = !options.batch.empty() || !options.candidate.empty();
  if (from_file && !(words.empty() && options.sweeps.empty())) {
    throw InvalidInput(
        fmt::format("{} takes its problem from the file, expected no option such as {}",
                    options.candidate.empty() ? "--batch" : "--candidate",
                    words.empty() ? "--sweep" : one_line(words.front(), 40)));
  }
  if (!options.batch.empty() && !options.candidate.empty()) {
    throw InvalidInput("--batch and --candidate exclude each other");
  }
  if (!options.candidate.empty()) {
    command.insert(command.end(), {"--candidate", options.candidate});
    return {{candidate_case(*driver, options.candidate)}, join_words(command)};
  }
  if (!options.batch.empty()) {
    command.insert(command.end(), {"--batch", options.batch});
    const std::vector<Problem> problems = read_batch(options.batch);
    if (problems.empty()) {
      throw InvalidInput(options.batch + ": has no case, expected lines such as: ring --cp 4 ...");
    }
    for (const Problem& problem : problems) {
      if (driver == nullptr || problem.driver == driver->name) continue;
      throw InvalidInput(
          fmt::format("{}: has a case of driver {}; run it with: dyncp check --batch",
                      one_line(options.batch), problem.driver));
    }
    return {make_cases(problems), join_words(command)};
  }
  if (driver == nullptr) {
    std::string names;
    for (const Driver* one : drivers()) names += fmt::format(", {}", one->name);
    throw InvalidInput("check needs a driver (" + names.substr(2) + ") or --batch FILE");
  }
  command.insert(command.end(), words.begin(), words.end());
  for (const std::string& sweep : options.sweeps) command.insert(command.end(), {"--sweep", sweep});
  return {make_cases(sweep_problems(*driver, words, options.sweeps)), join_words(command)};
}

int check(const Driver* driver, const Options& options) {
  options.run.require_valid();
  options.files.require_writable();
  auto [cases, command] = cases_of(driver, options);
  const bool single = cases.size() == 1;
  if (!options.candidate.empty()) say("recorded: {}\n", print_command(cases.front().problem));
  Report report = run_and_tell(std::move(cases), options.run);
  report.title = command;
  report.left_out = left_out_here();
  if (!single) say("{}{}", failed_list(report), not_checked_list(report));
  options.files.write(report);
  say("{}\n", summary_line(report));
  const int code = exit_code(report);
  leave_if_abandoned(report, code);
  if (!single) return code;
  // One problem and nothing to check about it: bad input (or an instance without an answer), or
  // something that is lacking here; not a failed check.
  const CaseRun& run = report.runs.front();
  if (run.ending == Ending::kUnavailable) throw Unavailable(run.result.reason());
  const Status status = run.result.status();
  if (status == Status::kInvalid || status == Status::kSkipped) {
    throw InvalidInput(run.result.reason());
  }
  return code;
}

void add_run_options(CLI::App& command, Options& options) {
  command.add_option("--batch", options.batch, "run the problem lines of a file")
      ->type_name("FILE");
  options.run.add_options(command);
  options.files.add_options(command);
}

}  // namespace

void add_check_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("check", "Run cases of one driver, or judge recorded tensors");
  command->require_subcommand(0, 1);
  const auto mixed = std::make_shared<Options>();  // without a driver: a batch of any
  add_run_options(*command, *mixed);
  command->allow_extras();  // taken for the name of a driver
  command->callback([command, mixed, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (const auto extras = command->remaining(); !extras.empty()) find_driver(extras.front());
    exit_code = check(nullptr, *mixed);
  });
  for (const Driver* driver : drivers()) {
    const auto options = std::make_shared<Options>();
    CLI::App* sub =
        command->add_subcommand(std::string(driver->name), std::string(driver->summary));
    options->problem.add_options(*sub, *driver);
    sub->add_option("--sweep", options->sweeps, "run every value: cp=1,2,4; repeat for a product")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("OPTION=V,V");
    if (driver->judge != nullptr) {
      sub->add_option("--candidate", options->candidate,
                      "judge recorded tensors instead (docs/candidates.md)")
          ->type_name("FILE");
    }
    add_run_options(*sub, *options);
    sub->callback([driver, options, &exit_code] { exit_code = check(driver, *options); });
  }
}

}  // namespace dyncp
