// Improves a uniform plan step by step: each step relieves the heaviest path.
// Steps keep the number of packs on every path, so the plan stays valid throughout.
#pragma once

#include <cstdint>

#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

/// Work that may still be spent, in evaluations of pack times; shared by everything that searches.
/// A count, not a clock: the same instance gets the same schedule on every machine.
struct Budget {
  std::int64_t evaluations = 0;
  bool spent() const { return evaluations <= 0; }
};

/// Repeats the best of these steps until none relieves the heaviest path, its makespan is at most
/// `good_enough` or the budget is spent:
///   move   an item of a pack on the path to another pack
///   swap   an item of a pack on the path with one of another pack
///   lift   merge one pack of each child of a node on the path into one on that node
///   drop   spread a pack of a node on the path over its children
/// Returns the number of steps taken.
int local_search(Plan& plan, double good_enough, Budget& budget);

}  // namespace dyncp::nested
