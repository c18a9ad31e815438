#include "runtime/group_collection.h"

#include <string>

#include "reference/error.h"

namespace dyncp {

GroupCollection::GroupCollection(int ranks, GroupPolicy policy, int rank, int min_cp)
    : table_(ranks, policy, min_cp), rank_(rank) {
  if (rank < 0 || rank >= ranks) {
    throw InvalidInput("group collection: rank " + std::to_string(rank) + " is outside 0.." +
                       std::to_string(ranks - 1));
  }
}

std::optional<CpGroup> GroupCollection::group_of_size(int size, Contract contract) const {
  const std::string text = "CP size " + std::to_string(size);
  if (!table_.has_size(size)) {
    std::string sizes;
    for (int existing : table_.sizes()) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(existing);
    }
    throw InvalidInput(text + " does not exist in this group collection of " +
                       std::to_string(ranks()) + " ranks: its sizes are " + sizes);
  }
  if (size == 1) {
    return contract == Contract::kV1 ? std::nullopt : std::optional(CpGroup{rank_, 1});
  }
  std::optional<CpGroup> mine;
  for (int first : table_.first_ranks(size)) {
    const CpGroup group{first, size};
    if (!group.contains(rank_)) continue;
    if (mine) {
      throw InvalidInput(text + " does not say which group: rank " + std::to_string(rank_) +
                         " is in " + to_string(*mine) + " and in " + to_string(group));
    }
    mine = group;
  }
  if (!mine) {
    throw InvalidInput("rank " + std::to_string(rank_) + " is in no CP group of size " +
                       std::to_string(size));
  }
  return mine;
}

CpContext GroupCollection::context_of_size(int size) const {
  const std::optional<CpGroup> group = group_of_size(size);
  return group ? CpContext(*group, rank_) : CpContext();
}

void GroupCollection::require_mine(const CpContext& context, const char* who) const {
  if (!context.cp_on()) return;
  const CpGroup group{context.global_rank(0), context.size()};
  if (context.global_rank(context.rank()) != rank_) {
    throw InvalidInput(std::string(who) + ": " + to_string(group) + " is seen from rank " +
                       std::to_string(context.global_rank(context.rank())) + ", this is rank " +
                       std::to_string(rank_));
  }
  if (!table_.exists(group)) {
    throw InvalidInput(std::string(who) + ": no CP group of " + to_string(group) +
                       " exists in this group collection of " + std::to_string(ranks()) +
                       " ranks (policy " + std::string(to_string(table_.policy())) + ")");
  }
}

}  // namespace dyncp
