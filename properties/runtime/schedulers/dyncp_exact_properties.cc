// Dynamic programming over sets finds what the exhaustive search finds.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "properties/runtime/schedulers/nested_instance.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp_exact.h"
#include "runtime/schedulers/dyncp_exhaustive.h"

namespace dyncp::nested {
namespace {

const DefaultCases kCases(500);

RC_GTEST_PROP(DyncpExact, EqualsTheOptimumOnNestedGroups, ()) {
  ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 6});
  problem.group_policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice);
  if (!all_fit(problem)) return;
  const CostModel cost = any_cost();
  const auto optimum = find_optimum(problem, cost, Barrier::kNone);
  const Instance instance(problem, cost);
  const std::vector<Tree> trees = make_trees(instance);
  Plan plan(instance, trees[0]);
  Budget budget;
  const bool solved = solve_exactly(plan, budget);
  RC_ASSERT(solved == optimum.has_value());
  if (!solved) return;
  RC_LOG() << plan.makespan() << " against " << optimum->makespan << "\n";
  RC_ASSERT(std::abs(plan.makespan() - optimum->makespan) <= 1e-9 * optimum->makespan);
  RC_ASSERT(plan.is_uniform(plan.microbatches()));
  RC_ASSERT(check_schedule(problem, plan.schedule()).empty());
}

RC_GTEST_PROP(DyncpExact, RowsEqualTheOptimumUnderBarriersOnAnyGroups, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 6});
  if (!all_fit(problem)) return;
  const CostModel cost = any_cost();
  const auto optimum = find_optimum(problem, cost, Barrier::kMicrobatch);
  const Instance instance(problem, cost);
  const auto schedule = solve_rows(instance, make_trees(instance));
  RC_ASSERT(schedule.has_value() == optimum.has_value());
  if (!schedule) return;
  RC_ASSERT(check_schedule(problem, *schedule).empty());
  const double makespan = schedule_quality(problem, *schedule, cost, Barrier::kMicrobatch).makespan;
  RC_ASSERT(std::abs(makespan - optimum->makespan) <= 1e-9 * makespan);
}

}  // namespace
}  // namespace dyncp::nested
