// Whatever searches on a plan keeps it valid and never makes it longer.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "properties/runtime/schedulers/nested_instance.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp_build.h"
#include "runtime/schedulers/dyncp_improve.h"
#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

// A valid plan on a tree, or on a forest of as many trees as microbatches are wanted.
bool make_plan(Plan& plan) {
  const Instance& instance = plan.instance();
  BuildOptions options;
  options.microbatches = plan.tree().is_forest() ? 1 : instance.fewest_microbatches();
  options.best_fit = *uniform(0, 1) == 1;
  options.first_fit = *uniform(0, 1) == 1;
  options.deadline = *rc::gen::element(0.0, 1e3, 1e5);
  options.spread = *rc::gen::element(0.0, 0.4);
  const auto built = build(instance, plan.tree(), options);
  if (!built) return false;
  plan.restore(built->packing);
  return plan.is_uniform(built->microbatches) || repair(plan);
}

RC_GTEST_PROP(DyncpImprove, NeverLongerAlwaysValid, ()) {
  const ScheduleProblem problem = small_instance({.ranks = *uniform(1, 24), .sequences = 48});
  const CostModel cost = any_cost();
  if (!all_fit(problem)) return;
  const Instance instance(problem, cost);
  if (instance.most_microbatches() == 0) return;
  const std::vector<Tree> trees = make_trees(instance);
  const Tree& tree =
      trees[static_cast<std::size_t>(*uniform(0, static_cast<int>(trees.size()) - 1))];
  const int copies =
      std::min(instance.fewest_microbatches() + instance.multiple(), instance.most_microbatches());
  const Tree forest = Tree::forest(instance, tree, copies);
  for (const Tree* planned : {&tree, &forest}) {
    Plan plan(instance, *planned);
    if (!make_plan(plan)) continue;
    const int packs = plan.tree().is_forest() ? 1 : plan.microbatches();
    const double before = plan.makespan();
    Random random(static_cast<std::uint64_t>(*uniform(0, 1000)));
    Budget budget{*rc::gen::element<std::int64_t>(100, 20'000)};
    switch (*uniform(0, 2)) {
      case 0:
        local_search(plan, 0, budget);
        break;
      case 1:
        for (int i = 0; i < 10; ++i) {
          repartition(plan, random.one_of(plan.tree().roots()), random, budget);
        }
        break;
      default:
        improve(plan, {0, 5, 20}, random, budget);
        break;
    }
    RC_ASSERT(plan.makespan() <= before * (1 + 1e-9));
    RC_ASSERT(plan.is_uniform(packs));
    const auto violations = check_schedule(problem, plan.schedule());
    for (const Violation& violation : violations) RC_LOG() << violation.sentence << "\n";
    RC_ASSERT(violations.empty());
    const Barrier barrier = planned == &forest ? Barrier::kMicrobatch : Barrier::kNone;
    const double simulated = schedule_quality(problem, plan.schedule(), cost, barrier).makespan;
    RC_ASSERT(std::abs(simulated - plan.makespan()) <= 1e-9 * (1 + simulated));
  }
}

}  // namespace
}  // namespace dyncp::nested
