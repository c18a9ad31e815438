// Finds a good plan: constructive passes over a grid of deadlines, then local search on the best.
#pragma once

#include <optional>

#include "runtime/schedulers/dyncp.h"
#include "runtime/schedulers/dyncp_local_search.h"

namespace dyncp::nested {

/// The best valid schedule found for the objective, or nothing when no pass gave a valid one.
/// `bound`: no schedule is faster (reference/lower_bound.h). `seeds`: valid schedules of the items
/// (items for ids) to start from as well; those on groups of a tree never beat the result.
std::optional<Schedule> search(const Instance& instance, const std::vector<Tree>& trees,
                               const std::vector<Schedule>& seeds, Barrier barrier, Effort effort,
                               double bound);

}  // namespace dyncp::nested
