// dyncp's own scheduler (docs/scheduling.md): nested CP groups, a deadline, repair, local search.
#pragma once

#include "reference/cost.h"
#include "runtime/scheduler.h"

namespace dyncp {

/// How long the scheduler may search. Work is counted, not timed: results never depend on the speed
/// of the machine.
enum class Effort { kFast, kDefault, kBest };

/// "fast", "default" or "best".
std::string_view to_string(Effort effort);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Effort parse_effort(std::string_view name);

struct DyncpOptions {
  CostModel cost = CostModel::flat();
  Barrier barrier = Barrier::kNone;  // kMicrobatch: all ranks meet after every microbatch
  Effort effort = Effort::kDefault;
};

class DyncpScheduler : public Scheduler {
 public:
  explicit DyncpScheduler(const DyncpOptions& options = {});

  std::string_view name() const override { return "dyncp"; }
  std::string_view summary() const override;
  Execution execution() const override { return Execution::kPack; }

  /// Valid under every policy and option, deterministic, and the same whatever the order of the
  /// lengths, but for ids among equal lengths.
  Schedule schedule(const ScheduleProblem& problem) const override;

 private:
  DyncpOptions options_;
};

}  // namespace dyncp
