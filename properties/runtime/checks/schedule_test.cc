// The schedule driver: verdicts and check names on known instances, and the cases of the gate.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/error.h"
#include "runtime/check.h"

namespace dyncp {
namespace {

Problem problem_of(std::string scheduler, int ranks, std::int64_t limit,
                   std::vector<std::int64_t> lengths) {
  Problem problem;
  problem.driver = "schedule";
  problem.scheduler = std::move(scheduler);
  problem.ranks = ranks;
  problem.max_tokens = limit;
  problem.lengths = std::move(lengths);
  return problem;
}

CaseResult run(const Problem& problem) { return schedule_driver().run(problem); }

bool has_detail(const CaseResult& result, std::string_view text) {
  return std::any_of(
      result.details().begin(), result.details().end(),
      [text](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(ScheduleDriver, PassesTheGoldenInstance) {
  const CaseResult result = run(
      problem_of("megatron-packing-aware", 8, 1024, {4096, 1024, 1024, 512, 512, 512, 256, 256}));
  EXPECT_EQ(result.status(), Status::kPassed) << result.reason();
  const auto& checks = result.checks_run();
  for (const char* name : {"schedule.exactly-once", "schedule.group-aligned", "schedule.capacity",
                           "schedule.identical-lists", "schedule.deterministic", "schedule.paired",
                           "schedule.no-wait-cycle", "schedule.lower-bound", "schedule.control"}) {
    EXPECT_EQ(std::count(checks.begin(), checks.end(), name), 1) << name;
  }
  EXPECT_TRUE(has_detail(result, "0:4096"));
  EXPECT_TRUE(has_detail(result, "lower bound"));
}

TEST(ScheduleDriver, NamesTheRuleThatUpstreamBreaks) {
  const CaseResult result = run(problem_of(
      "megatron-balanced", 8, 1024, {3424, 2672, 1584, 2560, 4048, 1344, 1904, 1648, 112, 1920}));
  EXPECT_EQ(result.status(), Status::kFailed);
  ASSERT_FALSE(result.findings().empty());
  EXPECT_EQ(result.findings()[0].check, "schedule.group-aligned");
  EXPECT_EQ(result.findings()[0].kind, Kind::kSchedule);
  EXPECT_EQ(result.findings()[0].message,
            "microbatch 2: ranks 2..5 (size 4) run sequence 3 but no such CP group exists: size-4 "
            "groups start at multiples of 4 (0..3, 4..7)");
}

TEST(ScheduleDriver, JudgesRefusals) {
  const CaseResult right = run(problem_of("megatron-packing-aware", 4, 10, {41}));
  EXPECT_EQ(right.status(), Status::kSkipped);
  const CaseResult wrong = run(problem_of("megatron-packing-aware", 6, 1024, {6144, 7}));
  EXPECT_EQ(wrong.status(), Status::kFailed);
  EXPECT_EQ(wrong.findings()[0].check, "schedule.refusal");
}

TEST(ScheduleDriver, MistrustsWhatCannotFail) {
  EXPECT_EQ(run(problem_of("megatron-packing-aware", 8, 1024, {0, 0})).status(),
            Status::kMistrusted);
  const CaseResult no_groups =
      run(problem_of("megatron-packing-aware", 2, 1024, {1000, 900, 800, 700}));
  EXPECT_EQ(no_groups.status(), Status::kMistrusted);
  EXPECT_EQ(no_groups.reason(), "no CP group larger than 1 formed");
  EXPECT_EQ(run(problem_of("megatron-packing-aware", 1, 1024, {1000})).status(),
            Status::kMistrusted);
  // Two ranks, each with half of the work of a group, are no single rank with all of it.
  EXPECT_EQ(run(problem_of("megatron-packing-aware", 2, 1024, {2000})).status(), Status::kPassed);
}

TEST(ScheduleDriver, PassesUnderEveryOption) {
  Problem problem =
      problem_of("megatron-packing-aware", 8, 1040, {4000, 2000, 1000, 500, 400, 333, 201, 7});
  problem.padding = Padding::kGlobal;
  EXPECT_EQ(run(problem).status(), Status::kPassed) << run(problem).reason();
  problem.execution = "serial";
  EXPECT_EQ(run(problem).status(), Status::kPassed) << run(problem).reason();
  problem.group_policy = GroupPolicy::kInterval;
  EXPECT_EQ(run(problem).status(), Status::kPassed) << run(problem).reason();
}

TEST(ScheduleDriver, RefusesMalformedProblems) {
  Problem problem = problem_of("megatron-packing-aware", 4, 10, {5});
  problem.min_cp = 5;
  EXPECT_THROW(run(problem), InvalidInput);
}

TEST(ScheduleDriver, GateCasesMixSizesAndHold) {
  const std::vector<LengthSet> sets = {
      {"mixed", {3000, 17, 800, 90, 15000, 444, 1, 65, 2048, 700, 33, 512, 127, 9000, 50, 410}},
      {"empty", {}}};
  std::set<std::int64_t> limits;
  const std::vector<Problem> cases = schedule_driver().gate_cases(Tier::kCi, sets, 5);
  ASSERT_GE(cases.size(), 20u);
  for (const Problem& problem : cases) {
    EXPECT_GE(problem.lengths.size(), 16u);
    limits.insert(problem.max_tokens);
    const CaseResult result = run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << print_command(problem) << result.reason();
  }
  EXPECT_GT(limits.size(), 3u);
  EXPECT_EQ(schedule_driver().gate_cases(Tier::kCi, sets, 5), cases);
  EXPECT_NE(schedule_driver().gate_cases(Tier::kCi, sets, 6), cases);
  EXPECT_LT(schedule_driver().gate_cases(Tier::kSmoke, sets, 5).size(), cases.size());
  EXPECT_GT(schedule_driver().gate_cases(Tier::kFull, sets, 5).size(), cases.size());
}

}  // namespace
}  // namespace dyncp
