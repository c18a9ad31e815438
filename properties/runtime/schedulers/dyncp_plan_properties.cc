// The order lemma, and path sums that stay right under changes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "properties/runtime/schedulers/nested_instance.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp_plan.h"
#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(a)); }

RC_GTEST_PROP(DyncpPlan, SumsFollowEveryChange, ()) {
  const ScheduleProblem problem = unlimited_instance(*uniform(1, 12), *uniform(1, 20));
  const CostModel cost = any_cost();
  const Instance instance(problem, cost);
  const std::vector<Tree> trees = make_trees(instance);
  const Tree& tree =
      trees[static_cast<std::size_t>(*uniform(0, static_cast<int>(trees.size()) - 1))];
  Plan plan(instance, tree);
  plan.restore(random_packing(instance, tree));
  for (int change = 0; change < 10; ++change) {
    const int p = *uniform(0, plan.packs() - 1);
    if (plan.pack(p).node < 0) continue;
    std::vector<int> items = plan.pack(p).items;
    if (items.size() > 1 && *uniform(0, 1) == 1) {
      const int moved = items.back();
      items.pop_back();
      plan.set_items(p, items);
      plan.add_pack(0, {moved});
    } else {
      plan.remove_pack(p);
      plan.add_pack(0, items);
    }
  }
  Plan fresh(instance, tree);
  fresh.restore(plan.packing());
  RC_ASSERT(occurrences(plan) == std::vector<int>(static_cast<std::size_t>(instance.items()), 1));
  for (int v = 0; v < tree.nodes(); ++v) {
    RC_ASSERT(near(plan.path(v), fresh.path(v)));
    RC_ASSERT(near(plan.load_above(v), fresh.load_above(v)));
    RC_ASSERT(near(plan.load_below(v), fresh.load_below(v)));
    RC_ASSERT(plan.count_above(v) == fresh.count_above(v));
    RC_ASSERT(plan.count_below(v) == fresh.count_below(v));
    RC_ASSERT(plan.excess(v) <= 1e-9 * (1 + plan.path(0)));
  }
  const int leaf = plan.critical_leaf(0);
  RC_ASSERT(tree.is_leaf(leaf));
  RC_ASSERT(near(plan.path(leaf), plan.load_below(0)));
}

// A uniform plan is a valid schedule in which no rank ever waits.
RC_GTEST_PROP(DyncpPlan, RootToLeafOrderNeverWaits, ()) {
  const ScheduleProblem problem = unlimited_instance(*uniform(1, 12), *uniform(3, 30));
  const CostModel cost = any_cost();
  const Instance instance(problem, cost);
  for (const Tree& tree : make_trees(instance)) {
    Plan plan(instance, tree);
    plan.restore(random_packing(instance, tree));
    if (!repair(plan)) continue;
    const Schedule schedule = plan.schedule();
    RC_ASSERT(check_schedule(problem, schedule).empty());
    double makespan = 0;
    std::vector<double> busy(static_cast<std::size_t>(problem.ranks), 0.0);
    for (const ScheduledPack& pack : simulate_schedule(problem, schedule, cost, Barrier::kNone)) {
      makespan = std::max(makespan, pack.end);
      const Microbatch& microbatch =
          schedule.microbatches[static_cast<std::size_t>(pack.microbatch)];
      const CpGroup group = microbatch[static_cast<std::size_t>(pack.assignment)].group;
      for (int r = group.first_rank; r < group.end_rank(); ++r) {
        RC_ASSERT(near(busy[static_cast<std::size_t>(r)], pack.start));
        busy[static_cast<std::size_t>(r)] = pack.end;
      }
    }
    RC_ASSERT(near(makespan, plan.makespan()));
  }
}

}  // namespace
}  // namespace dyncp::nested
