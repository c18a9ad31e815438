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

struct Simulation {
  double makespan = 0;
  double busy = 0;  // summed over ranks
};

Simulation simulate(const ScheduleProblem& problem, const Schedule& schedule, const CostModel& cost,
                    Barrier barrier) {
  Simulation result;
  std::vector<double> free_at(static_cast<std::size_t>(problem.ranks), 0.0);
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) {
      const auto first = free_at.begin() + assignment.group.first_rank;
      const auto end = first + assignment.group.size;
      const double start =
          barrier == Barrier::kMicrobatch ? result.makespan : *std::max_element(first, end);
      const double time = assignment_time(problem, assignment, cost);
      std::fill(first, end, start + time);
      result.busy += time * assignment.group.size;
    }
    result.makespan = *std::max_element(free_at.begin(), free_at.end());
  }
  return result;
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

ScheduleQuality schedule_quality(const ScheduleProblem& problem, const Schedule& schedule,
                                 const CostModel& cost, Barrier barrier) {
  ScheduleQuality quality;
  quality.microbatches = static_cast<int>(schedule.microbatches.size());
  quality.lower_bound = lower_bound(problem, cost);

  const Simulation simulation = simulate(problem, schedule, cost, barrier);
  quality.makespan = simulation.makespan;
  if (simulation.makespan > 0) {
    // Summing in different orders may leave a full schedule a rounding error below zero.
    quality.idle_share =
        std::max(0.0, 1.0 - simulation.busy / (problem.ranks * simulation.makespan));
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
      simulate(problem, schedule, CostModel::quadratic(), Barrier::kMicrobatch).makespan;
  quality.efficiency = quadratic > 0 ? squares / problem.ranks / quadratic : 1.0;
  return quality;
}

}  // namespace dyncp
