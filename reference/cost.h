// The time model that schedules are judged by, and makespan by event-driven simulation.
// Time of one pack on C ranks, S = sum of lengths, Q = sum of squared lengths:
//   t(S, Q, C) = (a Q + b S)/C + [C > 1] max(0, (C-1)(c0 + c1 S/C) - hidden a Q/C) + d
// Defaults: microseconds per layer, forward and backward, of a 4096-wide layer on an H200
// (docs/scheduling.md); the quadratic model (a = 1, rest 0) exists to compare with Megatron's own
// figures and is never quoted as time.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/schedule.h"

namespace dyncp {

struct CostModel {
  double a = 5.734e-5;  // us per squared token: causal attention
  double b = 1.870;     // us per token: linear layers
  double c0 = 50.0;     // us per ring step: latency
  double c1 = 0.0351;   // us per local token and ring step: K/V and dK/dV bytes
  double hidden = 0.8;  // share of the attention time behind which ring steps hide
  double d = 75.0;      // us per pack: launches
  // Groups larger than fast_domain ranks leave the fast network and pay these instead of c0, c1.
  int fast_domain = std::numeric_limits<int>::max();
  double slow_c0 = 100.0;
  double slow_c1 = 0.245;

  /// One flat fast network: the defaults above.
  static CostModel flat() { return {}; }
  /// Two tiers: 50 GB/s beyond 8 ranks.
  static CostModel two_tier();
  /// L^2 / C only.
  static CostModel quadratic();

  /// Time of one pack; S, Q as doubles in tokens and squared tokens. REQUIRES: size >= 1.
  double pack_time(double sum, double sum_of_squares, int size) const;

  bool operator==(const CostModel&) const = default;
};

/// Whether ranks also wait for each other between microbatches.
enum class Barrier { kNone, kMicrobatch };

/// Figures of a schedule under a cost model, in the model's time unit.
/// REQUIRES for all: check_schedule(problem, schedule) is empty.
struct ScheduleQuality {
  double makespan = 0;
  double lower_bound = 0;    // no schedule of this problem can be faster
  double idle_share = 0;     // 1 - busy rank time / (ranks * makespan)
  double padding_waste = 0;  // padded tokens / real tokens - 1
  double efficiency = 0;     // (sum L^2 / P) / quadratic makespan with barrier: Megatron's figure
  int microbatches = 0;
};

/// One CP group at work in the simulation, in the model's time unit.
struct ScheduledPack {
  int microbatch = 0;
  int assignment = 0;  // index in the microbatch
  double start = 0;
  double end = 0;
};

/// When each group of the schedule runs, by microbatch and then in the schedule's order.
/// Event-driven: a CP group starts when all its members are free (Barrier::kMicrobatch: and every
/// rank has finished the previous microbatch). Serial execution pays pack_time per sequence.
std::vector<ScheduledPack> simulate_schedule(const ScheduleProblem& problem,
                                             const Schedule& schedule, const CostModel& cost,
                                             Barrier barrier);

/// When the last group of simulate_schedule ends; 0 for an empty schedule.
double simulated_makespan(const ScheduleProblem& problem, const Schedule& schedule,
                          const CostModel& cost, Barrier barrier);

/// Figures of simulate_schedule.
ScheduleQuality schedule_quality(const ScheduleProblem& problem, const Schedule& schedule,
                                 const CostModel& cost, Barrier barrier);

/// No valid schedule of `problem` has a smaller makespan, with or without barriers: the tightest of
/// the bounds of reference/lower_bound.h, which says how they come about.
double lower_bound(const ScheduleProblem& problem, const CostModel& cost);

}  // namespace dyncp
