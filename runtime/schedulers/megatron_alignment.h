// Bringing the number of microbatches to a multiple, as Megatron dev does it for interleaved
// pipelines: by splitting microbatches into two.
#pragma once

#include <vector>

#include "runtime/schedulers/megatron.h"

namespace dyncp::megatron {

/// Groups side by side from rank 0 on. Their sizes add up to the domain, except where upstream's
/// refill grows the list past it (see align_microbatches).
using GroupList = std::vector<PlacedGroup>;

/// Splits microbatches until their number is a multiple of `multiple`. From the last microbatch to
/// the first and around again: one of several groups is cut at the first group boundary at or after
/// half its ranks; the groups behind the cut stay in its place, those before it become a new
/// microbatch at the end. In both, the first of the smallest groups is doubled until no rank is
/// empty; if even one doubling reaches past the last rank, groups then lie outside the domain
/// (known defect, power-of-two domains cannot meet it). Throws Infeasible where upstream asserts
/// (nothing left to split, sizes that grow with the rank) or doubles for ever. REQUIRES: multiple
/// >= 1, ranks >= 1, every microbatch fills the domain.
void align_microbatches(std::vector<GroupList>& microbatches, int ranks, int multiple);

}  // namespace dyncp::megatron
