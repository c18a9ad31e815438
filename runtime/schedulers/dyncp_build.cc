// The constructive pass. For each size the nodes are kept in blocks of 32 with the least path load
// and the most room of the block, so that finding the least loaded node with room costs
// O(nodes / 32 + 32).
#include "runtime/schedulers/dyncp_build.h"

#include <algorithm>
#include <utility>

namespace dyncp::nested {
namespace {

class Builder {
 public:
  Builder(const Instance& instance, const Tree& tree, const BuildOptions& options)
      : instance_(instance),
        tree_(tree),
        options_(options),
        microbatches_(options.microbatches),
        state_(at(tree.nodes())),
        rows_(tree.levels().size()) {
    position_.resize(at(tree.nodes()));
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::vector<int>& nodes = tree.nodes_of(tree.levels()[row]);
      rows_[row].nodes = nodes;
      rows_[row].level = tree.levels()[row];
      rows_[row].size = instance.size(rows_[row].level);
      rows_[row].blocks.resize((nodes.size() + kBlock - 1) / kBlock);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        position_[at(nodes[i])] = {static_cast<int>(row), static_cast<int>(i)};
      }
    }
    row_loads_.resize(rows_.size());
  }

  std::optional<Built> run() {
    // Rank slots of one pack a path.
    const std::int64_t slots = instance_.ranks() * static_cast<std::int64_t>(tree_.roots().size());
    empty_slots_ = slots * microbatches_;
    spread_deadlines();
    refresh_all();
    const int items = instance_.items();
    for (int item = 0; item < items; ++item) {
      if (item == 0 || instance_.real_length(item) != instance_.real_length(item - 1)) {
        prepare(item);
      }
      const std::int64_t left = items - item;
      if (left <= empty_slots_ && open_wide(item, left)) continue;
      while (!place(item)) {
        if (tree_.is_forest() ||
            microbatches_ + instance_.multiple() > instance_.most_microbatches()) {
          return std::nullopt;
        }
        microbatches_ += instance_.multiple();
        empty_slots_ += slots * instance_.multiple();
        refresh_all();
      }
    }
    Built built;
    built.microbatches = microbatches_;
    for (OpenPack& pack : packs_) {
      built.packing.nodes.push_back(pack.node);
      built.packing.items.push_back(std::move(pack.items));
    }
    return built;
  }

 private:
  static constexpr std::size_t kBlock = 32;
  static constexpr int kNewPack = -1;
  static constexpr int kNoPack = -2;

  struct OpenPack {
    int node = -1;
    Load load;
    double time = 0;
    std::vector<int> items;
  };
  struct NodeState {
    double above = 0, own = 0, below = 0;  // loads as in Plan
    int count_above = 0, count_own = 0, count_below = 0;
    double path = 0;  // above + below
    double room = 0;  // most tokens that a pack of the node can take, < 0: none
    std::vector<std::pair<double, int>> open;  // (room, pack) of its packs, ascending
  };
  struct Block {
    double least_path = 0;
    double most_room = 0;
  };
  struct Row {  // the nodes of one size
    int level = 0;
    int size = 1;
    std::vector<int> nodes;
    std::vector<Block> blocks;
  };
  struct Position {
    int row = 0;
    int index = 0;
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  NodeState& state(int v) { return state_[at(v)]; }
  bool may_open(int v) const {
    return state_[at(v)].count_above + state_[at(v)].count_below < microbatches_;
  }
  double full_room(int level) const {
    return instance_.serial() ? kInfinity : instance_.capacity(level);
  }

  void refresh_room(int v) {
    NodeState& node = state(v);
    if (may_open(v)) {
      node.room = full_room(tree_.node(v).level);
    } else {
      node.room = node.open.empty() ? -1 : node.open.back().first;
    }
  }

  // After v changed from this path and room. Rarely needs to look at the whole block.
  void update_block(int v, double old_path, double old_room) {
    const Position position = position_[at(v)];
    Block& block = rows_[at(position.row)].blocks[at(position.index) / kBlock];
    const NodeState& node = state(v);
    const bool was_least = old_path <= block.least_path && node.path > old_path;
    const bool had_most = old_room >= block.most_room && node.room < old_room;
    if (was_least || had_most) {
      refresh_block(v);
      return;
    }
    block.least_path = std::min(block.least_path, node.path);
    block.most_room = std::max(block.most_room, node.room);
  }

  void refresh_block(int v) {
    Row& row = rows_[at(position_[at(v)].row)];
    const std::size_t b = at(position_[at(v)].index) / kBlock;
    const std::size_t end = std::min(row.nodes.size(), (b + 1) * kBlock);
    Block block{kInfinity, -1};
    for (std::size_t i = b * kBlock; i < end; ++i) {
      const NodeState& node = state_[at(row.nodes[i])];
      block.least_path = std::min(block.least_path, node.path);
      block.most_room = std::max(block.most_room, node.room);
    }
    row.blocks[b] = block;
  }

  // A longer deadline is a load below zero to begin with.
  void spread_deadlines() {
    const std::size_t roots = tree_.roots().size();
    if (roots == 1) return;
    for (std::size_t r = 0; r < roots; ++r) {
      const double share = 1 - 2 * static_cast<double>(r) / static_cast<double>(roots - 1);
      const int root = tree_.roots()[r];
      for (int v = root; v < tree_.node(root).end; ++v) {
        state(v).above = -share * options_.spread * options_.deadline;
        state(v).path = state(v).above;
      }
    }
  }

  void refresh_all() {
    for (int v = tree_.roots().front(); v < tree_.nodes(); ++v) refresh_room(v);
    for (const Row& row : rows_) {
      for (std::size_t i = 0; i < row.nodes.size(); i += kBlock) refresh_block(row.nodes[i]);
    }
  }

  // Adds time and packs to a node and everything that depends on them.
  void change(int v, double time, int count) {
    state(v).own += time;
    state(v).count_own += count;
    for (int u = v; u >= tree_.roots().front(); u = tree_.node(u).parent) {
      NodeState& node = state(u);
      double below = 0;
      int count_below = 0;
      for (int child : tree_.node(u).children) {
        below = std::max(below, state(child).below);
        count_below = std::max(count_below, state(child).count_below);
      }
      below += node.own;
      count_below += node.count_own;
      const bool same_count = count_below == node.count_below;
      if (u != v && same_count && below == node.below) break;
      const double old_path = node.path;
      const double old_room = node.room;
      node.below = below;
      node.count_below = count_below;
      node.path = node.above + below;
      if (u == v || !same_count) refresh_room(u);
      update_block(u, old_path, old_room);
    }
    for (int w = v + 1; w < tree_.node(v).end; ++w) {
      NodeState& node = state(w);
      node.above += time;
      node.path += time;
      if (count != 0) {
        node.count_above += count;
        refresh_room(w);
      }
    }
    // Preorder descendants are runs of consecutive nodes on every row.
    for (int w = v + 1; w < tree_.node(v).end; ++w) {
      const bool first_of_block = at(position_[at(w)].index) % kBlock == 0;
      if (first_of_block || tree_.node(w).first_rank == tree_.node(v).first_rank) refresh_block(w);
    }
  }

  // What is the same for all items of one length: loads and times by size, and the size of choice.
  void prepare(int item) {
    first_row_ = 0;
    while (rows_[first_row_].level < instance_.first_level(item)) ++first_row_;
    const double time_left =
        options_.deadline * (1 + options_.spread) - microbatches_ * instance_.launch();
    double least_area = kInfinity;
    double least_time = kInfinity;
    std::size_t cheapest = first_row_;
    std::size_t fastest = first_row_;
    for (std::size_t row = first_row_; row < rows_.size(); ++row) {
      const Load load = instance_.load(item, rows_[row].level);
      const double time = instance_.time(load, rows_[row].level);
      row_loads_[row] = load;
      if (time < least_time * (1 - 1e-9)) {
        least_time = time;
        fastest = row;
      }
      if (time <= options_.patience * time_left &&
          time * rows_[row].size < least_area * (1 - 1e-9)) {
        least_area = time * rows_[row].size;
        cheapest = row;
      }
    }
    chosen_row_ = least_area < kInfinity ? cheapest : fastest;
  }

  // The least loaded node of a row that takes the item: the first below `good_enough` if any is.
  int find(std::size_t r, bool new_pack, double good_enough) const {
    const Row& row = rows_[r];
    const double tokens = row_loads_[r].tokens;
    int best = -1;
    double least = kInfinity;
    for (std::size_t b = 0; b < row.blocks.size(); ++b) {
      if (row.blocks[b].most_room < tokens || row.blocks[b].least_path >= least) continue;
      const std::size_t end = std::min(row.nodes.size(), (b + 1) * kBlock);
      for (std::size_t i = b * kBlock; i < end; ++i) {
        const int v = row.nodes[i];
        const NodeState& node = state_[at(v)];
        if (node.room < tokens || node.path >= least || (new_pack && !may_open(v))) continue;
        if (node.path <= good_enough) return v;
        best = v;
        least = node.path;
      }
    }
    return best;
  }

  // The pack of a node that the item joins: evenly the one with most room, else with least.
  int choose_pack(int v, std::size_t row) const {
    const NodeState& node = state_[at(v)];
    const double tokens = row_loads_[row].tokens;
    const bool evenly = tree_.is_leaf(v) && !options_.best_fit;
    if (evenly && may_open(v)) return kNewPack;
    const auto tightest =
        std::lower_bound(node.open.begin(), node.open.end(), std::pair(tokens, -1));
    if (tightest != node.open.end()) return evenly ? node.open.back().second : tightest->second;
    return may_open(v) ? kNewPack : kNoPack;
  }

  // Takes the pack out of the open ones of its node, or puts it (back) among them.
  void close(int p) {
    std::vector<std::pair<double, int>>& open = state(packs_[at(p)].node).open;
    open.erase(std::lower_bound(open.begin(), open.end(), std::pair(room_of(p), p)));
  }
  void reopen(int p) {
    const OpenPack& pack = packs_[at(p)];
    if (static_cast<int>(pack.items.size()) >= instance_.max_count()) return;
    std::vector<std::pair<double, int>>& open = state(pack.node).open;
    const std::pair entry(room_of(p), p);
    open.insert(std::lower_bound(open.begin(), open.end(), entry), entry);
  }
  double room_of(int p) const {
    const OpenPack& pack = packs_[at(p)];
    const double room = full_room(tree_.node(pack.node).level);
    return instance_.serial() ? room : room - pack.load.tokens;
  }

  double added_time(int v, int p, std::size_t row) const {
    const int level = tree_.node(v).level;
    if (p == kNewPack) return instance_.time(row_loads_[row], level);
    const OpenPack& pack = packs_[at(p)];
    return instance_.time(pack.load + row_loads_[row], level) - pack.time;
  }

  void put(int item, int v, int p, std::size_t row) {
    const double added = added_time(v, p, row);
    if (p == kNewPack) {
      const int opened = static_cast<int>(packs_.size());
      packs_.push_back({v, row_loads_[row], added, {item}});
      reopen(opened);
      empty_slots_ -= tree_.node(v).size;
      change(v, added, 1);
      return;
    }
    close(p);
    OpenPack& pack = packs_[at(p)];
    pack.load += row_loads_[row];
    pack.time += added;
    pack.items.push_back(item);
    reopen(p);
    change(v, added, 0);
  }

  // Few items are left for the ranks that still need work: open a pack, as wide as they allow.
  bool open_wide(int item, std::int64_t left) {
    const std::int64_t share = empty_slots_ / left;
    std::size_t widest = chosen_row_;
    while (widest + 1 < rows_.size() && rows_[widest + 1].size <= share) ++widest;
    for (std::size_t row = widest + 1; row-- > first_row_;) {
      if (open_on(item, row)) return true;
    }
    for (std::size_t row = widest + 1; row < rows_.size(); ++row) {
      if (open_on(item, row)) return true;
    }
    return false;
  }

  bool open_on(int item, std::size_t row) {
    const int v = find(row, true, -kInfinity);
    if (v < 0) return false;
    put(item, v, kNewPack, row);
    return true;
  }

  // The smallest size from the chosen one up that meets the deadline, else the earliest end.
  bool place(int item) {
    const double deadline = options_.deadline - microbatches_ * instance_.launch();
    int best = -1;
    int best_pack = kNoPack;
    std::size_t best_row = 0;
    double best_end = kInfinity;
    const auto consider = [&](std::size_t row) {
      const double alone = instance_.time(row_loads_[row], rows_[row].level);
      const int v = find(row, false, options_.first_fit ? deadline - alone : -kInfinity);
      if (v < 0) return;
      const int p = choose_pack(v, row);
      if (p == kNoPack) return;
      const double end = state(v).path + added_time(v, p, row);
      if (end < best_end * (1 - 1e-12)) {
        best = v;
        best_pack = p;
        best_row = row;
        best_end = end;
      }
    };
    for (std::size_t row = chosen_row_; row < rows_.size() && best_end > deadline; ++row) {
      consider(row);
    }
    for (std::size_t row = chosen_row_; row-- > first_row_ && best_end > deadline;) consider(row);
    if (best < 0) return false;
    put(item, best, best_pack, best_row);
    return true;
  }

  const Instance& instance_;
  const Tree& tree_;
  const BuildOptions& options_;
  int microbatches_;
  std::int64_t empty_slots_ = 0;
  std::vector<NodeState> state_;
  std::vector<Row> rows_;
  std::vector<Position> position_;
  std::vector<OpenPack> packs_;
  // Of the present length, by row:
  std::vector<Load> row_loads_;
  std::size_t first_row_ = 0;
  std::size_t chosen_row_ = 0;
};

}  // namespace

std::optional<Built> build(const Instance& instance, const Tree& tree,
                           const BuildOptions& options) {
  return Builder(instance, tree, options).run();
}

}  // namespace dyncp::nested
