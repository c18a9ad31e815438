// static-best answers with valid schedules, and is never beaten by a single static size of its own
// kind.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/static_best.h"
#include "runtime/schedulers/static_packing.h"

namespace dyncp {
namespace {

RC_GTEST_PROP(StaticBest, IsValidAndNotBelowTheBound, ()) {
  ScheduleProblem problem;
  problem.ranks = *rc::gen::elementOf(std::vector<int>{1, 2, 3, 4, 6, 8, 12, 16});
  problem.max_tokens_per_rank = *rc::gen::inRange<std::int64_t>(64, 4096);
  problem.microbatch_multiple = *rc::gen::inRange(1, 4);
  problem.padding = *rc::gen::element(Padding::kNone, Padding::kGlobal, Padding::kGroup);
  if (*rc::gen::arbitrary<bool>()) problem.max_sequences = *rc::gen::inRange(1, 9);
  const std::int64_t longest = problem.max_tokens_per_rank * problem.ranks / 2;
  problem.lengths = *rc::gen::container<std::vector<std::int64_t>>(
      *rc::gen::inRange<std::size_t>(0, 100), rc::gen::inRange<std::int64_t>(0, longest + 1));
  const CostModel cost = CostModel::flat();
  try {
    const Schedule schedule = StaticBest(cost).schedule(problem);
    RC_ASSERT(check_schedule(problem, schedule).empty());
    const ScheduleQuality quality = schedule_quality(problem, schedule, cost, Barrier::kNone);
    RC_ASSERT(quality.makespan >= quality.lower_bound * (1 - 1e-12));
    int size = 0;
    for (const Microbatch& microbatch : schedule.microbatches) {
      for (const Assignment& assignment : microbatch) {
        if (size == 0) size = assignment.group.size;
        RC_ASSERT(assignment.group.size == size);
      }
    }
    RC_CLASSIFY(size > 1, "CP > 1");
  } catch (const Infeasible&) {
    RC_CLASSIFY(true, "refused");
  }
}

TEST(StaticBest, ChoosesTheSizeInHindsight) {
  // One long sequence forces size 4; among many short ones size 1 is best.
  ScheduleProblem problem;
  problem.ranks = 4;
  problem.max_tokens_per_rank = 1024;
  problem.lengths = {4000, 100, 100, 100};
  EXPECT_EQ(StaticBest().schedule(problem).microbatches[0][0].group.size, 4);
  problem.lengths.assign(64, 500);
  EXPECT_EQ(StaticBest().schedule(problem).microbatches[0][0].group.size, 1);
}

}  // namespace
}  // namespace dyncp
