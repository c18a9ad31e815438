// Times that no valid schedule can beat, so that makespan / bound certifies a schedule.
// Notation: P ranks, m tokens per rank, M microbatches, t(S, Q, C) the cost model's time of one
// pack with token sum S and square sum Q on C ranks, d its launch part, t0 = t - d. In a valid
// schedule every rank runs exactly one pack in each microbatch, so a schedule of makespan T has
//   (1) t0 <= T - d M for each pack               (its ranks launch M packs),
//   (2) sum over packs of C t0 <= P (T - d M)     (the rank time there is),
//   (3) sum over packs of C = P M                 (every rank has work, once a microbatch).
// All bounds hold for both barrier modes. Under serial execution the "packs" are the single
// sequences, d is part of their time, and (3) becomes "at least P M".
// REQUIRES for all: require_valid(problem); model parameters >= 0 with hidden <= 1. Units: tokens
// and the cost model's time unit. Throws Infeasible when a sequence fits on no group. 0 without
// sequences of non-zero length.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/cost.h"

namespace dyncp {

/// More distinct lengths than this are bounded in classes of nearly equal ones, from below, so that
/// the cost of a bound does not grow with them.
inline constexpr std::size_t kMostLengthClasses = 2048;

/// Fewest microbatches of any valid schedule: tokens (and max_sequences) against the capacity of
/// all ranks, rounded up to microbatch_multiple. At least 1 when there is a sequence.
std::int64_t fewest_microbatches(const ScheduleProblem& problem);

/// (2) with each pack's time bounded by its work a Q + b S alone: the work spread evenly.
double area_bound(const ScheduleProblem& problem, const CostModel& cost);

/// (1) for the sequence that is slowest on its best group.
double longest_bound(const ScheduleProblem& problem, const CostModel& cost);

/// (2) where each sequence pays the cheapest size on which it meets (1): exposed communication that
/// the deadline T forces is counted, a pack's fixed part by the share of the pack a sequence takes.
double dual_bound(const ScheduleProblem& problem, const CostModel& cost);

/// dual_bound with (3) priced in, from both sides: n sequences lead at most n packs, so few of them
/// must widen their groups to give every rank work; and packs that fill up cost further
/// microbatches. The least over the numbers of microbatches. lower_bound() (reference/cost.h) is
/// this with prices chosen for every size: tighter by up to 3 %, and some ten times slower.
double fill_bound(const ScheduleProblem& problem, const CostModel& cost,
                  std::size_t most_classes = kMostLengthClasses);

}  // namespace dyncp
