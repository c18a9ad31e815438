// The rules of a schedule (R5), each violation told in one sentence.
// Everything here is linear in the size of the schedule (times a logarithm for sorting groups), and
// every sentence has a bounded length, so that a large and thoroughly broken schedule is described
// as quickly as a good one. Ranks and sizes come from other people's programs: they are widened to
// 64 bits before any arithmetic.
#include "reference/schedule_check.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace dyncp {
namespace {

// How many members of a list a sentence names before it says "and 17 more".
constexpr std::size_t kNamedAtMost = 4;

// Sum that stays at the largest representable value instead of wrapping: a schedule may repeat a
// long sequence any number of times.
std::int64_t saturating_add(std::int64_t left, std::int64_t right) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  return left > kLargest - right ? kLargest : left + right;
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::string plural(std::int64_t count, const std::string& noun) {
  return number(count) + " " + noun + (count == 1 ? "" : "s");
}

// "ranks 2..5 (size 4)"; safe for any first rank and size.
std::string describe(const CpGroup& group) {
  const std::int64_t first = group.first_rank;
  if (group.size == 1) return "rank " + number(first) + " (size 1)";
  if (group.size < 1) {
    return "a group of size " + number(group.size) + " at rank " + number(first);
  }
  return "ranks " + number(first) + ".." + number(first + group.size - 1) + " (size " +
         number(group.size) + ")";
}

// "ranks 2..5 (size 4) run" or "rank 3 (size 1) runs", with the verb given as "run".
std::string does(const CpGroup& group, const std::string& verb) {
  return describe(group) + " " + verb + (group.size > 1 ? " " : "s ");
}

// "rank 3" or "ranks 2..5".
std::string describe_ranks(std::int64_t first, std::int64_t end) {
  if (end - first == 1) return "rank " + number(first);
  return "ranks " + number(first) + ".." + number(end - 1);
}

// "1, 2 and 6"; "1, 2, 4, 8 and 3 more".
std::string enumerate(const std::vector<int>& values) {
  std::string text;
  const bool cut = values.size() > kNamedAtMost + 1;
  const std::size_t named = cut ? kNamedAtMost : values.size();
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == values.size() ? " and " : ", ";
    text += number(values[i]);
  }
  if (cut) text += " and " + std::to_string(values.size() - named) + " more";
  return text;
}

// "sequence 3" or "sequences 3, 4 and 7".
std::string describe_sequences(const std::vector<int>& ids) {
  return (ids.size() == 1 ? "sequence " : "sequences ") + enumerate(ids);
}

// "[3, 1, 4]", cut after a few members.
std::string describe_list(const std::vector<int>& ids) {
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(ids.size(), 2 * kNamedAtMost); ++i) {
    if (i > 0) text += ", ";
    text += number(ids[i]);
  }
  if (ids.size() > 2 * kNamedAtMost) text += ", ...";
  return text + "]";
}

std::string in_microbatch(int microbatch) { return "microbatch " + number(microbatch) + ": "; }

// A CP group of one microbatch and the list its members run.
struct View {
  CpGroup group;
  const std::vector<int>* sequences;
};

class Checker {
 public:
  explicit Checker(const ScheduleProblem& problem)
      : problem_(problem),
        table_(problem.group_table()),
        sequences_(static_cast<int>(problem.lengths.size())),
        runs_(problem.lengths.size()) {}

  bool known(int id) const { return id >= 0 && id < sequences_; }
  int ranks() const { return problem_.ranks; }

  void add(ScheduleRule rule, int microbatch, const CpGroup& where, int sequence,
           std::string sentence) {
    found_.push_back({rule, microbatch, where, sequence, std::move(sentence)});
  }

  // Orders what was found since the last call by first rank.
  void end_microbatch() {
    std::stable_sort(found_.begin() + static_cast<std::ptrdiff_t>(sorted_), found_.end(),
                     [](const Violation& left, const Violation& right) {
                       return left.ranks.first_rank < right.ranks.first_rank;
                     });
    sorted_ = found_.size();
  }

  // Counts one run of `id`; reports ids that name no sequence.
  void count_run(int microbatch, const CpGroup& where, int id) {
    if (!known(id)) {
      add(ScheduleRule::kUnknownSequence, microbatch, where, id,
          in_microbatch(microbatch) + does(where, "run") + "sequence " + number(id) +
              " but the problem has " +
              (sequences_ == 0 ? "no sequences" : "sequences 0.." + number(sequences_ - 1)));
      return;
    }
    Run& run = runs_[static_cast<std::size_t>(id)];
    if (run.count++ == 0) {
      run.microbatch = microbatch;
      run.where = where;
    } else if (run.count == 2) {
      repeats_[id] = {microbatch, where};
    }
  }

  // The group is one that exists.
  void check_group(int microbatch, const View& view) {
    const CpGroup& group = view.group;
    if (table_.exists(group)) return;
    const std::string who =
        in_microbatch(microbatch) +
        (view.sequences->empty() ? does(group, "form") + "a group"
                                 : does(group, "run") + describe_sequences(*view.sequences));
    const int sequence = view.sequences->size() == 1 ? view.sequences->front() : -1;
    const std::int64_t end = std::int64_t{group.first_rank} + group.size;
    if (group.size < 1 || group.first_rank < 0 || end > problem_.ranks) {
      add(ScheduleRule::kGroupExists, microbatch, group, sequence,
          who + " but the rank domain is " + describe_ranks(0, problem_.ranks));
    } else if (!table_.has_size(group.size)) {
      add(ScheduleRule::kSizeAllowed, microbatch, group, sequence,
          who + " but no CP group of size " + number(group.size) +
              " exists: " + sizes_that_exist());
    } else {
      add(ScheduleRule::kGroupAligned, microbatch, group, sequence,
          who + " but no such CP group exists: size-" + number(group.size) +
              " groups start at multiples of " + number(group.size) + " (" +
              groups_of_size(group.size) + ")");
    }
  }

  // What a group of `view.group.size` ranks may run at once.
  void check_load(int microbatch, const View& view) {
    const int size = view.group.size;
    if (size < 1 || size > problem_.ranks) return;  // told by check_group
    if (view.sequences->empty()) {
      add(ScheduleRule::kEmptyPack, microbatch, view.group, -1,
          in_microbatch(microbatch) + does(view.group, "form") + "a group that runs no sequence");
      return;
    }
    const std::int64_t limit = problem_.max_tokens_per_rank;
    const std::string padded = problem_.padding == Padding::kNone ? "" : " after padding";
    if (problem_.execution == Execution::kSerial) {
      for (int id : *view.sequences) {
        if (!known(id)) continue;
        const std::int64_t tokens = problem_.padded_length(id, size);
        if (ceil_div(tokens, size) <= limit) continue;
        add(ScheduleRule::kCapacity, microbatch, view.group, id,
            in_microbatch(microbatch) + does(view.group, "run") + "sequence " + number(id) +
                " of " + plural(tokens, "token") + padded + ", " + number(ceil_div(tokens, size)) +
                " a rank, above max_tokens_per_rank " + number(limit));
      }
      return;
    }
    std::int64_t tokens = 0;
    for (int id : *view.sequences) {
      if (known(id)) tokens = saturating_add(tokens, problem_.padded_length(id, size));
    }
    if (ceil_div(tokens, size) > limit) {
      add(ScheduleRule::kCapacity, microbatch, view.group,
          view.sequences->size() == 1 ? view.sequences->front() : -1,
          in_microbatch(microbatch) + does(view.group, "run") +
              describe_sequences(*view.sequences) + " of " + plural(tokens, "token") + padded +
              ", " + number(ceil_div(tokens, size)) + " a rank, above max_tokens_per_rank " +
              number(limit));
    }
    if (problem_.max_sequences &&
        view.sequences->size() > static_cast<std::size_t>(*problem_.max_sequences)) {
      add(ScheduleRule::kMaxSequences, microbatch, view.group, -1,
          in_microbatch(microbatch) + does(view.group, "run") +
              plural(static_cast<std::int64_t>(view.sequences->size()), "sequence") +
              " in one pack, above max_sequences " + number(*problem_.max_sequences));
    }
  }

  void report_idle(int microbatch, std::int64_t first, std::int64_t end) {
    const CpGroup idle{static_cast<int>(first), static_cast<int>(end - first)};
    add(ScheduleRule::kRankHasWork, microbatch, idle, -1,
        in_microbatch(microbatch) + describe_ranks(first, end) +
            (end - first == 1 ? " runs" : " run") + " no sequence");
  }

  // Rules of the whole schedule; returns everything found.
  std::vector<Violation> finish(std::size_t microbatches) {
    for (int id = 0; id < sequences_; ++id) check_runs(id);
    if (microbatches % static_cast<std::size_t>(problem_.microbatch_multiple) != 0) {
      add(ScheduleRule::kMicrobatchMultiple, -1, {-1, 0}, -1,
          "the schedule has " + std::to_string(microbatches) +
              (microbatches == 1 ? " microbatch" : " microbatches") +
              ", not a multiple of microbatch_multiple " + number(problem_.microbatch_multiple));
    }
    return std::move(found_);
  }

 private:
  // First run of a sequence and how many there were.
  struct Run {
    int count = 0;
    int microbatch = -1;
    CpGroup where;
  };
  struct Place {
    int microbatch;
    CpGroup where;
  };

  void check_runs(int id) {
    const Run& run = runs_[static_cast<std::size_t>(id)];
    const std::int64_t length = problem_.lengths[static_cast<std::size_t>(id)];
    if (length == 0) {
      if (run.count == 0) return;
      add(ScheduleRule::kExactlyOnce, run.microbatch, run.where, id,
          "sequence " + number(id) + " has no tokens and must not be scheduled, but microbatch " +
              number(run.microbatch) + " runs it on " + describe(run.where));
    } else if (run.count == 0) {
      add(ScheduleRule::kExactlyOnce, -1, {-1, 0}, id,
          "sequence " + number(id) + " (" + plural(length, "token") + ") is never run");
    } else if (run.count > 1) {
      const Place& again = repeats_.at(id);
      add(ScheduleRule::kExactlyOnce, again.microbatch, again.where, id,
          "sequence " + number(id) + " runs " + number(run.count) + " times: in microbatch " +
              number(run.microbatch) + " on " + describe(run.where) + ", then in microbatch " +
              number(again.microbatch) + " on " + describe(again.where) +
              (run.count > 2 ? ", ..." : ""));
    }
  }

  std::string sizes_that_exist() const {
    const std::vector<int>& sizes = table_.sizes();
    std::string text = "sizes in a domain of " + plural(problem_.ranks, "rank") + " are ";
    // Few enough to name them all unless any run of ranks is a group.
    if (problem_.group_policy == GroupPolicy::kInterval) {
      text += number(sizes.front()) + ".." + number(sizes.back());
    } else {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (i > 0) text += i + 1 == sizes.size() ? " and " : ", ";
        text += number(sizes[i]);
      }
    }
    if (problem_.min_cp > 1) text += " (min_cp " + number(problem_.min_cp) + ")";
    return text;
  }

  // "0..3, 4..7" or "0..1, 2..3, 4..5, 6..7, ...".
  std::string groups_of_size(int size) const {
    std::string text;
    std::size_t named = 0;
    for (int first : table_.first_ranks(size)) {
      if (named > 0) text += ", ";
      if (named++ == kNamedAtMost) return text + "...";
      text += number(first) + ".." + number(std::int64_t{first} + size - 1);
    }
    return text;
  }

  const ScheduleProblem& problem_;
  const GroupTable table_;
  const int sequences_;
  std::vector<Run> runs_;         // by sequence id
  std::map<int, Place> repeats_;  // second run of sequences that have one
  std::vector<Violation> found_;
  std::size_t sorted_ = 0;
};

void check_microbatch(Checker& checker, int microbatch, const Microbatch& assignments) {
  std::vector<std::size_t> order(assignments.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return assignments[left].group.first_rank < assignments[right].group.first_rank;
  });
  // Sweep over the groups by first rank: `covered` is the end of the ranks seen so far, reached by
  // the group `reaching`.
  std::int64_t covered = 0;
  const CpGroup* reaching = nullptr;
  for (std::size_t index : order) {
    const View view{assignments[index].group, &assignments[index].sequences};
    checker.check_group(microbatch, view);
    checker.check_load(microbatch, view);
    for (int id : *view.sequences) checker.count_run(microbatch, view.group, id);

    const std::int64_t first = std::max<std::int64_t>(0, view.group.first_rank);
    const std::int64_t end = std::min<std::int64_t>(
        checker.ranks(), std::int64_t{view.group.first_rank} + view.group.size);
    if (end <= first) continue;  // outside the domain: told by check_group
    if (first > covered) checker.report_idle(microbatch, covered, first);
    if (reaching != nullptr && first < covered) {
      const std::int64_t shared_end = std::min(covered, end);
      checker.add(ScheduleRule::kOneGroupPerRank, microbatch,
                  {static_cast<int>(first), static_cast<int>(shared_end - first)}, -1,
                  in_microbatch(microbatch) + describe_ranks(first, shared_end) +
                      (shared_end - first == 1 ? " is" : " are") +
                      " in two CP groups: " + describe(*reaching) + " and " + describe(view.group));
    }
    if (end > covered) {
      covered = end;
      reaching = &assignments[index].group;
    }
  }
  if (covered < checker.ranks()) checker.report_idle(microbatch, covered, checker.ranks());
  checker.end_microbatch();
}

// What is known of one sequence id while one microbatch of rank lists is read.
struct Holders {
  std::int64_t microbatch = -1;  // the microbatch the fields below belong to
  int first_rank = -1;           // lowest rank whose list contains the id
  int last_rank = -1;            // highest one seen so far
  int ranks = 0;                 // how many ranks hold it
};

class RankListReader {
 public:
  RankListReader(Checker& checker, std::size_t sequences)
      : checker_(checker), holders_(sequences) {}

  void check_microbatch(int microbatch, const std::vector<std::vector<int>>& lists) {
    const int listed = static_cast<int>(lists.size());
    if (listed > checker_.ranks()) {
      const int surplus = listed - checker_.ranks();
      checker_.add(ScheduleRule::kGroupExists, microbatch, {checker_.ranks(), surplus}, -1,
                   in_microbatch(microbatch) + "there are lists for " + plural(listed, "rank") +
                       " but the rank domain is " + describe_ranks(0, checker_.ranks()));
    }
    unknown_holders_.clear();
    distinct_.assign(lists.size(), 0);
    for (int rank = 0; rank < listed; ++rank) {
      for (int id : lists[static_cast<std::size_t>(rank)]) {
        Holders& holders = find(microbatch, id);
        if (holders.last_rank == rank) continue;  // a repetition within one list
        if (holders.ranks++ == 0) holders.first_rank = rank;
        holders.last_rank = rank;
        ++distinct_[static_cast<std::size_t>(rank)];
      }
    }
    check_groups(microbatch, lists);
    check_idle(microbatch, lists);
    checker_.end_microbatch();
  }

 private:
  // Ranks that hold the same set of sequences; `first_rank` speaks for them all.
  struct Class {
    int first_rank;
    int last_rank;
    int ranks;
  };

  Holders& find(int microbatch, int id) {
    Holders& holders =
        checker_.known(id) ? holders_[static_cast<std::size_t>(id)] : unknown_holders_[id];
    if (holders.microbatch != microbatch) {
      holders = {};
      holders.microbatch = microbatch;
    }
    return holders;
  }

  // Whether `rank` holds the same set of sequences as the lower rank `speaker`, given that they
  // share one. Where a third, still lower rank holds a part of them the answer is no: such lists
  // form no group in any case.
  bool same_set(int microbatch, const std::vector<std::vector<int>>& lists, int speaker, int rank) {
    if (distinct_[static_cast<std::size_t>(speaker)] != distinct_[static_cast<std::size_t>(rank)]) {
      return false;
    }
    const std::vector<int>& list = lists[static_cast<std::size_t>(rank)];
    return std::all_of(list.begin(), list.end(),
                       [&](int id) { return find(microbatch, id).first_rank == speaker; });
  }

  void check_groups(int microbatch, const std::vector<std::vector<int>>& lists) {
    std::vector<Class> classes;
    std::vector<int> class_of(lists.size(), -1);  // by rank that speaks for a class
    std::vector<bool> told_order(lists.size(), false), told_tangle(lists.size(), false);
    for (int rank = 0; rank < static_cast<int>(lists.size()); ++rank) {
      const std::vector<int>& list = lists[static_cast<std::size_t>(rank)];
      if (list.empty()) continue;
      const int speaker = find(microbatch, list.front()).first_rank;
      const std::vector<int>& theirs = lists[static_cast<std::size_t>(speaker)];
      if (speaker == rank || (list != theirs && !same_set(microbatch, lists, speaker, rank))) {
        class_of[static_cast<std::size_t>(rank)] = static_cast<int>(classes.size());
        classes.push_back({rank, rank, 1});
        continue;
      }
      Class& joined =
          classes[static_cast<std::size_t>(class_of[static_cast<std::size_t>(speaker)])];
      joined.last_rank = rank;
      ++joined.ranks;
      if (list != theirs && !told_order[static_cast<std::size_t>(speaker)]) {
        told_order[static_cast<std::size_t>(speaker)] = true;
        checker_.add(
            ScheduleRule::kIdenticalLists, microbatch, {speaker, rank - speaker + 1}, list.front(),
            in_microbatch(microbatch) + "ranks " + number(speaker) + " and " + number(rank) +
                " form a group but their lists differ: rank " + number(speaker) + " runs " +
                describe_list(theirs) + ", rank " + number(rank) + " runs " + describe_list(list));
      }
    }
    for (const Class& members : classes) check_class(microbatch, lists, members, told_tangle);
  }

  void check_class(int microbatch, const std::vector<std::vector<int>>& lists, const Class& members,
                   std::vector<bool>& told_tangle) {
    const std::vector<int>& list = lists[static_cast<std::size_t>(members.first_rank)];
    CpGroup group{members.first_rank, members.last_rank - members.first_rank + 1};
    bool is_group = true;
    for (int id : list) {
      const Holders holders = find(microbatch, id);
      if (holders.ranks == members.ranks) continue;
      // Somebody else holds this sequence, together with other ones.
      is_group = false;
      const int other = holders.first_rank;
      if (other == members.first_rank || told_tangle[static_cast<std::size_t>(other)]) continue;
      told_tangle[static_cast<std::size_t>(other)] = true;
      checker_.add(
          ScheduleRule::kOneGroupPerRank, microbatch, {other, members.first_rank - other + 1}, id,
          in_microbatch(microbatch) + "ranks " + number(other) + " and " +
              number(members.first_rank) + " share sequence " + number(id) +
              " but not all of their sequences, so one of them is in two CP groups: "
              "rank " +
              number(other) + " runs " + describe_list(lists[static_cast<std::size_t>(other)]) +
              ", rank " + number(members.first_rank) + " runs " + describe_list(list));
    }
    if (is_group && group.size != members.ranks) {
      is_group = false;
      checker_.add(ScheduleRule::kConsecutiveRanks, microbatch, group, list.front(),
                   in_microbatch(microbatch) + describe_sequences(list) +
                       (list.size() == 1 ? " runs on " : " run on ") + number(members.ranks) +
                       " ranks between " + number(members.first_rank) + " and " +
                       number(members.last_rank) + " that are not consecutive");
    }
    if (is_group) {
      checker_.check_group(microbatch, {group, &list});
      checker_.check_load(microbatch, {group, &list});
    } else {
      group = {members.first_rank, 1};
    }
    // Each sequence is counted where it is first held; repetitions within that list count again.
    for (int id : list) {
      if (find(microbatch, id).first_rank == members.first_rank) {
        checker_.count_run(microbatch, group, id);
      }
    }
  }

  // Runs of ranks without work, among them those that have no list.
  void check_idle(int microbatch, const std::vector<std::vector<int>>& lists) {
    const auto idle = [&](int rank) {
      return rank >= static_cast<int>(lists.size()) ||
             lists[static_cast<std::size_t>(rank)].empty();
    };
    int rank = 0;
    while (rank < checker_.ranks()) {
      int end = rank;
      while (end < checker_.ranks() && idle(end)) ++end;
      if (end > rank) checker_.report_idle(microbatch, rank, end);
      rank = end + 1;
    }
  }

  Checker& checker_;
  std::vector<Holders> holders_;                      // by sequence id
  std::unordered_map<int, Holders> unknown_holders_;  // ids that name no sequence
  std::vector<int> distinct_;                         // by rank: different ids in its list
};

}  // namespace

std::string_view to_string(ScheduleRule rule) {
  switch (rule) {
    case ScheduleRule::kExactlyOnce:
      return "exactly-once";
    case ScheduleRule::kUnknownSequence:
      return "unknown-sequence";
    case ScheduleRule::kRankHasWork:
      return "rank-has-work";
    case ScheduleRule::kOneGroupPerRank:
      return "one-group-per-rank";
    case ScheduleRule::kIdenticalLists:
      return "identical-lists";
    case ScheduleRule::kConsecutiveRanks:
      return "consecutive-ranks";
    case ScheduleRule::kSizeAllowed:
      return "size-allowed";
    case ScheduleRule::kGroupAligned:
      return "group-aligned";
    case ScheduleRule::kGroupExists:
      return "group-exists";
    case ScheduleRule::kEmptyPack:
      return "empty-pack";
    case ScheduleRule::kCapacity:
      return "capacity";
    case ScheduleRule::kMaxSequences:
      return "max-sequences";
    case ScheduleRule::kMicrobatchMultiple:
      return "microbatch-multiple";
  }
  return "?";
}

const std::vector<ScheduleRule>& all_schedule_rules() {
  static const std::vector<ScheduleRule> rules = {
      ScheduleRule::kExactlyOnce,       ScheduleRule::kUnknownSequence,
      ScheduleRule::kRankHasWork,       ScheduleRule::kOneGroupPerRank,
      ScheduleRule::kIdenticalLists,    ScheduleRule::kConsecutiveRanks,
      ScheduleRule::kSizeAllowed,       ScheduleRule::kGroupAligned,
      ScheduleRule::kGroupExists,       ScheduleRule::kEmptyPack,
      ScheduleRule::kCapacity,          ScheduleRule::kMaxSequences,
      ScheduleRule::kMicrobatchMultiple};
  return rules;
}

std::vector<Violation> check_schedule(const ScheduleProblem& problem, const Schedule& schedule) {
  Checker checker(problem);
  for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
    check_microbatch(checker, static_cast<int>(m), schedule.microbatches[m]);
  }
  return checker.finish(schedule.microbatches.size());
}

std::vector<Violation> check_rank_lists(const ScheduleProblem& problem, const RankLists& lists) {
  Checker checker(problem);
  RankListReader reader(checker, problem.lengths.size());
  for (std::size_t m = 0; m < lists.size(); ++m) {
    reader.check_microbatch(static_cast<int>(m), lists[m]);
  }
  return checker.finish(lists.size());
}

}  // namespace dyncp
