// The CP groups of one model, seen from one rank: what a component is handed in place of global
// parallel state. Two models in one process own two collections and do not see each other's groups.
#pragma once

#include <optional>

#include "reference/context.h"
#include "reference/group.h"

namespace dyncp {

/// The groups of one rank domain that a model may use, and where this rank is in them. Immutable.
class GroupCollection {
 public:
  /// Groups of a domain of `ranks` ranks under `policy`, without those smaller than `min_cp`, seen
  /// from `rank`. Throws InvalidInput like GroupTable, or when `rank` is outside 0..ranks-1.
  GroupCollection(int ranks, GroupPolicy policy, int rank, int min_cp = 1);

  int rank() const { return rank_; }
  int ranks() const { return table_.ranks(); }
  const GroupTable& table() const { return table_; }

  /// The CP group of `size` ranks that this rank is in, as PackedSeqParams takes it: with contract
  /// v1 nothing for size 1 (rule R1). Throws InvalidInput when no such size exists, when this rank
  /// is in no group of it, or when it is in several (policy interval; name the group instead).
  std::optional<CpGroup> group_of_size(int size, Contract contract = Contract::kV1) const;

  /// The context of this rank in its group of `size`. Throws like group_of_size.
  CpContext context_of_size(int size) const;

  /// Throws InvalidInput unless `context` is CP off or a group of this collection seen from this
  /// rank. The sentence starts with `who`.
  void require_mine(const CpContext& context, const char* who) const;

 private:
  GroupTable table_;
  int rank_;
};

}  // namespace dyncp
