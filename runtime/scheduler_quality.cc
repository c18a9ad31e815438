// Draws the cases of the search again and prices the answers.
#include "runtime/scheduler_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"

namespace dyncp {
namespace {

// REQUIRES: check_rank_lists finds nothing, so that ranks of one group have one list and no other.
Schedule schedule_of(const RankLists& lists) {
  Schedule schedule;
  for (const std::vector<std::vector<int>>& ranks : lists) {
    schedule.microbatches.emplace_back();
    for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
      while (end < ranks.size() && ranks[end] == ranks[first]) ++end;
      const CpGroup group{static_cast<int>(first), static_cast<int>(end - first)};
      schedule.microbatches.back().push_back({group, ranks[first]});
    }
  }
  return schedule;
}

// Makespans without and with barriers.
struct Times {
  double event = 0;
  double barrier = 0;
};

class Measurement {
 public:
  Measurement(const AskScheduler& ask, const QualityOptions& options)
      : ask_(ask), options_(options), random_(options.seed) {}

  void add(const ScheduleProblem& problem) {
    ++report_.asked;
    const std::optional<Schedule> schedule = valid_answer(problem);
    if (!schedule || schedule->microbatches.empty()) return;
    const ScheduleQuality event =
        schedule_quality(problem, *schedule, options_.cost, Barrier::kNone);
    const ScheduleQuality barrier =
        schedule_quality(problem, *schedule, options_.cost, Barrier::kMicrobatch);
    const double ratio = event.makespan / event.lower_bound;
    if (over_bound_.empty() || ratio > *std::max_element(over_bound_.begin(), over_bound_.end())) {
      report_.worst = problem;
    }
    over_bound_.push_back(ratio);
    over_bound_barrier_.push_back(barrier.makespan / barrier.lower_bound);
    idle_.push_back(event.idle_share);
    idle_barrier_.push_back(barrier.idle_share);
    padding_.push_back(event.padding_waste);
    microbatches_.push_back(event.microbatches);
    ScheduleProblem shuffled = problem;
    for (std::size_t i = shuffled.lengths.size(); i > 1; --i) {
      std::swap(shuffled.lengths[i - 1], shuffled.lengths[random_() % i]);
    }
    const std::optional<Schedule> other = valid_answer(shuffled);
    if (!other) return;
    const double makespan = times_of(shuffled, *other).event;
    order_change_.push_back(std::abs(makespan / event.makespan - 1));
  }

  void add_small(const ScheduleProblem& problem) {
    ++report_.small_asked;
    const std::optional<Schedule> schedule = valid_answer(problem);
    if (!schedule || schedule->microbatches.empty()) return;
    const Times times = times_of(problem, *schedule);
    const auto event = find_optimum(problem, options_.cost, Barrier::kNone);
    const auto barrier = find_optimum(problem, options_.cost, Barrier::kMicrobatch);
    over_optimum_.push_back(times.event / event->makespan);
    over_optimum_barrier_.push_back(times.barrier / barrier->makespan);
  }

  bool stopped() const { return report_.stopped; }

  QualityReport report() && {
    report_.over_bound = spread_of(std::move(over_bound_));
    report_.over_bound_barrier = spread_of(std::move(over_bound_barrier_));
    report_.idle_share = spread_of(std::move(idle_));
    report_.idle_share_barrier = spread_of(std::move(idle_barrier_));
    report_.padding_waste = spread_of(std::move(padding_));
    report_.microbatches = spread_of(std::move(microbatches_));
    report_.order_change = spread_of(std::move(order_change_));
    report_.over_optimum = spread_of(std::move(over_optimum_));
    report_.over_optimum_barrier = spread_of(std::move(over_optimum_barrier_));
    return report_;
  }

 private:
  // Nothing for a refusal, a broken rule, or a failure, which ends the measurement.
  std::optional<Schedule> valid_answer(const ScheduleProblem& problem) {
    const ScheduleAnswer answer = ask_(problem);
    if (const auto* schedule = std::get_if<Schedule>(&answer)) {
      if (check_schedule(problem, *schedule).empty()) return *schedule;
    } else if (const auto* lists = std::get_if<RankLists>(&answer)) {
      if (check_rank_lists(problem, *lists).empty()) return schedule_of(*lists);
    } else if (std::holds_alternative<SchedulerFailure>(answer)) {
      report_.stopped = true;
    }
    return std::nullopt;
  }

  Times times_of(const ScheduleProblem& problem, const Schedule& schedule) const {
    return {simulated_makespan(problem, schedule, options_.cost, Barrier::kNone),
            simulated_makespan(problem, schedule, options_.cost, Barrier::kMicrobatch)};
  }

  const AskScheduler& ask_;
  const QualityOptions& options_;
  std::mt19937_64 random_;
  QualityReport report_;
  std::vector<double> over_bound_, over_bound_barrier_, idle_, idle_barrier_, padding_,
      microbatches_, order_change_, over_optimum_, over_optimum_barrier_;
};

// The first sequences, as many as an exhaustive search takes.
ScheduleProblem cut_short(ScheduleProblem problem) {
  std::erase(problem.lengths, 0);
  if (problem.lengths.size() > std::size_t{kMaxOptimumSequences}) {
    problem.lengths.resize(std::size_t{kMaxOptimumSequences});
  }
  return problem;
}

}  // namespace

QualityReport measure_quality(const AskScheduler& ask, const SearchDomain& domain,
                              const QualityOptions& options) {
  for (std::int64_t cases : {options.cases, options.small_cases}) {
    if (cases >= 0 && cases <= kMaxSearchCases) continue;
    throw InvalidInput(
        fmt::format("the number of cases to price is {}: expected 0..{}", cases, kMaxSearchCases));
  }
  const CaseSource source(domain, options.seed);
  Measurement measurement(ask, options);
  for (std::int64_t i = 0; i < options.cases && !measurement.stopped(); ++i) {
    measurement.add(source.draw(i).problem);
  }
  if (source.ranks().front() <= kMaxOptimumRanks) {
    SearchDomain small = domain;
    small.max_ranks = std::min(domain.max_ranks, kMaxOptimumRanks);
    const CaseSource small_source(small, options.seed);
    for (std::int64_t i = 0; i < options.small_cases && !measurement.stopped(); ++i) {
      measurement.add_small(cut_short(small_source.draw(i).problem));
    }
  }
  return std::move(measurement).report();
}

}  // namespace dyncp
