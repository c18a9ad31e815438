// What the re-implementations of Megatron's schedulers share: their rules for the CP size of a
// sequence, for work, and for laying groups side by side. These are upstream's rules, defects
// included, and not dyncp's: see need() in reference/schedule.h for ours.
// Source: the published behaviour of Megatron-LM's BalancedCPScheduler (main, d98e8a64) and
// DefaultDynamicCPScheduler (dev, d48bd6be); own implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/schedule.h"

namespace dyncp::megatron {

/// A sequence that is to be scheduled: its id and the length, in tokens, the scheduler sees.
struct Item {
  int id = 0;
  std::int64_t length = 0;
};

/// A CP group that is still without a place: its size and the ordered ids it runs.
struct PlacedGroup {
  int size = 1;
  std::vector<int> sequences;
};

/// The CP size of a sequence of `length` tokens: the smallest power of two that is at least
/// ceil(length / max_tokens_per_rank), or min_cp when that is larger. Known defects: not limited to
/// the domain, and no power of two when min_cp is none.
/// REQUIRES: length >= 1, max_tokens_per_rank >= 1, min_cp >= 1.
std::int64_t need(std::int64_t length, std::int64_t max_tokens_per_rank, int min_cp);

/// Time of one rank for a sequence on `size` ranks: length^2 / size, in squared tokens.
inline double work(std::int64_t length, int size) {
  return static_cast<double>(length) * static_cast<double>(length) / size;
}

/// The length in tokens a size-blind scheduler sees. Padding::kGroup cannot be known before the CP
/// size is, and upstream users of that rule pad after scheduling: it sees real lengths there (known
/// defect: the padded pack may exceed the capacity).
std::int64_t visible_length(const ScheduleProblem& problem, int id);

/// Every sequence of non-zero length, by descending visible length, ties by ascending id.
std::vector<Item> descending_items(const ScheduleProblem& problem);

/// Groups side by side from rank 0 on.
Microbatch lay_out(const std::vector<PlacedGroup>& groups);

/// Most work the packing-aware scheduler gives a rank, in squared tokens: what packing sequences no
/// longer than `longest` tokens to the full amounts to, and 5 % more.
inline double work_limit(std::int64_t longest, std::int64_t max_tokens_per_rank) {
  return static_cast<double>(longest) * static_cast<double>(max_tokens_per_rank) * (1.0 + 0.05);
}

/// The Infeasible of the packing-aware scheduler for a sequence that needs more than `ranks` ranks.
[[noreturn]] void throw_needs_more_ranks(const Item& item, std::int64_t cp_size, int ranks);

/// The Infeasible of a list index outside the domain, which is what upstream's widening of groups
/// runs into: group number `group` was to grow to `size` ranks. `scheduler` is a scheduler's name.
[[noreturn]] void throw_pushed_outside(const char* scheduler, std::size_t group, int size,
                                       int ranks);

}  // namespace dyncp::megatron
