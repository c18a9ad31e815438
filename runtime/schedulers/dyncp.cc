// Which search an instance gets, and what follows when it finds nothing.
#include "runtime/schedulers/dyncp.h"

#include <optional>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/lower_bound.h"
#include "reference/optimum.h"
#include "runtime/schedulers/dyncp_exhaustive.h"
#include "runtime/schedulers/dyncp_fallback.h"
#include "runtime/schedulers/dyncp_search.h"

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

// The optimum of all schedules on any groups. REQUIRES: within the limits of find_optimum.
std::optional<Schedule> solve_any_groups(const Instance& instance, const DyncpOptions& options) {
  // Longest first, so that the answer does not depend on the order of the lengths.
  ScheduleProblem sorted = instance.problem();
  sorted.lengths.clear();
  for (int item = 0; item < instance.items(); ++item) {
    sorted.lengths.push_back(
        instance.problem().lengths[static_cast<std::size_t>(instance.id(item))]);
  }
  auto optimum = find_optimum(sorted, options.cost, options.barrier);
  if (!optimum) return std::nullopt;
  for (Microbatch& microbatch : optimum->schedule.microbatches) {
    for (Assignment& assignment : microbatch) {
      for (int& sequence : assignment.sequences) sequence = instance.id(sequence);
    }
  }
  return optimum->schedule;
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

Schedule DyncpScheduler::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  const Instance instance(problem, options_.cost);
  if (instance.items() == 0) return {};
  const std::vector<Tree> trees = nested::make_trees(instance);

  if (instance.items() <= kExactItems) {
    if (auto schedule = solve_small(instance, trees, options_)) return *schedule;
    throw Infeasible(nested::why_infeasible(instance, nested::has_few_rows(instance, kExactItems)));
  }
  const double bound = lower_bound(problem, options_.cost);
  if (auto schedule = nested::search(instance, trees, options_.barrier, options_.effort, bound)) {
    return *schedule;
  }
  for (const Tree& tree : trees) {
    Plan plan(instance, tree);
    if (nested::place_somehow(plan)) return plan.schedule();
  }
  const bool searched = nested::has_few_rows(instance, kFeasibilityItems);
  if (searched) {
    if (auto schedule = nested::solve_rows(instance, trees)) return *schedule;
  }
  throw Infeasible(nested::why_infeasible(instance, searched));
}

}  // namespace dyncp
