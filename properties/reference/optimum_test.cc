// Optima that can be worked out by hand, and the limits of the search.
#include "reference/optimum.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace dyncp {
namespace {

ScheduleProblem instance(int ranks, std::int64_t tokens, std::vector<std::int64_t> lengths) {
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.max_tokens_per_rank = tokens;
  problem.lengths = std::move(lengths);
  return problem;
}

TEST(Optimum, BalancesTheQuadraticModel) {
  // Squares 16, 9, 9, 16 on two ranks, whole domain or single ranks: 50 / 2 on both.
  const ScheduleProblem problem = instance(2, 8, {4, 3, 3, 4});
  EXPECT_DOUBLE_EQ(find_optimum(problem, CostModel::quadratic(), Barrier::kNone)->makespan, 25);
}

TEST(Optimum, ABarrierCostsWhatTheSchedulesInHandLose) {
  // No room for two sequences in a pack and no group but single ranks pays: with launches free,
  // rank loads {5, 1 + 4} meet without barriers; with them the microbatches cost max(5, 4) + 1 or
  // more.
  CostModel cost;
  cost = CostModel::quadratic();
  cost.a = 0;
  cost.b = 1;
  cost.c0 = 1000;
  ScheduleProblem problem = instance(2, 5, {5, 4, 1, 1});
  problem.max_sequences = 1;
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kNone)->makespan, 6);
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kMicrobatch)->makespan, 6);
  problem.lengths = {5, 3, 3, 1};
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kNone)->makespan, 6);
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kMicrobatch)->makespan, 8);
}

TEST(Optimum, ThreeSequencesThatNeedAllRanksAndAMultipleOfTwoHaveNone) {
  ScheduleProblem problem = instance(4, 100, {400, 400, 400});
  EXPECT_TRUE(find_optimum(problem, CostModel::flat(), Barrier::kNone).has_value());
  problem.microbatch_multiple = 2;
  EXPECT_FALSE(find_optimum(problem, CostModel::flat(), Barrier::kNone).has_value());
  EXPECT_FALSE(find_optimum(problem, CostModel::flat(), Barrier::kMicrobatch).has_value());
}

TEST(Optimum, GroupsOfThePolicyOnly) {
  // Three ranks for one sequence and one for the other exist under `interval` alone.
  ScheduleProblem problem = instance(4, 100, {300, 100});
  const CostModel cost = CostModel::quadratic();
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kNone)->makespan, 1e5 / 4);
  problem.microbatch_multiple = 1;
  problem.max_sequences = 1;
  problem.group_policy = GroupPolicy::kInterval;
  EXPECT_DOUBLE_EQ(find_optimum(problem, cost, Barrier::kNone)->makespan, 1e5 / 4);
}

TEST(Optimum, NothingToRun) {
  const std::optional<Optimum> optimum =
      find_optimum(instance(4, 100, {0}), CostModel::flat(), Barrier::kNone);
  ASSERT_TRUE(optimum.has_value());
  EXPECT_EQ(optimum->makespan, 0);
  EXPECT_TRUE(optimum->schedule.microbatches.empty());
}

TEST(Optimum, RefusesWhatIsTooLargeToSearch) {
  EXPECT_THROW(find_optimum(instance(9, 100, {1}), CostModel::flat(), Barrier::kNone),
               InvalidInput);
  EXPECT_THROW(
      find_optimum(instance(8, 100, {1, 1, 1, 1, 1, 1, 1, 1}), CostModel::flat(), Barrier::kNone),
      InvalidInput);
  EXPECT_NO_THROW(
      find_optimum(instance(8, 100, {1, 1, 1, 1, 0, 1, 1, 1}), CostModel::flat(), Barrier::kNone));
}

}  // namespace
}  // namespace dyncp
