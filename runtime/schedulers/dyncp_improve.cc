// Descents by local search and repartition, and the kicks between them.
#include "runtime/schedulers/dyncp_improve.h"

#include <algorithm>
#include <utility>

namespace dyncp::nested {
namespace {

void descend(Plan& plan, const ImproveOptions& options, Random& random, Budget& budget) {
  local_search(plan, options.good_enough, budget);
  for (int failed = 0;
       failed < options.patience && !budget.spent() && plan.makespan() > options.good_enough;) {
    if (repartition(plan, random.one_of(plan.tree().roots()), random, budget)) {
      failed = 0;
      local_search(plan, options.good_enough, budget);
    } else {
      ++failed;
    }
  }
}

bool fit(const Plan& plan, const std::vector<int>& items, int node) {
  const int level = plan.tree().node(node).level;
  const bool each = std::all_of(items.begin(), items.end(), [&](int item) {
    return plan.instance().first_level(item) <= level;
  });
  return each && plan.fits(plan.load_of(items, node), static_cast<int>(items.size()), node);
}

// Exchanges all items of two random packs, or one of each.
void exchange(Plan& plan, Random& random, Budget& budget) {
  constexpr int kTries = 50;
  for (int tries = 0; tries < kTries; ++tries) {
    --budget.evaluations;
    const int p = random.below(plan.packs());
    const int q = random.below(plan.packs());
    if (p == q || plan.pack(p).node < 0 || plan.pack(q).node < 0) continue;
    std::vector<int> of_p = plan.pack(p).items;
    std::vector<int> of_q = plan.pack(q).items;
    if (random.below(2) == 0) {
      std::swap(of_p, of_q);
    } else {
      std::swap(of_p[static_cast<std::size_t>(random.below(static_cast<int>(of_p.size())))],
                of_q[static_cast<std::size_t>(random.below(static_cast<int>(of_q.size())))]);
    }
    if (!fit(plan, of_p, plan.pack(p).node) || !fit(plan, of_q, plan.pack(q).node)) continue;
    plan.set_items(p, std::move(of_p));
    plan.set_items(q, std::move(of_q));
    return;
  }
}

}  // namespace

void improve(Plan& plan, const ImproveOptions& options, Random& random, Budget& budget) {
  descend(plan, options, random, budget);
  double least = plan.makespan();
  Packing best = plan.packing();
  for (int kick = 0; kick < options.kicks && !budget.spent() && least > options.good_enough;
       ++kick) {
    for (int i = 1 + random.below(3); i > 0; --i) exchange(plan, random, budget);
    descend(plan, options, random, budget);
    if (plan.makespan() <= least) {
      least = plan.makespan();
      best = plan.packing();
    } else {
      plan.restore(best);
    }
  }
  // A descent that the budget cut short may have ended above where it began.
  if (plan.makespan() > least) plan.restore(best);
}

}  // namespace dyncp::nested
