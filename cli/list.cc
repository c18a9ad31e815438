// `dyncp list WHAT`: what there is, by name. docs/list.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/case_options.h"
#include "cli/commands.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/fixtures.h"
#include "runtime/lengths.h"
#include "runtime/problem.h"
#include "runtime/report.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

void print_row(std::string_view name, std::string_view summary) {
  say("{:<26} {}\n", name, summary);
}

// What a rule says. A switch without default: a new rule does not compile without its line.
std::string_view summary_of(ScheduleRule rule) {
  switch (rule) {
    case ScheduleRule::kExactlyOnce:
      return "every sequence of non-zero length is run exactly once";
    case ScheduleRule::kUnknownSequence:
      return "every sequence id is one of the problem's";
    case ScheduleRule::kRankHasWork:
      return "every rank runs something in every microbatch";
    case ScheduleRule::kOneGroupPerRank:
      return "a rank is in at most one CP group of a microbatch";
    case ScheduleRule::kIdenticalLists:
      return "members of a group hold identical ordered lists";
    case ScheduleRule::kConsecutiveRanks:
      return "the ranks that share a sequence are consecutive";
    case ScheduleRule::kSizeAllowed:
      return "the size of a group is in the group table";
    case ScheduleRule::kGroupAligned:
      return "the first rank of a group is a multiple of its size, where the policy asks for it";
    case ScheduleRule::kGroupExists:
      return "the group lies in the domain and is in the group table";
    case ScheduleRule::kEmptyPack:
      return "no group is without sequences";
    case ScheduleRule::kCapacity:
      return "tokens a rank, padding included, are at most the capacity";
    case ScheduleRule::kMaxSequences:
      return "at most so many sequences are in a pack";
    case ScheduleRule::kMicrobatchMultiple:
      return "the number of microbatches is the asked-for multiple";
  }
  return "";
}

// The cases of a tier on the shipped length sets, driver by driver.
std::vector<Case> gate_cases(Tier tier) {
  constexpr std::uint64_t kSeed = 1;  // that of dyncp gate
  const std::vector<LengthSet> sets = fixture_length_sets();
  std::vector<Case> cases;
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) continue;
    for (Case& one : make_cases(driver->gate_cases(tier, sets, kSeed))) {
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

// The rules of a schedule, and every check that the cases of a tier really run.
void list_properties(Tier tier) {
  for (const ScheduleRule rule : all_schedule_rules()) {
    print_row(to_string(rule), fmt::format("rule of a schedule: {}", summary_of(rule)));
  }
  RunOptions options;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Report report = run_cases(gate_cases(tier), options);
  for (const DriverSummary& summary : summarize(report)) {
    for (const auto& [check, cases] : summary.checks) {
      print_row(check, fmt::format("check of driver {}: in {} of its {} cases", summary.name, cases,
                                   summary.counts.tests));
    }
  }
  leave_if_abandoned(report, 1);
}

int list(const std::string& what, const std::string& tier) {
  if (what == "drivers") {
    for (const Driver* driver : drivers()) print_row(driver->name, driver->summary);
  } else if (what == "schedulers") {
    for (const Scheduler* scheduler : schedulers()) {
      const bool is_default = scheduler->name() == kDefaultScheduler;
      print_row(scheduler->name(),
                std::string(scheduler->summary()) + (is_default ? " (the default)" : ""));
    }
  } else if (what == "distributions") {
    for (const LengthFamily& family : length_families()) print_row(family.name, family.summary);
  } else if (what == "cases") {
    for (const Case& one : gate_cases(parse_tier(tier))) say("{}\n", one.command);
  } else if (what == "properties") {
    list_properties(parse_tier(tier));
  } else {
    throw InvalidInput(fmt::format(
        "list {}: expected drivers, schedulers, distributions, cases or properties", quote(what)));
  }
  return 0;
}

}  // namespace

void add_list_command(CLI::App& app, int& exit_code) {
  struct Options {
    std::string what;
    std::string tier = "smoke";
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("list", "List drivers, schedulers, distributions, cases or properties");
  command
      ->add_option("what", options->what,
                   "drivers | schedulers | distributions | cases | properties")
      ->required();
  command->add_option("--tier", options->tier, "of cases and properties: smoke, ci or full")
      ->type_name("TIER (smoke)");
  command->callback([options, &exit_code] { exit_code = list(options->what, options->tier); });
}

}  // namespace dyncp
