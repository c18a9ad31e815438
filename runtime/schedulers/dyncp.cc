// Which search an instance gets, and what follows when it finds nothing.
#include "runtime/schedulers/dyncp.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/lower_bound.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp_exhaustive.h"
#include "runtime/schedulers/dyncp_fallback.h"
#include "runtime/schedulers/dyncp_search.h"
#include "runtime/schedulers/megatron_packing_aware.h"
#include "runtime/schedulers/static_best.h"

namespace dyncp {

std::string_view to_string(Effort effort) {
  switch (effort) {
    case Effort::kFast:
      return "fast";
    case Effort::kDefault:
      return "default";
    case Effort::kBest:
      return "best";
  }
  return "?";
}

Effort parse_effort(std::string_view name) {
  for (Effort effort : {Effort::kFast, Effort::kDefault, Effort::kBest}) {
    if (name == to_string(effort)) return effort;
  }
  throw InvalidInput("unknown effort '" + std::string(name) + "': expected fast, default or best");
}

namespace {

using nested::Instance;
using nested::Plan;
using nested::Tree;

// So few sequences are scheduled by exhaustive search.
constexpr int kExactItems = 7;
// Up to here no valid schedule is missed, whatever the group table.
constexpr int kFeasibilityItems = 10;
constexpr int kOptimumRanks = 6;
constexpr int kOptimumItems = 6;

// The instance with its sequences longest first, so that what is found for it does not depend on the
// order of the lengths. Its ids are items.
ScheduleProblem sorted_problem(const Instance& instance) {
  ScheduleProblem sorted = instance.problem();
  sorted.lengths.clear();
  for (int item = 0; item < instance.items(); ++item) {
    sorted.lengths.push_back(
        instance.problem().lengths[static_cast<std::size_t>(instance.id(item))]);
  }
  return sorted;
}

// A schedule of the items as one of the sequences.
Schedule with_ids(const Instance& instance, Schedule schedule) {
  for (Microbatch& microbatch : schedule.microbatches) {
    for (Assignment& assignment : microbatch) {
      for (int& sequence : assignment.sequences) sequence = instance.id(sequence);
    }
  }
  return schedule;
}

// The optimum of all schedules on any groups. REQUIRES: within the limits of find_optimum.
std::optional<Schedule> solve_any_groups(const Instance& instance, const DyncpOptions& options) {
  const auto optimum = find_optimum(sorted_problem(instance), options.cost, options.barrier);
  if (!optimum) return std::nullopt;
  return with_ids(instance, optimum->schedule);
}

// The optimum of all schedules on the trees. REQUIRES: few sequences.
std::optional<Schedule> solve_on_trees(const Instance& instance, const std::vector<Tree>& trees) {
  std::optional<Schedule> best;
  double least = nested::kInfinity;
  for (const Tree& tree : trees) {
    Plan plan(instance, tree);
    nested::Budget budget;
    if (!nested::solve_exactly(plan, budget) || plan.makespan() >= least) continue;
    least = plan.makespan();
    best = plan.schedule();
  }
  return best;
}

// Optimal, except on many ranks whose groups do not nest.
std::optional<Schedule> solve_small(const Instance& instance, const std::vector<Tree>& trees,
                                    const DyncpOptions& options) {
  const bool laminar = nested::is_laminar(instance);
  if (!laminar && instance.items() <= kOptimumItems && instance.ranks() <= kOptimumRanks) {
    return solve_any_groups(instance, options);
  }
  const bool few_rows = nested::has_few_rows(instance, kExactItems);
  if (options.barrier == Barrier::kMicrobatch && few_rows) {
    return nested::solve_rows(instance, trees);
  }
  auto schedule = solve_on_trees(instance, trees);
  if (!schedule && few_rows) schedule = nested::solve_rows(instance, trees);
  return schedule;
}

}  // namespace

DyncpScheduler::DyncpScheduler(const DyncpOptions& options) : options_(options) {}

std::string_view DyncpScheduler::summary() const {
  return "dyncp's own: deadline, repair and local search on nested groups; valid in every domain";
}

namespace {

// Up to here Megatron's schedule is compared with ours at every effort.
constexpr int kRivalItems = 4096;

double makespan_of(const ScheduleProblem& problem, const Schedule& schedule,
                   const DyncpOptions& options) {
  return simulated_makespan(problem, schedule, options.cost, options.barrier);
}

// The rival's schedule if it is valid for this problem.
std::optional<Schedule> valid_schedule(const Scheduler& rival, const ScheduleProblem& problem) {
  try {
    Schedule schedule = rival.schedule(problem);
    if (check_schedule(problem, schedule).empty()) return schedule;
  } catch (const Infeasible&) {
    // It has no answer where ours may have one.
  }
  return std::nullopt;
}

Schedule schedule_many(const Instance& instance, const std::vector<Tree>& trees,
                       const DyncpOptions& options) {
  const ScheduleProblem& problem = instance.problem();
  // Schedules of rivals, on items: ours starts from them and is never longer.
  std::vector<Schedule> seeds;
  const auto add_rival = [&](const Scheduler& rival) {
    auto seed = valid_schedule(rival, sorted_problem(instance));
    if (seed) seeds.push_back(std::move(*seed));
  };
  const bool best_effort = options.effort == Effort::kBest;
  if (instance.items() <= kRivalItems || best_effort) add_rival(MegatronPackingAware());
  if (best_effort && static_cast<std::size_t>(instance.items()) <= kQuickStaticBest) {
    add_rival(StaticBest(options.cost, options.barrier));
  }
  const double bound =
      best_effort ? lower_bound(problem, options.cost) : fill_bound(problem, options.cost);
  std::optional<Schedule> best =
      nested::search(instance, trees, seeds, options.barrier, options.effort, bound);
  for (const Tree& tree : trees) {
    if (best) break;
    Plan plan(instance, tree);
    if (nested::place_somehow(plan)) best = plan.schedule();
  }
  for (Schedule& seed : seeds) {  // its groups may be on no tree
    Schedule schedule = with_ids(instance, std::move(seed));
    if (!best || makespan_of(problem, schedule, options) < makespan_of(problem, *best, options)) {
      best = std::move(schedule);
    }
  }
  if (best) return *best;
  const bool searched = nested::has_few_rows(instance, kFeasibilityItems);
  if (searched) best = nested::solve_rows(instance, trees);
  if (best) return *best;
  throw Infeasible(nested::why_infeasible(instance, searched));
}

}  // namespace

Schedule DyncpScheduler::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  const Instance instance(problem, options_.cost);
  if (instance.items() == 0) return {};
  const std::vector<Tree> trees = nested::make_trees(instance);
  if (instance.items() > kExactItems) return schedule_many(instance, trees, options_);
  if (auto schedule = solve_small(instance, trees, options_)) return *schedule;
  throw Infeasible(nested::why_infeasible(instance, nested::has_few_rows(instance, kExactItems)));
}

}  // namespace dyncp
