#include "runtime/schedulers/megatron_alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "reference/error.h"

namespace dyncp::megatron {
namespace {

int total_size(const GroupList& groups) {
  int total = 0;
  for (const PlacedGroup& group : groups) total += group.size;
  return total;
}

// Doubles the first group of the last run of equally large groups until `ranks` are in use.
// Upstream finds that run by walking back from the end; when all groups are equally large, it wants
// room for the doubled group, otherwise it does not ask.
void refill(GroupList& groups, int ranks) {
  int used = total_size(groups);
  while (used < ranks) {
    std::size_t first = groups.size() - 1;
    while (first > 0 && groups[first - 1].size <= groups[first].size) --first;
    const int size = groups[first].size;
    if (first == 0 && size > ranks - used) {
      throw Infeasible(
          fmt::format("megatron-packing-aware: refilling a split microbatch never ends: no group "
                      "of CP size {} can double into {} empty of {} ranks",
                      size, ranks - used, ranks));
    }
    groups[first].size = 2 * size;
    used += size;
  }
}

// Cuts `groups` in two; returns the part before the cut, which is empty when there is nothing to
// cut.
GroupList split(GroupList& groups) {
  const int ranks = total_size(groups);
  for (std::size_t i = 1; i < groups.size(); ++i) {
    if (groups[i].size > groups[i - 1].size) {
      throw Infeasible(
          fmt::format("megatron-packing-aware: AssertionError: split_group: CP size is not "
                      "decreasing: prev={}, cur={}",
                      groups[i - 1].size, groups[i].size));
    }
  }
  if (groups.size() == 1) return {};
  std::size_t cut = 0;
  for (int before = 0; before < ranks / 2; ++cut) before += groups[cut].size;
  GroupList front(std::make_move_iterator(groups.begin()),
                  std::make_move_iterator(groups.begin() + static_cast<std::ptrdiff_t>(cut)));
  groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(cut));
  refill(front, ranks);
  refill(groups, ranks);
  return front;
}

}  // namespace

void align_microbatches(std::vector<GroupList>& microbatches, int ranks, int multiple) {
  const auto wanted = static_cast<std::size_t>(multiple);
  std::size_t missing = (wanted - microbatches.size() % wanted) % wanted;
  std::size_t end = microbatches.size();  // one past the microbatch to split next
  std::size_t failures = 0;               // microbatches in a row that could not be split
  while (missing > 0) {
    if (end == 0) {
      if (failures >= microbatches.size()) {
        throw Infeasible(
            fmt::format("megatron-packing-aware: no tail microbatch has enough ids to split: {} "
                        "microbatches on {} ranks cannot become a multiple of {}",
                        microbatches.size(), ranks, multiple));
      }
      end = microbatches.size();
    }
    GroupList front = split(microbatches[end - 1]);
    if (front.empty()) {
      ++failures;
    } else {
      microbatches.push_back(std::move(front));
      --missing;
      failures = 0;
    }
    --end;
  }
}

}  // namespace dyncp::megatron
