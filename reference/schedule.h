// What a scheduler is asked and what it answers.
// A schedule is a list of microbatches; each microbatch cuts the rank domain into CP groups and
// gives each group the sequences it runs. Sequence ids are indices into the problem's length list.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "reference/group.h"
#include "reference/sequence.h"

namespace dyncp {

/// How a group runs its sequences.
///   kPack    all of them in one packed microbatch: sum of padded lengths / size <= max tokens
///   kSerial  one at a time (Megatron main): each padded length / size <= max tokens
enum class Execution { kPack, kSerial };

/// "pack" or "serial".
std::string_view to_string(Execution execution);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Execution parse_execution(std::string_view name);

/// One scheduling instance. Lengths in tokens. Zero-length sequences keep their id but are dropped
/// before scheduling: no schedule may run them.
struct ScheduleProblem {
  std::vector<std::int64_t> lengths;      // real lengths; with Padding::kNone taken as padded
  int ranks = 1;                          // P, the rank domain
  std::int64_t max_tokens_per_rank = 1;   // m
  int min_cp = 1;                         // smallest CP group size
  int tensor_parallel = 1;                // padding factor of sequence parallelism
  int microbatch_multiple = 1;            // the number of microbatches must be a multiple of this
  std::optional<int> max_sequences = {};  // most sequences in one pack
  Execution execution = Execution::kPack;
  GroupPolicy group_policy = GroupPolicy::kAligned;
  Padding padding = Padding::kNone;

  /// Length in tokens of sequence `id` when it runs on a group of `size` ranks.
  /// REQUIRES: 0 <= id < lengths.size(), size >= 1.
  std::int64_t padded_length(int id, int size) const;

  GroupTable group_table() const { return GroupTable(ranks, group_policy, min_cp); }

  bool operator==(const ScheduleProblem&) const = default;
};

/// Throws InvalidInput naming the first field that is out of range.
void require_valid(const ScheduleProblem& problem);

/// The smallest existing CP size on which sequence `id` fits, padding included; nothing when it
/// fits on no group of the domain.
std::optional<int> need(const ScheduleProblem& problem, const GroupTable& table, int id);

/// One CP group of a microbatch and the ordered sequences it runs.
struct Assignment {
  CpGroup group;
  std::vector<int> sequences;
  bool operator==(const Assignment&) const = default;
};

/// A partition of the rank domain into CP groups, by ascending first rank when written by dyncp.
using Microbatch = std::vector<Assignment>;

struct Schedule {
  std::vector<Microbatch> microbatches;
  bool operator==(const Schedule&) const = default;
};

/// Megatron's own form: lists[microbatch][rank] = ordered sequence ids that rank runs. A sequence's
/// CP group is the set of ranks whose lists contain it.
using RankLists = std::vector<std::vector<std::vector<int>>>;

/// The rank lists of a schedule (every rank of a group gets the group's list; ranks outside every
/// group get an empty list). Groups that reach outside 0..ranks-1 are cut off at the domain.
RankLists to_rank_lists(const Schedule& schedule, int ranks);

}  // namespace dyncp
