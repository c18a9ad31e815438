// A schedule in the making: packs on the nodes of a tree of nested groups.
//
// Order lemma. Let every path from the root to a leaf carry the same number M of packs. Let each
// rank run the packs of its path from the root down. Then the k-th pack of all members of a group
// is the same pack, so this is a valid schedule of M microbatches in which no rank ever waits: its
// makespan is the heaviest path plus M launches. Any valid schedule on nested groups is a plan of
// this kind, and no rank of it can finish before its own load; so the best plan is optimal and only
// the assignment of packs to nodes is left to decide.
#pragma once

#include <vector>

#include "runtime/schedulers/dyncp_tree.h"

namespace dyncp::nested {

struct Pack {
  int node = -1;  // -1: no longer in the plan
  Load load;
  double time = 0;         // without launch
  std::vector<int> items;  // ascending (longest first)
};

/// The packs of a plan, nothing derived: what is kept of a plan that may be returned to.
struct Packing {
  std::vector<int> nodes;               // per pack
  std::vector<std::vector<int>> items;  // per pack
};

class Plan {
 public:
  Plan(const Instance& instance, const Tree& tree);

  const Instance& instance() const { return instance_; }
  const Tree& tree() const { return tree_; }

  int add_pack(int node, std::vector<int> items);
  void remove_pack(int pack);
  /// Replaces the items of a pack. REQUIRES: it stays non-empty.
  void set_items(int pack, std::vector<int> items);
  void clear();

  /// Pack indices 0..packs()-1; removed packs have node -1.
  int packs() const { return static_cast<int>(packs_.size()); }
  const Pack& pack(int p) const { return packs_[static_cast<std::size_t>(p)]; }
  const std::vector<int>& packs_on(int v) const { return on_node_[static_cast<std::size_t>(v)]; }

  /// Heaviest path through v, without launches.
  double path(int v) const { return above_[at(v)] + below_[at(v)]; }
  /// What the heaviest path through v is above the heaviest of its tree: never positive.
  double excess(int v) const { return path(v) - below_[at(tree_.node(v).root)]; }
  double load_above(int v) const { return above_[at(v)]; }
  /// Heaviest path from v (included) down.
  double load_below(int v) const { return below_[at(v)]; }

  /// Packs on the strict ancestors of v.
  int count_above(int v) const { return count_above_[at(v)]; }
  /// Largest number of packs on a path from v (included) down.
  int count_below(int v) const { return count_below_[at(v)]; }

  /// Microbatches of a uniform plan: packs on the fullest path; trees of a forest.
  int microbatches() const;
  /// Whether every path from a root has `packs` packs.
  bool is_uniform(int packs) const;
  /// Of a uniform plan: the heaviest path; in a forest, where all ranks wait for the slowest pack
  /// of each tree, the sum over its trees.
  double makespan() const;
  /// The leaf at the end of the heaviest path from v down.
  int critical_leaf(int v) const;

  bool fits(const Load& load, int count, int node) const {
    return instance_.fits(load, count, tree_.node(node).level);
  }
  Load load_of(int item, int node) const { return instance_.load(item, tree_.node(node).level); }
  double time_of(const Load& load, int node) const {
    return instance_.time(load, tree_.node(node).level);
  }
  Load load_of(const std::vector<int>& items, int node) const;

  Packing packing() const;
  void restore(const Packing& packing);

  /// Microbatch k holds the k-th pack of every path, longest first on a node; of a forest, the
  /// packs of the tree with the k-th slowest pack. REQUIRES: a uniform plan, 1 pack a path of a
  /// forest.
  Schedule schedule() const;

 private:
  static std::size_t at(int v) { return static_cast<std::size_t>(v); }
  void change(int v, double time, int count);

  const Instance& instance_;
  const Tree& tree_;
  std::vector<Pack> packs_;
  std::vector<int> removed_;  // indices of packs_ free to be used again
  std::vector<std::vector<int>> on_node_;
  std::vector<double> own_, above_, below_;
  std::vector<int> count_own_, count_above_, count_below_;
};

}  // namespace dyncp::nested
