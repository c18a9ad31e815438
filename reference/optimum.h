// The best schedule there is, by exhaustive search, for instances small enough to be searched.
// It knows nothing of any scheduler's structure (no order lemma, no nesting of groups): microbatch
// by microbatch it tries every partition of the rank domain into existing CP groups and every way
// to give them sequences. What it leaves out cannot matter: branches that a bound or another,
// nowhere later partial schedule of the same sequences rules out.
#pragma once

#include <optional>

#include "reference/cost.h"

namespace dyncp {

inline constexpr int kMaxOptimumRanks = 8;
inline constexpr int kMaxOptimumSequences = 7;  // of non-zero length

struct Optimum {
  double makespan = 0;  // in the cost model's time unit
  Schedule schedule;    // one that attains it
};

/// The least makespan of any valid schedule and a schedule that attains it; nothing when no valid
/// schedule exists. Without sequences: an empty schedule of makespan 0. Throws InvalidInput when
/// the instance is malformed or beyond the limits above.
std::optional<Optimum> find_optimum(const ScheduleProblem& problem, const CostModel& cost,
                                    Barrier barrier);

}  // namespace dyncp
