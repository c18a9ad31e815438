// Repair by merging upwards, and placement of packs by descending size (lemmas: the header).
#include "runtime/schedulers/dyncp_repair.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

namespace dyncp::nested {
namespace {

// Halves of a pack by tokens, longest first to the lighter half.
std::pair<std::vector<int>, std::vector<int>> halves(const Instance& instance,
                                                     const std::vector<int>& items) {
  std::pair<std::vector<int>, std::vector<int>> split;
  double first = 0;
  double second = 0;
  for (int item : items) {
    const bool to_first = first <= second;
    (to_first ? split.first : split.second).push_back(item);
    (to_first ? first : second) += instance.real_length(item);
  }
  return split;
}

class Repair {
 public:
  explicit Repair(Plan& plan) : plan_(plan), tree_(plan.tree()), instance_(plan.instance()) {}

  bool run() {
    int count = 0;
    if (tree_.is_forest()) {
      for (int root : tree_.roots()) {
        if (!equalize(root, count)) return false;
        if (count == 0 && !steal(root) && !(merge_beside(root) && steal(root))) return false;
        if (count > 1) return false;
      }
      return true;
    }
    if (!equalize(0, count)) return false;
    while (count < 1 || count % instance_.multiple() != 0) {
      if (!increase(0)) return false;
      ++count;
    }
    return true;
  }

 private:
  // Makes the paths below v (v included) carry the same number of packs: `count`.
  bool equalize(int v, int& count) {
    const std::vector<int>& children = tree_.node(v).children;
    const int own = static_cast<int>(plan_.packs_on(v).size());
    if (children.empty()) {
      count = own;
      return true;
    }
    std::vector<int> counts(children.size());
    for (std::size_t c = 0; c < children.size(); ++c) {
      if (!equalize(children[c], counts[c])) return false;
    }
    int most = *std::max_element(counts.begin(), counts.end());
    for (std::size_t c = 0; c < children.size(); ++c) {
      while (counts[c] < most &&
             (increase_at_leaves(children[c]) || steal(children[c]) ||
              increase_inside(children[c]) || (merge_beside(children[c]) && steal(children[c])))) {
        ++counts[c];
      }
    }
    int merged = 0;
    while (std::any_of(counts.begin(), counts.end(), [&](int k) { return k < most; })) {
      std::vector<int> items;
      for (std::size_t c = 0; c < children.size(); ++c) {
        if (counts[c] < most) continue;
        lift(children[c], items);
        --counts[c];
      }
      if (!plan_.fits(plan_.load_of(items, v), static_cast<int>(items.size()), v)) return false;
      plan_.add_pack(v, std::move(items));
      --most;
      ++merged;
    }
    count = most + own + merged;
    return true;
  }

  int splittable_pack(int v) const {
    int best = -1;
    for (int p : plan_.packs_on(v)) {
      const std::size_t size = plan_.pack(p).items.size();
      if (size > 1 && (best < 0 || size > plan_.pack(best).items.size())) best = p;
    }
    return best;
  }

  void split(int p) {
    const int node = plan_.pack(p).node;
    auto [first, second] = halves(instance_, plan_.pack(p).items);
    plan_.set_items(p, std::move(first));
    plan_.add_pack(node, std::move(second));
  }

  bool all_leaves_splittable(int v) const {
    if (tree_.is_leaf(v)) return splittable_pack(v) >= 0;
    const std::vector<int>& children = tree_.node(v).children;
    return std::all_of(children.begin(), children.end(),
                       [&](int child) { return all_leaves_splittable(child); });
  }

  // One more pack on every path below v by splitting a pack of each leaf: no communication.
  bool increase_at_leaves(int v) {
    if (!all_leaves_splittable(v)) return false;
    split_leaves(v);
    return true;
  }

  void split_leaves(int v) {
    if (tree_.is_leaf(v)) {
      split(splittable_pack(v));
      return;
    }
    for (int child : tree_.node(v).children) split_leaves(child);
  }

  // Opens a pack on v with a sequence of a fuller pack elsewhere, from the heaviest path there is.
  bool steal(int v) {
    const int level = tree_.node(v).level;
    int donor = -1;
    for (int p = 0; p < plan_.packs(); ++p) {
      const Pack& pack = plan_.pack(p);
      if (pack.node < 0 || pack.items.size() < 2) continue;
      if (instance_.first_level(pack.items.back()) > level) continue;
      if (donor < 0 || plan_.path(pack.node) > plan_.path(plan_.pack(donor).node)) donor = p;
    }
    if (donor < 0) return false;
    std::vector<int> items = plan_.pack(donor).items;
    // The longest that does not make v's path the heavier one, else the shortest.
    auto choice = items.end() - 1;
    for (auto item = items.begin(); item != items.end(); ++item) {
      if (instance_.first_level(*item) > level) continue;
      const double time = instance_.time(instance_.load(*item, level), level);
      if (plan_.path(v) + time <= plan_.path(plan_.pack(donor).node)) {
        choice = item;
        break;
      }
    }
    const int item = *choice;
    items.erase(choice);
    plan_.set_items(donor, std::move(items));
    plan_.add_pack(v, {item});
    return true;
  }

  // Makes a pack that steal(v) can take from: merges a pack of each child of the node, outside v's
  // paths, whose path is then lightest. Path counts stay as they are.
  bool merge_beside(int v) {
    int best = -1;
    double least = kInfinity;
    for (int u = tree_.roots().front(); u < tree_.nodes(); ++u) {
      if (tree_.contains(u, v) || tree_.contains(v, u)) continue;
      const std::vector<int>& children = tree_.node(u).children;
      Load load;
      std::size_t count = 0;
      int shortest = -1;
      const bool all =
          !children.empty() && std::all_of(children.begin(), children.end(), [&](int w) {
            if (plan_.packs_on(w).empty()) return false;
            const std::vector<int>& items = plan_.pack(lightest_pack(w)).items;
            load += plan_.load_of(items, u);
            count += items.size();
            shortest = std::max(shortest, items.back());
            return true;
          });
      if (!all || instance_.first_level(shortest) > tree_.node(v).level) continue;
      if (!plan_.fits(load, static_cast<int>(count), u)) continue;
      const double path = plan_.path(u) + plan_.time_of(load, u);
      if (path < least) {
        least = path;
        best = u;
      }
    }
    if (best < 0) return false;
    std::vector<int> items;
    for (int child : tree_.node(best).children) lift(child, items);
    plan_.add_pack(best, std::move(items));
    return true;
  }

  bool can_increase_inside(int v) const {
    if (splittable_pack(v) >= 0) return true;
    const std::vector<int>& children = tree_.node(v).children;
    return !children.empty() && std::all_of(children.begin(), children.end(),
                                            [&](int child) { return can_increase_inside(child); });
  }

  // One more pack on every path below v by splitting packs as far down as there are any.
  bool increase_inside(int v) {
    if (!can_increase_inside(v)) return false;
    const std::vector<int>& children = tree_.node(v).children;
    if (!children.empty() && std::all_of(children.begin(), children.end(),
                                         [&](int child) { return can_increase_inside(child); })) {
      for (int child : children) increase_inside(child);
    } else {
      split(splittable_pack(v));
    }
    return true;
  }

  // One more pack on every path.
  bool increase(int v) {
    if (increase_at_leaves(v) || increase_inside(v)) return true;
    if (tree_.is_leaf(v) || plan_.count_below(v) < 1) return false;
    // Merge one pack of each child and split the result.
    for (int child : tree_.node(v).children) {
      if (plan_.count_below(child) == 0) return steal(v);
    }
    std::vector<int> items;
    for (int child : tree_.node(v).children) lift(child, items);
    const auto [first, second] = halves(instance_, items);
    for (const std::vector<int>& half : {first, second}) {
      if (half.empty()) return false;
      if (!plan_.fits(plan_.load_of(half, v), static_cast<int>(half.size()), v)) return false;
      plan_.add_pack(v, half);
    }
    return true;
  }

  // Of the packs on v itself, by tokens; -1: there is none.
  int lightest_pack(int v) const {
    int lightest = -1;
    for (int p : plan_.packs_on(v)) {
      if (lightest < 0 || plan_.pack(p).load.tokens < plan_.pack(lightest).load.tokens) {
        lightest = p;
      }
    }
    return lightest;
  }

  // Takes one pack off every path below v. REQUIRES: each carries one.
  void lift(int v, std::vector<int>& items) {
    const int lightest = lightest_pack(v);
    if (lightest < 0) {
      for (int child : tree_.node(v).children) lift(child, items);
      return;
    }
    const std::vector<int>& lifted = plan_.pack(lightest).items;
    items.insert(items.end(), lifted.begin(), lifted.end());
    plan_.remove_pack(lightest);
  }

  Plan& plan_;
  const Tree& tree_;
  const Instance& instance_;
};

// A pack on its way to a node.
struct SizedPack {
  std::vector<int> items;
  std::size_t row = 0;  // index into the tree's levels
  double time = 0;
};

class PlacementBySize {
 public:
  explicit PlacementBySize(Plan& plan)
      : plan_(plan), tree_(plan.tree()), instance_(plan.instance()) {}

  bool run(std::vector<LoosePack> packs, int microbatches) {
    if (!tree_.is_binary()) return false;
    for (LoosePack& pack : packs) add(std::move(pack.items), row_of(pack.level));
    const int multiple = instance_.multiple();
    microbatches = static_cast<int>(round_up(std::max(microbatches, 1), multiple));
    for (;;) {
      microbatches = std::max(
          microbatches, static_cast<int>(round_up(ceil_div(slots_, instance_.ranks()), multiple)));
      if (microbatches > instance_.most_microbatches()) return false;
      if (static_cast<int>(packs_.size()) >= microbatches) break;
      if (!split_one()) return false;
    }
    widen(std::int64_t{instance_.ranks()} * microbatches - slots_);
    place(microbatches);
    return true;
  }

 private:
  std::size_t row_of(int level) const {
    std::size_t row = 0;
    while (tree_.levels()[row] < level) ++row;
    return row;
  }
  int level(std::size_t row) const { return tree_.levels()[row]; }
  int size(std::size_t row) const { return instance_.size(level(row)); }

  Load load(const std::vector<int>& items, std::size_t row) const {
    Load sum;
    for (int item : items) sum += instance_.load(item, level(row));
    return sum;
  }

  void add(std::vector<int> items, std::size_t row) {
    const double time = instance_.time(load(items, row), level(row));
    slots_ += size(row);
    packs_.push_back({std::move(items), row, time});
  }

  // The smallest row on which the items fit together.
  std::size_t fitting_row(const std::vector<int>& items) const {
    std::size_t row = row_of(instance_.first_level(items.front()));
    while (row + 1 < tree_.levels().size() &&
           !instance_.fits(load(items, row), static_cast<int>(items.size()), level(row))) {
      ++row;
    }
    return row;
  }

  bool split_one() {
    auto fullest = std::max_element(
        packs_.begin(), packs_.end(),
        [](const SizedPack& a, const SizedPack& b) { return a.items.size() < b.items.size(); });
    if (fullest == packs_.end() || fullest->items.size() < 2) return false;
    auto [first, second] = halves(instance_, fullest->items);
    slots_ -= size(fullest->row);
    packs_.erase(fullest);
    for (std::vector<int>* half : {&first, &second}) {
      std::sort(half->begin(), half->end());
      const std::size_t row = fitting_row(*half);
      add(std::move(*half), row);
    }
    return true;
  }

  // Doubles packs until `missing` more rank slots are used, cheapest rank time per slot first.
  void widen(std::int64_t missing) {
    using Step = std::tuple<double, std::size_t, std::size_t>;  // price per slot, pack, row now
    std::priority_queue<Step, std::vector<Step>, std::greater<>> steps;
    const auto push = [&](std::size_t p) {
      const SizedPack& pack = packs_[p];
      if (pack.row + 1 == tree_.levels().size()) return;
      const double wide = instance_.time(load(pack.items, pack.row + 1), level(pack.row + 1));
      const double price =
          (wide * size(pack.row + 1) - pack.time * size(pack.row)) / size(pack.row);
      steps.emplace(price, p, pack.row);
    };
    for (std::size_t p = 0; p < packs_.size(); ++p) push(p);
    while (missing > 0 && !steps.empty()) {
      const std::size_t p = std::get<1>(steps.top());
      steps.pop();
      SizedPack& pack = packs_[p];
      const int more = size(pack.row + 1) - size(pack.row);
      if (more > missing) continue;
      missing -= more;
      ++pack.row;
      pack.time = instance_.time(load(pack.items, pack.row), level(pack.row));
      push(p);
    }
  }

  void place(int microbatches) {
    std::sort(packs_.begin(), packs_.end(), [](const SizedPack& a, const SizedPack& b) {
      if (a.row != b.row) return a.row > b.row;
      return a.time != b.time ? a.time > b.time : a.items < b.items;
    });
    plan_.clear();
    for (SizedPack& pack : packs_) {
      int best = -1;
      for (int v : tree_.nodes_of(level(pack.row))) {
        if (plan_.count_above(v) + plan_.count_below(v) >= microbatches) continue;
        if (best < 0 || plan_.path(v) < plan_.path(best)) best = v;
      }
      plan_.add_pack(best, std::move(pack.items));
    }
  }

  Plan& plan_;
  const Tree& tree_;
  const Instance& instance_;
  std::vector<SizedPack> packs_;
  std::int64_t slots_ = 0;  // rank slots that the packs use
};

}  // namespace

bool repair(Plan& plan) { return Repair(plan).run(); }

bool place_by_size(Plan& plan, std::vector<LoosePack> packs, int microbatches) {
  return PlacementBySize(plan).run(std::move(packs), microbatches);
}

}  // namespace dyncp::nested
