// `dyncp list WHAT`: what there is, by name. docs/list.md.
#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>

#include "cli/commands.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/check.h"
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

Tier tier_of(const std::string& name) {
  if (name == "smoke") return Tier::kSmoke;
  if (name == "ci") return Tier::kCi;
  if (name == "full") return Tier::kFull;
  throw InvalidInput("unknown tier '" + name + "': expected smoke, ci or full");
}

// The rules of a schedule, and every check that the smoke cases really run.
void list_properties() {
  for (const ScheduleRule rule : all_schedule_rules())
    print_row(to_string(rule), "rule of a schedule");
  const std::vector<LengthSet> sets = fixture_length_sets();
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) continue;
    std::set<std::string> checks;
    for (const Problem& problem : driver->gate_cases(Tier::kSmoke, sets, 1)) {
      const CaseResult result = run_case(problem);
      checks.insert(result.checks_run().begin(), result.checks_run().end());
    }
    for (const std::string& check : checks) {
      print_row(check, "check of driver " + std::string(driver->name));
    }
  }
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
    const std::vector<LengthSet> sets = fixture_length_sets();
    for (const Driver* driver : drivers()) {
      if (driver->gate_cases == nullptr) continue;
      for (const Problem& problem : driver->gate_cases(tier_of(tier), sets, 1)) {
        say("{}\n", print_command(problem));
      }
    }
  } else if (what == "properties") {
    list_properties();
  } else {
    throw InvalidInput("nothing is called '" + what +
                       "': expected drivers, schedulers, distributions, cases or properties");
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
  command->add_option("--tier", options->tier, "of cases: smoke, ci or full")->type_name("(smoke)");
  command->callback([options, &exit_code] { exit_code = list(options->what, options->tier); });
}

}  // namespace dyncp
