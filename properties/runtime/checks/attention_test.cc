// The attention driver: every check run, when it mistrusts, what it refuses, and the gate's cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/fixtures.h"
#include "runtime/problem.h"

namespace dyncp {
namespace {

CaseResult run(const std::string& command) {
  return attention_driver().run(parse_command("attention " + command));
}

std::string all_findings(const CaseResult& result) {
  std::string text = std::string(to_string(result.status())) + " " + result.reason();
  for (const Finding& finding : result.findings()) {
    text += "\n" + finding.check + ": " + finding.message;
  }
  return text;
}

TEST(AttentionDriver, RunsEveryCheck) {
  const CaseResult result = run("--lengths 17,0,1,20");
  EXPECT_EQ(result.status(), Status::kPassed) << all_findings(result);
  for (const char* check :
       {"attention.packing", "attention.padding", "attention.padding_zero", "attention.isolation",
        "attention.isolation_control", "attention.coverage", "attention.routing",
        "attention.row_sums", "attention.constant_keys", "attention.gradient_sums",
        "attention.differences"}) {
    const auto& names = result.checks_run();
    EXPECT_NE(std::find(names.begin(), names.end(), check), names.end()) << check;
  }
}

TEST(AttentionDriver, PassesOnOptions) {
  for (const char* options :
       {"--lengths 11,1,0,30 --mask full", "--lengths 7,3 --window 0",
        "--lengths 31,3 --window 4 --mask full", "--lengths 7,3,5 --padded 16,4,12 --sink",
        "--lengths 9,1 --heads 6 --kv-heads 1 --dim 3 --value-dim 7",
        "--lengths 9,1 --heads 3 --kv-heads 3 --dim 1", "--lengths 200,3 --heads 1 --kv-heads 1",
        "--lengths 9,5,1 --seed 77 --dim 64"}) {
    const CaseResult result = run(options);
    EXPECT_EQ(result.status(), Status::kPassed) << options << ": " << all_findings(result);
  }
}

TEST(AttentionDriver, MistrustsWhatCannotFail) {
  EXPECT_EQ(run("--lengths 0,0").status(), Status::kMistrusted);
  EXPECT_EQ(run("--lengths 8,4").status(), Status::kMistrusted);  // no padding
  EXPECT_EQ(run("--lengths 7").status(), Status::kMistrusted);    // nothing to leak from
}

TEST(AttentionDriver, RefusesWhatIsMalformed) {
  EXPECT_THROW(run("--lengths 5 --heads 4 --kv-heads 3"), InvalidInput);
  EXPECT_THROW(run("--lengths 1000000"), InvalidInput);
  EXPECT_THROW(run("--lengths 5 --padded 4"), InvalidInput);
  EXPECT_THROW(run("--lengths 5 --cp 2"), InvalidInput);  // an option it does not read
}

TEST(AttentionDriver, GateCasesPassAndAreNeverVacuous) {
  const std::vector<LengthSet> sets = {{"constant", std::vector<std::int64_t>(40, 4096)},
                                       {"tiny", {3}},
                                       {"huge", {std::int64_t{1} << 40, 5, 1000000}}};
  std::set<std::string> masks;
  std::set<int> heads;
  std::set<bool> windows, sinks;
  const std::vector<Problem> cases = attention_driver().gate_cases(Tier::kSmoke, sets, 7);
  ASSERT_FALSE(cases.empty());
  for (const Problem& problem : cases) {
    const std::string command = print_command(problem);
    EXPECT_EQ(parse_command(command), problem) << command;
    const CaseResult result = attention_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << command << ": " << all_findings(result);
    masks.insert(problem.mask);
    heads.insert(problem.heads);
    windows.insert(problem.window >= 0);
    sinks.insert(problem.sink);
  }
  EXPECT_EQ(masks.size() + heads.size() + windows.size() + sinks.size(), 10U);
  EXPECT_EQ(attention_driver().gate_cases(Tier::kSmoke, sets, 7), cases);
}

TEST(AttentionDriver, SmokeCasesOfTheShippedLengthsPass) {
  for (const Problem& problem :
       attention_driver().gate_cases(Tier::kSmoke, fixture_length_sets(), 1)) {
    const CaseResult result = attention_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << print_command(problem) << all_findings(result);
  }
}

}  // namespace
}  // namespace dyncp
