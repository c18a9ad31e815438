// A tree of nested CP groups: every node is an existing group, the children of a node cut it up
// exactly, so each cut of the tree is a partition of the rank domain into existing groups.
// Under `aligned` and `pow2-any-slice` the usable groups form one such tree, so nothing is lost by
// working on it; under `divisors` and `interval` several trees are worth trying.
#pragma once

#include <vector>

#include "runtime/schedulers/dyncp_instance.h"

namespace dyncp::nested {

struct Node {
  int first_rank = 0;
  int size = 1;
  int level = 0;                   // of the instance; -1: the node above a forest
  int parent = -1;                 // -1: the root
  int end = 0;                     // nodes this..end-1 are this node and all below it (preorder)
  std::vector<int> children = {};  // by first rank; empty: a leaf, whose ranks always run together
  int shape = 0;                   // nodes of one shape have equal subtrees
  int root = 0;                    // the root of its tree
};

class Tree {
 public:
  /// `nodes` in preorder with first_rank, size and parent set. REQUIRES: children tile their
  /// parent.
  Tree(const Instance& instance, std::vector<Node> nodes);

  /// `copies` copies of `tree` side by side, one a microbatch, below a node 0 that is no group and
  /// carries no packs. For schedules with a barrier after every microbatch.
  static Tree forest(const Instance& instance, const Tree& tree, int copies);

  /// The roots of the copies; {0} for a single tree.
  const std::vector<int>& roots() const { return roots_; }
  bool is_forest() const { return node(0).level < 0; }

  int nodes() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int v) const { return nodes_[static_cast<std::size_t>(v)]; }
  bool is_leaf(int v) const { return node(v).children.empty(); }
  /// Whether w is v or below it.
  bool contains(int v, int w) const { return v <= w && w < node(v).end; }
  const std::vector<int>& leaves() const { return leaves_; }
  int shapes() const { return shapes_; }

  /// The levels that occur, ascending, and the nodes of each by first rank.
  const std::vector<int>& levels() const { return levels_; }
  const std::vector<int>& nodes_of(int level) const {
    return nodes_of_[static_cast<std::size_t>(level)];
  }

  /// Whether every node is a leaf or has two children of equal size.
  bool is_binary() const { return is_binary_; }

 private:
  Tree() = default;
  void derive(const Instance& instance);

  std::vector<Node> nodes_;
  std::vector<int> roots_;
  std::vector<int> leaves_;
  std::vector<int> levels_;
  std::vector<std::vector<int>> nodes_of_;
  int shapes_ = 0;
  bool is_binary_ = true;
};

/// The trees worth trying, best first: one for laminar policies.
std::vector<Tree> make_trees(const Instance& instance);

}  // namespace dyncp::nested
