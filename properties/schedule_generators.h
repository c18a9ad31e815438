// RapidCheck generators of scheduling: valid schedules together with the problem they solve.
// Shrinking keeps the schedule valid: it leaves out microbatches and sequences and shortens
// lengths.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include "properties/generators.h"
#include "reference/schedule.h"

namespace dyncp {

/// A problem and one valid answer to it.
struct ScheduledCase {
  ScheduleProblem problem;
  Schedule schedule;
};

inline void showValue(const ScheduleProblem& problem, std::ostream& out) {
  out << "ranks " << problem.ranks << ", max_tokens " << problem.max_tokens_per_rank << ", min_cp "
      << problem.min_cp << ", tp " << problem.tensor_parallel << ", multiple "
      << problem.microbatch_multiple << ", max_sequences " << problem.max_sequences.value_or(0)
      << ", " << to_string(problem.execution) << ", " << to_string(problem.group_policy)
      << ", padding " << to_string(problem.padding) << ", lengths";
  for (std::int64_t length : problem.lengths) out << ' ' << length;
}

inline void showValue(const Schedule& schedule, std::ostream& out) {
  for (const Microbatch& microbatch : schedule.microbatches) {
    out << '{';
    for (const Assignment& assignment : microbatch) {
      out << ' ' << to_string(assignment.group) << ':';
      for (int id : assignment.sequences) out << ' ' << id;
      out << ';';
    }
    out << "} ";
  }
}

inline void showValue(const ScheduledCase& scheduled, std::ostream& out) {
  showValue(scheduled.problem, out);
  out << "\nschedule ";
  showValue(scheduled.schedule, out);
}

namespace schedule_generators_detail {

// Cuts the domain into groups that exist, from the left; where nothing fits any more it starts
// again, and after some attempts takes the whole domain, which always exists.
template <typename Below>
std::vector<CpGroup> cut_domain(const GroupTable& table, Below& below) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::vector<CpGroup> groups;
    int covered = 0;
    while (covered < table.ranks()) {
      std::vector<int> sizes;
      for (int size : table.sizes()) {
        if (table.exists({covered, size})) sizes.push_back(size);
      }
      if (sizes.empty()) break;
      const int size =
          sizes[static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())))];
      groups.push_back({covered, size});
      covered += size;
    }
    if (covered == table.ranks()) return groups;
  }
  return {{0, table.ranks()}};
}

template <typename Below>
ScheduledCase draw_scheduled_case(Below& below) {
  static constexpr GroupPolicy kPolicies[] = {GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                              GroupPolicy::kDivisors, GroupPolicy::kInterval};
  static constexpr Padding kPaddings[] = {Padding::kNone, Padding::kGlobal, Padding::kGroup};
  ScheduledCase scheduled;
  ScheduleProblem& problem = scheduled.problem;
  problem.ranks = static_cast<int>(1 + below(12));
  problem.min_cp = below(3) == 0 ? static_cast<int>(1 + below(problem.ranks)) : 1;
  problem.tensor_parallel = static_cast<int>(1 + below(3));
  problem.execution = below(2) == 0 ? Execution::kPack : Execution::kSerial;
  problem.group_policy = kPolicies[below(4)];
  problem.padding = kPaddings[below(3)];
  problem.microbatch_multiple = static_cast<int>(1 + below(3));
  // At least one multiple of the largest padding fits on every size.
  problem.max_tokens_per_rank =
      padding_multiple(problem.ranks, problem.tensor_parallel) + below(200);

  const GroupTable table = problem.group_table();
  const auto microbatches = problem.microbatch_multiple * (1 + below(2));
  int most = 1;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    Microbatch microbatch;
    for (const CpGroup& group : cut_domain(table, below)) {
      Assignment assignment{group, {}};
      std::int64_t room = problem.max_tokens_per_rank * group.size;
      const std::int64_t wanted = 1 + below(4);
      for (std::int64_t j = 0; j < wanted && room > 0; ++j) {
        const int id = static_cast<int>(problem.lengths.size());
        problem.lengths.push_back(below(4) == 0 ? room : 1 + below(room));
        std::int64_t padded = problem.padded_length(id, group.size);
        if (padded > room) {  // no room for the padding: the most that has room
          problem.lengths.back() = 1;
          const std::int64_t multiple = problem.padded_length(id, group.size);
          padded = problem.lengths.back() = room / multiple * multiple;
        }
        if (padded == 0) {
          problem.lengths.pop_back();
          break;
        }
        assignment.sequences.push_back(id);
        if (problem.execution == Execution::kPack) room -= padded;
      }
      most = std::max(most, static_cast<int>(assignment.sequences.size()));
      microbatch.push_back(std::move(assignment));
    }
    scheduled.schedule.microbatches.push_back(std::move(microbatch));
  }
  if (below(2) == 0) problem.max_sequences = most;

  // Empty sequences that nothing runs, then ids in random order.
  for (std::int64_t empty = below(3); empty > 0; --empty) problem.lengths.push_back(0);
  const auto count = static_cast<std::int64_t>(problem.lengths.size());
  std::vector<int> new_id(problem.lengths.size());
  for (std::size_t i = 0; i < new_id.size(); ++i) new_id[i] = static_cast<int>(i);
  for (std::int64_t i = count - 1; i > 0; --i) {
    std::swap(new_id[static_cast<std::size_t>(i)], new_id[static_cast<std::size_t>(below(i + 1))]);
  }
  std::vector<std::int64_t> lengths(problem.lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[static_cast<std::size_t>(new_id[i])] = problem.lengths[i];
  }
  problem.lengths = std::move(lengths);
  for (Microbatch& microbatch : scheduled.schedule.microbatches) {
    for (Assignment& assignment : microbatch) {
      for (int& id : assignment.sequences) id = new_id[static_cast<std::size_t>(id)];
    }
  }
  return scheduled;
}

// The case without sequence `id`, whose number the ids above it take over.
inline ScheduledCase without_sequence(ScheduledCase scheduled, int id) {
  scheduled.problem.lengths.erase(scheduled.problem.lengths.begin() + id);
  for (Microbatch& microbatch : scheduled.schedule.microbatches) {
    for (Assignment& assignment : microbatch) {
      std::erase(assignment.sequences, id);
      for (int& other : assignment.sequences) other -= other > id ? 1 : 0;
    }
  }
  return scheduled;
}

inline std::vector<ScheduledCase> smaller_cases(const ScheduledCase& scheduled) {
  std::vector<ScheduledCase> smaller;
  const auto& microbatches = scheduled.schedule.microbatches;
  const auto multiple = static_cast<std::size_t>(scheduled.problem.microbatch_multiple);
  if (microbatches.size() > multiple) {
    // Leave out the last `multiple` microbatches and their sequences.
    ScheduledCase cut = scheduled;
    std::vector<int> ids;
    for (std::size_t m = microbatches.size() - multiple; m < microbatches.size(); ++m) {
      for (const Assignment& assignment : microbatches[m]) {
        ids.insert(ids.end(), assignment.sequences.begin(), assignment.sequences.end());
      }
    }
    std::sort(ids.rbegin(), ids.rend());
    cut.schedule.microbatches.resize(microbatches.size() - multiple);
    for (int id : ids) cut = without_sequence(std::move(cut), id);
    smaller.push_back(std::move(cut));
  }
  std::vector<bool> alone(scheduled.problem.lengths.size(), false);
  for (const Microbatch& microbatch : microbatches) {
    for (const Assignment& assignment : microbatch) {
      if (assignment.sequences.size() == 1) {
        alone[static_cast<std::size_t>(assignment.sequences.front())] = true;
      }
    }
  }
  for (std::size_t id = 0; id < alone.size(); ++id) {
    if (!alone[id]) smaller.push_back(without_sequence(scheduled, static_cast<int>(id)));
  }
  for (std::size_t id = 0; id < alone.size(); ++id) {
    const std::int64_t length = scheduled.problem.lengths[id];
    for (std::int64_t shorter : {std::int64_t{1}, length / 2, length - 1}) {
      if (shorter < 1 || shorter >= length) continue;
      smaller.push_back(scheduled);
      smaller.back().problem.lengths[id] = shorter;
    }
  }
  return smaller;
}

}  // namespace schedule_generators_detail

/// A valid schedule with its problem: 1..12 ranks, every group policy, padding and execution,
/// min_cp, limits and multiples; groups as different as the policy allows, lengths up to exactly
/// the capacity, some empty sequences that no microbatch runs.
inline rc::Gen<ScheduledCase> genScheduledCase() {
  return [](const rc::Random& random, int) {
    rc::Random source = random;
    auto below = [&source](std::int64_t bound) {
      return static_cast<std::int64_t>(source.next() % static_cast<std::uint64_t>(bound));
    };
    return rc::shrinkable::shrinkRecur(
        schedule_generators_detail::draw_scheduled_case(below), [](const ScheduledCase& value) {
          return rc::seq::fromContainer(schedule_generators_detail::smaller_cases(value));
        });
  };
}

}  // namespace dyncp
