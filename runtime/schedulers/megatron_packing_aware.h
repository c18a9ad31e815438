// Megatron dev's dynamic-CP scheduler ("packing-aware"): pack execution. In a power-of-two domain
// with min_cp a power of two its schedules are valid (a property holds it to that).
//
// Two implementations with identical output, errors included:
//   MegatronPackingAware   indexes per CP size; 100,000 sequences on 1,024 ranks in well under 1 s
//   plain_packing_aware    the algorithm as it is described, the oracle of the first
//
// One microbatch: the longest sequence left, T tokens, opens group 0 on as many ranks as it needs.
// Every other sequence, by descending length, goes where the largest load of all ranks ends up
// smallest - load of a rank: sum of length^2 / size - among the groups of an allowed size that have
// room for it and a new group on free ranks; on ties to the smallest size, to an existing group
// before a new one, to the older group. No load may exceed 1.05 * T * max_tokens_per_rank (packs
// within the capacity of sequences of at most T tokens never do, so that this limit decides
// nothing). What finds no place is left for the next microbatch. Ranks that stay empty are filled
// by doubling the first of the smallest groups; where that gets stuck, all is undone and one group
// of the whole domain packs what fits.
//
// Known defects, kept:
//   - need() is not limited to the domain: in a domain that is no power of two a sequence that fits
//     is refused, and groups of sizes that do not exist are formed (rule size-allowed).
//   - min_cp that is no power of two: sizes that do not exist, or work pushed past the last rank
//     (upstream: IndexError).
//   - microbatch_multiple is reached by splitting microbatches; one that is a single group of the
//     whole domain cannot be split, however many sequences it holds (upstream: assertion). In
//     domains that are no power of two, refilling a split microbatch can go on for ever (here:
//     Infeasible) or past the last rank (rule group-exists).
//   - max_sequences is ignored; real lengths under Padding::kGroup, so that padding may exceed the
//     capacity.
// Source: Megatron-LM's DefaultDynamicCPScheduler (dev, d48bd6be); own implementation.
#pragma once

#include "runtime/scheduler.h"

namespace dyncp {

class MegatronPackingAware : public Scheduler {
 public:
  std::string_view name() const override { return "megatron-packing-aware"; }
  std::string_view summary() const override;
  Execution execution() const override { return Execution::kPack; }

  /// O((n + microbatches) log n log P) tree searches for n sequences on P ranks.
  /// Throws Infeasible where upstream stops with an assertion or an index error, or never ends.
  Schedule schedule(const ScheduleProblem& problem) const override;
};

/// The same schedule, the same errors, by the plain algorithm: every sequence that is left tries
/// every group in every microbatch. Throws InvalidInput and Infeasible as the class does.
Schedule plain_packing_aware(const ScheduleProblem& problem);

}  // namespace dyncp
