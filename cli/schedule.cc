// `dyncp schedule`: one batch through one scheduler, checked and priced; or, with --compare,
// several schedulers over length sets and rank domains. docs/schedule.md.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/case_options.h"
#include "cli/commands.h"
#include "cli/cost_options.h"
#include "reference/cost.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/files.h"
#include "runtime/fixtures.h"
#include "runtime/lengths.h"
#include "runtime/schedule_compare.h"
#include "runtime/schedule_format.h"
#include "runtime/schedulers/static_best.h"
#include "runtime/timeline.h"
#include "runtime/tuned_scheduler.h"

namespace dyncp {
namespace {

// Lengths drawn where a file describes a distribution.
constexpr std::int64_t kDrawn = 1024;

struct Options {
  ProblemWords words;
  Problem problem;  // from the words; without --lengths and --ranks, which --compare reads as lists
  CostOptions cost;
  std::string json;   // "-" = standard output, instead of the table
  std::string trace;  // Chrome trace
  // --compare
  std::string compare;
  std::vector<std::string> lengths;
  std::vector<int> ranks;
  std::int64_t per_rank = 8;
  int draws = 20;
  std::string html;
};

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

int compare(const Options& options) {
  CompareOptions request;
  if (options.compare == "all") {
    for (const Scheduler* scheduler : schedulers()) {
      request.schedulers.emplace_back(scheduler->name());
    }
  } else {
    request.schedulers = split_names(options.compare);
  }
  request.prototype = options.problem.schedule_problem();
  for (const std::string& value : options.lengths) {
    const std::string name = value.substr(value.rfind('/') + 1);
    request.sets.push_back({name.substr(0, name.rfind('.')),
                            lengths_from_option(value, kDrawn, options.problem.seed)});
  }
  if (request.sets.empty()) request.sets = fixture_length_sets();
  request.ranks = options.ranks.empty() ? std::vector<int>{options.problem.ranks} : options.ranks;
  request.sequences_per_rank = options.per_rank;
  if (options.per_rank < 0) throw InvalidInput("--per-rank must be 0 or more");
  request.draws = options.draws;
  request.seed = options.problem.seed;
  const DyncpOptions tuning = options.cost.parse();
  request.cost = tuning.cost;
  request.cost_name = options.cost.cost;
  request.effort = tuning.effort;
  const Comparison comparison = compare_schedulers(request);
  if (!options.json.empty() && options.json != "-") {
    write_file(options.json, comparison_to_json(comparison));
  }
  if (!options.html.empty()) write_file(options.html, comparison_to_html(comparison));
  say("{}", options.json == "-" ? comparison_to_json(comparison) : format_comparison(comparison));
  return 0;
}

double over(double time, double base) { return base > 0 ? time / base : 1.0; }

// What static CP would take. Only pack execution: neither baseline knows another.
void tell_static_rivals(ScheduleProblem problem, double makespan, const DyncpOptions& tuning) {
  problem.execution = Execution::kPack;
  for (const char* name : {"static-packing", "static-best"}) {
    const auto rival = tuned_scheduler(name, tuning);
    if (is_tunable(*rival) && problem.lengths.size() > kQuickStaticBest) continue;
    std::string said = "has no valid schedule";
    try {
      const Schedule fixed = rival->schedule(problem);
      if (check_schedule(problem, fixed).empty()) {
        const double time = simulated_makespan(problem, fixed, tuning.cost, tuning.barrier);
        said = fmt::format("{:.0f} us, {:.3f} times as long", time, over(time, makespan));
      }
    } catch (const Infeasible&) {
      // It has no answer here.
    }
    say("beside it {} (one CP size for the batch): {}\n", name, said);
  }
}

nlohmann::json certificate_of(const ScheduleQuality& quality, const CostOptions& options) {
  return {{"makespan", quality.makespan},
          {"lower_bound", quality.lower_bound},
          {"ratio", over(quality.makespan, quality.lower_bound)},
          {"cost", options.cost},
          {"barrier", options.barrier}};
}

int schedule(const Options& options) {
  const DyncpOptions tuning = options.cost.parse();
  const ScheduleProblem problem = options.problem.schedule_problem();
  const auto scheduler = tuned_scheduler(
      options.problem.scheduler.empty() ? kDefaultScheduler : options.problem.scheduler, tuning);
  const Schedule answer = scheduler->schedule(problem);
  const std::vector<Violation> violations = check_schedule(problem, answer);
  ScheduleQuality quality;
  nlohmann::json json = schedule_to_json(problem, answer);
  if (violations.empty()) {
    quality = schedule_quality(problem, answer, tuning.cost, tuning.barrier);
    json["certificate"] = certificate_of(quality, options.cost);
  }
  const bool json_only = options.json == "-";
  if (json_only) {
    say("{}\n", json.dump());
  } else {
    say("{}: {}\n{}", scheduler->name(), scheduler->summary(),
        format_schedule_table(problem, answer));
    const std::string text = json.dump();
    constexpr std::size_t kShort = 4096;  // bytes that a person still reads
    if (text.size() <= kShort) say("{}\n", text);
    if (!options.json.empty()) write_file(options.json, text + "\n");
  }
  if (!violations.empty()) {
    for (const Violation& violation : violations) {
      if (json_only) {
        std::fputs(fmt::format("VIOLATION {}: {}\n", to_string(violation.rule), violation.sentence)
                       .c_str(),
                   stderr);
      } else {
        say("VIOLATION {}: {}\n", to_string(violation.rule), violation.sentence);
      }
    }
    return 1;
  }
  if (!options.trace.empty()) {
    write_file(options.trace, chrome_trace(problem, answer, tuning.cost, tuning.barrier));
  }
  if (json_only) return 0;
  say("valid; makespan {:.0f} us, lower bound {:.0f} us, ratio {:.3f} (cost model {}, barrier {}: "
      "simulated)\n",
      quality.makespan, quality.lower_bound, over(quality.makespan, quality.lower_bound),
      options.cost.cost, options.cost.barrier);
  say("idle {:.1f} %, padding {:.1f} %, efficiency {:.3f} (Megatron's figure: quadratic work "
      "only)\n",
      quality.idle_share * 100, quality.padding_waste * 100, quality.efficiency);
  tell_static_rivals(problem, quality.makespan, tuning);
  return 0;
}

}  // namespace

void add_schedule_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "schedule", "Schedule one batch, check and price it; or compare schedulers");
  options->words.add_options(*command, schedule_driver(), {"lengths", "ranks"});
  command
      ->add_option(
          "--lengths", options->lengths,
          "lengths in tokens: 7,3,0 or a length file; with --compare repeatable (default: the "
          "shipped sets)")
      ->type_name("LIST|FILE");
  command->add_option("--ranks", options->ranks, "ranks of the domain; with --compare a list")
      ->delimiter(',')
      ->type_name("(8)");
  options->cost.add_options(*command);
  command->add_option("--json", options->json, "write JSON; without FILE instead of the table")
      ->expected(0, 1)
      ->default_str("-")
      ->type_name("[FILE]");
  command->add_option("--trace", options->trace, "write a Chrome trace (opens in Perfetto)")
      ->type_name("FILE");
  command->add_option("--compare", options->compare, "all, or schedulers separated by commas")
      ->type_name("NAMES");
  command
      ->add_option("--per-rank", options->per_rank,
                   "with --compare: sequences a rank and draw; 0 = each set as one batch")
      ->type_name("(8)");
  command->add_option("--draws", options->draws, "with --compare: draws a cell")->type_name("(20)");
  command->add_option("--html", options->html, "with --compare: write a self-contained page")
      ->type_name("FILE");
  CLI::Option* json = command->get_option("--json");
  command->callback([options, json, &exit_code] {
    if (json->count() > 0 && options->json.empty()) options->json = "-";
    options->problem = parse_arguments(schedule_driver(), options->words.words());
    if (!options->ranks.empty()) {
      find_problem_option("ranks").set(options->problem, std::to_string(options->ranks.front()));
    }
    if (!options->compare.empty()) {
      exit_code = compare(*options);
      return;
    }
    if (!options->html.empty()) throw InvalidInput("--html goes with --compare");
    if (options->lengths.size() != 1) throw InvalidInput("schedule needs one --lengths");
    if (options->ranks.size() > 1) throw InvalidInput("several --ranks go with --compare");
    find_problem_option("lengths").set(options->problem, options->lengths.front());
    exit_code = schedule(*options);
  });
}

}  // namespace dyncp
