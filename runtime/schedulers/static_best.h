// The strongest static rival: one CP size for the whole batch, chosen in hindsight, with packs
// balanced by the cost model and dealt out longest first. No framework does this; a dynamic
// schedule that does not beat it gains nothing.
#pragma once

#include <cstddef>

#include "reference/cost.h"
#include "runtime/scheduler.h"

namespace dyncp {

/// Its time grows with sequences times packs: beyond this many sequences it may take seconds.
inline constexpr std::size_t kQuickStaticBest = 4096;

class StaticBest : public Scheduler {
 public:
  explicit StaticBest(CostModel cost = CostModel::flat(), Barrier barrier = Barrier::kNone)
      : cost_(cost), barrier_(barrier) {}

  std::string_view name() const override { return "static-best"; }
  std::string_view summary() const override;
  Execution execution() const override { return Execution::kPack; }

  /// Tries every CP size of the group table that divides the rank domain and holds the longest
  /// sequence, with the fewest packs and a few more, and keeps the least makespan. Throws
  /// Infeasible when no size gives a schedule.
  Schedule schedule(const ScheduleProblem& problem) const override;

 private:
  CostModel cost_;
  Barrier barrier_;
};

}  // namespace dyncp
