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
  kExactlyOnce,         // every sequence with tokens is run exactly once, an empty one never
  kUnknownSequence,     // every id is an index into the problem's lengths
  kRankHasWork,         // every rank runs something in every microbatch
  kOneGroupPerRank,     // a rank is in at most one CP group of a microbatch
  kIdenticalLists,      // members of a group hold their sequences in one order (rank-list form)
  kConsecutiveRanks,    // the ranks that share a sequence are consecutive (rank-list form)
  kSizeAllowed,         // the group's size is in the group table
  kGroupAligned,        // its first rank is a multiple of its size (where the policy says so)
  kGroupExists,         // the group lies in the rank domain
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
/// schedule (kExactlyOnce, kMicrobatchMultiple) last. Empty means valid. Serial execution bounds
/// each sequence by the capacity, pack execution each group's sum and number. Linear in the sizes
/// of problem and schedule apart from sorting; any schedule whatever is described without an error.
/// REQUIRES: require_valid(problem) holds.
std::vector<Violation> check_schedule(const ScheduleProblem& problem, const Schedule& schedule);

/// The same for Megatron's form. The CP group of a sequence is the set of ranks whose lists contain
/// it. Ranks that share a sequence must hold the same sequences (else kOneGroupPerRank) in the same
/// order (else kIdenticalLists) and must be consecutive (else kConsecutiveRanks); where these hold,
/// the groups are checked like check_schedule does. A list that is empty or missing is a rank
/// without work; lists for more ranks than the domain has violate kGroupExists.
std::vector<Violation> check_rank_lists(const ScheduleProblem& problem, const RankLists& lists);

}  // namespace dyncp
