// `dyncp gate`: every driver on real length data, one exit code. docs/gate.md.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
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
  bool allow_mistrusted = false;
  RunSettings run;
  ReportFiles files;
};

std::vector<LengthSet> length_sets(const Options& options) {
  if (options.lengths.empty()) return fixture_length_sets();
  constexpr std::int64_t kDrawn = 1024;  // where a file describes a distribution
  std::vector<LengthSet> sets;
  for (const std::string& value : options.lengths) {
    sets.push_back({value, lengths_from_option(value, kDrawn, options.seed)});
    require_valid_lengths(sets.back().lengths);
    if (sets.back().lengths.empty()) {
      throw InvalidInput(value + ": has no length, expected at least one");
    }
  }
  return sets;
}

// The command that repeats this run.
std::string title_of(const Options& options) {
  std::vector<std::string> words = {"dyncp", "gate", "--tier", options.tier};
  words.insert(words.end(), {"--seed", std::to_string(options.seed)});
  for (const std::string& lengths : options.lengths) {
    words.insert(words.end(), {"--lengths", lengths});
  }
  if (options.allow_mistrusted) words.emplace_back("--allow-mistrusted");
  return join_words(words);
}

// What to do with the answer: repeat the first failure, or look further.
std::string next_command(const Report& report, Tier tier) {
  for (const Status wanted : {Status::kFailed, Status::kInvalid, Status::kMistrusted}) {
    if (wanted == Status::kMistrusted && !report.mistrusted_fails) break;
    for (const CaseRun& run : report.runs) {
      if (run.result.status() == wanted) return run.command;
    }
  }
  if (tier == Tier::kSmoke) return "dyncp gate --tier ci";
  if (tier == Tier::kCi) return "ci/test, or dyncp gate --tier full";
  return "ci/test";
}

int gate(const Options& options) {
  const Tier tier = parse_tier(options.tier);
  options.run.require_valid();
  options.files.require_writable();
  const std::vector<LengthSet> sets = length_sets(options);
  std::vector<LeftOut> left_out = left_out_here();
  if (tier != Tier::kFull) {
    left_out.push_back({"Cases of larger tiers", tier == Tier::kSmoke
                                                     ? "--tier smoke; --tier ci and full run more"
                                                     : "--tier ci; --tier full runs more"});
  }
  std::vector<Case> cases;
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) {
      left_out.push_back({fmt::format("Driver {}", driver->name), "not in this build"});
      continue;
    }
    for (Case& one : make_cases(driver->gate_cases(tier, sets, options.seed))) {
      cases.push_back(std::move(one));
    }
  }
  const std::string title = title_of(options);
  say("{}: {} cases\n", title, cases.size());
  for (const LengthSet& set : sets) {
    const LengthFigures figures = figures_of(set);
    say("  {:<28} {:>7} lengths of {} to {} tokens, median {}\n", set.name, figures.count,
        figures.shortest, figures.longest, figures.median);
  }
  say("\n");

  Report report = run_and_tell(std::move(cases), options.run);
  report.title = title;
  report.mistrusted_fails = !options.allow_mistrusted;
  report.left_out = std::move(left_out);
  report.length_sets = sets;

  say("{}\n", coverage_table(report));
  for (const LeftOut& entry : report.left_out) say("not checked: {} - {}\n", entry.what, entry.why);
  say("{}{}", failed_list(report), not_checked_list(report));
  options.files.write(report);
  const int code = exit_code(report);
  say("{}; next: {}\n", code == 0 ? "all held" : "not all held", next_command(report, tier));
  say("{}\n", summary_line(report));
  leave_if_abandoned(report, code);
  return code;
}

}  // namespace

void add_gate_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("gate", "Run every driver on real lengths; one exit code");
  command
      ->add_option("--tier", options->tier, "smoke (seconds), ci (minutes) or full; default smoke")
      ->type_name("TIER");
  command
      ->add_option("--lengths", options->lengths,
                   "lengths to use instead of the shipped sets; repeatable")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("LIST|FILE");
  command->add_option("--seed", options->seed, "seed of all draws (1)")->type_name("N");
  command->add_flag("--allow-mistrusted", options->allow_mistrusted,
                    "cases that could not have failed do not fail the gate");
  options->run.add_options(*command);
  options->files.add_options(*command);
  command->callback([options, &exit_code] { exit_code = gate(*options); });
}

}  // namespace dyncp
