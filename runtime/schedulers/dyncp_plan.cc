// Path loads and counts under changes of single packs.
#include "runtime/schedulers/dyncp_plan.h"

#include <algorithm>
#include <utility>

namespace dyncp::nested {

Plan::Plan(const Instance& instance, const Tree& tree)
    : instance_(instance),
      tree_(tree),
      on_node_(at(tree.nodes())),
      own_(at(tree.nodes())),
      above_(at(tree.nodes())),
      below_(at(tree.nodes())),
      count_own_(at(tree.nodes())),
      count_above_(at(tree.nodes())),
      count_below_(at(tree.nodes())) {}

Load Plan::load_of(const std::vector<int>& items, int node) const {
  Load load;
  for (int item : items) load += load_of(item, node);
  return load;
}

void Plan::change(int v, double time, int count) {
  own_[at(v)] += time;
  count_own_[at(v)] += count;
  for (int below = v + 1; below < tree_.node(v).end; ++below) {
    above_[at(below)] += time;
    count_above_[at(below)] += count;
  }
  for (int u = v; u >= 0; u = tree_.node(u).parent) {
    double heaviest = 0;
    int most = 0;
    for (int child : tree_.node(u).children) {
      heaviest = std::max(heaviest, below_[at(child)]);
      most = std::max(most, count_below_[at(child)]);
    }
    heaviest += own_[at(u)];
    most += count_own_[at(u)];
    if (u != v && heaviest == below_[at(u)] && most == count_below_[at(u)]) break;
    below_[at(u)] = heaviest;
    count_below_[at(u)] = most;
  }
}

int Plan::add_pack(int node, std::vector<int> items) {
  if (removed_.empty()) {
    removed_.push_back(packs());
    packs_.emplace_back();
  }
  const int index = removed_.back();
  removed_.pop_back();
  std::sort(items.begin(), items.end());
  Pack pack;
  pack.node = node;
  pack.load = load_of(items, node);
  pack.time = time_of(pack.load, node);
  pack.items = std::move(items);
  change(node, pack.time, 1);
  packs_[at(index)] = std::move(pack);
  on_node_[at(node)].push_back(index);
  return index;
}

void Plan::remove_pack(int p) {
  Pack& pack = packs_[at(p)];
  std::vector<int>& peers = on_node_[at(pack.node)];
  peers.erase(std::find(peers.begin(), peers.end(), p));
  change(pack.node, -pack.time, -1);
  pack = Pack{};
  removed_.push_back(p);
}

void Plan::set_items(int p, std::vector<int> items) {
  Pack& pack = packs_[at(p)];
  std::sort(items.begin(), items.end());
  pack.items = std::move(items);
  pack.load = load_of(pack.items, pack.node);
  const double time = time_of(pack.load, pack.node);
  change(pack.node, time - pack.time, 0);
  pack.time = time;
}

void Plan::clear() {
  packs_.clear();
  removed_.clear();
  for (std::vector<int>& packs : on_node_) packs.clear();
  for (auto* sums : {&own_, &above_, &below_}) std::fill(sums->begin(), sums->end(), 0.0);
  for (auto* counts : {&count_own_, &count_above_, &count_below_}) {
    std::fill(counts->begin(), counts->end(), 0);
  }
}

int Plan::microbatches() const {
  return tree_.is_forest() ? static_cast<int>(tree_.roots().size()) : count_below_[0];
}

bool Plan::is_uniform(int packs) const {
  return std::all_of(tree_.leaves().begin(), tree_.leaves().end(), [&](int leaf) {
    return count_above_[at(leaf)] + count_own_[at(leaf)] == packs;
  });
}

double Plan::makespan() const {
  double makespan = microbatches() * instance_.launch();
  for (int root : tree_.roots()) makespan += below_[at(root)];
  return makespan;
}

int Plan::critical_leaf(int v) const {
  while (!tree_.is_leaf(v)) {
    const std::vector<int>& children = tree_.node(v).children;
    v = *std::max_element(children.begin(), children.end(),
                          [&](int a, int b) { return below_[at(a)] < below_[at(b)]; });
  }
  return v;
}

Packing Plan::packing() const {
  Packing packing;
  for (const Pack& pack : packs_) {
    if (pack.node < 0) continue;
    packing.nodes.push_back(pack.node);
    packing.items.push_back(pack.items);
  }
  return packing;
}

void Plan::restore(const Packing& packing) {
  clear();
  for (std::size_t p = 0; p < packing.nodes.size(); ++p) {
    Pack pack;
    pack.node = packing.nodes[p];
    pack.items = packing.items[p];
    pack.load = load_of(pack.items, pack.node);
    pack.time = time_of(pack.load, pack.node);
    own_[at(pack.node)] += pack.time;
    ++count_own_[at(pack.node)];
    on_node_[at(pack.node)].push_back(static_cast<int>(p));
    packs_.push_back(std::move(pack));
  }
  for (int v = 1; v < tree_.nodes(); ++v) {
    const std::size_t parent = at(tree_.node(v).parent);
    above_[at(v)] = above_[parent] + own_[parent];
    count_above_[at(v)] = count_above_[parent] + count_own_[parent];
  }
  for (int v = tree_.nodes() - 1; v >= 0; --v) {
    below_[at(v)] += own_[at(v)];  // the heaviest child is in already
    count_below_[at(v)] += count_own_[at(v)];
    if (v == 0) break;
    const std::size_t parent = at(tree_.node(v).parent);
    below_[parent] = std::max(below_[parent], below_[at(v)]);
    count_below_[parent] = std::max(count_below_[parent], count_below_[at(v)]);
  }
}

Schedule Plan::schedule() const {
  // First microbatch of each root: 0 for a tree, the tree's position for a forest.
  std::vector<int> roots = tree_.roots();
  std::stable_sort(roots.begin(), roots.end(),
                   [&](int a, int b) { return below_[at(a)] > below_[at(b)]; });
  Schedule schedule;
  schedule.microbatches.resize(at(microbatches()));
  for (std::size_t r = 0; r < roots.size(); ++r) {
    for (int v = roots[r]; v < tree_.node(roots[r]).end; ++v) {
      std::vector<int> packs = on_node_[at(v)];
      // Equal packs are interchangeable up to their items, which decide ties.
      std::sort(packs.begin(), packs.end(), [&](int a, int b) {
        return pack(a).time != pack(b).time ? pack(a).time > pack(b).time
                                            : pack(a).items < pack(b).items;
      });
      std::size_t microbatch = r + at(count_above_[at(v)]);
      for (int p : packs) {
        Assignment assignment;
        assignment.group = {tree_.node(v).first_rank, tree_.node(v).size};
        for (int item : pack(p).items) assignment.sequences.push_back(instance_.id(item));
        schedule.microbatches[microbatch++].push_back(std::move(assignment));
      }
    }
  }
  for (Microbatch& microbatch : schedule.microbatches) {
    std::sort(microbatch.begin(), microbatch.end(), [](const Assignment& a, const Assignment& b) {
      return a.group.first_rank < b.group.first_rank;
    });
  }
  return schedule;
}

}  // namespace dyncp::nested
