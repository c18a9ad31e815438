// `dyncp gate`: every driver on real length data, one exit code. docs/gate.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/case_options.h"
#include "cli/commands.h"
#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/fixtures.h"
#include "runtime/lengths.h"
#include "runtime/report.h"

namespace dyncp {
namespace {

struct Options {
  std::string tier = "smoke";
  std::vector<std::string> lengths;  // files, instead of the fixtures
  std::uint64_t seed = 1;
  double deadline_s = 30;
  bool allow_mistrusted = false;
  ReportFiles files;
};

Tier parse_tier(const std::string& name) {
  if (name == "smoke") return Tier::kSmoke;
  if (name == "ci") return Tier::kCi;
  if (name == "full") return Tier::kFull;
  throw InvalidInput("unknown tier '" + name + "': expected smoke, ci or full");
}

std::vector<LengthSet> length_sets(const Options& options) {
  if (options.lengths.empty()) return fixture_length_sets();
  std::vector<LengthSet> sets;
  for (const std::string& path : options.lengths) {
    sets.push_back({path, lengths_from_option(path)});
  }
  return sets;
}

int gate(const Options& options) {
  const Tier tier = parse_tier(options.tier);
  if (options.deadline_s <= 0) throw InvalidInput("--deadline must be above 0 seconds");
  const std::vector<LengthSet> sets = length_sets(options);
  std::vector<Problem> problems;
  std::string names;
  std::size_t lengths = 0;
  for (const LengthSet& set : sets) {
    names += (names.empty() ? "" : ", ") + set.name;
    lengths += set.lengths.size();
  }
  std::vector<std::string> left_out = left_out_here();
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) {
      left_out.push_back("driver " + std::string(driver->name) + ": not built");
      continue;
    }
    const std::vector<Problem> cases = driver->gate_cases(tier, sets, options.seed);
    problems.insert(problems.end(), cases.begin(), cases.end());
  }
  say("dyncp gate --tier {} --seed {}: {} cases on {} lengths of {}\n", options.tier, options.seed,
      problems.size(), lengths, names);

  const bool terminal = isatty(STDOUT_FILENO) != 0;
  RunOptions run_options;
  run_options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  run_options.deadline = std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(options.deadline_s, 1e9) * 1000));
  run_options.on_done = [&](const CaseRun& run, std::size_t done, std::size_t total) {
    if (terminal && (done % 20 == 0 || done == total)) {
      say("\r{}/{} {:<10}", done, total, run.problem.driver);
      if (done == total) say("\r{:<40}\r", "");
      std::fflush(stdout);
    }
  };
  Report report = run_cases(problems, run_options);
  report.title = "dyncp gate --tier " + options.tier;
  report.left_out = left_out;
  report.notes = {fmt::format("Seed {}; {} lengths of {}.", options.seed, lengths, names)};

  say("\n{}\n", coverage_table(report));
  for (const std::string& line : left_out) say("not checked: {}\n", line);
  const std::string failed = failed_list(report);
  if (!failed.empty()) say("\n{}", failed);
  std::set<std::string> reasons;
  for (const CaseRun& run : report.runs) {
    if (run.result.status() != Status::kMistrusted || reasons.size() >= 5) continue;
    if (reasons.insert(run.result.reason()).second) {
      say("MISTRUSTED: {}\n  repeat: {}\n", run.result.reason(), print_command(run.problem));
    }
  }
  options.files.write(report);
  const int code = exit_code(report, options.allow_mistrusted);
  if (code == 0) {
    say("all held; next: {}\n", tier == Tier::kFull ? "dyncp check-scheduler NAME"
                                : tier == Tier::kCi ? "dyncp gate --tier full"
                                                    : "dyncp gate --tier ci");
  }
  say("{}\n", summary_line(report));
  leave_if_abandoned(report, code);
  return code;
}

}  // namespace

void add_gate_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("gate", "Run every driver on real lengths; one exit code");
  command->add_option("--tier", options->tier, "smoke (seconds), ci (minutes) or full")
      ->type_name("(smoke)");
  command
      ->add_option("--lengths", options->lengths,
                   "length file or list to use instead of the shipped sets; repeatable")
      ->type_name("FILE");
  command->add_option("--seed", options->seed, "seed of all draws")->type_name("(1)");
  command->add_option("--deadline", options->deadline_s, "seconds a case may take")
      ->type_name("(30)");
  command->add_flag("--allow-mistrusted", options->allow_mistrusted,
                    "cases that prove nothing do not fail the gate");
  options->files.add_options(*command);
  command->callback([options, &exit_code] { exit_code = gate(*options); });
}

}  // namespace dyncp
