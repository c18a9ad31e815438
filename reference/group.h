// CP groups and the table of those that exist.
// A rank domain is the P = DP x CP ranks a scheduler may use, numbered 0..P-1. A CP group is a run
// of consecutive ranks of it. Which runs exist as communicators is the group table's policy; a
// schedule that names any other group crashes or hangs a real framework.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dyncp {

/// `size` consecutive ranks starting at `first_rank`.
struct CpGroup {
  int first_rank = 0;
  int size = 1;

  int end_rank() const { return first_rank + size; }
  bool contains(int rank) const { return rank >= first_rank && rank < end_rank(); }
  bool operator==(const CpGroup&) const = default;
};

/// "ranks 2..5 (size 4)" or "rank 3 (size 1)".
std::string to_string(const CpGroup& group);

/// Which groups exist in a domain of P ranks (size 1 needs no communicator and always exists).
///   kAligned       sizes 2^i < 2^floor(log2 P), full aligned slices only, plus the whole domain;
///                  this is what frameworks create. For P = 6: sizes 1, 2 and 6.
///   kPow2AnySlice  kAligned plus full aligned slices of the largest power of two <= P.
///                  For P = 6 also ranks 0..3.
///   kDivisors      every divisor of P, aligned slices.
///   kInterval      any run of consecutive ranks.
enum class GroupPolicy { kAligned, kPow2AnySlice, kDivisors, kInterval };

/// "aligned", "pow2-any-slice", "divisors" or "interval".
std::string_view to_string(GroupPolicy policy);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
GroupPolicy parse_group_policy(std::string_view name);

/// Largest rank domain dyncp accepts.
inline constexpr int kMaxRanks = 65536;

/// The groups that exist in one rank domain. Immutable.
class GroupTable {
 public:
  /// Throws InvalidInput unless 1 <= ranks <= kMaxRanks and 1 <= min_cp <= ranks.
  /// Groups smaller than min_cp are left out, the whole domain never is.
  GroupTable(int ranks, GroupPolicy policy, int min_cp = 1);

  int ranks() const { return ranks_; }
  GroupPolicy policy() const { return policy_; }
  int min_cp() const { return min_cp_; }

  /// Every size of which at least one group exists, ascending.
  const std::vector<int>& sizes() const { return sizes_; }

  bool has_size(int size) const;

  /// Whether exactly this run of ranks is a group.
  bool exists(const CpGroup& group) const;

  /// First ranks of all groups of one size, ascending; empty when the size does not exist.
  std::vector<int> first_ranks(int size) const;

  /// The smallest existing size that holds `length` tokens at no more than `max_tokens_per_rank`
  /// tokens a rank; nothing when ceil(length / max_tokens_per_rank) > ranks (it does not fit).
  /// REQUIRES: length >= 0, max_tokens_per_rank >= 1.
  std::optional<int> need(std::int64_t length, std::int64_t max_tokens_per_rank) const;

 private:
  int ranks_;
  GroupPolicy policy_;
  int min_cp_;
  std::vector<int> sizes_;
};

}  // namespace dyncp
