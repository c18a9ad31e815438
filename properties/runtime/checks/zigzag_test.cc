// The zigzag driver: what it says of right cases, when it mistrusts, what it refuses, and the
// gate's cases. That each of its checks can fail is shown on recorded slices in
// zigzag_candidate_test.cc and by breaking the specification (docs).
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
  return zigzag_driver().run(parse_command("zigzag " + command));
}

std::string all_findings(const CaseResult& result) {
  std::string text = std::string(to_string(result.status())) + " " + result.reason();
  for (const Finding& finding : result.findings())
    text += "\n" + finding.check + ": " + finding.message;
  return text;
}

bool ran(const CaseResult& result, std::string_view check) {
  const auto& names = result.checks_run();
  return std::find(names.begin(), names.end(), check) != names.end();
}

bool shows(const CaseResult& result, const std::string& part) {
  return std::any_of(result.details().begin(), result.details().end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(ZigzagDriver, PassesAndShowsTheRows) {
  const CaseResult result = run("--cp 2 --lengths 3,4");
  EXPECT_EQ(result.status(), Status::kPassed) << all_findings(result);
  EXPECT_TRUE(shows(result, "rank 0: rows 0 3 4 7; real rows per sequence 1 2"));
  EXPECT_TRUE(shows(result, "rank 1: rows 1 2 5 6; real rows per sequence 2 2"));
}

TEST(ZigzagDriver, RunsEveryCheck) {
  const CaseResult result = run("--cp 3 --lengths 7,0,1,20 --first-rank 3");
  EXPECT_EQ(result.status(), Status::kPassed) << all_findings(result);
  for (const char* check :
       {"zigzag.params", "zigzag.row_count", "zigzag.bijection", "zigzag.inverse", "zigzag.formula",
        "zigzag.balance", "zigzag.real_count", "zigzag.round_trip", "zigzag.batched",
        "zigzag.labels", "zigzag.labels_control", "zigzag.whole_buffer_control",
        "zigzag.size_one"}) {
    EXPECT_TRUE(ran(result, check)) << check;
  }
}

TEST(ZigzagDriver, OddSizesOffsetGroupsAndContracts) {
  for (const char* options :
       {"--cp 5 --lengths 11,1,0,100 --first-rank 7", "--cp 8 --lengths 1 --first-rank 8",
        "--cp 3 --lengths 1,1,1,1 --contract v2", "--cp 4 --lengths 698,7,3,5,0,1 --tp 2",
        "--cp 2 --lengths 7,3,5 --padded 16,4,12", "--cp 16 --lengths 1000,31"}) {
    const CaseResult result = run(options);
    EXPECT_EQ(result.status(), Status::kPassed) << options << ": " << all_findings(result);
  }
}

TEST(ZigzagDriver, MistrustsWhatCannotFail) {
  EXPECT_EQ(run("--cp 1 --lengths 7,3").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 1 --lengths 7 --contract v2").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 8,4,0").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 0,0").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 8,4,1").status(), Status::kPassed);
  EXPECT_NE(run("--cp 2 --lengths 8,4").reason().find("multiples of 2*cp = 4"), std::string::npos);
}

TEST(ZigzagDriver, RefusesWhatIsMalformed) {
  EXPECT_THROW(run("--cp 2 --lengths 3,4 --padded 3,4"), InvalidInput);  // 3 is no multiple of 4
  EXPECT_THROW(run("--cp 2 --lengths 5 --padded 4"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --padded 8,8"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 100000000"), InvalidInput);  // too many to enumerate
  EXPECT_THROW(run("--cp 2 --lengths 1099511627776,1099511627776"), InvalidInput);
}

TEST(ZigzagDriver, GateCasesAreDistinctPassAndAreNeverVacuous) {
  // A set whose lengths are all multiples must not give vacuous cases; huge ones are scaled down.
  std::vector<LengthSet> sets = {{"constant", std::vector<std::int64_t>(40, 4096)},
                                 {"tiny", {3}},
                                 {"empty", {}},
                                 {"huge", {std::int64_t{1} << 40, 5, 1000000}}};
  std::set<std::string> seen;
  std::set<int> sizes, firsts;
  const std::vector<Problem> cases = zigzag_driver().gate_cases(Tier::kSmoke, sets, 7);
  ASSERT_FALSE(cases.empty());
  for (const Problem& problem : cases) {
    const std::string command = print_command(problem);
    EXPECT_TRUE(seen.insert(command).second) << command;
    EXPECT_EQ(parse_command(command), problem) << command;
    const CaseResult result = zigzag_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << command << ": " << all_findings(result);
    sizes.insert(problem.cp);
    firsts.insert(problem.first_rank);
  }
  EXPECT_EQ(sizes, (std::set<int>{2, 3, 4, 5, 8}));
  EXPECT_GT(firsts.size(), 3U);
  EXPECT_EQ(zigzag_driver().gate_cases(Tier::kSmoke, sets, 7), cases);
  EXPECT_NE(zigzag_driver().gate_cases(Tier::kSmoke, sets, 8), cases);
}

TEST(ZigzagDriver, SmokeCasesOfTheShippedLengthsPass) {
  for (const Problem& problem :
       zigzag_driver().gate_cases(Tier::kSmoke, fixture_length_sets(), 1)) {
    const CaseResult result = zigzag_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << print_command(problem) << all_findings(result);
  }
}

}  // namespace
}  // namespace dyncp
