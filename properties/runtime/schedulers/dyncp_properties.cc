// The dyncp scheduler as its users see it: valid everywhere, refusing nothing that fits, the same
// whatever the order of the lengths, and near the optimum where that can be searched.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "properties/reference/small_instance.h"
#include "reference/error.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp.h"
#include "runtime/schedulers/megatron_packing_aware.h"

namespace dyncp {
namespace {

const DefaultCases kCases(400);

DyncpOptions any_options() {
  DyncpOptions options;
  options.cost = any_cost();
  options.barrier = *rc::gen::element(Barrier::kNone, Barrier::kNone, Barrier::kMicrobatch);
  options.effort = *rc::gen::element(Effort::kFast, Effort::kDefault);
  return options;
}

// Nothing when the scheduler refuses.
std::optional<Schedule> schedule(const ScheduleProblem& problem, const DyncpOptions& options) {
  try {
    return DyncpScheduler(options).schedule(problem);
  } catch (const Infeasible& refusal) {
    RC_LOG() << "refused: " << refusal.what() << "\n";
    return std::nullopt;
  }
}

void assert_valid(const ScheduleProblem& problem, const Schedule& schedule) {
  const std::vector<Violation> violations = check_schedule(problem, schedule);
  for (const Violation& violation : violations) RC_LOG() << violation.sentence << "\n";
  RC_ASSERT(violations.empty());
}

RC_GTEST_PROP(Dyncp, IsValidInEveryDomainUnderEveryOption, ()) {
  const int ranks = *uniform(1, 128);
  const ScheduleProblem problem =
      small_instance({.ranks = ranks, .sequences = *rc::gen::element(6, ranks, 4 * ranks)});
  if (const auto found = schedule(problem, any_options())) assert_valid(problem, *found);
}

RC_GTEST_PROP(Dyncp, MissesNoFeasibleInstanceInASmallScope, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 7});
  const DyncpOptions options = any_options();
  const auto found = schedule(problem, options);
  const auto optimum = find_optimum(problem, options.cost, Barrier::kMicrobatch);
  RC_ASSERT(found.has_value() == optimum.has_value());
}

RC_GTEST_PROP(Dyncp, IsNearTheOptimumInASmallScope, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 6});
  const DyncpOptions options = any_options();
  const auto found = schedule(problem, options);
  if (!found) return;
  assert_valid(problem, *found);
  const double optimum = find_optimum(problem, options.cost, options.barrier)->makespan;
  const double makespan = schedule_quality(problem, *found, options.cost, options.barrier).makespan;
  RC_LOG() << makespan << " against " << optimum << "\n";
  RC_ASSERT(makespan >= optimum * (1 - 1e-9));
  const bool nested = problem.group_policy == GroupPolicy::kAligned ||
                      problem.group_policy == GroupPolicy::kPow2AnySlice;
  const bool exact = nested || problem.ranks <= 6;
  RC_ASSERT(makespan <= (exact ? 1 + 1e-9 : 1.4) * optimum);
}

// What a schedule looks like without ids.
std::vector<std::vector<std::pair<int, std::vector<std::int64_t>>>> shape(
    const ScheduleProblem& problem, const Schedule& schedule) {
  std::vector<std::vector<std::pair<int, std::vector<std::int64_t>>>> shape;
  for (const Microbatch& microbatch : schedule.microbatches) {
    shape.emplace_back();
    for (const Assignment& assignment : microbatch) {
      std::vector<std::int64_t> lengths;
      for (int id : assignment.sequences) {
        lengths.push_back(problem.lengths[static_cast<std::size_t>(id)]);
      }
      shape.back().emplace_back(assignment.group.size, std::move(lengths));
    }
  }
  return shape;
}

RC_GTEST_PROP(Dyncp, HasOneShapeForEveryOrderOfTheLengths, ()) {
  const int ranks = *uniform(1, 32);
  ScheduleProblem problem = small_instance({.ranks = ranks, .sequences = 3 * ranks});
  const DyncpOptions options = any_options();
  const auto first = schedule(problem, options);
  if (first) RC_ASSERT(DyncpScheduler(options).schedule(problem) == *first);
  ScheduleProblem shuffled = problem;
  for (std::size_t i = shuffled.lengths.size(); i > 1; --i) {
    std::swap(shuffled.lengths[i - 1],
              shuffled.lengths[static_cast<std::size_t>(*uniform(0, static_cast<int>(i) - 1))]);
  }
  const auto second = schedule(shuffled, options);
  RC_ASSERT(first.has_value() == second.has_value());
  if (first) RC_ASSERT(shape(problem, *first) == shape(shuffled, *second));
}

RC_GTEST_PROP(Dyncp, IsNeverAboveAValidScheduleOfMegatronPackingAware, ()) {
  const int ranks = *uniform(1, 64);
  const ScheduleProblem problem = small_instance({.ranks = ranks, .sequences = 4 * ranks});
  std::optional<Schedule> rival;
  try {
    rival = MegatronPackingAware().schedule(problem);
  } catch (const Infeasible&) {
  }
  if (!rival || !check_schedule(problem, *rival).empty()) return;
  const DyncpOptions options = any_options();
  const auto found = schedule(problem, options);
  RC_ASSERT(found.has_value());
  const auto makespan = [&](const Schedule& candidate) {
    return schedule_quality(problem, candidate, options.cost, options.barrier).makespan;
  };
  RC_ASSERT(makespan(*found) <= makespan(*rival) * (1 + 1e-12));
}

}  // namespace
}  // namespace dyncp
