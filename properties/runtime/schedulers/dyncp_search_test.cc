// What the scheduler does with many sequences, held against the optimum where that can be found: the
// search alone, without the exhaustive stage that small instances get.
#include "runtime/schedulers/dyncp_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "properties/runtime/schedulers/nested_instance.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"

namespace dyncp::nested {
namespace {

// Lengths as they come, not made to be awkward: the mean over them is what users get.
TEST(DyncpSearch, IsNearTheOptimumOnAverage) {
  for (Barrier barrier : {Barrier::kNone, Barrier::kMicrobatch}) {
    std::mt19937_64 engine(11);
    double sum = 0;
    double worst = 1;
    int found = 0;
    for (int i = 0; i < 150; ++i) {
      ScheduleProblem problem;
      problem.ranks = 1 << (1 + engine() % 3);
      problem.max_tokens_per_rank = 2048;
      problem.microbatch_multiple = engine() % 4 == 0 ? 2 : 1;
      const double range = 2048.0 * problem.ranks / 64.0;
      for (std::uint64_t n = 3 + engine() % 4; n > 0; --n) {
        const double u = static_cast<double>(engine() >> 11) * 0x1p-53;
        problem.lengths.push_back(static_cast<std::int64_t>(64 * std::pow(range, u)));
      }
      const CostModel cost;
      const auto optimum = find_optimum(problem, cost, barrier);
      if (!optimum) continue;
      const Instance instance(problem, cost);
      const auto schedule = search(instance, make_trees(instance), {}, barrier, Effort::kBest,
                                   lower_bound(problem, cost));
      ASSERT_TRUE(schedule.has_value());
      ASSERT_TRUE(check_schedule(problem, *schedule).empty());
      const double ratio =
          schedule_quality(problem, *schedule, cost, barrier).makespan / optimum->makespan;
      sum += ratio;
      worst = std::max(worst, ratio);
      ++found;
    }
    ASSERT_GT(found, 100);
    RecordProperty(barrier == Barrier::kNone ? "mean" : "mean_barrier",
                   std::to_string(sum / found));
    RecordProperty(barrier == Barrier::kNone ? "worst" : "worst_barrier", std::to_string(worst));
    EXPECT_LE(sum / found, 1.005) << "worst " << worst;
    EXPECT_LE(worst, 1.15);
  }
}

}  // namespace
}  // namespace dyncp::nested
