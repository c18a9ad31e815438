// The rules of a schedule (R5), each violation told in one sentence. A bad schedule never throws:
// it is what this file exists to describe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reference/schedule.h"

namespace dyncp {

/// What a schedule must satisfy. The name (to_string) is stable: reports, shrinking and the fault
/// matrix refer to it.
enum class ScheduleRule {
  kExactlyOnce,         // every sequence of non-zero length is run exactly once
  kUnknownSequence,     // every id is an index into the problem's lengths
  kRankHasWork,         // every rank runs something in every microbatch
  kOneGroupPerRank,     // a rank is in at most one CP group of a microbatch
  kIdenticalLists,      // members of a group hold identical ordered lists (rank-list form)
  kConsecutiveRanks,    // the ranks that share a sequence are consecutive (rank-list form)
  kSizeAllowed,         // the group's size is in the group table
  kGroupAligned,        // its first rank is a multiple of its size (where the policy says so)
  kGroupExists,         // the group lies in the domain and is in the group table
  kEmptyPack,           // no group without sequences
  kCapacity,            // tokens per rank after padding are at most max_tokens_per_rank
  kMaxSequences,        // at most max_sequences in a pack (pack execution)
  kMicrobatchMultiple,  // the number of microbatches is a multiple of microbatch_multiple
};

/// Stable kebab-case name, for example "group-aligned".
std::string_view to_string(ScheduleRule rule);

/// Every rule, in declaration order.
const std::vector<ScheduleRule>& all_schedule_rules();

/// One broken rule. -1 where a field does not apply.
struct Violation {
  ScheduleRule rule = ScheduleRule::kExactlyOnce;
  int microbatch = -1;
  CpGroup ranks{-1, 0};  // the ranks concerned; size 0 when none
  int sequence = -1;
  std::string sentence;  // complete: names rule-relevant microbatch, ranks, group and numbers
  bool operator==(const Violation&) const = default;
};

/// Every violation of `schedule`, by microbatch and then by first rank; violations of the whole
/// schedule last. Empty means valid. REQUIRES: require_valid(problem) holds.
std::vector<Violation> check_schedule(const ScheduleProblem& problem, const Schedule& schedule);

/// The same for Megatron's form. Adds kIdenticalLists and kConsecutiveRanks; where a microbatch can
/// be read as groups, the groups are then checked like check_schedule does.
std::vector<Violation> check_rank_lists(const ScheduleProblem& problem, const RankLists& lists);

}  // namespace dyncp
