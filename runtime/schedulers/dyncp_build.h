// The constructive pass: items longest first, each on the group size that costs the fewest rank
// seconds among those that meet the deadline, on the least loaded group of that size.
#pragma once

#include <optional>

#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

struct BuildOptions {
  int microbatches = 1;    // start with this many packs a path; more are taken when nothing fits
  double deadline = 0;     // wanted makespan, launches included
  double patience = 1;     // share of the deadline that a single sequence may take
  bool best_fit = false;   // fill packs of single ranks one after the other instead of evenly
  bool first_fit = false;  // first group that meets the deadline instead of the least loaded one
  double spread = 0;  // forests: the first tree's deadline is longer, the last's shorter by this
};

/// Packs with at most the returned number of packs a path (`microbatches` plus a multiple of the
/// instance's; on a forest, where each tree is a microbatch, exactly 1), not necessarily uniform
/// (dyncp_repair.h makes it so). Nothing when the sequences do not fit this way.
struct Built {
  Packing packing;
  int microbatches = 0;
};
std::optional<Built> build(const Instance& instance, const Tree& tree, const BuildOptions& options);

}  // namespace dyncp::nested
