// Every set of items as one microbatch, then every partition of the items into such sets.
#include "runtime/schedulers/dyncp_exhaustive.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace dyncp::nested {
namespace {

using Table = std::vector<double>;  // by set

// How a set of items can run as one microbatch.
class Rows {
 public:
  virtual ~Rows() = default;
  /// By set: the least slowest pack; infinity when the set cannot run as one microbatch.
  virtual const Table& slowest() = 0;
  virtual Microbatch microbatch(ItemSet set) = 0;
};

Assignment assignment(const Instance& instance, CpGroup group, const std::vector<int>& items) {
  Assignment assignment{group, {}};
  for (int item : items) assignment.sequences.push_back(instance.id(item));
  return assignment;
}

// On nested groups: one pack on every path of the tree.
class LaminarRows : public Rows {
 public:
  LaminarRows(const Instance& instance, const Tree& tree, std::vector<int> items)
      : instance_(instance),
        tree_(tree),
        tables_(instance, tree, std::move(items), kInfinity, budget_) {}

  const Table& slowest() override { return tables_.least_paths(0, 1); }

  Microbatch microbatch(ItemSet set) override {
    Packing packing;
    tables_.extract(0, 1, set, packing);
    Microbatch microbatch;
    for (std::size_t p = 0; p < packing.nodes.size(); ++p) {
      const Node& node = tree_.node(packing.nodes[p]);
      microbatch.push_back(assignment(instance_, {node.first_rank, node.size}, packing.items[p]));
    }
    std::sort(microbatch.begin(), microbatch.end(), [](const Assignment& a, const Assignment& b) {
      return a.group.first_rank < b.group.first_rank;
    });
    return microbatch;
  }

 private:
  const Instance& instance_;
  const Tree& tree_;
  Budget budget_;
  ExactTables tables_;
};

// On any group table: ranks first.. by groups from left to right.
class AnyRows : public Rows {
 public:
  AnyRows(const Instance& instance, std::vector<int> items)
      : instance_(instance), items_(std::move(items)) {
    const std::size_t sets = std::size_t{1} << items_.size();
    for (int level = 0; level < instance.levels(); ++level) {
      Table times(sets, kInfinity);
      for (ItemSet set = 1; set < sets; ++set) times[set] = time(set, level);
      times_.push_back(std::move(times));
    }
    const auto ranks = static_cast<std::size_t>(instance.ranks());
    from_.assign(ranks + 1, Table(sets, kInfinity));
    choices_.assign(ranks, std::vector<Choice>(sets));
    from_[ranks][0] = 0;
    for (std::size_t first = ranks; first-- > 0;) {
      for (int level = 0; level < instance.levels(); ++level) {
        const CpGroup group{static_cast<int>(first), instance.size(level)};
        if (!instance.table().exists(group)) continue;
        const Table& rest = from_[static_cast<std::size_t>(group.end_rank())];
        const Table& times = times_[static_cast<std::size_t>(level)];
        for (ItemSet set = 1; set < sets; ++set) {
          for (ItemSet pack = set; pack > 0; pack = (pack - 1) & set) {
            const double slowest = std::max(times[pack], rest[set ^ pack]);
            if (slowest < from_[first][set]) {
              from_[first][set] = slowest;
              choices_[first][set] = {group.size, pack};
            }
          }
        }
      }
    }
  }

  const Table& slowest() override { return from_[0]; }

  Microbatch microbatch(ItemSet set) override {
    Microbatch microbatch;
    for (int first = 0; first < instance_.ranks();) {
      const Choice choice = choices_[static_cast<std::size_t>(first)][set];
      std::vector<int> members;
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if ((choice.pack >> i & 1U) != 0) members.push_back(items_[i]);
      }
      microbatch.push_back(assignment(instance_, {first, choice.size}, members));
      first += choice.size;
      set ^= choice.pack;
    }
    return microbatch;
  }

 private:
  struct Choice {
    int size = 0;
    ItemSet pack = 0;
  };

  double time(ItemSet set, int level) const {
    Load load;
    int count = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      if (instance_.first_level(items_[i]) > level) return kInfinity;
      load += instance_.load(items_[i], level);
      ++count;
    }
    return instance_.fits(load, count, level) ? instance_.time(load, level) : kInfinity;
  }

  const Instance& instance_;
  std::vector<int> items_;
  std::vector<Table> times_;                  // [level]
  std::vector<Table> from_;                   // [first rank]: ranks first.. run exactly the set
  std::vector<std::vector<Choice>> choices_;  // [first rank][set]: the group at first rank
};

}  // namespace

bool is_laminar(const Instance& instance) {
  const GroupPolicy policy = instance.table().policy();
  return policy == GroupPolicy::kAligned || policy == GroupPolicy::kPow2AnySlice;
}

bool has_few_rows(const Instance& instance, int most_items) {
  if (instance.items() > most_items) return false;
  if (is_laminar(instance)) return true;
  double groups = 0;
  for (int level = 0; level < instance.levels(); ++level) {
    groups += static_cast<double>(instance.table().first_ranks(instance.size(level)).size());
  }
  return groups * std::pow(3.0, instance.items()) < 2e7;
}

std::optional<Schedule> solve_rows(const Instance& instance, const std::vector<Tree>& trees) {
  std::vector<int> items;
  for (int item = 0; item < instance.items(); ++item) items.push_back(item);
  std::unique_ptr<Rows> rows;
  if (is_laminar(instance)) {
    rows = std::make_unique<LaminarRows>(instance, trees.front(), items);
  } else {
    rows = std::make_unique<AnyRows>(instance, items);
  }
  const Table& row = rows->slowest();
  const ItemSet all = (ItemSet{1} << items.size()) - 1;
  // total[count][set]: least sum over `count` microbatches that run exactly the set.
  std::vector<Table> total{Table(all + 1, kInfinity)};
  total[0][0] = 0;
  double best = kInfinity;
  int best_count = 0;
  for (int count = 1; count <= instance.most_microbatches(); ++count) {
    const Table& before = total.back();
    Table now(all + 1, kInfinity);
    for (ItemSet set = 1; set <= all; ++set) {
      const ItemSet lowest = set & (~set + 1);  // microbatches are interchangeable
      const ItemSet others = set ^ lowest;
      for (ItemSet sub = others;; sub = (sub - 1) & others) {
        now[set] = std::min(now[set], row[sub | lowest] + before[others ^ sub]);
        if (sub == 0) break;
      }
    }
    total.push_back(std::move(now));
    const double makespan = total.back()[all] + count * instance.launch();
    if (count % instance.multiple() == 0 && makespan < best) {
      best = makespan;
      best_count = count;
    }
  }
  if (best_count == 0) return std::nullopt;
  Schedule schedule;
  ItemSet left = all;
  for (int count = best_count; count > 0; --count) {
    const Table& before = total[static_cast<std::size_t>(count) - 1];
    const double goal = total[static_cast<std::size_t>(count)][left];
    const ItemSet lowest = left & (~left + 1);
    const ItemSet others = left ^ lowest;
    for (ItemSet sub = others;; sub = (sub - 1) & others) {
      if (row[sub | lowest] + before[others ^ sub] <= goal) {
        schedule.microbatches.push_back(rows->microbatch(sub | lowest));
        left = others ^ sub;
        break;
      }
      if (sub == 0) break;
    }
  }
  return schedule;
}

}  // namespace dyncp::nested
