// The cost model's formula and the simulation of schedules against values worked out by hand.
#include "reference/cost.h"

#include <gtest/gtest.h>

#include "reference/schedule_check.h"

namespace dyncp {
namespace {

// Parameters for which every term is a small exact number.
CostModel round_numbers() {
  CostModel cost;
  cost.a = 0.5;
  cost.b = 2;
  cost.c0 = 16;
  cost.c1 = 4;
  cost.hidden = 0.25;
  cost.d = 7;
  cost.fast_domain = 2;
  cost.slow_c0 = 1000;
  cost.slow_c1 = 8;
  return cost;
}

TEST(Cost, PackTimeByHand) {
  const CostModel cost = round_numbers();
  // Lengths 4 and 8: S = 12, Q = 80. One rank: 0.5*80 + 2*12 + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 1), 71);
  // Two ranks: 20 + 12 + max(0, 1*(16 + 4*6) - 0.25*20) + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 2), 20 + 12 + 35 + 7);
  // Four ranks are beyond the fast domain: 10 + 6 + (3*(1000 + 8*3) - 0.25*10) + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 4), 10 + 6 + (3072 - 2.5) + 7);
}

TEST(Cost, RingStepsHideBehindAttention) {
  CostModel cost = round_numbers();
  cost.hidden = 1;
  // Q = 4096 on 2 ranks: attention 1024 hides all of 16 + 4*32.
  EXPECT_EQ(cost.pack_time(64, 4096, 2), 1024 + 64 + 7);
}

TEST(Cost, DefaultsAreThoseOfThePage) {
  const CostModel flat = CostModel::flat();
  EXPECT_DOUBLE_EQ(flat.pack_time(1000, 1e6, 1), 57.34 + 1870 + 75);
  EXPECT_DOUBLE_EQ(flat.pack_time(1000, 1e6, 2),
                   28.67 + 935 + (50 + 0.0351 * 500 - 0.8 * 28.67) + 75);
  const CostModel tiers = CostModel::two_tier();
  EXPECT_EQ(tiers.pack_time(1e5, 1e10, 8), flat.pack_time(1e5, 1e10, 8));
  EXPECT_DOUBLE_EQ(tiers.pack_time(1600, 160000, 16),
                   0.5734 + 187 + (15 * (100 + 0.245 * 100) - 0.8 * 0.5734) + 75);
  EXPECT_EQ(CostModel::quadratic().pack_time(12, 80, 4), 20);
}

// Time is tokens: one unit a token and rank.
CostModel tokens_only() {
  CostModel cost;
  cost.a = cost.c0 = cost.c1 = cost.hidden = cost.d = 0;
  cost.b = 1;
  return cost;
}

ScheduleProblem problem_of(std::vector<std::int64_t> lengths, int ranks, std::int64_t limit) {
  ScheduleProblem problem;
  problem.lengths = std::move(lengths);
  problem.ranks = ranks;
  problem.max_tokens_per_rank = limit;
  return problem;
}

// Rank 0: 10 then 2; rank 1: 4 then 8; then both 5 on each.
//   no barrier: both are free at 12, end 17.   barrier: max(10, 4) + max(2, 8) + 5 = 23.
TEST(ScheduleQuality, GroupsStartWhenTheirMembersAreFree) {
  const ScheduleProblem problem = problem_of({10, 4, 2, 8, 10}, 2, 10);
  const Schedule schedule{
      {{{{0, 1}, {0}}, {{1, 1}, {1}}}, {{{0, 1}, {2}}, {{1, 1}, {3}}}, {{{0, 2}, {4}}}}};
  ASSERT_TRUE(check_schedule(problem, schedule).empty());
  const ScheduleQuality free = schedule_quality(problem, schedule, tokens_only(), Barrier::kNone);
  EXPECT_EQ(free.makespan, 17);
  EXPECT_EQ(free.idle_share, 0);
  EXPECT_EQ(free.microbatches, 3);
  EXPECT_EQ(free.padding_waste, 0);
  const ScheduleQuality barrier =
      schedule_quality(problem, schedule, tokens_only(), Barrier::kMicrobatch);
  EXPECT_EQ(barrier.makespan, 23);
  EXPECT_DOUBLE_EQ(barrier.idle_share, 1 - 34.0 / 46);
  // Quadratic, with a barrier: 100 + 64 + 50, against (100 + 16 + 4 + 64 + 100) / 2.
  EXPECT_DOUBLE_EQ(barrier.efficiency, 142.0 / 214);
  EXPECT_EQ(free.efficiency, barrier.efficiency);
  EXPECT_EQ(free.lower_bound, barrier.lower_bound);
  EXPECT_EQ(free.lower_bound, lower_bound(problem, tokens_only()));
}

// A group waits for its last member, and so does every later group that shares a rank.
TEST(ScheduleQuality, WaitingPropagates) {
  const ScheduleProblem problem = problem_of({1, 9, 1, 1, 8, 1, 1}, 4, 9);
  const Schedule schedule{{{{{0, 1}, {0}}, {{1, 1}, {1}}, {{2, 1}, {2}}, {{3, 1}, {3}}},
                           {{{0, 2}, {4}}, {{2, 1}, {5}}, {{3, 1}, {6}}}}};
  ASSERT_TRUE(check_schedule(problem, schedule).empty());
  EXPECT_EQ(schedule_quality(problem, schedule, tokens_only(), Barrier::kNone).makespan, 13);
}

TEST(ScheduleQuality, SerialExecutionPaysForEachSequence) {
  ScheduleProblem problem = problem_of({4, 8}, 2, 8);
  const Schedule schedule{{{{{0, 2}, {0, 1}}}}};
  const CostModel cost = round_numbers();
  EXPECT_EQ(schedule_quality(problem, schedule, cost, Barrier::kNone).makespan,
            cost.pack_time(12, 80, 2));
  problem.execution = Execution::kSerial;
  EXPECT_EQ(schedule_quality(problem, schedule, cost, Barrier::kNone).makespan,
            cost.pack_time(4, 16, 2) + cost.pack_time(8, 64, 2));
}

TEST(ScheduleQuality, PaddedTokensCost) {
  ScheduleProblem problem = problem_of({5, 3, 1}, 2, 12);
  problem.padding = Padding::kGroup;
  // On both ranks multiples of 4: 8 + 4. Alone a multiple of 2: 2, and 4 for sequence 1.
  const Schedule together{{{{{0, 2}, {0, 1, 2}}}}};
  ScheduleQuality quality = schedule_quality(problem, together, tokens_only(), Barrier::kNone);
  EXPECT_EQ(quality.makespan, 8);
  EXPECT_DOUBLE_EQ(quality.padding_waste, 16.0 / 9 - 1);
  const Schedule apart{{{{{0, 1}, {0}}, {{1, 1}, {1, 2}}}}};
  quality = schedule_quality(problem, apart, tokens_only(), Barrier::kNone);
  EXPECT_EQ(quality.makespan, 6);
  EXPECT_DOUBLE_EQ(quality.padding_waste, 12.0 / 9 - 1);
}

TEST(ScheduleQuality, NothingTakesNoTime) {
  const ScheduleQuality quality =
      schedule_quality(problem_of({0, 0}, 4, 8), {}, CostModel::flat(), Barrier::kMicrobatch);
  EXPECT_EQ(quality.makespan, 0);
  EXPECT_EQ(quality.idle_share, 0);
  EXPECT_EQ(quality.padding_waste, 0);
  EXPECT_EQ(quality.efficiency, 1);
  EXPECT_EQ(quality.microbatches, 0);
}

// Perfect in Megatron's figure: everything on all ranks.
TEST(ScheduleQuality, EverythingOnAllRanksIsQuadraticallyPerfect) {
  const ScheduleProblem problem = problem_of({37, 12, 5}, 4, 20);
  const Schedule schedule{{{{{0, 4}, {0, 1, 2}}}}};
  EXPECT_DOUBLE_EQ(
      schedule_quality(problem, schedule, CostModel::flat(), Barrier::kNone).efficiency, 1);
}

}  // namespace
}  // namespace dyncp
