// Choosing the blocks, solving them, and putting the result back.
#include "runtime/schedulers/dyncp_repartition.h"

#include <algorithm>
#include <utility>

#include "runtime/schedulers/dyncp_exact.h"

namespace dyncp::nested {
namespace {

// Most items of both blocks: the work triples with each.
constexpr std::size_t kMostItems = 9;

// A node with all packs on it and below.
struct Block {
  int node = -1;
  std::vector<int> packs;
  std::vector<int> items;
};

Block block_of(const Plan& plan, int v) {
  Block block{v, {}, {}};
  for (int w = v; w < plan.tree().node(v).end; ++w) {
    for (int p : plan.packs_on(w)) {
      block.packs.push_back(p);
      const std::vector<int>& items = plan.pack(p).items;
      block.items.insert(block.items.end(), items.begin(), items.end());
      if (block.items.size() > kMostItems) return block;  // too many to be used
    }
  }
  return block;
}

// A block on the heaviest path, any that is small enough with equal chance.
Block heavy_block(const Plan& plan, int root, Random& random) {
  std::vector<Block> choices;
  for (int v = plan.critical_leaf(root); v != root; v = plan.tree().node(v).parent) {
    Block block = block_of(plan, v);
    if (block.items.size() >= kMostItems) break;
    choices.push_back(std::move(block));
  }
  return choices.empty() ? Block{} : random.one_of(choices);
}

// A block beside `heavy` that has time left and is small enough.
Block light_block(const Plan& plan, const Block& heavy, Random& random, Budget& budget) {
  const Tree& tree = plan.tree();
  constexpr int kTries = 40;
  for (int tries = 0; tries < kTries; ++tries) {
    const int v = random.below(tree.nodes());
    --budget.evaluations;
    if (tree.node(v).level < 0 || plan.excess(v) >= 0) continue;
    if (tree.contains(heavy.node, v) || tree.contains(v, heavy.node)) continue;
    Block block = block_of(plan, v);
    if (heavy.items.size() + block.items.size() <= kMostItems) return block;
  }
  return Block{};
}

}  // namespace

bool repartition(Plan& plan, int root, Random& random, Budget& budget) {
  const Block u = heavy_block(plan, root, random);
  if (u.node < 0) return false;
  const Block w = light_block(plan, u, random, budget);
  if (w.node < 0) return false;
  std::vector<int> items = u.items;
  items.insert(items.end(), w.items.begin(), w.items.end());
  std::sort(items.begin(), items.end());

  // Excess of a path through u (w) that takes t from there down: t - base.
  const Tree& tree = plan.tree();
  const auto base = [&](int v) { return plan.load_below(tree.node(v).root) - plan.load_above(v); };
  const double base_u = base(u.node);
  const double base_w = base(w.node);
  ExactTables tables(plan.instance(), tree, items, std::max(base_u, base_w), budget);
  const std::vector<double>& on_u = tables.least_paths(u.node, plan.count_below(u.node));
  const std::vector<double>& on_w = tables.least_paths(w.node, plan.count_below(w.node));
  double least = -1e-9 * plan.load_below(root);
  ItemSet best = 0;
  for (ItemSet set = 1; set < tables.all(); ++set) {
    const double excess = std::max(on_u[set] - base_u, on_w[tables.all() ^ set] - base_w);
    if (excess < least) {
      least = excess;
      best = set;
    }
  }
  if (best == 0) return false;
  Packing packing;
  tables.extract(u.node, plan.count_below(u.node), best, packing);
  tables.extract(w.node, plan.count_below(w.node), tables.all() ^ best, packing);
  for (int p : u.packs) plan.remove_pack(p);
  for (int p : w.packs) plan.remove_pack(p);
  for (std::size_t p = 0; p < packing.nodes.size(); ++p) {
    plan.add_pack(packing.nodes[p], std::move(packing.items[p]));
  }
  return true;
}

}  // namespace dyncp::nested
