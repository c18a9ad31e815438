// Generates scheduling instances small enough for the exhaustive optimum, of every kind: all
// policies, paddings and executions, limits that bind, odd numbers of ranks, empty sequences.
#pragma once

#include <rapidcheck.h>

#include <optional>

#include "properties/cases.h"
#include "reference/cost.h"

namespace dyncp {

struct SmallInstanceLimits {
  int ranks = 6;
  int sequences = 5;
};

inline ScheduleProblem small_instance(const SmallInstanceLimits& limits = {}) {
  using rc::gen::element;
  ScheduleProblem problem;
  problem.ranks = *uniform(1, limits.ranks);
  problem.max_tokens_per_rank = *element(7, 64, 100, 1000, 2048, 16384);
  problem.min_cp = *element(1, 1, 1, 2, 3, 4, 8);
  if (problem.min_cp > problem.ranks) problem.min_cp = problem.ranks;
  problem.tensor_parallel = *element(1, 1, 2, 3);
  problem.microbatch_multiple = *element(1, 1, 1, 2, 3, 4);
  if (*element(0, 0, 1) != 0) problem.max_sequences = *uniform(1, 3);
  problem.execution = *element(Execution::kPack, Execution::kPack, Execution::kSerial);
  problem.group_policy =
      *element(GroupPolicy::kAligned, GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
               GroupPolicy::kDivisors, GroupPolicy::kInterval);
  problem.padding = *element(Padding::kNone, Padding::kNone, Padding::kGlobal, Padding::kGroup);
  const std::int64_t m = problem.max_tokens_per_rank;
  const std::int64_t domain = m * problem.ranks;
  const int sequences = *uniform(0, limits.sequences);
  for (int i = 0; i < sequences; ++i) {
    switch (*uniform(0, 5)) {
      case 0:  // fills some ranks exactly
        problem.lengths.push_back(m * *uniform(1, problem.ranks));
        break;
      case 1:  // one token more than half of some ranks
        problem.lengths.push_back(m * *uniform(1, problem.ranks) / 2 + 1);
        break;
      case 2:
        problem.lengths.push_back(*uniform<std::int64_t>(1, domain));
        break;
      case 3:
        problem.lengths.push_back(*uniform<std::int64_t>(1, m));
        break;
      case 4:
        problem.lengths.push_back(1);
        break;
      default:
        problem.lengths.push_back(*element(0, 1, 3, 5, 31));
        break;
    }
  }
  return problem;
}

/// The stated models and others: slow links, no overlap, no launch cost, expensive launches.
inline CostModel any_cost() {
  CostModel cost = CostModel::flat();
  switch (*uniform(0, 6)) {
    case 0:
    case 1:
      break;
    case 2:
      cost = CostModel::two_tier();
      cost.fast_domain = *rc::gen::element(1, 2, 8);
      break;
    case 3:
      cost = CostModel::quadratic();
      break;
    case 4:
      cost.c0 = 300;
      cost.c1 = 0.3;
      break;
    case 5:
      cost.hidden = *rc::gen::element(0.0, 1.0);
      break;
    default:
      cost.d = *rc::gen::element(0.0, 350.0, 5000.0);
      break;
  }
  return cost;
}

}  // namespace dyncp
