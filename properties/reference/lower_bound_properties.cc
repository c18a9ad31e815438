// No bound is ever above the exhaustive optimum, and none is so weak that this says nothing.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "properties/reference/small_instance.h"
#include "reference/error.h"
#include "reference/lower_bound.h"
#include "reference/optimum.h"

namespace dyncp {
namespace {

const DefaultCases kCases(500);

constexpr double kRoundoff = 1 + 1e-9;

RC_GTEST_PROP(LowerBound, NeverAboveTheOptimum, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 5});
  const CostModel cost = any_cost();
  const std::optional<Optimum> optimum = find_optimum(problem, cost, Barrier::kNone);
  if (!optimum) return;
  RC_LOG() << "optimum " << optimum->makespan << " in " << optimum->schedule.microbatches.size()
           << " microbatches";
  RC_ASSERT(fewest_microbatches(problem) <= std::int64_t(optimum->schedule.microbatches.size()));
  RC_ASSERT(area_bound(problem, cost) <= optimum->makespan * kRoundoff);
  RC_ASSERT(longest_bound(problem, cost) <= optimum->makespan * kRoundoff);
  RC_ASSERT(dual_bound(problem, cost) <= optimum->makespan * kRoundoff);
  RC_ASSERT(fill_bound(problem, cost) <= optimum->makespan * kRoundoff);
  RC_ASSERT(fill_bound(problem, cost, 2) <= optimum->makespan * kRoundoff);
  RC_ASSERT(lower_bound(problem, cost) <= optimum->makespan * kRoundoff);
}

RC_GTEST_PROP(LowerBound, IsTheLargestOfItsParts, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 40});
  const CostModel cost = any_cost();
  try {
    const double bound = lower_bound(problem, cost);
    RC_ASSERT(area_bound(problem, cost) <= bound * kRoundoff);
    RC_ASSERT(longest_bound(problem, cost) <= bound * kRoundoff);
    RC_ASSERT(fill_bound(problem, cost) <= bound * kRoundoff);
  } catch (const Infeasible&) {
    const GroupTable table = problem.group_table();
    bool fits = true;
    for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
      fits = fits && (problem.lengths[id] == 0 || need(problem, table, int(id)).has_value());
    }
    RC_ASSERT(!fits);
  }
}

// Classes of nearly equal lengths may cost a little of the bound, never add to it.
RC_GTEST_PROP(LowerBound, ClassesOnlyLoosenAndOnlyALittle, ()) {
  ScheduleProblem problem;
  problem.ranks = *rc::gen::element(3, 8, 16);
  problem.max_tokens_per_rank = 2048;
  problem.padding = *rc::gen::element(Padding::kNone, Padding::kGroup);
  const int sequences = *uniform(100, 200);
  for (int i = 0; i < sequences; ++i) {
    problem.lengths.push_back(*uniform<std::int64_t>(1, 4000));
  }
  const CostModel cost = any_cost();
  const double exact = fill_bound(problem, cost);
  const double coarse = fill_bound(problem, cost, 64);
  RC_ASSERT(coarse <= exact * kRoundoff);
  RC_ASSERT(coarse >= exact * 0.7);  // lengths of a class differ by up to 14 %
  if (problem.padding == Padding::kNone) {
    RC_ASSERT(area_bound(problem, cost) <= coarse * kRoundoff);
  }
}

}  // namespace
}  // namespace dyncp
