// The search's judgements over random problems: feasible means that a valid schedule is in hand,
// infeasible that nobody has one, and shrinking never loses what it keeps.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "properties/schedule_generators.h"
#include "reference/schedule_check.h"
#include "runtime/scheduler_search.h"

namespace dyncp {
namespace {

// A case of a random domain.
ScheduleProblem draw_problem() {
  SearchDomain domain;
  domain.min_ranks = 1;
  domain.max_ranks = *genInt(1, 12);
  domain.max_tokens_per_rank = *genInt(50, 1100);
  domain.microbatch_multiple = *genInt(1, 4);
  if (*genInt(0, 1) == 1) domain.max_sequences = *genInt(1, 5);
  if (*genInt(0, 2) == 0) domain.execution = Execution::kSerial;
  domain.group_policy = static_cast<GroupPolicy>(*genInt(0, 3));
  domain.padding = static_cast<Padding>(*genInt(0, 2));
  return CaseSource(domain, static_cast<std::uint64_t>(*genInt(0, 1 << 20)))
      .draw(*genInt(0, 99))
      .problem;
}

RC_GTEST_PROP(JudgeFeasibility, FeasibleMeansAScheduleInHand, ()) {
  const ScheduleProblem problem = draw_problem();
  const Feasibility feasibility = judge_feasibility(problem);
  RC_TAG(feasibility.answer == Feasibility::Answer::kFeasible     ? "feasible"
         : feasibility.answer == Feasibility::Answer::kInfeasible ? "infeasible"
                                                                  : "undecided");
  RC_ASSERT(feasibility.schedule.has_value() ==
            (feasibility.answer == Feasibility::Answer::kFeasible));
  if (feasibility.schedule) {
    const auto violations = check_schedule(problem, *feasibility.schedule);
    if (!violations.empty()) RC_FAIL(violations.front().sentence);
  }
}

RC_GTEST_PROP(JudgeFeasibility, NeverSaysInfeasibleOfWhatHasASchedule, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  RC_ASSERT(judge_feasibility(scheduled.problem).answer != Feasibility::Answer::kInfeasible);
}

RC_GTEST_PROP(JudgeAnswer, ValidSchedulesBreakNothing, ()) {
  const ScheduledCase scheduled = *genScheduledCase();
  const Verdict verdict = judge_answer(scheduled.problem, scheduled.schedule);
  RC_ASSERT(verdict.answered);
  RC_ASSERT(verdict.broken.empty());
  const Verdict of_lists =
      judge_answer(scheduled.problem, to_rank_lists(scheduled.schedule, scheduled.problem.ranks));
  RC_ASSERT(of_lists.broken.empty());
  RC_ASSERT(of_lists.largest_group == verdict.largest_group);
  RC_ASSERT(of_lists.mixed_sizes == verdict.mixed_sizes);
}

// Whatever the condition, shrinking keeps it, asks no more than allowed, and never grows.
RC_GTEST_PROP(ShrinkProblem, KeepsTheConditionAndNeverGrows, ()) {
  const ScheduleProblem problem = draw_problem();
  const auto wanted = static_cast<std::size_t>(*genInt(1, 3));
  const std::int64_t modulus = *genInt(1, 7);
  const std::int64_t above = *genInt(0, 300);
  std::int64_t asked = 0;
  const auto condition = [&](const ScheduleProblem& candidate) {
    ++asked;
    const auto count =
        std::count_if(candidate.lengths.begin(), candidate.lengths.end(),
                      [&](std::int64_t length) { return length > above && length % modulus == 0; });
    return static_cast<std::size_t>(count) >= wanted;
  };
  RC_PRE(condition(problem));
  ShrinkLimits limits;
  limits.ranks = {1, 2, 3, 5, 8};
  limits.asks = *genInt(0, 1) == 1 ? *genInt(0, 50) : 100'000;
  asked = 0;
  const ScheduleProblem shrunk = shrink_problem(problem, condition, limits);
  RC_ASSERT(asked <= limits.asks);
  RC_ASSERT(condition(shrunk));
  RC_ASSERT(shrunk.lengths.size() <= problem.lengths.size());
  RC_ASSERT(shrunk.ranks <= problem.ranks);
  const auto total = [](const ScheduleProblem& p) {
    return std::accumulate(p.lengths.begin(), p.lengths.end(), std::int64_t{0});
  };
  RC_ASSERT(total(shrunk) <= total(problem));
  ScheduleProblem options = shrunk;
  options.lengths = problem.lengths;
  options.ranks = problem.ranks;
  RC_ASSERT(options == problem);
  if (limits.asks == 100'000) {
    // Exactly the sequences that are needed, on one rank; as short as single steps get them.
    RC_ASSERT(shrunk.lengths.size() == wanted);
    RC_ASSERT(shrunk.ranks == std::min(1, problem.ranks));
    for (std::int64_t length : shrunk.lengths) {
      RC_ASSERT(length > above);
      RC_ASSERT(length % modulus == 0);
    }
    RC_ASSERT(std::is_sorted(shrunk.lengths.rbegin(), shrunk.lengths.rend()));
  }
}

}  // namespace
}  // namespace dyncp
