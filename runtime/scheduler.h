// The one interface of a scheduler: an instance in, a schedule out. A new scheduler is one new
// class in runtime/schedulers/ and one line in scheduler_registry.cc.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "reference/schedule.h"

namespace dyncp {

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// The name given to --scheduler.
  virtual std::string_view name() const = 0;

  /// One sentence for `dyncp list schedulers`, with known defects where there are any.
  virtual std::string_view summary() const = 0;

  /// How its schedules are meant to run; copied into the problem when the user does not say.
  virtual Execution execution() const = 0;

  /// Deterministic. Throws Infeasible with the reason when the scheduler finds no schedule, and
  /// InvalidInput when the problem itself is malformed (require_valid).
  virtual Schedule schedule(const ScheduleProblem& problem) const = 0;
};

/// The name used when the user names none.
inline constexpr std::string_view kDefaultScheduler = "megatron-packing-aware";

/// Every built-in scheduler, in the order `dyncp list schedulers` prints them.
const std::vector<const Scheduler*>& schedulers();

/// Looks a scheduler up by name or alias (dp_balanced = static-packing). Throws InvalidInput that
/// lists the known names.
const Scheduler& find_scheduler(std::string_view name);

}  // namespace dyncp
