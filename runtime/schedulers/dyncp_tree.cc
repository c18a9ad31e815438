// Which trees of nested groups a policy has.
#include "runtime/schedulers/dyncp_tree.h"

#include <map>
#include <utility>

namespace dyncp::nested {

Tree::Tree(const Instance& instance, std::vector<Node> nodes) : nodes_(std::move(nodes)) {
  roots_ = {0};
  derive(instance);
}

Tree Tree::forest(const Instance& instance, const Tree& tree, int copies) {
  Tree forest;
  forest.nodes_.push_back({.size = 0, .level = -1});
  for (int copy = 0; copy < copies; ++copy) {
    const int base = forest.nodes();
    forest.roots_.push_back(base);
    for (int v = 0; v < tree.nodes(); ++v) {
      const Node& node = tree.node(v);
      forest.nodes_.push_back({.first_rank = node.first_rank,
                               .size = node.size,
                               .parent = v == 0 ? 0 : base + node.parent});
    }
  }
  forest.derive(instance);
  return forest;
}

// Everything but first rank, size and parent of the nodes.
void Tree::derive(const Instance& instance) {
  const std::vector<int>& sizes = instance.table().sizes();
  nodes_of_.resize(static_cast<std::size_t>(instance.levels()));
  for (int v = 0; v < nodes(); ++v) {
    Node& node = nodes_[static_cast<std::size_t>(v)];
    if (node.parent >= 0) nodes_[static_cast<std::size_t>(node.parent)].children.push_back(v);
    if (node.level < 0) continue;
    const bool is_root = node.parent < 0 || this->node(node.parent).level < 0;
    node.root = is_root ? v : this->node(node.parent).root;
    node.level =
        static_cast<int>(std::lower_bound(sizes.begin(), sizes.end(), node.size) - sizes.begin());
    nodes_of_[static_cast<std::size_t>(node.level)].push_back(v);
  }
  std::map<std::pair<int, std::vector<int>>, int> shapes;  // (size, shapes of children)
  for (int v = nodes() - 1; v >= 0; --v) {
    Node& node = nodes_[static_cast<std::size_t>(v)];
    node.end = node.children.empty() ? v + 1 : this->node(node.children.back()).end;
    std::vector<int> below;
    for (int child : node.children) below.push_back(this->node(child).shape);
    if (!below.empty() && (below.size() != 2 || below[0] != below[1])) is_binary_ = false;
    node.shape =
        shapes.emplace(std::pair(node.size, below), static_cast<int>(shapes.size())).first->second;
  }
  shapes_ = static_cast<int>(shapes.size());
  for (int v = 0; v < nodes(); ++v) {
    if (is_leaf(v)) leaves_.push_back(v);
  }
  for (int level = 0; level < instance.levels(); ++level) {
    if (!nodes_of(level).empty()) levels_.push_back(level);
  }
}

namespace {

// Grows a tree in preorder. How a group is cut is the caller's.
class Grower {
 public:
  explicit Grower(const Instance& instance) : instance_(instance) {
    nodes_.push_back({.first_rank = 0, .size = instance.ranks()});
  }

  int add(int first_rank, int size, int parent) {
    nodes_.push_back({.first_rank = first_rank, .size = size, .parent = parent});
    return static_cast<int>(nodes_.size()) - 1;
  }

  const Node& node(int v) const { return nodes_[static_cast<std::size_t>(v)]; }
  const Instance& instance() const { return instance_; }
  Tree finish() { return Tree(instance_, std::move(nodes_)); }

 private:
  const Instance& instance_;
  std::vector<Node> nodes_;
};

// The largest proper subgroups of a group that are in `table`, one after the other, if they tile
// it; recursively. For laminar policies this finds every usable group.
void cut_into_largest(Grower& grower, int v, const GroupTable& table) {
  const Node node = grower.node(v);
  std::vector<CpGroup> cuts;
  for (int first = node.first_rank; first < node.first_rank + node.size;) {
    int best = 0;
    for (int size : table.sizes()) {
      const int end = first + size;
      if (size < node.size && end <= node.first_rank + node.size && table.exists({first, size})) {
        best = size;
      }
    }
    if (best == 0) return;  // a rank that no smaller group covers: the group stays whole
    cuts.push_back({first, best});
    first += best;
  }
  for (const CpGroup& cut : cuts) {
    cut_into_largest(grower, grower.add(cut.first_rank, cut.size, v), table);
  }
}

// Cuts by a chain of sizes, each a divisor of the next. REQUIRES: chain descending, all exist.
void cut_by_chain(Grower& grower, int v, const std::vector<int>& chain, std::size_t next) {
  if (next == chain.size()) return;
  const Node node = grower.node(v);
  for (int first = node.first_rank; first < node.first_rank + node.size; first += chain[next]) {
    cut_by_chain(grower, grower.add(first, chain[next], v), chain, next + 1);
  }
}

// All chains of existing sizes from `chain.back()` downwards in which each is a divisor of the one
// before and none can be put between.
void divisor_chains(const std::vector<int>& sizes, std::vector<int>& chain,
                    std::vector<std::vector<int>>& chains) {
  constexpr std::size_t kMostChains = 12;
  if (chains.size() == kMostChains) return;
  const int top = chain.back();
  bool extended = false;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    if (*size >= top || top % *size != 0) continue;
    bool direct = true;
    for (int between : sizes) {
      direct = direct &&
               !(between > *size && between < top && top % between == 0 && between % *size == 0);
    }
    if (!direct) continue;
    extended = true;
    chain.push_back(*size);
    divisor_chains(sizes, chain, chains);
    chain.pop_back();
  }
  if (!extended) chains.push_back(chain);
}

// Halves (the larger half first) as long as both halves are at least the smallest size.
void cut_in_halves(Grower& grower, int v) {
  const Node node = grower.node(v);
  const int smallest = grower.instance().table().sizes().front();
  const int half = (node.size + 1) / 2;
  if (node.size - half < smallest) return;
  cut_in_halves(grower, grower.add(node.first_rank, half, v));
  cut_in_halves(grower, grower.add(node.first_rank + half, node.size - half, v));
}

// A first cut into runs of the given sizes (the rest a run of its own), halves below.
Tree cut_then_halves(const Instance& instance, const std::vector<int>& runs) {
  Grower grower(instance);
  int first = 0;
  for (int run : runs) {
    cut_in_halves(grower, grower.add(first, run, 0));
    first += run;
  }
  if (first < instance.ranks()) {
    cut_in_halves(grower, grower.add(first, instance.ranks() - first, 0));
  }
  return grower.finish();
}

// Any run of ranks is a group: trees with odd sizes near the top.
void add_interval_trees(const Instance& instance, std::vector<Tree>& trees) {
  const int ranks = instance.ranks();
  const int smallest = instance.table().sizes().front();
  Grower halves(instance);
  cut_in_halves(halves, 0);
  trees.push_back(halves.finish());
  // Runs just as long as the longest sequences need, then one shorter and one longer first run.
  std::vector<int> runs;
  int used = 0;
  for (int item = 0; item < instance.items(); ++item) {
    const int size = instance.size(instance.first_level(item));
    if (size == smallest || size == ranks) continue;
    if (used + size > ranks || (used + size < ranks && ranks - used - size < smallest)) break;
    runs.push_back(size);
    used += size;
  }
  if (!runs.empty() && used <= ranks && runs.front() < ranks) {
    trees.push_back(cut_then_halves(instance, runs));
  }
  for (int first = smallest; first <= ranks - smallest && first < smallest + 4; ++first) {
    trees.push_back(cut_then_halves(instance, {first}));
  }
}

}  // namespace

std::vector<Tree> make_trees(const Instance& instance) {
  std::vector<Tree> trees;
  const GroupTable& table = instance.table();
  if (table.policy() == GroupPolicy::kAligned || table.policy() == GroupPolicy::kPow2AnySlice) {
    Grower grower(instance);
    cut_into_largest(grower, 0, table);
    trees.push_back(grower.finish());
    return trees;
  }
  if (table.policy() == GroupPolicy::kInterval) {
    // Aligned blocks of powers of two are intervals too.
    const GroupTable blocks(instance.ranks(), GroupPolicy::kPow2AnySlice, table.min_cp());
    Grower grower(instance);
    cut_into_largest(grower, 0, blocks);
    trees.push_back(grower.finish());
    add_interval_trees(instance, trees);
  }
  std::vector<std::vector<int>> chains;
  std::vector<int> chain{instance.ranks()};
  std::vector<int> divisors;
  for (int size : table.sizes()) {
    if (instance.ranks() % size == 0) divisors.push_back(size);
  }
  divisor_chains(divisors, chain, chains);
  for (const std::vector<int>& sizes : chains) {
    Grower grower(instance);
    cut_by_chain(grower, 0, sizes, 1);
    trees.push_back(grower.finish());
  }
  return trees;
}

}  // namespace dyncp::nested
