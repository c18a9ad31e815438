// The repair lemma and the fill lemma, on random packs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "properties/runtime/schedulers/nested_instance.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

// Without limits that a merge can break, repair fails only when all sequences run alone on the whole
// domain and their number is no multiple.
RC_GTEST_PROP(DyncpRepair, MakesAnyPlanUniform, ()) {
  const ScheduleProblem problem = unlimited_instance(*uniform(1, 16), *uniform(1, 40));
  const CostModel cost = any_cost();
  const Instance instance(problem, cost);
  for (const Tree& tree : make_trees(instance)) {
    Plan plan(instance, tree);
    plan.restore(random_packing(instance, tree));
    if (!repair(plan)) {
      // Every number of packs up to one a sequence is reached, so only that one was left.
      RC_ASSERT(plan.is_uniform(instance.items()));
      RC_ASSERT(instance.items() % instance.multiple() != 0);
      continue;
    }
    RC_ASSERT(plan.is_uniform(plan.microbatches()));
    RC_ASSERT(occurrences(plan) == std::vector<int>(static_cast<std::size_t>(instance.items()), 1));
    RC_ASSERT(check_schedule(problem, plan.schedule()).empty());
  }
}

// Single sequences give a schedule exactly when their least sizes fit into the rank slots of the
// most microbatches that they can fill - under every limit.
RC_GTEST_PROP(DyncpRepair, PlacesBySizeWheneverTheSizesFit, ()) {
  ScheduleProblem problem = small_instance({.ranks = 1, .sequences = 12});
  problem.ranks = *rc::gen::element(1, 2, 4, 8, 16);
  problem.min_cp = *rc::gen::element(1, 1, 2);
  if (problem.min_cp > problem.ranks) problem.min_cp = problem.ranks;
  problem.group_policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice);
  if (!all_fit(problem)) return;
  const CostModel cost;
  const Instance instance(problem, cost);
  std::int64_t slots = 0;
  std::vector<LoosePack> packs;
  for (int item = 0; item < instance.items(); ++item) {
    packs.push_back({{item}, instance.first_level(item)});
    slots += instance.size(instance.first_level(item));
  }
  const std::vector<Tree> trees = make_trees(instance);
  Plan plan(instance, trees[0]);
  const std::int64_t most = instance.most_microbatches();
  const int wanted = *uniform(1, 3);
  const bool placed = place_by_size(plan, packs, wanted);
  const std::int64_t rounded = round_up(wanted, instance.multiple());
  RC_ASSERT(placed == (rounded <= most && slots <= most * problem.ranks));
  if (!placed) return;
  RC_ASSERT(plan.is_uniform(plan.microbatches()));
  RC_ASSERT(plan.microbatches() >= wanted);
  const auto violations = check_schedule(problem, plan.schedule());
  for (const Violation& violation : violations) RC_LOG() << violation.sentence << "\n";
  RC_ASSERT(violations.empty());
}

}  // namespace
}  // namespace dyncp::nested
