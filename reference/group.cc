#include "reference/group.h"

#include <algorithm>
#include <bit>

#include "reference/error.h"
#include "reference/sequence.h"

namespace dyncp {

std::string to_string(const CpGroup& group) {
  if (group.size == 1) return "rank " + std::to_string(group.first_rank) + " (size 1)";
  return "ranks " + std::to_string(group.first_rank) + ".." + std::to_string(group.end_rank() - 1) +
         " (size " + std::to_string(group.size) + ")";
}

std::string_view to_string(GroupPolicy policy) {
  switch (policy) {
    case GroupPolicy::kAligned:
      return "aligned";
    case GroupPolicy::kPow2AnySlice:
      return "pow2-any-slice";
    case GroupPolicy::kDivisors:
      return "divisors";
    case GroupPolicy::kInterval:
      return "interval";
  }
  return "?";
}

GroupPolicy parse_group_policy(std::string_view name) {
  for (GroupPolicy policy : {GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                             GroupPolicy::kDivisors, GroupPolicy::kInterval}) {
    if (name == to_string(policy)) return policy;
  }
  throw InvalidInput("unknown group policy '" + std::string(name) +
                     "': expected aligned, pow2-any-slice, divisors or interval");
}

GroupTable::GroupTable(int ranks, GroupPolicy policy, int min_cp)
    : ranks_(ranks), policy_(policy), min_cp_(min_cp) {
  if (ranks < 1 || ranks > kMaxRanks) {
    throw InvalidInput("ranks " + std::to_string(ranks) + " is outside 1.." +
                       std::to_string(kMaxRanks));
  }
  if (min_cp < 1 || min_cp > ranks) {
    throw InvalidInput("min_cp " + std::to_string(min_cp) + " is outside 1.." +
                       std::to_string(ranks) + " (the number of ranks)");
  }
  const int largest_power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  for (int size = 1; size <= ranks; ++size) {
    bool exists = size == ranks;
    switch (policy) {
      case GroupPolicy::kAligned:
        exists =
            exists || (std::has_single_bit(static_cast<unsigned>(size)) && size < largest_power);
        break;
      case GroupPolicy::kPow2AnySlice:
        exists = exists || std::has_single_bit(static_cast<unsigned>(size));
        break;
      case GroupPolicy::kDivisors:
        exists = exists || ranks % size == 0;
        break;
      case GroupPolicy::kInterval:
        exists = true;
        break;
    }
    if (exists && (size >= min_cp || size == ranks)) sizes_.push_back(size);
  }
}

bool GroupTable::has_size(int size) const {
  return std::binary_search(sizes_.begin(), sizes_.end(), size);
}

bool GroupTable::exists(const CpGroup& group) const {
  if (group.first_rank < 0 || group.size < 1 || group.size > ranks_ - group.first_rank)
    return false;
  if (!has_size(group.size)) return false;
  return policy_ == GroupPolicy::kInterval || group.first_rank % group.size == 0;
}

std::vector<int> GroupTable::first_ranks(int size) const {
  std::vector<int> firsts;
  if (!has_size(size)) return firsts;
  const int stride = policy_ == GroupPolicy::kInterval ? 1 : size;
  for (int first = 0; first + size <= ranks_; first += stride) firsts.push_back(first);
  return firsts;
}

std::optional<int> GroupTable::need(std::int64_t length, std::int64_t max_tokens_per_rank) const {
  const std::int64_t at_least = ceil_div(length, max_tokens_per_rank);
  const auto size = std::lower_bound(sizes_.begin(), sizes_.end(), at_least);
  if (size == sizes_.end()) return std::nullopt;
  return *size;
}

}  // namespace dyncp
