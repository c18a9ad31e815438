#include "reference/schedule.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "reference/error.h"

namespace dyncp {

std::string_view to_string(Execution execution) {
  return execution == Execution::kPack ? "pack" : "serial";
}

Execution parse_execution(std::string_view name) {
  if (name == "pack") return Execution::kPack;
  if (name == "serial") return Execution::kSerial;
  throw InvalidInput("unknown execution '" + std::string(name) + "': expected pack or serial");
}

std::int64_t ScheduleProblem::padded_length(int id, int size) const {
  const std::int64_t real = lengths[static_cast<std::size_t>(id)];
  switch (padding) {
    case Padding::kNone:
      return real;
    case Padding::kGlobal:
      return round_up(real, padding_multiple(ranks, tensor_parallel));
    case Padding::kGroup:
      return round_up(real, padding_multiple(size, tensor_parallel));
  }
  return real;
}

void require_valid(const ScheduleProblem& problem) {
  (void)problem.group_table();  // ranks and min_cp
  require_valid_lengths(problem.lengths);
  const auto at_least_one = [](std::int64_t value, const char* name) {
    if (value < 1) {
      throw InvalidInput(std::string(name) + " " + std::to_string(value) + " must be at least 1");
    }
  };
  at_least_one(problem.max_tokens_per_rank, "max_tokens_per_rank");
  at_least_one(problem.tensor_parallel, "tensor_parallel");
  at_least_one(problem.microbatch_multiple, "microbatch_multiple");
  if (problem.max_sequences) at_least_one(*problem.max_sequences, "max_sequences");
  if (problem.tensor_parallel > kMaxRanks) {
    throw InvalidInput("tensor_parallel " + std::to_string(problem.tensor_parallel) + " is above " +
                       std::to_string(kMaxRanks));
  }
}

std::optional<int> need(const ScheduleProblem& problem, const GroupTable& table, int id) {
  for (int size : table.sizes()) {
    if (ceil_div(problem.padded_length(id, size), size) <= problem.max_tokens_per_rank) return size;
  }
  return std::nullopt;
}

RankLists to_rank_lists(const Schedule& schedule, int ranks) {
  RankLists lists;
  for (const Microbatch& microbatch : schedule.microbatches) {
    std::vector<std::vector<int>> per_rank(static_cast<std::size_t>(ranks));
    for (const Assignment& assignment : microbatch) {
      // A hostile group may lie anywhere: its end need not fit an int.
      const std::int64_t unbounded_end =
          std::int64_t{assignment.group.first_rank} + assignment.group.size;
      const int first = std::max(0, assignment.group.first_rank);
      const int end = static_cast<int>(std::min<std::int64_t>(ranks, unbounded_end));
      for (int rank = first; rank < end; ++rank) {
        auto& list = per_rank[static_cast<std::size_t>(rank)];
        list.insert(list.end(), assignment.sequences.begin(), assignment.sequences.end());
      }
    }
    lists.push_back(std::move(per_rank));
  }
  return lists;
}

}  // namespace dyncp
