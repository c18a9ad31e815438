#include "runtime/schedulers/megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "reference/error.h"

namespace dyncp::megatron {

std::int64_t need(std::int64_t length, std::int64_t max_tokens_per_rank, int min_cp) {
  const auto at_least = static_cast<std::uint64_t>(ceil_div(length, max_tokens_per_rank));
  return std::max<std::int64_t>(min_cp, static_cast<std::int64_t>(std::bit_ceil(at_least)));
}

std::int64_t visible_length(const ScheduleProblem& problem, int id) {
  return problem.padding == Padding::kGlobal ? problem.padded_length(id, problem.ranks)
                                             : problem.lengths[static_cast<std::size_t>(id)];
}

std::vector<Item> descending_items(const ScheduleProblem& problem) {
  std::vector<Item> items;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    const std::int64_t length = visible_length(problem, id);
    if (length > 0) items.push_back({id, length});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.length > b.length; });
  return items;
}

Microbatch lay_out(const std::vector<PlacedGroup>& groups) {
  Microbatch microbatch;
  int first_rank = 0;
  for (const PlacedGroup& group : groups) {
    microbatch.push_back({{first_rank, group.size}, group.sequences});
    first_rank += group.size;
  }
  return microbatch;
}

void throw_needs_more_ranks(const Item& item, std::int64_t cp_size, int ranks) {
  throw Infeasible(
      fmt::format("megatron-packing-aware: AssertionError: sequence {} of {} tokens requires CP "
                  "size {}, but only {} DPxCP ranks are available",
                  item.id, item.length, cp_size, ranks));
}

void throw_pushed_outside(const char* scheduler, std::size_t group, int size, int ranks) {
  throw Infeasible(
      fmt::format("{}: IndexError: widening group {} to CP size {} to fill empty ranks pushes work "
                  "past the last of {} ranks",
                  scheduler, group, size, ranks));
}

}  // namespace dyncp::megatron
