// Schedulers made for a cost model and an objective: which listen, and that they do.
#include "runtime/tuned_scheduler.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"
#include "reference/schedule_check.h"

namespace dyncp {
namespace {

// One sequence that needs two ranks, and many of very different lengths.
ScheduleProblem mixed_lengths() {
  ScheduleProblem problem;
  problem.ranks = 16;
  problem.max_tokens_per_rank = 2048;
  std::int64_t length = 4000;
  for (int i = 0; i < 96; ++i) {
    problem.lengths.push_back(length);
    length = 64 + (length * 7 + 1013) % 1900;
  }
  return problem;
}

double makespan_under(const DyncpOptions& judge, const DyncpOptions& made_for,
                      const std::string& name) {
  const ScheduleProblem problem = mixed_lengths();
  const Schedule schedule = tuned_scheduler(name, made_for)->schedule(problem);
  EXPECT_TRUE(check_schedule(problem, schedule).empty()) << name;
  return simulated_makespan(problem, schedule, judge.cost, judge.barrier);
}

TEST(TunedScheduler, IsTheRegisteredOneOfThatName) {
  for (const Scheduler* scheduler : schedulers()) {
    const auto tuned = tuned_scheduler(scheduler->name(), {});
    EXPECT_EQ(tuned->name(), scheduler->name());
    EXPECT_EQ(is_tunable(*tuned), is_tunable(*scheduler));
    EXPECT_EQ(tuned.get() == scheduler, !is_tunable(*scheduler)) << scheduler->name();
    const ScheduleProblem problem = mixed_lengths();
    EXPECT_EQ(tuned->schedule(problem), scheduler->schedule(problem)) << scheduler->name();
  }
  EXPECT_EQ(tuned_scheduler("dp_balanced", {})->name(), "static-packing");
  EXPECT_THROW(tuned_scheduler("nosuch", {}), InvalidInput);
}

TEST(TunedScheduler, IsMadeForItsObjectiveItsCostModelAndItsEffort) {
  DyncpOptions plain;
  DyncpOptions barrier;
  barrier.barrier = Barrier::kMicrobatch;
  EXPECT_LT(makespan_under(barrier, barrier, "dyncp"),
            makespan_under(barrier, plain, "dyncp") * 0.99);

  DyncpOptions slow_rings;
  slow_rings.cost.c0 = 5000;
  EXPECT_LT(makespan_under(slow_rings, slow_rings, "dyncp"),
            makespan_under(slow_rings, plain, "dyncp"));
  DyncpOptions quick_rings;
  quick_rings.cost.c0 = quick_rings.cost.c1 = 0;
  quick_rings.cost.d = 2000;
  EXPECT_LE(makespan_under(slow_rings, slow_rings, "static-best"),
            makespan_under(slow_rings, quick_rings, "static-best"));

  DyncpOptions best;
  best.effort = Effort::kBest;
  DyncpOptions fast;
  fast.effort = Effort::kFast;
  EXPECT_LT(makespan_under(plain, best, "dyncp"), makespan_under(plain, fast, "dyncp"));
}

}  // namespace
}  // namespace dyncp
