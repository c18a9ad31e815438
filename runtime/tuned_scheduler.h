// Built-in schedulers made for a cost model and an objective. Those of the registry
// (runtime/scheduler.h) are made for the flat model without barriers.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/scheduler.h"
#include "runtime/schedulers/dyncp.h"

namespace dyncp {

/// Whether tuned_scheduler depends on the options: dyncp and static-best search for the least
/// makespan, the others know of no cost model.
bool is_tunable(const Scheduler& scheduler);

/// The scheduler of a name or alias that minimises the makespan under these options, as far as
/// is_tunable says so; else the one of the registry. Throws InvalidInput that lists the known names.
std::shared_ptr<const Scheduler> tuned_scheduler(std::string_view name,
                                                 const DyncpOptions& options);

}  // namespace dyncp
