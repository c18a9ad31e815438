// Static CP with packing, Megatron's dp_balanced: one CP size for the whole run, sequences packed
// in the order given. The baseline that dynamic CP has to beat.
//
// Known defects, kept:
//   - With a fixed CP size that is too small, a sequence above the capacity of a pack is packed all
//     the same; when it is the first one, an empty pack goes before it.
//   - The number of packs is brought to a multiple by splitting the last packs, so that some packs
//     hold a single sequence; with too few sequences it gives up.
//   - Order decides how many packs there are; nothing is balanced.
// Source: Megatron-LM's DpBalancedScheduler (dev, d48bd6be); own implementation.
#pragma once

#include <optional>

#include "runtime/scheduler.h"

namespace dyncp {

class StaticPacking : public Scheduler {
 public:
  /// Without `cp_size`: the smallest power of two, at least min_cp, on which the longest sequence
  /// fits, padding included. With it: that size for every problem ("best static CP in hindsight").
  explicit StaticPacking(std::optional<int> cp_size = std::nullopt) : cp_size_(cp_size) {}

  std::string_view name() const override { return "static-packing"; }
  std::string_view summary() const override;
  Execution execution() const override { return Execution::kPack; }

  /// Honours max_sequences and microbatch_multiple, and every padding rule (the CP size is known).
  /// Throws Infeasible when the CP size does not divide the rank domain or when there are too few
  /// sequences for the number of packs.
  Schedule schedule(const ScheduleProblem& problem) const override;

 private:
  std::optional<int> cp_size_;
};

}  // namespace dyncp
