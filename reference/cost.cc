// The time model of packs and the makespan of schedules (formulas: reference/cost.h).
#include "reference/cost.h"

#include <algorithm>
#include <vector>

namespace dyncp {
namespace {

// Busy time of one group: what each of its members spends on the group's sequences.
double assignment_time(const ScheduleProblem& problem, const Assignment& assignment,
                       const CostModel& cost) {
  const int size = assignment.group.size;
  double time = 0, sum = 0, sum_of_squares = 0;
  for (int id : assignment.sequences) {
    const double length = static_cast<double>(problem.padded_length(id, size));
    sum += length;
    sum_of_squares += length * length;
    time += cost.pack_time(length, length * length, size);
  }
  return problem.execution == Execution::kSerial ? time : cost.pack_time(sum, sum_of_squares, size);
}

double makespan_of(const std::vector<ScheduledPack>& packs) {
  double makespan = 0;
  for (const ScheduledPack& pack : packs) makespan = std::max(makespan, pack.end);
  return makespan;
}

}  // namespace

CostModel CostModel::two_tier() {
  CostModel cost;
  cost.fast_domain = 8;
  return cost;
}

CostModel CostModel::quadratic() {
  CostModel cost;
  cost.a = 1;
  cost.b = cost.c0 = cost.c1 = cost.hidden = cost.d = cost.slow_c0 = cost.slow_c1 = 0;
  return cost;
}

double CostModel::pack_time(double sum, double sum_of_squares, int size) const {
  const double attention = a * sum_of_squares / size;
  double time = attention + b * sum / size + d;
  if (size > 1) {
    const double step_latency = size > fast_domain ? slow_c0 : c0;
    const double step_per_token = size > fast_domain ? slow_c1 : c1;
    const double ring = (size - 1) * (step_latency + step_per_token * sum / size);
    time += std::max(0.0, ring - hidden * attention);
  }
  return time;
}

std::vector<ScheduledPack> simulate_schedule(const ScheduleProblem& problem,
                                             const Schedule& schedule, const CostModel& cost,
                                             Barrier barrier) {
  std::vector<ScheduledPack> packs;
  std::vector<double> free_at(static_cast<std::size_t>(problem.ranks), 0.0);
  double all_met_at = 0;
  for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
    const Microbatch& microbatch = schedule.microbatches[m];
    for (std::size_t a = 0; a < microbatch.size(); ++a) {
      const Assignment& assignment = microbatch[a];
      const auto first = free_at.begin() + assignment.group.first_rank;
      const auto end = first + assignment.group.size;
      const double start =
          barrier == Barrier::kMicrobatch ? all_met_at : *std::max_element(first, end);
      const double done = start + assignment_time(problem, assignment, cost);
      std::fill(first, end, done);
      packs.push_back({static_cast<int>(m), static_cast<int>(a), start, done});
    }
    all_met_at = *std::max_element(free_at.begin(), free_at.end());
  }
  return packs;
}

double simulated_makespan(const ScheduleProblem& problem, const Schedule& schedule,
                          const CostModel& cost, Barrier barrier) {
  return makespan_of(simulate_schedule(problem, schedule, cost, barrier));
}

ScheduleQuality schedule_quality(const ScheduleProblem& problem, const Schedule& schedule,
                                 const CostModel& cost, Barrier barrier) {
  ScheduleQuality quality;
  quality.microbatches = static_cast<int>(schedule.microbatches.size());
  quality.lower_bound = lower_bound(problem, cost);

  const std::vector<ScheduledPack> packs = simulate_schedule(problem, schedule, cost, barrier);
  quality.makespan = makespan_of(packs);
  double busy = 0;  // summed over ranks
  for (const ScheduledPack& pack : packs) {
    const Microbatch& microbatch = schedule.microbatches[static_cast<std::size_t>(pack.microbatch)];
    const Assignment& assignment = microbatch[static_cast<std::size_t>(pack.assignment)];
    busy += (pack.end - pack.start) * assignment.group.size;
  }
  if (quality.makespan > 0) {
    // Summing in different orders may leave a full schedule a rounding error below zero.
    quality.idle_share = std::max(0.0, 1.0 - busy / (problem.ranks * quality.makespan));
  }

  double real = 0, padded = 0, squares = 0;  // tokens, tokens, squared tokens
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) {
      for (int id : assignment.sequences) {
        const double length = static_cast<double>(problem.padded_length(id, assignment.group.size));
        real += static_cast<double>(problem.lengths[static_cast<std::size_t>(id)]);
        padded += length;
        squares += length * length;
      }
    }
  }
  quality.padding_waste = real > 0 ? padded / real - 1.0 : 0.0;

  const double quadratic =
      simulated_makespan(problem, schedule, CostModel::quadratic(), Barrier::kMicrobatch);
  quality.efficiency = quadratic > 0 ? squares / problem.ranks / quadratic : 1.0;
  return quality;
}

}  // namespace dyncp
