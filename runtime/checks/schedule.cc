// Driver `schedule`: asks a scheduler, holds its schedule to every rule, looks for deadlocks in the
// communication it causes, and prices it. Shows on the same schedule, broken on purpose, that the
// checks can fail.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <sstream>

#include "reference/cost.h"
#include "reference/deadlock.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/check.h"
#include "runtime/schedule_format.h"
#include "runtime/scheduler.h"
#include "runtime/scheduler_search.h"

namespace dyncp {
namespace {

// Communication lists of more operations than this are not built: rings are cut to their first
// steps, and beyond that the simulation is left out and said so.
constexpr std::int64_t kMostOperations = 2'000'000;
constexpr int kFewRingSteps = 2;
constexpr int kMostTableLines = 60;

constexpr std::array<CommunicationRule, 6> kCommunicationRules = {
    CommunicationRule::kCommunicatorExists, CommunicationRule::kPaired,
    CommunicationRule::kBytesMatch,         CommunicationRule::kCollectiveCount,
    CommunicationRule::kCollectiveOrder,    CommunicationRule::kNoWaitCycle};

bool breaks(const std::vector<Violation>& violations, ScheduleRule rule) {
  return std::any_of(violations.begin(), violations.end(),
                     [rule](const Violation& violation) { return violation.rule == rule; });
}

// One expectation for each rule, so that a report shows which rules were looked at.
void expect_rules(const std::vector<Violation>& violations, CaseResult& result) {
  for (ScheduleRule rule : all_schedule_rules()) {
    const auto broken =
        std::find_if(violations.begin(), violations.end(),
                     [rule](const Violation& violation) { return violation.rule == rule; });
    result.expect(fmt::format("schedule.{}", to_string(rule)), Kind::kSchedule,
                  broken == violations.end(), [&] { return broken->sentence; });
  }
}

// Operations of all ranks when rings run at most `steps` steps each way.
std::int64_t count_operations(const ScheduleProblem& problem, const Schedule& schedule,
                              std::int64_t steps) {
  std::int64_t count = 0;
  for (const Microbatch& microbatch : schedule.microbatches) {
    count += problem.ranks;
    for (const Assignment& assignment : microbatch) {
      const std::int64_t size = assignment.group.size;
      if (size == 1) continue;
      const std::int64_t rings = problem.execution == Execution::kSerial
                                     ? static_cast<std::int64_t>(assignment.sequences.size())
                                     : 1;
      count += rings * size * 2 * (std::min(size - 1, steps) + std::min(size, steps));
    }
  }
  return count;
}

// REQUIRES: the schedule is valid.
void expect_no_deadlock(const ScheduleProblem& problem, const Schedule& schedule,
                        CaseResult& result) {
  OperationOptions options;
  options.barrier = true;
  if (problem.group_policy == GroupPolicy::kAligned) options.lookup = GroupLookup::kFramework;
  if (count_operations(problem, schedule, problem.ranks) > kMostOperations) {
    options.most_ring_steps = kFewRingSteps;
    const std::int64_t count = count_operations(problem, schedule, kFewRingSteps);
    if (count > kMostOperations) {
      result.detail(fmt::format("communication is not simulated: {} operations", count));
      return;
    }
  }
  const auto violations = check_operations(operations_of(problem, schedule, options));
  for (CommunicationRule rule : kCommunicationRules) {
    const auto broken = std::find_if(violations.begin(), violations.end(),
                                     [rule](const auto& v) { return v.rule == rule; });
    result.expect(fmt::format("schedule.{}", to_string(rule)), Kind::kCommunication,
                  broken == violations.end(), [&] { return broken->sentence; });
  }
}

// Negative controls on this very schedule. REQUIRES: it is valid and not empty.
void expect_controls(const ScheduleProblem& problem, const Schedule& schedule, CaseResult& result) {
  const auto control = [&](const char* what, bool noticed) {
    result.expect("schedule.control", Kind::kSchedule, noticed,
                  [&] { return fmt::format("the checker does not notice {}", what); });
  };
  Schedule lost = schedule;
  lost.microbatches.back().back().sequences.pop_back();
  control("a lost sequence", breaks(check_schedule(problem, lost), ScheduleRule::kExactlyOnce));

  Schedule twice = schedule;
  auto& pack = twice.microbatches.back().back().sequences;
  pack.push_back(schedule.microbatches.front().front().sequences.front());
  control("a sequence run twice",
          breaks(check_schedule(problem, twice), ScheduleRule::kExactlyOnce));

  for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
    for (std::size_t g = 0; g < schedule.microbatches[m].size(); ++g) {
      const CpGroup& group = schedule.microbatches[m][g].group;
      if (group.size == 1) continue;
      Schedule moved = schedule;
      moved.microbatches[m][g].group.first_rank += 1;
      const std::vector<Violation> violations = check_schedule(problem, moved);
      control("a CP group moved by one rank",
              breaks(violations, ScheduleRule::kRankHasWork) &&
                  (problem.group_policy == GroupPolicy::kInterval ||
                   breaks(violations, ScheduleRule::kGroupAligned) ||
                   breaks(violations, ScheduleRule::kGroupExists)));

      // The ring of this group alone, all members sending first.
      OperationOptions blocking;
      blocking.grouped = false;
      blocking.most_ring_steps = 1;
      const Schedule alone{{{schedule.microbatches[m][g]}}};
      const auto found = check_operations(operations_of(problem, alone, blocking));
      result.expect("schedule.control", Kind::kCommunication,
                    !found.empty() && found.back().rule == CommunicationRule::kNoWaitCycle, [] {
                      return std::string("a ring in which all ranks send first is not noticed");
                    });
      return;
    }
  }
}

// Says why the case could not have shown much.
void mistrust_vacuous(const ScheduleProblem& problem, const Schedule& schedule,
                      CaseResult& result) {
  int largest = 0;
  std::vector<double> tokens(static_cast<std::size_t>(problem.ranks), 0.0);
  double total = 0;
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) {
      const CpGroup& group = assignment.group;
      largest = std::max(largest, group.size);
      for (int id : assignment.sequences) {
        const auto length = static_cast<double>(problem.padded_length(id, group.size));
        total += length;
        for (int rank = group.first_rank; rank < group.end_rank(); ++rank) {
          tokens[static_cast<std::size_t>(rank)] += length / group.size;
        }
      }
    }
  }
  if (largest == 0) result.mistrust("there are no sequences to schedule");
  if (largest == 1) result.mistrust("no CP group larger than 1 formed");
  const double most = *std::max_element(tokens.begin(), tokens.end());
  if (problem.ranks > 1 && most > 0.99 * total) {
    result.mistrust(fmt::format("one rank has {:.1f} % of the work", 100 * most / total));
  }
}

void add_table(const ScheduleProblem& problem, const Schedule& schedule, CaseResult& result) {
  std::istringstream table(format_schedule_table(problem, schedule));
  int lines = 0;
  for (std::string line; std::getline(table, line);) {
    if (++lines <= kMostTableLines) result.detail(line);
  }
  if (lines > kMostTableLines) {
    result.detail(fmt::format("... and {} more lines", lines - kMostTableLines));
  }
}

void expect_quality(const ScheduleProblem& problem, const Schedule& schedule, CaseResult& result) {
  const CostModel cost = CostModel::flat();
  const ScheduleQuality free = schedule_quality(problem, schedule, cost, Barrier::kNone);
  const ScheduleQuality barrier = schedule_quality(problem, schedule, cost, Barrier::kMicrobatch);
  // Both are sums of the same terms in another order; a million of them round to 1e-10 at most.
  const double slack = 1e-9;
  result.expect("schedule.lower-bound", Kind::kSchedule,
                free.makespan >= free.lower_bound * (1 - slack), [&] {
                  return fmt::format("makespan {} us is below the lower bound {} us", free.makespan,
                                     free.lower_bound);
                });
  result.expect("schedule.barrier-costs", Kind::kSchedule,
                barrier.makespan >= free.makespan * (1 - slack), [&] {
                  return fmt::format("makespan {} us with a barrier is below {} us without one",
                                     barrier.makespan, free.makespan);
                });
  result.detail(
      fmt::format("simulated makespan {:.0f} us ({:.0f} us with a barrier), lower bound {:.0f} us, "
                  "idle {:.1f} %, padding {:.1f} %, efficiency {:.3f}",
                  free.makespan, barrier.makespan, free.lower_bound, 100 * free.idle_share,
                  100 * free.padding_waste, free.efficiency));
}

CaseResult run(const Problem& given) {
  CaseResult result;
  const ScheduleProblem problem = given.schedule_problem();
  const Scheduler& scheduler =
      find_scheduler(given.scheduler.empty() ? kDefaultScheduler : given.scheduler);
  std::optional<Schedule> answer;
  std::string refusal;
  try {
    answer = scheduler.schedule(problem);
  } catch (const Infeasible& error) {
    refusal = error.what();
  }
  if (!answer) {
    const Verdict verdict = judge_answer(problem, Refusal{refusal});
    result.expect("schedule.refusal", Kind::kSchedule, verdict.broken.empty(),
                  [&] { return verdict.broken.front().sentence; });
    result.skip((verdict.undecided ? "refused, and nobody knows whether the instance fits: "
                                   : "there is no schedule: ") +
                refusal);
    return result;
  }
  const Schedule& schedule = *answer;
  add_table(problem, schedule, result);
  // As groups, and as the lists that every rank would run.
  std::vector<Violation> violations = check_schedule(problem, schedule);
  const std::vector<Violation> of_lists =
      check_rank_lists(problem, to_rank_lists(schedule, problem.ranks));
  violations.insert(violations.end(), of_lists.begin(), of_lists.end());
  expect_rules(violations, result);
  result.expect(
      "schedule.deterministic", Kind::kSchedule, scheduler.schedule(problem) == schedule, [&] {
        return fmt::format("{} gives two different schedules for one problem", scheduler.name());
      });
  if (!violations.empty()) return result;  // what follows needs a valid schedule

  expect_no_deadlock(problem, schedule, result);
  expect_quality(problem, schedule, result);
  mistrust_vacuous(problem, schedule, result);
  if (!schedule.microbatches.empty()) expect_controls(problem, schedule, result);
  return result;
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  struct Scale {
    int windows;  // of each set, for each scheduler and domain
    int longest;  // sequences in a window
    std::vector<int> ranks;
  };
  const Scale scale = tier == Tier::kSmoke ? Scale{1, 48, {8}}
                      : tier == Tier::kCi  ? Scale{4, 128, {2, 4, 8, 16, 64}}
                                           : Scale{16, 256, {2, 4, 8, 16, 32, 64, 128}};
  // Megatron's packing-aware scheduler is held to domains that are powers of two, where it is
  // valid; our own to any. The other built-in schedulers have defects that real lengths meet.
  struct Candidate {
    std::string_view name;
    bool any_domain;
  };
  std::vector<Candidate> candidates;
  for (const Scheduler* scheduler : schedulers()) {
    if (scheduler->name() == "megatron-packing-aware")
      candidates.push_back({"megatron-packing-aware", false});
    if (scheduler->name() == "dyncp") candidates.push_back({"dyncp", true});
  }
  std::mt19937_64 random(seed);
  const auto below = [&random](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  std::vector<Problem> cases;
  for (const LengthSet& set : sets) {
    const auto total = static_cast<std::int64_t>(set.lengths.size());
    if (total == 0) continue;
    for (const Candidate& candidate : candidates) {
      for (int power : scale.ranks) {
        for (int window = 0; window < scale.windows; ++window) {
          Problem problem;
          problem.driver = "schedule";
          problem.scheduler = candidate.name;
          problem.ranks = candidate.any_domain && window % 2 == 1 ? power + power / 2 : power;
          const std::int64_t count = 16 + below(scale.longest - 15);
          for (std::int64_t i = 0, at = below(total); i < count; ++i, at = (at + 1) % total) {
            problem.lengths.push_back(set.lengths[static_cast<std::size_t>(at)]);
          }
          if (window % 3 == 2) problem.padding = Padding::kGlobal;
          // The longest sequence is to need a random CP size above 1, so that sizes mix.
          std::int64_t most = std::max<std::int64_t>(
              1, *std::max_element(problem.lengths.begin(), problem.lengths.end()));
          if (problem.padding == Padding::kGlobal) {
            most = round_up(most, padding_multiple(problem.ranks, 1));
          }
          std::vector<int> sizes;
          for (int size = 2; size <= problem.ranks; size *= 2) sizes.push_back(size);
          const int size =
              sizes[static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())))];
          problem.max_tokens = ceil_div(most, size);
          cases.push_back(std::move(problem));
        }
      }
    }
  }
  return cases;
}

}  // namespace

const Driver& schedule_driver() {
  static const Driver driver{
      "schedule",
      "one batch through one scheduler: every rule, deadlocks, bounds, with negative controls",
      {"lengths", "scheduler", "ranks", "max-tokens", "min-cp", "tp", "microbatch-multiple",
       "max-sequences", "execution", "group-policy", "padding"},
      run,
      nullptr,
      gate_cases};
  return driver;
}

}  // namespace dyncp
