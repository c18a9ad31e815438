// Random plans of the dyncp scheduler's inner parts.
#pragma once

#include <rapidcheck.h>

#include <vector>

#include "properties/cases.h"
#include "properties/reference/small_instance.h"
#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

/// An instance without limits that a merge can break: no max_sequences, no padding.
inline ScheduleProblem unlimited_instance(int ranks, int sequences) {
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.max_tokens_per_rank = 1000;
  problem.microbatch_multiple = *rc::gen::element(1, 1, 2, 3);
  problem.group_policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                           GroupPolicy::kDivisors, GroupPolicy::kInterval);
  for (int i = 0; i < sequences; ++i) {
    const int longest = *rc::gen::element(50, 300, 1000, 1000 * ranks);
    problem.lengths.push_back(*uniform(1, longest));
  }
  return problem;
}

/// Every item in a pack on some node that it fits on; packs within the limits, paths of any count.
inline Packing random_packing(const Instance& instance, const Tree& tree) {
  Packing packing;
  std::vector<Load> loads;
  for (int item = 0; item < instance.items(); ++item) {
    bool placed = false;
    if (!packing.nodes.empty() && *uniform(0, 1) == 1) {
      const auto p =
          static_cast<std::size_t>(*uniform(0, static_cast<int>(packing.nodes.size()) - 1));
      const int level = tree.node(packing.nodes[p]).level;
      const Load joined = loads[p] + instance.load(item, level);
      if (instance.first_level(item) <= level &&
          instance.fits(joined, static_cast<int>(packing.items[p].size()) + 1, level)) {
        packing.items[p].push_back(item);
        loads[p] = joined;
        placed = true;
      }
    }
    if (placed) continue;
    int v = *uniform(0, tree.nodes() - 1);
    while (tree.node(v).level < instance.first_level(item)) v = tree.node(v).parent;
    packing.nodes.push_back(v);
    packing.items.push_back({item});
    loads.push_back(instance.load(item, tree.node(v).level));
  }
  return packing;
}

/// How often each item occurs in a plan.
inline std::vector<int> occurrences(const Plan& plan) {
  std::vector<int> count(static_cast<std::size_t>(plan.instance().items()));
  for (int p = 0; p < plan.packs(); ++p) {
    for (int item : plan.pack(p).items) ++count[static_cast<std::size_t>(item)];
  }
  return count;
}

/// Whether there is a sequence, and each fits on some group: Instance refuses the others.
inline bool all_fit(const ScheduleProblem& problem) {
  const GroupTable table = problem.group_table();
  bool any = false;
  for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
    if (problem.lengths[id] == 0) continue;
    any = true;
    if (!need(problem, table, static_cast<int>(id))) return false;
  }
  return any;
}

}  // namespace dyncp::nested
