// Steepest descent on the heaviest path.
#include "runtime/schedulers/dyncp_local_search.h"

#include <algorithm>
#include <utility>

namespace dyncp::nested {
namespace {

class LocalSearch {
 public:
  LocalSearch(Plan& plan, Budget& budget)
      : plan_(plan), tree_(plan.tree()), instance_(plan.instance()), budget_(budget) {}

  int run(double good_enough) {
    const std::vector<int>& roots = tree_.roots();
    int steps = 0;
    std::size_t stuck = 0;  // roots in a row that no step relieves
    for (std::size_t r = 0; stuck < roots.size(); r = (r + 1) % roots.size()) {
      while (!budget_.spent() && plan_.makespan() > good_enough && step(roots[r])) {
        ++steps;
        stuck = 0;
      }
      ++stuck;
    }
    return steps;
  }

 private:
  // More packs than this are not all tried as targets: those on the lightest paths are.
  static constexpr std::size_t kMostTargets = 150;

  enum class Kind { kNone, kMove, kSwap, kLift, kDrop };
  struct Step {
    Kind kind = Kind::kNone;
    // Excess of the heaviest of the paths it touches, after it. The excess of a path is what it is
    // above the heaviest path of its tree now; a step with negative excess relieves.
    double excess = 0;
    int pack = -1;   // on the critical path
    int other = -1;  // the other pack
    int item = -1;
    int other_item = -1;
    int node = -1;            // lift and drop
    std::vector<int> merged;  // lift: a pack of each child
  };

  bool step(int root) {
    const int leaf = plan_.critical_leaf(root);
    best_ = Step{};
    best_.excess = -1e-9 * plan_.path(leaf);
    choose_targets();
    for (int v = leaf;; v = tree_.node(v).parent) {
      for (int p : plan_.packs_on(v)) consider_items(p);
      if (!tree_.is_leaf(v)) {
        consider_lifts(v, leaf);
        for (int p : plan_.packs_on(v)) consider_drop(p);
      }
      if (v == root) break;
    }
    apply();
    return best_.kind != Kind::kNone;
  }

  double excess(int v) const { return plan_.excess(v); }

  void choose_targets() {
    targets_.clear();
    for (int p = 0; p < plan_.packs(); ++p) {
      if (plan_.pack(p).node >= 0) targets_.push_back(p);
    }
    budget_.evaluations -= static_cast<std::int64_t>(targets_.size()) / 4;
    if (targets_.size() <= kMostTargets) return;
    std::nth_element(targets_.begin(), targets_.begin() + kMostTargets, targets_.end(),
                     [&](int a, int b) {
                       const double excess_a = excess(plan_.pack(a).node);
                       const double excess_b = excess(plan_.pack(b).node);
                       return excess_a != excess_b ? excess_a < excess_b : a < b;
                     });
    targets_.resize(kMostTargets);
  }

  // Excess of the heaviest path through `below` or `above` when the packs of `below` take
  // `more_below` longer and those of its ancestor `above` take `more_above` longer.
  double nested_after(int above, double more_above, int below, double more_below) const {
    double beside = -kInfinity;
    for (int v = below; v != above; v = tree_.node(v).parent) {
      for (int sibling : tree_.node(tree_.node(v).parent).children) {
        if (sibling != v) beside = std::max(beside, excess(sibling));
      }
    }
    return std::max(excess(below) + more_above + more_below, beside + more_above);
  }

  double after(int u, double more_u, int w, double more_w) const {
    if (u == w) return excess(u) + more_u + more_w;
    if (tree_.contains(u, w)) return nested_after(u, more_u, w, more_w);
    if (tree_.contains(w, u)) return nested_after(w, more_w, u, more_u);
    return std::max(excess(u) + more_u, excess(w) + more_w);
  }

  // Moves and swaps of every item of pack p.
  void consider_items(int p) {
    const Pack& pack = plan_.pack(p);
    const int u = pack.node;
    const int level_u = tree_.node(u).level;
    const int count = static_cast<int>(pack.items.size());
    for (int item : pack.items) {
      const Load on_u = instance_.load(item, level_u);
      const Load rest = pack.load - on_u;
      const double relief =
          count > 1 ? plan_.time_of(rest, u) - pack.time : -kInfinity;  // by moving it away
      for (int q : targets_) {
        if (q == p) continue;
        const Pack& other = plan_.pack(q);
        const int w = other.node;
        const int level_w = tree_.node(w).level;
        const bool nested = tree_.contains(u, w) || tree_.contains(w, u);
        if (!nested && excess(w) >= best_.excess) continue;
        if (instance_.first_level(item) > level_w) continue;
        const Load on_w = instance_.load(item, level_w);
        const int other_count = static_cast<int>(other.items.size());
        --budget_.evaluations;
        if (count > 1) {
          const Load joined = other.load + on_w;
          if (plan_.fits(joined, other_count + 1, w)) {
            const double more = plan_.time_of(joined, w) - other.time;
            offer({Kind::kMove, after(u, relief, w, more), p, q, item, -1, -1, {}});
          }
        }
        for (int other_item : other.items) {
          // Equal lengths change nothing; on separate paths only a shorter one relieves u.
          if (instance_.real_length(other_item) == instance_.real_length(item)) continue;
          if (!nested && other_item < item) continue;
          if (instance_.first_level(other_item) > level_u) continue;
          const Load in_w = other.load + on_w - instance_.load(other_item, level_w);
          if (!plan_.fits(in_w, other_count, w)) continue;
          --budget_.evaluations;
          const double more = plan_.time_of(in_w, w) - other.time;
          if (!nested && excess(w) + more >= best_.excess) continue;
          const Load in_u = rest + instance_.load(other_item, level_u);
          if (!plan_.fits(in_u, count, u)) continue;
          offer({Kind::kSwap,
                 after(u, plan_.time_of(in_u, u) - pack.time, w, more),
                 p,
                 q,
                 item,
                 other_item,
                 -1,
                 {}});
        }
      }
    }
  }

  void offer(Step step) {
    if (step.excess < best_.excess) best_ = std::move(step);
  }

  // Merges of a pack of each child of v; on the critical side each pack, on others the quickest or,
  // with two children, each.
  void consider_lifts(int v, int leaf) {
    const std::vector<int>& children = tree_.node(v).children;
    int critical = -1;
    for (int child : children) {
      if (plan_.packs_on(child).empty()) return;
      if (tree_.contains(child, leaf)) critical = child;
    }
    for (int p : plan_.packs_on(critical)) {
      if (children.size() == 2) {
        const int sibling = children[0] == critical ? children[1] : children[0];
        for (int q : plan_.packs_on(sibling)) consider_lift(v, {p, q});
        continue;
      }
      std::vector<int> merged;
      for (int child : children) {
        const std::vector<int>& packs = plan_.packs_on(child);
        merged.push_back(child == critical
                             ? p
                             : *std::min_element(packs.begin(), packs.end(), [&](int a, int b) {
                                 return plan_.pack(a).time < plan_.pack(b).time;
                               }));
      }
      consider_lift(v, std::move(merged));
    }
  }

  void consider_lift(int v, std::vector<int> merged) {
    budget_.evaluations -= static_cast<std::int64_t>(merged.size());
    Load load;
    int count = 0;
    for (int p : merged) {
      for (int item : plan_.pack(p).items) load += plan_.load_of(item, v);
      count += static_cast<int>(plan_.pack(p).items.size());
    }
    if (!plan_.fits(load, count, v)) return;
    const double time = plan_.time_of(load, v);
    double worst = -kInfinity;
    for (int p : merged) {
      const Pack& pack = plan_.pack(p);
      worst = std::max(worst, excess(pack.node) - pack.time + time);
    }
    offer({Kind::kLift, worst, -1, -1, -1, -1, v, std::move(merged)});
  }

  // The items of a pack dealt to the children of its node, longest first, each to the child whose
  // heaviest path is then lightest; `worst` is the excess of the heaviest. Empty when they cannot
  // all be dealt or a child gets none.
  std::vector<std::vector<int>> deal(const Pack& pack, double& worst) {
    const std::vector<int>& children = tree_.node(pack.node).children;
    std::vector<std::vector<int>> dealt(children.size());
    std::vector<Load> loads(children.size());
    std::size_t empty = children.size();
    std::size_t left = pack.items.size();
    for (int item : pack.items) {
      std::size_t best = children.size();
      double least = kInfinity;
      Load best_load;
      for (std::size_t c = 0; c < children.size(); ++c) {
        const int child = children[c];
        if (left <= empty && !dealt[c].empty()) continue;  // the rest must fill the empty ones
        if (instance_.first_level(item) > tree_.node(child).level) continue;
        const Load load = loads[c] + plan_.load_of(item, child);
        if (!plan_.fits(load, static_cast<int>(dealt[c].size()) + 1, child)) continue;
        --budget_.evaluations;
        const double path = excess(child) - pack.time + plan_.time_of(load, child);
        if (path < least) {
          least = path;
          best = c;
          best_load = load;
        }
      }
      if (best == children.size()) return {};
      if (dealt[best].empty()) --empty;
      dealt[best].push_back(item);
      loads[best] = best_load;
      --left;
    }
    worst = -kInfinity;
    for (std::size_t c = 0; c < children.size(); ++c) {
      worst =
          std::max(worst, excess(children[c]) - pack.time + plan_.time_of(loads[c], children[c]));
    }
    return dealt;
  }

  void consider_drop(int p) {
    const Pack& pack = plan_.pack(p);
    if (pack.items.size() < tree_.node(pack.node).children.size()) return;
    double worst = kInfinity;
    if (!deal(pack, worst).empty()) offer({Kind::kDrop, worst, p, -1, -1, -1, pack.node, {}});
  }

  static std::vector<int> exchanged(std::vector<int> items, int out, int in) {
    *std::find(items.begin(), items.end(), out) = in;
    return items;
  }

  void apply() {
    switch (best_.kind) {
      case Kind::kNone:
        return;
      case Kind::kMove: {
        std::vector<int> from = plan_.pack(best_.pack).items;
        std::vector<int> to = plan_.pack(best_.other).items;
        from.erase(std::find(from.begin(), from.end(), best_.item));
        to.push_back(best_.item);
        plan_.set_items(best_.pack, std::move(from));
        plan_.set_items(best_.other, std::move(to));
        return;
      }
      case Kind::kSwap:
        plan_.set_items(best_.pack,
                        exchanged(plan_.pack(best_.pack).items, best_.item, best_.other_item));
        plan_.set_items(best_.other,
                        exchanged(plan_.pack(best_.other).items, best_.other_item, best_.item));
        return;
      case Kind::kLift: {
        std::vector<int> items;
        for (int p : best_.merged) {
          items.insert(items.end(), plan_.pack(p).items.begin(), plan_.pack(p).items.end());
          plan_.remove_pack(p);
        }
        plan_.add_pack(best_.node, std::move(items));
        return;
      }
      case Kind::kDrop: {
        double worst = 0;
        std::vector<std::vector<int>> dealt = deal(plan_.pack(best_.pack), worst);
        plan_.remove_pack(best_.pack);
        for (std::size_t c = 0; c < dealt.size(); ++c) {
          plan_.add_pack(tree_.node(best_.node).children[c], std::move(dealt[c]));
        }
        return;
      }
    }
  }

  Plan& plan_;
  const Tree& tree_;
  const Instance& instance_;
  Budget& budget_;
  std::vector<int> targets_;
  Step best_;
};

}  // namespace

int local_search(Plan& plan, double good_enough, Budget& budget) {
  return LocalSearch(plan, budget).run(good_enough);
}

}  // namespace dyncp::nested
