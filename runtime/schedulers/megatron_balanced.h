// Megatron main's hybrid-CP scheduler ("balanced"): serial execution, one sequence at a time on
// each CP group, a barrier after each microbatch (upstream: group of sub-samples). A baseline, and
// the proof that the schedule checker works: its defects are real ones.
//
// Known defects, kept:
//   - Sequences trimmed off an overloaded group go to the END of what is left, which is never
//   sorted
//     again. A long sequence can then meet a microbatch whose small groups already stand, and
//     filling shifts its group to ranks where no process group of that size exists (rule
//     group-aligned).
//   - need() is not limited to the domain: in a domain that is no power of two a sequence that fits
//     is refused, and groups of sizes that do not exist are formed.
//   - Filling empty ranks can push work past the last rank (upstream: IndexError).
//   - No pack capacity: a group may be given any number of sequences, as they run one by one.
//   - min_cp, microbatch_multiple, max_sequences are ignored; real lengths under Padding::kGroup.
// Source: Megatron-LM's BalancedCPScheduler (main, d98e8a64); own implementation.
#pragma once

#include "runtime/scheduler.h"

namespace dyncp {

class MegatronBalanced : public Scheduler {
 public:
  std::string_view name() const override { return "megatron-balanced"; }
  std::string_view summary() const override;
  Execution execution() const override { return Execution::kSerial; }

  /// Throws Infeasible where upstream stops with an assertion or an index error.
  Schedule schedule(const ScheduleProblem& problem) const override;
};

}  // namespace dyncp
