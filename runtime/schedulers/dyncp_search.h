// Finds a good plan: constructive passes over a grid of deadlines, then local search on the best.
#pragma once

#include <optional>

#include "runtime/schedulers/dyncp.h"
#include "runtime/schedulers/dyncp_local_search.h"

namespace dyncp::nested {

/// The best valid schedule found for the objective, or nothing when no pass gave a valid one.
/// `bound`: no schedule is faster (reference/lower_bound.h).
std::optional<Schedule> search(const Instance& instance, const std::vector<Tree>& trees,
                               Barrier barrier, Effort effort, double bound);

}  // namespace dyncp::nested
