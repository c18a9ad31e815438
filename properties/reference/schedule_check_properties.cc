// The schedule checker over random valid schedules and random damage to them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "properties/schedule_generators.h"
#include "reference/schedule_check.h"

namespace dyncp {
namespace {

bool breaks(const std::vector<Violation>& violations, ScheduleRule rule) {
  return std::any_of(violations.begin(), violations.end(),
                     [rule](const Violation& violation) { return violation.rule == rule; });
}

// A random assignment of the schedule that satisfies `wanted`, or null. What is drawn is a number,
// not a pointer: while shrinking, drawn values outlive the schedule they were drawn for.
template <typename Wanted>
Assignment* pick(Schedule& schedule, const Wanted& wanted) {
  std::vector<Assignment*> candidates;
  for (Microbatch& microbatch : schedule.microbatches) {
    for (Assignment& assignment : microbatch) {
      if (wanted(assignment)) candidates.push_back(&assignment);
    }
  }
  if (candidates.empty()) return nullptr;
  return candidates[static_cast<std::size_t>(*genInt(0, 99)) % candidates.size()];
}

Assignment* pick_any(Schedule& schedule) {
  return pick(schedule, [](const Assignment&) { return true; });
}

RC_GTEST_PROP(ScheduleCheck, AcceptsValidSchedulesInBothForms, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  require_valid(scheduled.problem);
  const auto violations = check_schedule(scheduled.problem, scheduled.schedule);
  if (!violations.empty()) RC_FAIL(violations.front().sentence);
  const auto of_lists = check_rank_lists(
      scheduled.problem, to_rank_lists(scheduled.schedule, scheduled.problem.ranks));
  if (!of_lists.empty()) RC_FAIL(of_lists.front().sentence);
}

RC_GTEST_PROP(ScheduleCheck, DoesNotDependOnTheOrderOfGroups, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  if (*genInt(0, 1) == 1) scheduled.problem.max_tokens_per_rank = 1;
  auto before = check_schedule(scheduled.problem, scheduled.schedule);
  for (Microbatch& microbatch : scheduled.schedule.microbatches) {
    std::reverse(microbatch.begin(), microbatch.end());
  }
  RC_ASSERT(check_schedule(scheduled.problem, scheduled.schedule) == before);
}

RC_GTEST_PROP(ScheduleCheck, FindsALostSequence, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  Assignment& victim = *pick_any(scheduled.schedule);
  victim.sequences.pop_back();
  const auto violations = check_schedule(scheduled.problem, scheduled.schedule);
  RC_ASSERT(breaks(violations, ScheduleRule::kExactlyOnce));
  RC_ASSERT(breaks(violations, ScheduleRule::kEmptyPack) == victim.sequences.empty());
}

RC_GTEST_PROP(ScheduleCheck, FindsASequenceRunTwice, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  const int id = pick_any(scheduled.schedule)->sequences.front();
  pick_any(scheduled.schedule)->sequences.push_back(id);
  RC_ASSERT(
      breaks(check_schedule(scheduled.problem, scheduled.schedule), ScheduleRule::kExactlyOnce));
}

RC_GTEST_PROP(ScheduleCheck, FindsAnEmptySequenceThatRuns, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  scheduled.problem.lengths.push_back(0);
  pick_any(scheduled.schedule)
      ->sequences.push_back(static_cast<int>(scheduled.problem.lengths.size()) - 1);
  RC_ASSERT(
      breaks(check_schedule(scheduled.problem, scheduled.schedule), ScheduleRule::kExactlyOnce));
}

// One token more than fits: in a pack on top of what is there, serially for one sequence.
RC_GTEST_PROP(ScheduleCheck, FindsOneTokenTooMany, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  ScheduleProblem& problem = scheduled.problem;
  const Assignment& victim = *pick_any(scheduled.schedule);
  const int size = victim.group.size;
  std::int64_t others = 0;
  if (problem.execution == Execution::kPack) {
    for (std::size_t j = 1; j < victim.sequences.size(); ++j) {
      others += problem.padded_length(victim.sequences[j], size);
    }
  }
  auto& length = problem.lengths[static_cast<std::size_t>(victim.sequences.front())];
  length = problem.max_tokens_per_rank * size - others + 1;
  const auto violations = check_schedule(problem, scheduled.schedule);
  RC_ASSERT(violations.size() == 1u);
  RC_ASSERT(violations.front().rule == ScheduleRule::kCapacity);
  RC_ASSERT(violations.front().ranks == victim.group);
}

RC_GTEST_PROP(ScheduleCheck, FindsIdleRanks, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  const int m = *genInt(0, static_cast<int>(scheduled.schedule.microbatches.size()) - 1);
  Microbatch& microbatch = scheduled.schedule.microbatches[static_cast<std::size_t>(m)];
  microbatch.erase(microbatch.begin() + *genInt(0, static_cast<int>(microbatch.size()) - 1));
  const auto violations = check_schedule(scheduled.problem, scheduled.schedule);
  RC_ASSERT(breaks(violations, ScheduleRule::kRankHasWork));
}

// A group moved by any distance, or of any other size, is refused unless it exists; what it then
// overlaps or leaves idle is told as well.
RC_GTEST_PROP(ScheduleCheck, JudgesMovedGroupsByTheTable, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  const GroupTable table = scheduled.problem.group_table();
  Assignment& moved = *pick_any(scheduled.schedule);
  const CpGroup before = moved.group;
  moved.group = {*genInt(-2, 13), *genInt(-1, 13)};
  RC_PRE(!(moved.group == before));
  const auto violations = check_schedule(scheduled.problem, scheduled.schedule);
  RC_ASSERT(!violations.empty());
  const bool refused = breaks(violations, ScheduleRule::kSizeAllowed) ||
                       breaks(violations, ScheduleRule::kGroupAligned) ||
                       breaks(violations, ScheduleRule::kGroupExists);
  RC_ASSERT(refused == !table.exists(moved.group));
  RC_ASSERT(refused || breaks(violations, ScheduleRule::kRankHasWork) ||
            breaks(violations, ScheduleRule::kOneGroupPerRank));
}

RC_GTEST_PROP(ScheduleCheck, FindsMembersThatDisagreeOnOrder, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  const Assignment* group = pick(scheduled.schedule, [](const Assignment& assignment) {
    return assignment.group.size > 1 && assignment.sequences.size() > 1;
  });
  if (group == nullptr) RC_DISCARD("no group with two members and two sequences");
  RankLists lists = to_rank_lists(scheduled.schedule, scheduled.problem.ranks);
  for (std::size_t m = 0; m < lists.size(); ++m) {
    auto& list = lists[m][static_cast<std::size_t>(group->group.end_rank() - 1)];
    if (list == group->sequences) std::swap(list.front(), list.back());
  }
  const auto violations = check_rank_lists(scheduled.problem, lists);
  RC_ASSERT(violations.size() == 1u);
  RC_ASSERT(violations.front().rule == ScheduleRule::kIdenticalLists);
}

RC_GTEST_PROP(ScheduleCheck, FindsARankWithASequenceOfAnotherGroup, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  RankLists lists = to_rank_lists(scheduled.schedule, scheduled.problem.ranks);
  auto& lists_of_microbatch =
      lists[static_cast<std::size_t>(*genInt(0, static_cast<int>(lists.size()) - 1))];
  auto& mine =
      lists_of_microbatch[static_cast<std::size_t>(*genInt(0, scheduled.problem.ranks - 1))];
  const auto& theirs =
      lists_of_microbatch[static_cast<std::size_t>(*genInt(0, scheduled.problem.ranks - 1))];
  RC_PRE(mine != theirs);
  mine.push_back(theirs.front());
  RC_ASSERT(breaks(check_rank_lists(scheduled.problem, lists), ScheduleRule::kOneGroupPerRank));
}

}  // namespace
}  // namespace dyncp
