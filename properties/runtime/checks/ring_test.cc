// The ring driver: the promised command, every check run, when it mistrusts, what it refuses, and
// the gate's cases.
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
  return ring_driver().run(parse_command("ring " + command));
}

std::string all_findings(const CaseResult& result) {
  std::string text = std::string(to_string(result.status())) + " " + result.reason();
  for (const Finding& finding : result.findings()) {
    text += "\n" + finding.check + ": " + finding.message;
  }
  return text;
}

TEST(RingDriver, ThePromisedCommandPasses) {
  const CaseResult result = run("--cp 4 --lengths 698,7,3,5,0,1 --heads 4 --kv-heads 2 --dim 16");
  EXPECT_EQ(result.status(), Status::kPassed) << all_findings(result);
  for (const char* check : {"ring.params",      "ring.coverage",      "ring.coverage_control",
                            "ring.balance",     "ring.contributions", "ring.schedule",
                            "ring.double_lse",  "ring.double_o",      "ring.double_dq",
                            "ring.double_dk",   "ring.double_dv",     "ring.float_lse",
                            "ring.lse_control", "ring.float_dv",      "ring.bf16_lse",
                            "ring.bf16_o",      "ring.bf16_o_rows",   "ring.bf16_dk_rows",
                            "ring.padding",     "ring.isolation",     "ring.isolation_control",
                            "ring.order",       "ring.history"}) {
    const auto& names = result.checks_run();
    EXPECT_NE(std::find(names.begin(), names.end(), check), names.end()) << check;
  }
  // Per rank: real tokens and pairs; per arithmetic: the errors.
  EXPECT_EQ(result.details()[0],
            "rank 0: 174 real tokens of 184, 57835 pairs, by step 14539 14432 14432 14432");
  const auto mentions = [&](const std::string& text) {
    return std::any_of(result.details().begin(), result.details().end(),
                       [&](const std::string& line) { return line.find(text) == 0; });
  };
  for (const char* arithmetic :
       {"double ", "float ", "bf16 (wide) ", "bf16 (rounded-partials) ", "bf16 (rounded) "}) {
    EXPECT_TRUE(mentions(arithmetic)) << arithmetic;
  }
}

TEST(RingDriver, PassesOnOddSizesAndOptions) {
  for (const char* options :
       {"--cp 5 --lengths 11,1,0,100 --first-rank 7", "--cp 8 --lengths 1 --first-rank 8",
        "--cp 3 --lengths 1,1 --contract v2 --heads 1 --kv-heads 1 --dim 1",
        "--cp 2 --lengths 7,3,5 --padded 16,4,12", "--cp 3 --lengths 41,7 --mask full",
        "--cp 4 --lengths 41,7 --window 3", "--cp 4 --lengths 41,7 --window 40 --mask full",
        "--cp 4 --lengths 41,7 --sink --heads 6 --kv-heads 3 --value-dim 5",
        "--cp 2 --lengths 33,7,1 --tp 2 --sink --window 0", "--cp 16 --lengths 33,7,1"}) {
    const CaseResult result = run(options);
    EXPECT_EQ(result.status(), Status::kPassed) << options << ": " << all_findings(result);
  }
}

TEST(RingDriver, MistrustsWhatCannotFail) {
  EXPECT_EQ(run("--cp 1 --lengths 7,3").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 8,4").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 0,0").status(), Status::kMistrusted);
}

TEST(RingDriver, RefusesWhatIsMalformed) {
  EXPECT_THROW(run("--cp 2 --lengths 5 --heads 4 --kv-heads 3"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --padded 6"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 1000000"), InvalidInput);
  EXPECT_THROW(run("--cp 65536 --lengths 5"), InvalidInput);
}

TEST(RingDriver, GateCasesPassAndAreNeverVacuous) {
  const std::vector<LengthSet> sets = {{"constant", std::vector<std::int64_t>(40, 4096)},
                                       {"tiny", {3}},
                                       {"huge", {std::int64_t{1} << 40, 5, 1000000}}};
  std::set<int> sizes;
  std::set<std::string> masks;
  std::set<bool> windows, sinks, not_at_zero;
  const std::vector<Problem> cases = ring_driver().gate_cases(Tier::kSmoke, sets, 7);
  ASSERT_FALSE(cases.empty());
  for (const Problem& problem : cases) {
    const std::string command = print_command(problem);
    EXPECT_EQ(parse_command(command), problem) << command;
    const CaseResult result = ring_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << command << ": " << all_findings(result);
    sizes.insert(problem.cp);
    masks.insert(problem.mask);
    windows.insert(problem.window >= 0);
    sinks.insert(problem.sink);
    not_at_zero.insert(problem.first_rank != 0);
  }
  EXPECT_EQ(sizes, (std::set<int>{2, 3, 4, 5, 8}));
  EXPECT_EQ(masks.size() + windows.size() + sinks.size() + not_at_zero.size(), 8U);
  EXPECT_EQ(ring_driver().gate_cases(Tier::kSmoke, sets, 7), cases);
}

TEST(RingDriver, SmokeCasesOfTheShippedLengthsPass) {
  for (const Problem& problem : ring_driver().gate_cases(Tier::kSmoke, fixture_length_sets(), 1)) {
    const CaseResult result = ring_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << print_command(problem) << all_findings(result);
  }
}

}  // namespace
}  // namespace dyncp
