// Every scheduler on every instance of a small scope: at most 4 ranks, 4 sequences, lengths 0..9.
// Answers are judged by the checker (held to an independent formulation in
// properties/reference/schedule_check_exhaustive_test.cc); refusals by exhaustive search for a
// schedule, so that none is undecided. What a scheduler breaks in which domain is stated here.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/scheduler_search.h"

namespace dyncp {
namespace {

using Rules = std::set<std::string>;

// Calls `visit` with every list of at most 4 lengths 0..9.
template <typename Visit>
void every_lengths(const Visit& visit) {
  std::vector<std::int64_t> lengths;
  const auto extend = [&](const auto& self) -> void {
    visit(lengths);
    if (lengths.size() == 4) return;
    for (std::int64_t length = 0; length <= 9; ++length) {
      lengths.push_back(length);
      self(self);
      lengths.pop_back();
    }
  };
  extend(extend);
}

struct Scope {
  Rules broken;                              // by any answer
  std::map<std::string, std::string> first;  // an example for each rule
  std::int64_t answered = 0, refused = 0, undecided = 0, grouped = 0, mixed = 0;
};

Scope examine(const Scheduler& scheduler, int ranks, const ScheduleProblem& prototype) {
  Scope scope;
  const AskScheduler ask = ask_scheduler(scheduler);
  ScheduleProblem problem = prototype;
  problem.ranks = ranks;
  problem.execution = scheduler.execution();
  every_lengths([&](const std::vector<std::int64_t>& lengths) {
    problem.lengths = lengths;
    for (std::int64_t limit : {2, 3, 5}) {
      problem.max_tokens_per_rank = limit;
      const Verdict verdict = judge_scheduler(ask, problem);
      scope.answered += verdict.answered ? 1 : 0;
      scope.refused += verdict.refused ? 1 : 0;
      scope.undecided += verdict.undecided ? 1 : 0;
      scope.grouped += verdict.largest_group > 1 ? 1 : 0;
      scope.mixed += verdict.mixed_sizes ? 1 : 0;
      for (const BrokenRule& broken : verdict.broken) {
        if (!scope.broken.insert(broken.rule).second) continue;
        scope.first[broken.rule] =
            schedule_options(problem, scheduler.execution()) + ": " + broken.sentence;
      }
    }
  });
  return scope;
}

void expect_scope(std::string_view name, int ranks, const ScheduleProblem& prototype,
                  const Rules& known) {
  const Scheduler& scheduler = find_scheduler(name);
  const Scope scope = examine(scheduler, ranks, prototype);
  SCOPED_TRACE(std::string(name) + " on " + std::to_string(ranks) + " ranks");
  EXPECT_EQ(scope.broken, known);
  for (const auto& [rule, example] : scope.first) {
    if (known.count(rule) == 0) ADD_FAILURE() << rule << ": " << example;
  }
  EXPECT_EQ(scope.undecided, 0);
  EXPECT_EQ(scope.answered + scope.refused, 3 * 11111);
  EXPECT_GT(scope.answered, 500);  // few fit on one rank with padding and pairs of microbatches
  // On 3 ranks static packing knows only size 1.
  const bool groups = ranks > 1 && !(name == "static-packing" && ranks == 3);
  EXPECT_GE(scope.grouped, groups ? 1000 : 0);
}

TEST(SchedulersExhaustive, MegatronPackingAware) {
  for (int ranks : {1, 2, 4}) expect_scope("megatron-packing-aware", ranks, {}, {});
  expect_scope("megatron-packing-aware", 3, {}, {"refusal", "size-allowed"});
}

// Too few sequences for the misaligned group.
TEST(SchedulersExhaustive, MegatronBalanced) {
  for (int ranks : {1, 2, 4}) expect_scope("megatron-balanced", ranks, {}, {});
  expect_scope("megatron-balanced", 3, {}, {"refusal", "size-allowed"});
}

TEST(SchedulersExhaustive, MegatronPackingAwareInMultiplesOfTwo) {
  ScheduleProblem prototype;
  prototype.microbatch_multiple = 2;
  for (int ranks : {1, 2, 4}) expect_scope("megatron-packing-aware", ranks, prototype, {"refusal"});
}

// Capacity is checked before the padding to the group.
TEST(SchedulersExhaustive, MegatronPackingAwareWithGroupPadding) {
  ScheduleProblem prototype;
  prototype.padding = Padding::kGroup;
  for (int ranks : {1, 2, 4}) {
    expect_scope("megatron-packing-aware", ranks, prototype, {"capacity"});
  }
}

TEST(SchedulersExhaustive, StaticSchedulers) {
  expect_scope("static-packing", 1, {}, {});
  for (int ranks : {2, 3, 4}) expect_scope("static-packing", ranks, {}, {"refusal"});
}

// Schedulers that state no defect hold in every domain of the scope and under every option.
TEST(SchedulersExhaustive, OwnScheduler) {
  const auto& all = schedulers();
  const auto own = std::find_if(all.begin(), all.end(), [](const Scheduler* scheduler) {
    return scheduler->name() == "dyncp";
  });
  if (own == all.end()) GTEST_SKIP() << "scheduler dyncp is not built";
  for (int ranks : {1, 2, 3, 4}) {
    for (int multiple : {1, 2}) {
      for (Padding padding : {Padding::kNone, Padding::kGroup}) {
        ScheduleProblem prototype;
        prototype.microbatch_multiple = multiple;
        prototype.padding = padding;
        expect_scope("dyncp", ranks, prototype, {});
      }
    }
  }
}

}  // namespace
}  // namespace dyncp
