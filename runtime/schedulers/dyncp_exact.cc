// Dynamic programming over sets of items (meaning of the tables: the header).
#include "runtime/schedulers/dyncp_exact.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dyncp::nested {

ExactTables::ExactTables(const Instance& instance, const Tree& tree, std::vector<int> items,
                         double limit, Budget& budget)
    : instance_(instance),
      tree_(tree),
      items_(std::move(items)),
      limit_(limit),
      budget_(budget),
      all_((ItemSet{1} << items_.size()) - 1),
      packs_(static_cast<std::size_t>(instance.levels())),
      paths_(static_cast<std::size_t>(tree.shapes())),
      below_(static_cast<std::size_t>(tree.shapes())) {}

ExactTables::Table& ExactTables::entry(Tables& tables, int row, int packs) {
  return tables[static_cast<std::size_t>(row)][packs];
}

std::vector<int> ExactTables::members(ItemSet set) const {
  std::vector<int> members;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if ((set >> i & 1U) != 0) members.push_back(items_[i]);
  }
  return members;
}

void ExactTables::charge(double tables) {
  // Ten inner steps of these loops cost about as much as one evaluation elsewhere.
  budget_.evaluations -=
      static_cast<std::int64_t>(tables * std::pow(3.0, static_cast<double>(items_.size())) / 10);
}

const ExactTables::Table& ExactTables::pack_table(int level, int packs) {
  Table& table = entry(packs_, level, packs);
  if (!table.empty()) return table;
  Table made(all_ + 1, kInfinity);
  if (packs == 0) {
    made[0] = 0;
  } else if (packs == 1) {
    for (ItemSet set = 1; set <= all_; ++set) {
      Load load;
      bool fits = true;
      int count = 0;
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if ((set >> i & 1U) == 0) continue;
        load += instance_.load(items_[i], level);
        fits = fits && instance_.first_level(items_[i]) <= level;
        ++count;
      }
      if (!fits || !instance_.fits(load, count, level)) continue;
      const double time = instance_.time(load, level);
      if (time < limit_) made[set] = time;
    }
  } else {
    const Table& one = pack_table(level, 1);
    const Table& rest = pack_table(level, packs - 1);
    for (ItemSet set = 1; set <= all_; ++set) {
      // The pack of the lowest item is named first: packs of a node are interchangeable.
      const ItemSet lowest = set & (~set + 1);
      const ItemSet others = set ^ lowest;
      double least = limit_;
      for (ItemSet sub = others;; sub = (sub - 1) & others) {
        const double sum = one[sub | lowest] + rest[others ^ sub];
        if (sum < least) least = sum;
        if (sub == 0) break;
      }
      if (least < limit_) made[set] = least;
    }
    charge(0.5);
  }
  return entry(packs_, level, packs) = std::move(made);
}

// By set: the least over its splits in two of the larger part.
ExactTables::Table ExactTables::best_split(const Table& first, const Table& second,
                                           bool same) const {
  Table made(all_ + 1, kInfinity);
  for (ItemSet set = 1; set <= all_; ++set) {
    const ItemSet fixed = same ? set & (~set + 1) : 0;  // equal parts are interchangeable
    const ItemSet free = set ^ fixed;
    double least = kInfinity;
    for (ItemSet sub = free;; sub = (sub - 1) & free) {
      const double larger = std::max(first[sub | fixed], second[free ^ sub]);
      if (larger < least) least = larger;
      if (sub == 0) break;
    }
    made[set] = least;
  }
  return made;
}

const ExactTables::Table& ExactTables::below_table(int v, int packs) {
  const int shape = tree_.node(v).shape;
  if (!entry(below_, shape, packs).empty()) return entry(below_, shape, packs);
  Table made;
  if (packs == 0) {
    made.assign(all_ + 1, kInfinity);
    made[0] = 0;
  } else {
    const std::vector<int>& children = tree_.node(v).children;
    made = least_paths(children.back(), packs);
    for (std::size_t c = children.size() - 1; c-- > 0;) {
      const bool same =
          children.size() == 2 && tree_.node(children[0]).shape == tree_.node(children[1]).shape;
      made = best_split(least_paths(children[c], packs), made, same);
      charge(same ? 0.5 : 1.0);
    }
  }
  return entry(below_, shape, packs) = std::move(made);
}

const std::vector<double>& ExactTables::least_paths(int v, int packs) {
  const Node& node = tree_.node(v);
  if (!entry(paths_, node.shape, packs).empty()) return entry(paths_, node.shape, packs);
  Table made;
  if (node.children.empty()) {
    made = pack_table(node.level, packs);
  } else {
    made = below_table(v, packs);
    for (int here = 1; here <= packs; ++here) {
      const Table& own = pack_table(node.level, here);
      const Table& below = below_table(v, packs - here);
      for (ItemSet set = 1; set <= all_; ++set) {
        double least = std::min(made[set], limit_);
        if (here == packs) {
          least = std::min(least, own[set]);
        } else {
          for (ItemSet sub = set; sub > 0; sub = (sub - 1) & set) {
            const double sum = own[sub] + below[set ^ sub];
            if (sum < least) least = sum;
          }
        }
        if (least < limit_) made[set] = least;
      }
      if (here < packs) charge(1.0);
    }
  }
  return entry(paths_, node.shape, packs) = std::move(made);
}

void ExactTables::extract(int v, int packs, ItemSet set, Packing& packing) {
  const Node& node = tree_.node(v);
  const double goal = least_paths(v, packs)[set];
  // How many packs v itself carries, and with which items.
  int here = packs;
  ItemSet on_v = set;
  if (!node.children.empty()) {
    bool found = false;
    for (here = 0; here <= packs && !found; ++here) {
      const Table& own = pack_table(node.level, here);
      const Table& below = below_table(v, packs - here);
      for (ItemSet sub = set;; sub = (sub - 1) & set) {
        if (own[sub] + below[set ^ sub] <= goal) {
          on_v = sub;
          found = true;
          break;
        }
        if (sub == 0) break;
      }
    }
    --here;
  }
  ItemSet below_v = set ^ on_v;
  const int packs_below = packs - here;
  for (; here > 0; --here) {
    const double time = pack_table(node.level, here)[on_v];
    const Table& one = pack_table(node.level, 1);
    const Table& rest = pack_table(node.level, here - 1);
    const ItemSet lowest = on_v & (~on_v + 1);
    const ItemSet others = on_v ^ lowest;
    ItemSet first = on_v;
    for (ItemSet sub = others;; sub = (sub - 1) & others) {
      if (one[sub | lowest] + rest[others ^ sub] <= time) {
        first = sub | lowest;
        break;
      }
      if (sub == 0) break;
    }
    packing.nodes.push_back(v);
    packing.items.push_back(members(first));
    on_v ^= first;
  }
  if (packs_below == 0) return;
  // Deal the rest to the children, one after the other.
  const std::vector<int>& children = node.children;
  std::vector<Table> tail(children.size());  // tail[c]: children c.. together
  tail.back() = least_paths(children.back(), packs_below);
  for (std::size_t c = children.size() - 1; c-- > 1;) {
    tail[c] = best_split(least_paths(children[c], packs_below), tail[c + 1], false);
  }
  double limit = below_table(v, packs_below)[below_v];
  for (std::size_t c = 0; c + 1 < children.size(); ++c) {
    const Table& own = least_paths(children[c], packs_below);
    for (ItemSet sub = below_v;; sub = (sub - 1) & below_v) {
      if (std::max(own[sub], tail[c + 1][below_v ^ sub]) <= limit) {
        extract(children[c], packs_below, sub, packing);
        below_v ^= sub;
        break;
      }
      if (sub == 0) break;
    }
  }
  extract(children.back(), packs_below, below_v, packing);
}

bool solve_exactly(Plan& plan, Budget& budget) {
  const Instance& instance = plan.instance();
  std::vector<int> items;
  for (int item = 0; item < instance.items(); ++item) items.push_back(item);
  ExactTables tables(instance, plan.tree(), items, kInfinity, budget);
  double best = kInfinity;
  int best_microbatches = 0;
  const int first =
      static_cast<int>(round_up(std::max(1, instance.fewest_microbatches()), instance.multiple()));
  for (int m = first; m <= instance.most_microbatches(); m += instance.multiple()) {
    const double makespan = tables.least_paths(0, m)[tables.all()] + m * instance.launch();
    if (makespan < best) {
      best = makespan;
      best_microbatches = m;
    }
  }
  if (best == kInfinity) return false;
  Packing packing;
  tables.extract(0, best_microbatches, tables.all(), packing);
  plan.restore(packing);
  return true;
}

}  // namespace dyncp::nested
