// The grid of constructive passes and what is done with the best of them.
#include "runtime/schedulers/dyncp_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "runtime/schedulers/dyncp_build.h"
#include "runtime/schedulers/dyncp_fallback.h"
#include "runtime/schedulers/dyncp_improve.h"
#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

// What an effort tries.
struct Grid {
  std::vector<double> patiences;  // BuildOptions::patience
  std::vector<double> stretches;  // deadlines, in units of the lower bound
  std::vector<double> spreads;    // BuildOptions::spread
  int counts = 1;                 // numbers of microbatches, from the fewest up
  bool both_fits = false;         // BuildOptions::best_fit also true
  bool both_finds = false;        // BuildOptions::first_fit also true
  int most_passes = 0;            // constructive passes,
  int most_placements = 0;        // sequences placed by all of them; one pass in any case
  std::size_t searches = 1;       // plans that are descended from
  int patience = 0;               // ImproveOptions::patience
  std::size_t kicked = 0;         // plans that are kicked after that
  int kicks = 0;                  // ImproveOptions::kicks
  double good_enough = 1.002;     // stop at this multiple of the bound
  std::int64_t evaluations = 0;
  std::int64_t not_for_kicks = 0;  // of the evaluations
};

// With more sequences a rank, packs of one sequence each are no candidates.
constexpr int kManyPerRank = 4;

Grid grid_of(Effort effort, Barrier barrier) {
  Grid grid;
  switch (effort) {
    case Effort::kFast:
      grid.patiences = {1.0};
      grid.stretches = {1.02};
      grid.spreads = {0.0};
      grid.most_passes = 4;
      grid.counts = 2;
      grid.most_placements = 50'000;
      grid.evaluations = 200'000;
      break;
    case Effort::kDefault:
      grid.patiences = {1.0, 0.5};
      grid.stretches = {1.02, 1.12};
      grid.spreads = {0.0, 0.3};
      grid.most_passes = 48;
      grid.counts = 3;
      grid.both_fits = true;
      grid.most_placements = 100'000;
      grid.searches = 3;
      grid.patience = 10;
      grid.kicked = 1;
      grid.kicks = 200;
      grid.evaluations = 400'000;
      // With barriers descents alone end far from the optimum; without, kicks serve few sequences.
      if (barrier == Barrier::kNone) grid.not_for_kicks = 300'000;
      break;
    case Effort::kBest:
      grid.patiences = {1.0, 0.6, 0.35};
      grid.stretches = {1.0, 1.03, 1.08, 1.16, 1.3};
      grid.spreads = {0.0, 0.1, 0.2, 0.4, 0.7};
      grid.most_passes = 1000;
      grid.counts = 6;
      grid.both_fits = true;
      grid.both_finds = true;
      grid.most_placements = 500'000;
      grid.searches = 6;
      grid.patience = 30;
      grid.kicked = 2;
      grid.kicks = 1000;
      grid.good_enough = 1.0005;
      grid.evaluations = 14'000'000;
      break;
  }
  return grid;
}

struct Candidate {
  const Tree* tree = nullptr;
  Packing packing;
  double makespan = kInfinity;
};

class Search {
 public:
  Search(const Instance& instance, const std::vector<Tree>& trees, Barrier barrier, Effort effort,
         double bound)
      : instance_(instance),
        barrier_(barrier),
        bound_(bound),
        grid_(grid_of(effort, barrier)),
        budget_{grid_.evaluations} {
    for (const Tree& tree : trees) trees_.push_back(&tree);
  }

  std::optional<Schedule> run(const std::vector<Schedule>& seeds) {
    for (const Schedule& seed : seeds) add_seed(seed);
    const int fewest = instance_.fewest_microbatches();
    const int multiple = instance_.multiple();
    const int step =
        static_cast<int>(round_up(static_cast<std::int64_t>(std::ceil(0.09 * fewest)), multiple));
    std::vector<Target> targets;
    for (const Tree* tree : trees_) {
      for (int i = 0; i < grid_.counts; ++i) {
        const int microbatches = fewest + i * step;
        if (microbatches > instance_.most_microbatches()) break;
        targets.push_back({planning_tree(*tree, microbatches), microbatches});
      }
    }
    build_all(targets);
    for (const Target& target : targets) add_whole_domain(target);
    if (candidates_.empty()) return std::nullopt;
    sort_candidates();
    improve_best();
    Plan plan(instance_, *candidates_.front().tree);
    plan.restore(candidates_.front().packing);
    return plan.schedule();
  }

 private:
  bool good_enough(double makespan) const { return makespan <= grid_.good_enough * bound_; }

  // Descends from the best plans, then searches on around the very best.
  void improve_best() {
    Random random(1);
    const ImproveOptions descent{grid_.good_enough * bound_, grid_.patience, 0};
    std::size_t descended = 0;
    double last = 0;
    for (Candidate& candidate : candidates_) {
      if (descended == grid_.searches || good_enough(least_)) break;
      if (candidate.makespan <= last * (1 + 1e-9)) continue;  // the same plan once more
      last = candidate.makespan;
      ++descended;
      improve(candidate, descent, random);
    }
    sort_candidates();
    budget_.evaluations -= grid_.not_for_kicks;
    for (std::size_t i = 0; i < std::min(candidates_.size(), grid_.kicked); ++i) {
      if (good_enough(least_)) break;
      ImproveOptions kicked = descent;
      kicked.kicks = grid_.kicks;
      improve(candidates_[i], kicked, random);
    }
    sort_candidates();
  }

  void improve(Candidate& candidate, const ImproveOptions& options, Random& random) {
    Plan plan(instance_, *candidate.tree);
    plan.restore(candidate.packing);
    nested::improve(plan, options, random, budget_);
    candidate.packing = plan.packing();
    candidate.makespan = plan.makespan();
    least_ = std::min(least_, candidate.makespan);
  }

  void sort_candidates() {
    std::stable_sort(
        candidates_.begin(), candidates_.end(),
        [](const Candidate& a, const Candidate& b) { return a.makespan < b.makespan; });
  }

  // A tree (or forest) and the number of microbatches wanted on it.
  struct Target {
    const Tree* tree = nullptr;
    int microbatches = 0;
  };

  // What plans of the objective are made on.
  const Tree* planning_tree(const Tree& tree, int microbatches) {
    if (barrier_ == Barrier::kNone) return &tree;
    forests_.push_back(std::make_unique<Tree>(Tree::forest(instance_, tree, microbatches)));
    return forests_.back().get();
  }

  // A given schedule as a plan, if one tree has all its groups.
  void add_seed(const Schedule& seed) {
    for (const Tree* tree : trees_) {
      std::map<std::pair<int, int>, int> nodes;  // (first rank, size): node of the tree
      for (int v = 0; v < tree->nodes(); ++v) {
        nodes[{tree->node(v).first_rank, tree->node(v).size}] = v;
      }
      const Tree* planned = planning_tree(*tree, static_cast<int>(seed.microbatches.size()));
      Packing packing;
      bool found = true;
      for (std::size_t m = 0; m < seed.microbatches.size(); ++m) {
        const int base = planned->is_forest() ? planned->roots()[m] : 0;
        for (const Assignment& assignment : seed.microbatches[m]) {
          const auto node = nodes.find({assignment.group.first_rank, assignment.group.size});
          found = found && node != nodes.end();
          if (!found) break;
          packing.nodes.push_back(base + node->second);
          packing.items.push_back(assignment.sequences);
          std::sort(packing.items.back().begin(), packing.items.back().end());
        }
      }
      if (!found) continue;
      Plan plan(instance_, *planned);
      plan.restore(packing);
      keep(plan);
      return;
    }
  }

  // The grid, the more promising choices first.
  void build_all(const std::vector<Target>& targets) {
    int builds = std::min(grid_.most_passes, grid_.most_placements / instance_.items());
    const std::vector<double> no_spread{0};
    for (bool best_fit : {false, true}) {
      for (bool first_fit : {false, true}) {
        if ((best_fit && !grid_.both_fits) || (first_fit && !grid_.both_finds)) continue;
        for (double patience : grid_.patiences) {
          for (double stretch : grid_.stretches) {
            for (double spread : barrier_ == Barrier::kNone ? no_spread : grid_.spreads) {
              for (const Target& target : targets) {
                if ((builds-- <= 0 && !candidates_.empty()) || good_enough(least_)) return;
                BuildOptions options = options_for(target, stretch);
                options.patience = patience;
                options.best_fit = best_fit;
                options.first_fit = first_fit;
                options.spread = spread;
                add(*target.tree, options);
                if (!best_fit && !first_fit) add_singles(*target.tree, options);
              }
            }
          }
        }
      }
    }
  }

  BuildOptions options_for(const Target& target, double stretch) const {
    const double launches = target.microbatches * instance_.launch();
    const double launches_in_bound = instance_.fewest_microbatches() * instance_.launch();
    BuildOptions options;
    options.microbatches = target.microbatches;
    options.deadline = bound_ * stretch - launches_in_bound + launches;
    if (target.tree->is_forest()) {  // every tree gets an equal part
      options.microbatches = 1;
      options.deadline = (options.deadline - launches) / target.microbatches + instance_.launch();
    }
    return options;
  }

  // Every sequence a pack of its own, on the cheapest size that meets the deadline.
  void add_singles(const Tree& tree, const BuildOptions& options) {
    if (tree.is_forest() || instance_.items() > kManyPerRank * instance_.ranks()) return;
    const double limit =
        options.patience * (options.deadline - options.microbatches * instance_.launch());
    std::vector<LoosePack> packs;
    for (int item = 0; item < instance_.items(); ++item) {
      int cheapest = -1;
      int fastest = -1;
      double least_area = kInfinity;
      double least_time = kInfinity;
      for (int level : tree.levels()) {
        if (level < instance_.first_level(item)) continue;
        const double time = instance_.time(instance_.load(item, level), level);
        if (time < least_time) {
          least_time = time;
          fastest = level;
        }
        const double area = time * instance_.size(level);
        if (time <= limit && area < least_area) {
          least_area = area;
          cheapest = level;
        }
      }
      packs.push_back({{item}, cheapest >= 0 ? cheapest : fastest});
    }
    Plan plan(instance_, tree);
    if (place_by_size(plan, std::move(packs), options.microbatches)) keep(plan);
  }

  // All packs on all ranks: where groups in between do not pay, or sequences too long for the
  // smallest groups leave no other way to give every rank work.
  void add_whole_domain(const Target& target) {
    if (good_enough(least_)) return;
    Plan plan(instance_, *target.tree);
    if (fill_whole_domain(plan, target.microbatches)) keep(plan);
  }

  void keep(const Plan& plan) {
    candidates_.push_back({&plan.tree(), plan.packing(), plan.makespan()});
    least_ = std::min(least_, plan.makespan());
  }

  void add(const Tree& tree, const BuildOptions& options) {
    std::optional<Built> built = build(instance_, tree, options);
    if (!built) return;
    Plan plan(instance_, tree);
    plan.restore(built->packing);
    if (!plan.is_uniform(built->microbatches) && !repair(plan)) {
      if (tree.is_forest()) return;
      std::vector<LoosePack> packs;
      for (std::size_t p = 0; p < built->packing.nodes.size(); ++p) {
        packs.push_back(
            {std::move(built->packing.items[p]), tree.node(built->packing.nodes[p]).level});
      }
      if (!place_by_size(plan, std::move(packs), built->microbatches)) return;
    }
    candidates_.push_back({&tree, plan.packing(), plan.makespan()});
    least_ = std::min(least_, plan.makespan());
  }

  const Instance& instance_;
  Barrier barrier_;
  double bound_;
  Grid grid_;
  Budget budget_;
  std::vector<const Tree*> trees_;
  std::vector<std::unique_ptr<Tree>> forests_;
  std::vector<Candidate> candidates_;
  double least_ = kInfinity;
};

}  // namespace

std::optional<Schedule> search(const Instance& instance, const std::vector<Tree>& trees,
                               const std::vector<Schedule>& seeds, Barrier barrier, Effort effort,
                               double bound) {
  return Search(instance, trees, barrier, effort, bound).run(seeds);
}

}  // namespace dyncp::nested
