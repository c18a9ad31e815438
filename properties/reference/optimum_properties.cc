// The exhaustive optimum attains what it says, and nothing built another way is better.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "properties/reference/small_instance.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"

namespace dyncp {
namespace {

const DefaultCases kCases(1000);

// A second search that shares nothing with the first: every order of (group, set) rows by plain
// recursion, judged by the checker and the simulation alone. For tiny scopes.
class NaiveSearch {
 public:
  NaiveSearch(const ScheduleProblem& problem, const CostModel& cost, Barrier barrier)
      : problem_(problem), cost_(cost), barrier_(barrier), table_(problem.group_table()) {
    for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
      if (problem.lengths[id] > 0) ids_.push_back(int(id));
    }
  }

  double run() {
    microbatch((1U << ids_.size()) - 1);
    return best_;
  }

 private:
  void microbatch(unsigned left) {
    if (left == 0) {
      if (check_schedule(problem_, schedule_).empty()) {
        best_ = std::min(best_, schedule_quality(problem_, schedule_, cost_, barrier_).makespan);
      }
      return;
    }
    schedule_.microbatches.emplace_back();
    groups(0, left);
    schedule_.microbatches.pop_back();
  }

  void groups(int first, unsigned left) {
    if (first == problem_.ranks) {
      microbatch(left);
      return;
    }
    for (int size = 1; first + size <= problem_.ranks; ++size) {
      if (!table_.exists({first, size})) continue;
      for (unsigned set = left; set > 0; set = (set - 1) & left) {
        std::vector<int> sequences;
        for (std::size_t i = 0; i < ids_.size(); ++i) {
          if (set >> i & 1U) sequences.push_back(ids_[i]);
        }
        const std::size_t depth = schedule_.microbatches.size();
        schedule_.microbatches.back().push_back({{first, size}, std::move(sequences)});
        groups(first + size, left ^ set);
        schedule_.microbatches.resize(depth);
        schedule_.microbatches.back().pop_back();
      }
    }
  }

  const ScheduleProblem& problem_;
  const CostModel& cost_;
  Barrier barrier_;
  GroupTable table_;
  std::vector<int> ids_;
  Schedule schedule_;
  double best_ = std::numeric_limits<double>::infinity();
};

RC_GTEST_PROP(Optimum, EqualsAPlainSearch, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 4, .sequences = 4});
  const CostModel cost = any_cost();
  const Barrier barrier = *rc::gen::element(Barrier::kNone, Barrier::kMicrobatch);
  const std::optional<Optimum> optimum = find_optimum(problem, cost, barrier);
  const double naive = NaiveSearch(problem, cost, barrier).run();
  RC_ASSERT(optimum.has_value() == (naive < std::numeric_limits<double>::infinity()));
  if (optimum) {
    RC_LOG() << optimum->makespan << " against " << naive;
    RC_ASSERT(std::abs(optimum->makespan - naive) <= 1e-9 * naive);
  }
}

RC_GTEST_PROP(Optimum, IsAttainedByItsSchedule, ()) {
  const ScheduleProblem problem = small_instance({.ranks = 8, .sequences = 5});
  const CostModel cost = any_cost();
  for (Barrier barrier : {Barrier::kNone, Barrier::kMicrobatch}) {
    const std::optional<Optimum> optimum = find_optimum(problem, cost, barrier);
    if (!optimum) continue;
    const auto violations = check_schedule(problem, optimum->schedule);
    for (const Violation& violation : violations) RC_LOG() << violation.sentence << "\n";
    RC_ASSERT(violations.empty());
    const double makespan = schedule_quality(problem, optimum->schedule, cost, barrier).makespan;
    RC_ASSERT(std::abs(makespan - optimum->makespan) <= 1e-9 * makespan);
  }
}

RC_GTEST_PROP(Optimum, WaitingAtBarriersNeverHelpsAndNeverDecidesFeasibility, ()) {
  const ScheduleProblem problem = small_instance();
  const CostModel cost = any_cost();
  const std::optional<Optimum> free = find_optimum(problem, cost, Barrier::kNone);
  const std::optional<Optimum> barrier = find_optimum(problem, cost, Barrier::kMicrobatch);
  RC_ASSERT(free.has_value() == barrier.has_value());
  if (free) RC_ASSERT(free->makespan <= barrier->makespan * (1 + 1e-12));
}

}  // namespace
}  // namespace dyncp
