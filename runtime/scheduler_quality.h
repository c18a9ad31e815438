// How good a scheduler's answers are, next to whether they are right (runtime/scheduler_search.h):
// simulated makespan over the lower bound and, in small cases, over the true optimum; padding, idle
// time, microbatches; and whether the order of the lengths matters.
#pragma once

#include <cstdint>

#include "reference/cost.h"
#include "runtime/scheduler_answer.h"
#include "runtime/scheduler_search.h"
#include "runtime/spread.h"

namespace dyncp {

struct QualityOptions {
  CostModel cost;
  std::uint64_t seed = 1;
  std::int64_t cases = 100;       // the first of the search with this seed
  std::int64_t small_cases = 50;  // compared with the optimum
};

/// Figures over the valid answers; times of the cost model. The barrier figures are those of the
/// same schedules when all ranks wait for each other after every microbatch.
struct QualityReport {
  std::int64_t asked = 0;  // cases, refusals and invalid answers included
  Spread over_bound;       // makespan / lower bound, without barriers
  ScheduleProblem worst;   // the case of over_bound.worst; no lengths when there is none
  Spread over_bound_barrier;
  Spread idle_share;
  Spread idle_share_barrier;
  Spread padding_waste;  // padded tokens / real tokens - 1
  Spread microbatches;
  Spread order_change;           // |makespan for shuffled lengths / makespan - 1|
  std::int64_t small_asked = 0;  // cases for the optimum
  Spread over_optimum;           // makespan / the least possible, both without barriers
  Spread over_optimum_barrier;   // the same, both with barriers
  bool stopped = false;          // at an answer that failed (hang, crash, ...): the search tells it
};

/// Asks about cases of the domain, each once as drawn and once shuffled, then about small ones: at
/// most 8 ranks and 7 sequences, none when the domain has only more ranks. Deterministic but for
/// what the scheduler does. Throws InvalidInput for a malformed domain or negative numbers of cases.
QualityReport measure_quality(const AskScheduler& ask, const SearchDomain& domain,
                              const QualityOptions& options);

}  // namespace dyncp
