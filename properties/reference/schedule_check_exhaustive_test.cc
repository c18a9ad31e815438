// The schedule checker against a second, independent formulation of the rules over every schedule
// of a small scope: at most 4 ranks, 4 sequences, lengths 0..9. What the checker accepts must
// satisfy the formulation and what it rejects must not.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "reference/schedule_check.h"

namespace dyncp {
namespace {

// --- The second formulation: sets, quantifiers and no efficiency. ---

// Whether the run of ranks is a group under policy `aligned`: a power of two below the largest
// one, at one of its multiples, or everything.
bool group_exists(const ScheduleProblem& problem, int first, int size) {
  if (first == 0 && size == problem.ranks) return true;
  if (size < problem.min_cp) return false;
  int largest = 1;
  while (2 * largest <= problem.ranks) largest *= 2;
  for (int power = 1; power < largest; power *= 2) {
    for (int start = 0; start + power <= problem.ranks; start += power) {
      if (first == start && size == power) return true;
    }
  }
  return false;
}

std::int64_t padded(const ScheduleProblem& problem, int id, int size) {
  const std::int64_t real = problem.lengths[static_cast<std::size_t>(id)];
  std::int64_t multiple = 1;
  if (problem.padding == Padding::kGlobal) multiple = 2 * problem.ranks * problem.tensor_parallel;
  if (problem.padding == Padding::kGroup) multiple = 2 * size * problem.tensor_parallel;
  std::int64_t length = 0;
  while (length < real) length += multiple;
  return length;
}

bool group_may_run(const ScheduleProblem& problem, int first, int size,
                   const std::vector<int>& sequences) {
  if (!group_exists(problem, first, size) || sequences.empty()) return false;
  std::int64_t sum = 0;
  for (int id : sequences) {
    if (id < 0 || id >= static_cast<int>(problem.lengths.size())) return false;
    sum += padded(problem, id, size);
    if (padded(problem, id, size) > problem.max_tokens_per_rank * size) return false;
  }
  if (problem.execution == Execution::kSerial) return true;
  return sum <= problem.max_tokens_per_rank * size &&
         static_cast<int>(sequences.size()) <= problem.max_sequences.value_or(1000);
}

bool runs_right(const ScheduleProblem& problem, const std::multiset<int>& runs,
                std::size_t microbatches) {
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    const bool has_tokens = problem.lengths[static_cast<std::size_t>(id)] > 0;
    if (runs.count(id) != (has_tokens ? 1u : 0u)) return false;
  }
  return microbatches % static_cast<std::size_t>(problem.microbatch_multiple) == 0;
}

bool valid(const ScheduleProblem& problem, const Schedule& schedule) {
  std::multiset<int> runs;
  for (const Microbatch& microbatch : schedule.microbatches) {
    std::multiset<int> ranks;
    for (const auto& [group, sequences] : microbatch) {
      if (!group_may_run(problem, group.first_rank, group.size, sequences)) return false;
      for (int rank = 0; rank < group.size; ++rank) ranks.insert(group.first_rank + rank);
      runs.insert(sequences.begin(), sequences.end());
    }
    std::multiset<int> domain;
    for (int rank = 0; rank < problem.ranks; ++rank) domain.insert(rank);
    if (ranks != domain) return false;
  }
  return runs_right(problem, runs, schedule.microbatches.size());
}

bool holds(const std::vector<int>& list, int id) {
  return std::set<int>(list.begin(), list.end()).count(id) == 1;
}

bool valid(const ScheduleProblem& problem, const RankLists& lists) {
  std::multiset<int> runs;
  for (const auto& by_rank : lists) {
    if (by_rank.size() != static_cast<std::size_t>(problem.ranks)) return false;
    for (int rank = 0; rank < problem.ranks; ++rank) {
      const std::vector<int>& mine = by_rank[static_cast<std::size_t>(rank)];
      if (mine.empty()) return false;
      for (int id : mine) {
        // The ranks that hold `id` are an existing group, and all run exactly my list.
        int first = problem.ranks, last = -1, count = 0;
        for (int other = 0; other < problem.ranks; ++other) {
          const std::vector<int>& theirs = by_rank[static_cast<std::size_t>(other)];
          if (!holds(theirs, id)) continue;
          if (theirs != mine) return false;
          first = std::min(first, other);
          last = other;
          ++count;
        }
        if (count != last - first + 1) return false;
        if (!group_may_run(problem, first, count, mine)) return false;
        if (rank == first) runs.insert(id);
      }
    }
  }
  return runs_right(problem, runs, lists.size());
}

// --- The scope. ---

struct Tally {
  std::int64_t accepted = 0;
  std::int64_t rejected = 0;
};

void print(std::ostream& out, const Schedule& schedule) {
  for (const Microbatch& microbatch : schedule.microbatches) {
    out << " {";
    for (const auto& [group, sequences] : microbatch) {
      out << ' ' << to_string(group) << ':';
      for (int id : sequences) out << ' ' << id;
    }
    out << '}';
  }
}

void print(std::ostream& out, const RankLists& lists) {
  for (const auto& by_rank : lists) {
    out << " {";
    for (const auto& list : by_rank) {
      for (int id : list) out << ' ' << id;
      out << ';';
    }
    out << '}';
  }
}

template <typename Answer>
void compare(const ScheduleProblem& problem, const Answer& answer,
             const std::vector<Violation>& violations, Tally& tally) {
  ++(violations.empty() ? tally.accepted : tally.rejected);
  if (violations.empty() == valid(problem, answer)) return;
  std::ostringstream text;
  text << "ranks " << problem.ranks << " m " << problem.max_tokens_per_rank << " min_cp "
       << problem.min_cp << " " << to_string(problem.execution) << " lengths";
  for (std::int64_t length : problem.lengths) text << ' ' << length;
  print(text, answer);
  ADD_FAILURE() << text.str() << " is " << (violations.empty() ? "accepted" : "rejected: ")
                << (violations.empty() ? "" : violations.front().sentence);
}

// Calls `visit` with every vector of `count` values in 0..base-1.
template <typename Visit>
void every_vector(std::size_t count, int base, const Visit& visit) {
  std::vector<int> digits(count, 0);
  while (true) {
    visit(digits);
    std::size_t i = 0;
    while (i < count && ++digits[i] == base) digits[i++] = 0;
    if (i == count) return;
  }
}

// Every vector of `count` lengths 0..9 in ascending order (which sequence has which number makes no
// difference when every schedule is tried).
std::vector<std::vector<std::int64_t>> every_lengths(std::size_t count) {
  std::vector<std::vector<std::int64_t>> all;
  every_vector(count, 10, [&](const std::vector<int>& digits) {
    if (std::is_sorted(digits.begin(), digits.end()))
      all.emplace_back(digits.begin(), digits.end());
  });
  return all;
}

std::vector<ScheduleProblem> problems(int ranks, std::size_t sequences,
                                      const std::vector<std::int64_t>& limits) {
  std::vector<ScheduleProblem> all;
  for (const auto& lengths : every_lengths(sequences)) {
    for (std::int64_t limit : limits) {
      ScheduleProblem problem;
      problem.lengths = lengths;
      problem.ranks = ranks;
      problem.max_tokens_per_rank = limit;
      // The other options take their turns, so that each meets many lengths.
      const std::size_t turn = all.size();
      problem.execution = turn % 3 == 1 ? Execution::kSerial : Execution::kPack;
      problem.min_cp = turn % 5 == 2 ? std::min(2, ranks) : 1;
      if (turn % 4 == 3) problem.max_sequences = 1 + static_cast<int>(turn % 2);
      if (turn % 7 == 4) problem.padding = Padding::kGroup;
      if (turn % 11 == 5) problem.padding = Padding::kGlobal;
      if (turn % 6 == 5) problem.microbatch_multiple = 2;
      all.push_back(std::move(problem));
    }
  }
  return all;
}

// Every way to put each sequence nowhere or on one run of ranks of one microbatch: all partitions
// into groups, all overlaps, gaps, missing sequences, sizes and positions. Packs hold their
// sequences in the order of ids.
void every_placement(const ScheduleProblem& problem, int microbatches, Tally& tally) {
  std::vector<CpGroup> runs;
  for (int first = 0; first < problem.ranks; ++first) {
    for (int size = 1; first + size <= problem.ranks; ++size) runs.push_back({first, size});
  }
  const int places = static_cast<int>(runs.size()) * microbatches;
  every_vector(problem.lengths.size(), places + 1, [&](const std::vector<int>& digits) {
    Schedule schedule;
    schedule.microbatches.resize(static_cast<std::size_t>(microbatches));
    std::vector<std::vector<int>> at(static_cast<std::size_t>(places));
    for (std::size_t id = 0; id < digits.size(); ++id) {
      if (digits[id] > 0) at[static_cast<std::size_t>(digits[id] - 1)].push_back(int(id));
    }
    for (std::size_t place = 0; place < at.size(); ++place) {
      if (at[place].empty()) continue;
      schedule.microbatches[place / runs.size()].push_back({runs[place % runs.size()], at[place]});
    }
    compare(problem, schedule, check_schedule(problem, schedule), tally);
  });
}

TEST(ScheduleCheckExhaustive, PlacementsInOneMicrobatch) {
  Tally tally;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (std::size_t sequences = 0; sequences <= 3; ++sequences) {
      for (const ScheduleProblem& problem : problems(ranks, sequences, {2, 3, 5})) {
        every_placement(problem, 1, tally);
      }
    }
  }
  // Four sequences: 11^4 placements on 4 ranks for each of 715 lengths, one limit.
  std::size_t turn = 0;
  for (const ScheduleProblem& problem : problems(4, 4, {3})) {
    if (turn++ % 24 == 0) every_placement(problem, 1, tally);
  }
  EXPECT_GT(tally.accepted, 2'000);
  EXPECT_GT(tally.rejected, 100'000);
  RecordProperty("accepted", std::to_string(tally.accepted));
  RecordProperty("rejected", std::to_string(tally.rejected));
}

TEST(ScheduleCheckExhaustive, PlacementsInTwoMicrobatches) {
  Tally tally;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (std::size_t sequences = 0; sequences <= (ranks <= 2 ? 4u : 3u); ++sequences) {
      std::size_t turn = 0;
      for (const ScheduleProblem& problem : problems(ranks, sequences, {4})) {
        if (ranks <= 2 || sequences < 3 || turn++ % 4 == 0) every_placement(problem, 2, tally);
      }
    }
  }
  EXPECT_GT(tally.accepted, 2'000);
  EXPECT_GT(tally.rejected, 100'000);
}

// Every list of at most two different ids out of `ids` and of repetitions of one.
std::vector<std::vector<int>> every_list(const std::vector<int>& ids) {
  std::vector<std::vector<int>> lists = {{}};
  for (int a : ids) {
    lists.push_back({a});
    for (int b : ids) lists.push_back({a, b});
  }
  return lists;
}

TEST(ScheduleCheckExhaustive, RankLists) {
  Tally tally;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (std::size_t sequences = 1; sequences <= 3; ++sequences) {
      // Id `sequences` names no sequence.
      std::vector<int> ids;
      for (int id = 0; id <= static_cast<int>(sequences); ++id) ids.push_back(id);
      if (sequences == 3) ids.pop_back();
      const auto lists = every_list(ids);
      std::size_t turn = 0;
      for (const ScheduleProblem& problem : problems(ranks, sequences, {3, 6})) {
        if (ranks == 4 && turn++ % (sequences == 3 ? 60 : 12) != 0) continue;
        every_vector(static_cast<std::size_t>(ranks), static_cast<int>(lists.size()),
                     [&](const std::vector<int>& digits) {
                       RankLists answer(1);
                       for (int digit : digits) {
                         answer[0].push_back(lists[static_cast<std::size_t>(digit)]);
                       }
                       compare(problem, answer, check_rank_lists(problem, answer), tally);
                     });
      }
    }
  }
  EXPECT_GT(tally.accepted, 1'000);
  EXPECT_GT(tally.rejected, 100'000);
}

// Both forms of one and the same schedule are judged alike.
TEST(ScheduleCheckExhaustive, BothFormsAgreeOnPartitions) {
  std::int64_t valid_ones = 0;
  for (const ScheduleProblem& problem : problems(4, 3, {4})) {
    // Every cut of 4 ranks into runs, every way to give the runs the sequences.
    every_vector(3, 2, [&](const std::vector<int>& cuts) {
      std::vector<CpGroup> groups = {{0, 1}};
      for (int rank = 1; rank < 4; ++rank) {
        if (cuts[static_cast<std::size_t>(rank - 1)] == 1) {
          groups.push_back({rank, 1});
        } else {
          ++groups.back().size;
        }
      }
      every_vector(3, static_cast<int>(groups.size()), [&](const std::vector<int>& digits) {
        Microbatch microbatch;
        for (const CpGroup& group : groups) microbatch.push_back({group, {}});
        for (int id = 0; id < 3; ++id) {
          microbatch[static_cast<std::size_t>(digits[static_cast<std::size_t>(id)])]
              .sequences.push_back(id);
        }
        const Schedule schedule{{microbatch}};
        const bool accepted = check_schedule(problem, schedule).empty();
        EXPECT_EQ(accepted, check_rank_lists(problem, to_rank_lists(schedule, 4)).empty());
        valid_ones += accepted ? 1 : 0;
      });
    });
  }
  EXPECT_GT(valid_ones, 100);
}

}  // namespace
}  // namespace dyncp
