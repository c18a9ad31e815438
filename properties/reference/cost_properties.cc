// The simulation of schedules over random valid schedules, against a plain recursive definition.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "properties/schedule_generators.h"
#include "reference/cost.h"

namespace dyncp {
namespace {

// A model with every term at work on short lengths; numbers that are no round binary fractions.
rc::Gen<CostModel> genCostModel() {
  return rc::gen::map(rc::gen::container<std::vector<int>>(8, genInt(0, 10)),
                      [](const std::vector<int>& n) {
                        CostModel cost;
                        cost.a = 0.01 * n[0];
                        cost.b = 0.3 * n[1];
                        cost.c0 = 0.7 * n[2];
                        cost.c1 = 0.03 * n[3];
                        cost.hidden = 0.1 * n[4];
                        cost.d = 0.9 * n[5];
                        cost.fast_domain = n[6] > 7 ? 4 : 1000;
                        cost.slow_c0 = cost.c0 + 0.2 * n[7];
                        cost.slow_c1 = cost.c1 + 0.01 * n[7];
                        return cost;
                      });
}

double time_of(const ScheduledCase& scheduled, const Assignment& assignment,
               const CostModel& cost) {
  const ScheduleProblem& problem = scheduled.problem;
  double sum = 0, squares = 0, serial = 0;
  for (int id : assignment.sequences) {
    const auto length = static_cast<double>(problem.padded_length(id, assignment.group.size));
    sum += length;
    squares += length * length;
    serial += cost.pack_time(length, length * length, assignment.group.size);
  }
  return problem.execution == Execution::kSerial
             ? serial
             : cost.pack_time(sum, squares, assignment.group.size);
}

// When `rank` ends microbatch `m`: its group's time after the last of its members ended the
// microbatch before (with a barrier: after everybody did).
double end_of(const ScheduledCase& scheduled, const CostModel& cost, Barrier barrier, int m,
              int rank) {
  if (m < 0) return 0;
  for (const Assignment& assignment :
       scheduled.schedule.microbatches[static_cast<std::size_t>(m)]) {
    if (!assignment.group.contains(rank)) continue;
    double start = 0;
    for (int other = 0; other < scheduled.problem.ranks; ++other) {
      if (barrier == Barrier::kMicrobatch || assignment.group.contains(other)) {
        start = std::max(start, end_of(scheduled, cost, barrier, m - 1, other));
      }
    }
    return start + time_of(scheduled, assignment, cost);
  }
  return 0;
}

RC_GTEST_PROP(ScheduleQuality, MakespanIsTheRecursiveOne, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  const CostModel cost = *genCostModel();
  const int microbatches = static_cast<int>(scheduled.schedule.microbatches.size());
  RC_PRE(microbatches <= 3);  // the recursion is exponential in them
  for (Barrier barrier : {Barrier::kNone, Barrier::kMicrobatch}) {
    double expected = 0;
    for (int rank = 0; rank < scheduled.problem.ranks; ++rank) {
      expected = std::max(expected, end_of(scheduled, cost, barrier, microbatches - 1, rank));
    }
    const ScheduleQuality quality =
        schedule_quality(scheduled.problem, scheduled.schedule, cost, barrier);
    RC_ASSERT(quality.makespan == expected);  // the same sums in the same order
  }
}

RC_GTEST_PROP(ScheduleQuality, FiguresAreInRange, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  const CostModel cost = *genCostModel();
  const ScheduleQuality free =
      schedule_quality(scheduled.problem, scheduled.schedule, cost, Barrier::kNone);
  const ScheduleQuality barrier =
      schedule_quality(scheduled.problem, scheduled.schedule, cost, Barrier::kMicrobatch);
  // At most some hundred additions, each with a relative error of 2^-53.
  const double slack = 1e-12;
  RC_ASSERT(free.makespan <= barrier.makespan * (1 + slack));
  RC_ASSERT(free.makespan >= free.lower_bound * (1 - slack));
  for (const ScheduleQuality& quality : {free, barrier}) {
    RC_ASSERT(quality.idle_share >= 0);
    RC_ASSERT(quality.idle_share < 1);
    RC_ASSERT(quality.efficiency > 0);
    RC_ASSERT(quality.efficiency <= 1 + slack);
    RC_ASSERT(quality.padding_waste >= 0);
    if (scheduled.problem.padding == Padding::kNone) RC_ASSERT(quality.padding_waste == 0);
  }
}

RC_GTEST_PROP(ScheduleQuality, DoesNotDependOnTheOrderOfGroups, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  const CostModel cost = *genCostModel();
  const auto makespan = [&] {
    return schedule_quality(scheduled.problem, scheduled.schedule, cost, Barrier::kNone).makespan;
  };
  const double before = makespan();
  for (Microbatch& microbatch : scheduled.schedule.microbatches) {
    std::reverse(microbatch.begin(), microbatch.end());
  }
  RC_ASSERT(makespan() == before);
}

// A pack is never slower than its sequences one by one: t is subadditive when hidden <= 1.
RC_GTEST_PROP(PackTime, PacksAreNoSlowerThanTheirSequencesAlone, ()) {
  const CostModel cost = *genCostModel();
  const std::vector<std::int64_t> lengths = *genLengths({500, 1, 6});
  const int size = *genCpSize();
  double sum = 0, squares = 0, alone = 0;
  for (std::int64_t length : lengths) {
    const auto tokens = static_cast<double>(length);
    sum += tokens;
    squares += tokens * tokens;
    alone += cost.pack_time(tokens, tokens * tokens, size);
  }
  RC_ASSERT(cost.pack_time(sum, squares, size) <= alone * (1 + 1e-12));
}

// Doubling every cost doubles the time; the shape of the result does not change.
RC_GTEST_PROP(ScheduleQuality, ScalesWithTheModel, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  const CostModel cost = *genCostModel();
  CostModel twice = cost;
  twice.a *= 2;
  twice.b *= 2;
  twice.c0 *= 2;
  twice.c1 *= 2;
  twice.d *= 2;
  twice.slow_c0 *= 2;
  twice.slow_c1 *= 2;
  const ScheduleQuality once =
      schedule_quality(scheduled.problem, scheduled.schedule, cost, Barrier::kNone);
  const ScheduleQuality doubled =
      schedule_quality(scheduled.problem, scheduled.schedule, twice, Barrier::kNone);
  RC_ASSERT(doubled.makespan == 2 * once.makespan);
  RC_ASSERT(doubled.idle_share == once.idle_share);
}

}  // namespace
}  // namespace dyncp
