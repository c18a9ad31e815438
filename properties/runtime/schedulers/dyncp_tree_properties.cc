// Trees of nested groups hold existing groups only, and under laminar policies every usable one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "properties/cases.h"
#include "runtime/schedulers/dyncp_tree.h"

namespace dyncp::nested {
namespace {

using Group = std::pair<int, int>;  // first rank, size

ScheduleProblem domain(int ranks, GroupPolicy policy, int min_cp) {
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.group_policy = policy;
  problem.min_cp = min_cp;
  problem.max_tokens_per_rank = 100;
  problem.lengths = {100, 250, 7, 90};
  if (ranks < 3) problem.lengths = {7};
  return problem;
}

std::set<Group> groups_of(const Tree& tree) {
  std::set<Group> groups;
  for (int v = 0; v < tree.nodes(); ++v) {
    groups.emplace(tree.node(v).first_rank, tree.node(v).size);
  }
  return groups;
}

// The groups that occur in some partition of the whole domain into existing groups: those with a
// partition of the ranks before them and one of the ranks behind them.
std::set<Group> usable_groups(const GroupTable& table) {
  const auto ranks = static_cast<std::size_t>(table.ranks());
  std::vector<char> before(ranks + 1, 0), behind(ranks + 1, 0);
  before[0] = 1;
  behind[ranks] = 1;
  for (std::size_t r = 0; r <= ranks; ++r) {
    for (int size : table.sizes()) {
      const auto s = static_cast<std::size_t>(size);
      const int first = static_cast<int>(r) - size;
      if (first >= 0 && before[r - s] && table.exists({first, size})) before[r] = 1;
    }
  }
  for (std::size_t r = ranks; r-- > 0;) {
    for (int size : table.sizes()) {
      const CpGroup group{static_cast<int>(r), size};
      if (table.exists(group) && behind[r + static_cast<std::size_t>(size)]) behind[r] = 1;
    }
  }
  std::set<Group> usable;
  for (int size : table.sizes()) {
    for (int first : table.first_ranks(size)) {
      const auto f = static_cast<std::size_t>(first);
      if (before[f] && behind[f + static_cast<std::size_t>(size)]) usable.emplace(first, size);
    }
  }
  return usable;
}

TEST(DyncpTree, LaminarTreesAreTheUsableGroups) {
  for (GroupPolicy policy : {GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice}) {
    for (int ranks = 1; ranks <= 33; ++ranks) {
      for (int min_cp = 1; min_cp <= ranks; ++min_cp) {
        const ScheduleProblem problem = domain(ranks, policy, min_cp);
        const CostModel cost;
        const Instance instance(problem, cost);
        const std::vector<Tree> trees = make_trees(instance);
        ASSERT_EQ(trees.size(), 1U);
        EXPECT_EQ(groups_of(trees[0]), usable_groups(instance.table()))
            << ranks << " ranks, min_cp " << min_cp << ", " << to_string(policy);
      }
    }
  }
}

RC_GTEST_PROP(DyncpTree, NodesExistAndChildrenTileTheirParent, ()) {
  const int ranks = *uniform(1, 64);
  const GroupPolicy policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                               GroupPolicy::kDivisors, GroupPolicy::kInterval);
  const ScheduleProblem problem = domain(ranks, policy, *uniform(1, ranks));
  const CostModel cost;
  const Instance instance(problem, cost);
  const std::vector<Tree> trees = make_trees(instance);
  RC_ASSERT(!trees.empty());
  for (const Tree& tree : trees) {
    RC_ASSERT(tree.node(0).size == ranks);
    for (int v = 0; v < tree.nodes(); ++v) {
      const Node& node = tree.node(v);
      RC_ASSERT(instance.table().exists({node.first_rank, node.size}));
      RC_ASSERT(instance.size(node.level) == node.size);
      int next = node.first_rank;
      for (int child : node.children) {
        RC_ASSERT(tree.node(child).parent == v);
        RC_ASSERT(tree.node(child).first_rank == next);
        next += tree.node(child).size;
        RC_ASSERT(tree.contains(v, child));
        RC_ASSERT(!tree.contains(child, v));
      }
      RC_ASSERT(node.children.empty() || next == node.first_rank + node.size);
    }
  }
}

TEST(DyncpTree, AForestIsCopiesBelowANodeWithoutPacks) {
  const ScheduleProblem problem = domain(6, GroupPolicy::kAligned, 1);
  const CostModel cost;
  const Instance instance(problem, cost);
  const std::vector<Tree> trees = make_trees(instance);
  const Tree forest = Tree::forest(instance, trees[0], 3);
  EXPECT_TRUE(forest.is_forest());
  ASSERT_EQ(forest.roots().size(), 3U);
  EXPECT_EQ(forest.nodes(), 1 + 3 * trees[0].nodes());
  for (int root : forest.roots()) {
    EXPECT_EQ(forest.node(root).size, 6);
    EXPECT_EQ(forest.node(root).root, root);
    EXPECT_EQ(forest.node(root + 1).root, root);
    EXPECT_EQ(forest.node(root).children.size(), 3U);
  }
}

}  // namespace
}  // namespace dyncp::nested
