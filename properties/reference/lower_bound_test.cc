// Instances on which each bound is known, so that a bound that went slack is seen.
#include "reference/lower_bound.h"

#include <gtest/gtest.h>

#include "reference/error.h"
#include "reference/optimum.h"

namespace dyncp {
namespace {

double work(double length) {
  const CostModel cost;
  return cost.a * length * length + cost.b * length;
}

ScheduleProblem instance(int ranks, std::int64_t tokens, std::vector<std::int64_t> lengths) {
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.max_tokens_per_rank = tokens;
  problem.lengths = std::move(lengths);
  return problem;
}

TEST(LowerBound, NothingToRunTakesNoTime) {
  const ScheduleProblem problem = instance(4, 64, {0, 0});
  EXPECT_EQ(fewest_microbatches(problem), 0);
  EXPECT_EQ(lower_bound(problem, CostModel::flat()), 0);
}

TEST(LowerBound, AreaIsAttainedByEqualSequences) {
  const ScheduleProblem problem = instance(3, 100, {100, 100, 100, 100, 100, 100});
  const double expected = 2 * work(100) + 2 * CostModel().d;
  EXPECT_NEAR(area_bound(problem, CostModel::flat()), expected, 1e-6 * expected);
  EXPECT_NEAR(find_optimum(problem, CostModel::flat(), Barrier::kNone)->makespan, expected,
              1e-6 * expected);
}

TEST(LowerBound, LongestIsAttainedByASequenceThatGainsNothingFromMoreRanks) {
  // One ring step costs more than halving 10 tokens saves.
  const ScheduleProblem problem = instance(4, 100, {10, 1, 1, 1});
  const double expected = work(10) + CostModel().d;
  EXPECT_NEAR(longest_bound(problem, CostModel::flat()), expected, 1e-6 * expected);
  EXPECT_NEAR(lower_bound(problem, CostModel::flat()), expected, 1e-6 * expected);
}

TEST(LowerBound, DualCountsCommunicationThatTheDeadlineForces) {
  // Two sequences that each need two of three ranks cannot run side by side, and each pays a ring.
  const ScheduleProblem problem = instance(4, 1000, {4000, 4000});
  const CostModel cost = CostModel::flat();
  EXPECT_GT(dual_bound(problem, cost), area_bound(problem, cost) + 100);
}

TEST(LowerBound, FillCountsTheRanksThatFewSequencesMustCover) {
  // One sequence on 8 ranks: all eight must run it.
  const ScheduleProblem problem = instance(8, 1000, {100});
  const CostModel cost = CostModel::flat();
  const double optimum = find_optimum(problem, cost, Barrier::kNone)->makespan;
  EXPECT_GT(optimum, 7 * cost.c0);
  EXPECT_NEAR(fill_bound(problem, cost), optimum, 0.02 * optimum);
  EXPECT_LT(dual_bound(problem, cost), 0.5 * optimum);
}

TEST(LowerBound, FewestMicrobatchesCountsTokensSequencesAndTheMultiple) {
  ScheduleProblem problem = instance(2, 100, {100, 100, 100, 100, 1});
  EXPECT_EQ(fewest_microbatches(problem), 3);
  problem.microbatch_multiple = 4;
  EXPECT_EQ(fewest_microbatches(problem), 4);
  problem = instance(2, 1000, {1, 1, 1, 1, 1});
  problem.max_sequences = 1;
  EXPECT_EQ(fewest_microbatches(problem), 3);
  problem.min_cp = 2;
  EXPECT_EQ(fewest_microbatches(problem), 5);
  problem.execution = Execution::kSerial;  // no packs, so no limit on them
  EXPECT_EQ(fewest_microbatches(problem), 1);
}

TEST(LowerBound, SaysWhatDoesNotFit) {
  const ScheduleProblem problem = instance(2, 100, {7, 201});
  try {
    lower_bound(problem, CostModel::flat());
    FAIL() << "a sequence of 201 tokens was bounded on 2 ranks of 100 tokens";
  } catch (const Infeasible& error) {
    EXPECT_NE(std::string(error.what()).find("sequence 1 of 201 tokens"), std::string::npos);
  }
}

}  // namespace
}  // namespace dyncp
