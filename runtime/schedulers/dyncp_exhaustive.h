// Complete searches for instances with few sequences: nothing feasible is missed there.
#pragma once

#include <optional>

#include "runtime/schedulers/dyncp_exact.h"

namespace dyncp::nested {

/// Whether the tree holds every group that a partition of the domain can use, so that plans on it
/// leave out no schedule.
bool is_laminar(const Instance& instance);

/// Whether solve_rows is affordable: few sequences, and few groups.
bool has_few_rows(const Instance& instance, int most_items);

/// The schedule of least total time when all ranks wait for each other between microbatches, by
/// dynamic programming over the sets of items a microbatch can run. Nothing when no valid schedule
/// exists at all (with or without such waiting). `trees`: make_trees(instance).
std::optional<Schedule> solve_rows(const Instance& instance, const std::vector<Tree>& trees);

}  // namespace dyncp::nested
