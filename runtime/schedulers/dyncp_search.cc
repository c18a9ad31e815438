// The grid of constructive passes and what is done with the best of them.
#include "runtime/schedulers/dyncp_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "runtime/schedulers/dyncp_build.h"
#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

// What an effort tries.
struct Grid {
  std::vector<double> patiences;  // BuildOptions::patience
  std::vector<double> stretches;  // deadlines, in units of the lower bound
  int counts = 1;                 // numbers of microbatches, from the fewest up
  bool both_fits = false;         // BuildOptions::best_fit also true
  bool both_finds = false;        // BuildOptions::first_fit also true
  std::size_t searches = 1;       // plans that local search starts from
  double good_enough = 1.002;     // stop at this multiple of the bound
  std::int64_t evaluations = 0;
};

// Above this many sequences a second pass costs more than it brings.
constexpr int kManyItems = 20'000;

Grid grid_of(Effort effort, const Instance& instance) {
  if (instance.items() > kManyItems) {
    return {{1.0}, {1.02}, 2, false, false, 1, 1.002, 1'000'000};
  }
  switch (effort) {
    case Effort::kFast:
      return {{1.0}, {1.02}, 2, false, false, 1, 1.002, 200'000};
    case Effort::kDefault:
      return {{1.0, 0.5}, {1.0, 1.06, 1.2}, 4, true, false, 3, 1.002, 1'000'000};
    case Effort::kBest:
      break;
  }
  return {{1.0, 0.6, 0.35}, {1.0, 1.03, 1.08, 1.16, 1.3}, 6, true, true, 6, 1.0005, 20'000'000};
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
        grid_(grid_of(effort, instance)),
        budget_{grid_.evaluations} {
    for (const Tree& tree : trees) trees_.push_back(&tree);
  }

  std::optional<Schedule> run() {
    const int fewest = instance_.fewest_microbatches();
    const int multiple = instance_.multiple();
    const int step =
        static_cast<int>(round_up(static_cast<std::int64_t>(std::ceil(0.09 * fewest)), multiple));
    for (const Tree* tree : trees_) {
      for (int i = 0; i < grid_.counts; ++i) {
        const int microbatches = fewest + i * step;
        if (microbatches > instance_.most_microbatches()) break;
        if (barrier_ == Barrier::kMicrobatch) {
          forests_.push_back(std::make_unique<Tree>(Tree::forest(instance_, *tree, microbatches)));
          build_all(*forests_.back(), microbatches);
        } else {
          build_all(*tree, microbatches);
        }
      }
    }
    if (candidates_.empty()) return std::nullopt;
    std::stable_sort(
        candidates_.begin(), candidates_.end(),
        [](const Candidate& a, const Candidate& b) { return a.makespan < b.makespan; });
    Candidate best = candidates_.front();
    std::size_t searched = 0;
    double last = 0;
    for (const Candidate& candidate : candidates_) {
      if (searched == grid_.searches || good_enough(best.makespan)) break;
      if (candidate.makespan <= last * (1 + 1e-9)) continue;  // the same plan once more
      last = candidate.makespan;
      ++searched;
      Plan plan(instance_, *candidate.tree);
      plan.restore(candidate.packing);
      local_search(plan, grid_.good_enough * bound_, budget_);
      if (plan.makespan() < best.makespan) {
        best = {candidate.tree, plan.packing(), plan.makespan()};
      }
    }
    Plan plan(instance_, *best.tree);
    plan.restore(best.packing);
    return plan.schedule();
  }

 private:
  bool good_enough(double makespan) const { return makespan <= grid_.good_enough * bound_; }

  void build_all(const Tree& tree, int microbatches) {
    const double launches = microbatches * instance_.launch();
    const double launches_in_bound = instance_.fewest_microbatches() * instance_.launch();
    for (double patience : grid_.patiences) {
      for (double stretch : grid_.stretches) {
        double deadline = bound_ * stretch - launches_in_bound + launches;
        BuildOptions options;
        options.microbatches = microbatches;
        if (tree.is_forest()) {
          deadline = (deadline - launches) / microbatches + instance_.launch();
          options.microbatches = 1;
        }
        options.deadline = deadline;
        options.patience = patience;
        for (bool best_fit : {false, true}) {
          for (bool first_fit : {false, true}) {
            if ((best_fit && !grid_.both_fits) || (first_fit && !grid_.both_finds)) continue;
            options.best_fit = best_fit;
            options.first_fit = first_fit;
            if (!candidates_.empty() && good_enough(least_)) return;
            add(tree, options);
          }
        }
      }
    }
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
                               Barrier barrier, Effort effort, double bound) {
  return Search(instance, trees, barrier, effort, bound).run();
}

}  // namespace dyncp::nested
