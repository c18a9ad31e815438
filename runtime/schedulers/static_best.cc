#include "runtime/schedulers/static_best.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "reference/error.h"

namespace dyncp {
namespace {

struct Pack {
  std::int64_t tokens = 0;
  double squares = 0;
  std::vector<int> ids;
};

// Puts the sequences, longest first, each into the pack that is quickest so far and has room.
// Nothing when some sequence finds no room or some pack stays empty.
std::optional<std::vector<Pack>> balance(const ScheduleProblem& problem, const CostModel& cost,
                                         const std::vector<int>& longest_first, int size,
                                         std::size_t count) {
  const std::int64_t capacity = problem.max_tokens_per_rank * size;
  std::vector<Pack> packs(count);
  const auto time_of = [&](const Pack& pack) {
    return pack.ids.empty() ? 0.0
                            : cost.pack_time(static_cast<double>(pack.tokens), pack.squares, size);
  };
  for (const int id : longest_first) {
    const std::int64_t length = problem.padded_length(id, size);
    Pack* quickest = nullptr;
    double quickest_time = 0;
    for (Pack& pack : packs) {
      const bool room =
          pack.tokens + length <= capacity &&
          (!problem.max_sequences || static_cast<int>(pack.ids.size()) < *problem.max_sequences);
      if (!room) continue;
      const double time = time_of(pack);
      if (quickest == nullptr || time < quickest_time) {
        quickest = &pack;
        quickest_time = time;
      }
    }
    if (quickest == nullptr) return std::nullopt;
    quickest->tokens += length;
    quickest->squares += static_cast<double>(length) * static_cast<double>(length);
    quickest->ids.push_back(id);
  }
  for (const Pack& pack : packs) {
    if (pack.ids.empty()) return std::nullopt;
  }
  std::stable_sort(packs.begin(), packs.end(),
                   [&](const Pack& a, const Pack& b) { return time_of(a) > time_of(b); });
  return packs;
}

// Deals the packs to the CP groups back and forth, so that who gets the longest of one microbatch
// gets the shortest of the next.
Schedule deal(std::vector<Pack> packs, int size, int groups) {
  Schedule schedule;
  for (std::size_t p = 0; p < packs.size(); ++p) {
    const auto microbatch = p / static_cast<std::size_t>(groups);
    const auto place = static_cast<int>(p % static_cast<std::size_t>(groups));
    if (place == 0) schedule.microbatches.emplace_back();
    const int group = microbatch % 2 == 0 ? place : groups - 1 - place;
    schedule.microbatches.back().push_back({CpGroup{group * size, size}, std::move(packs[p].ids)});
  }
  for (Microbatch& microbatch : schedule.microbatches) {
    std::sort(microbatch.begin(), microbatch.end(), [](const Assignment& a, const Assignment& b) {
      return a.group.first_rank < b.group.first_rank;
    });
  }
  return schedule;
}

}  // namespace

std::string_view StaticBest::summary() const {
  return "one CP size for the whole batch, the best in hindsight, sequences sorted and balanced by "
         "the "
         "cost model: the strongest static rival, which no framework offers";
}

Schedule StaticBest::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  std::vector<int> order;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    if (problem.lengths[static_cast<std::size_t>(id)] > 0) order.push_back(id);
  }
  if (order.empty()) return {};
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return problem.lengths[static_cast<std::size_t>(a)] >
           problem.lengths[static_cast<std::size_t>(b)];
  });
  std::optional<Schedule> best;
  double best_makespan = 0;
  const GroupTable table = problem.group_table();
  for (const int size : table.sizes()) {
    if (problem.ranks % size != 0) continue;
    const std::int64_t capacity = problem.max_tokens_per_rank * size;
    std::int64_t tokens = 0;
    bool fits = true;
    for (const int id : order) {
      tokens += problem.padded_length(id, size);
      fits = fits && problem.padded_length(id, size) <= capacity;
    }
    if (!fits) continue;
    const int groups = problem.ranks / size;
    const std::int64_t step = std::int64_t{groups} * problem.microbatch_multiple;
    const std::int64_t fewest =
        round_up(std::max<std::int64_t>(1, ceil_div(tokens, capacity)), step);
    // Fewer microbatches cost fewer launches; a few more leave room to balance.
    constexpr int kTries = 4;
    for (int extra = 0; extra < kTries; ++extra) {
      const std::int64_t count = fewest + extra * step;
      if (count > static_cast<std::int64_t>(order.size())) break;
      auto packs = balance(problem, cost_, order, size, static_cast<std::size_t>(count));
      if (!packs) continue;
      Schedule candidate = deal(std::move(*packs), size, groups);
      const double makespan = simulated_makespan(problem, candidate, cost_, barrier_);
      if (!best || makespan < best_makespan) {
        best = std::move(candidate);
        best_makespan = makespan;
      }
    }
  }
  if (!best) {
    throw Infeasible(
        "static-best finds no CP size that holds the longest sequence and gives every "
        "rank work");
  }
  return *best;
}

}  // namespace dyncp
