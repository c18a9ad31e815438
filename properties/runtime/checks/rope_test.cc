// The rope driver: the two kinds of positions named apart, every check run, when it mistrusts, what
// it refuses, and the gate's cases.
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
  return rope_driver().run(parse_command("rope " + command));
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

bool shows(const CaseResult& result, const std::string& line) {
  return std::find(result.details().begin(), result.details().end(), line) !=
         result.details().end();
}

TEST(RopeDriver, NamesRestartingAndPackedPositionsApart) {
  const CaseResult result = run("--cp 2 --lengths 4,4");
  EXPECT_TRUE(result.findings().empty()) << all_findings(result);
  EXPECT_TRUE(shows(result, "rank 0: restarting positions 0 3 0 3"));
  EXPECT_TRUE(shows(result, "rank 0: packed-table positions 0 3 4 7"));
  EXPECT_TRUE(shows(result, "rank 1: restarting positions 1 2 1 2"));
  EXPECT_TRUE(shows(result, "rank 1: packed-table positions 1 2 5 6"));
}

TEST(RopeDriver, RunsEveryCheck) {
  const CaseResult result =
      run("--cp 3 --lengths 7,0,1,20 --first-rank 3 --dim 12 --rotary-dim 8 --yarn-scale 4");
  EXPECT_EQ(result.status(), Status::kPassed) << all_findings(result);
  for (const char* check :
       {"rope.params", "rope.row_count", "rope.positions", "rope.permutation", "rope.packed_table",
        "rope.control_packed", "rope.control_build_time_group", "rope.control_first_sequence",
        "rope.read_back", "rope.slice_commutes", "rope.concatenation", "rope.pairing",
        "rope.partial", "rope.padding", "rope.inverse", "rope.norm", "rope.adjoint",
        "rope.shift"}) {
    EXPECT_TRUE(ran(result, check)) << check;
  }
}

TEST(RopeDriver, PassesOnOddSizesAndOptions) {
  for (const char* options :
       {"--cp 5 --lengths 11,1,0,100 --first-rank 7 --pairing interleaved",
        "--cp 8 --lengths 1 --first-rank 8 --dim 2", "--cp 3 --lengths 1,1 --contract v2 --heads 1",
        "--cp 4 --lengths 698,7,3,5,0,1 --tp 2 --rope-base 500000",
        "--cp 2 --lengths 7,3,5 --padded 16,4,12 --yarn-scale 40 --dim 64 --kv-heads 1",
        "--cp 2 --lengths 3001 --rope-base 1.5"}) {
    const CaseResult result = run(options);
    EXPECT_EQ(result.status(), Status::kPassed) << options << ": " << all_findings(result);
  }
}

TEST(RopeDriver, MistrustsWhatCannotFail) {
  EXPECT_EQ(run("--cp 1 --lengths 7,3").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 8,4").status(), Status::kMistrusted);
  EXPECT_EQ(run("--cp 2 --lengths 0,0").status(), Status::kMistrusted);
}

TEST(RopeDriver, RefusesWhatIsMalformed) {
  EXPECT_THROW(run("--cp 2 --lengths 5 --dim 5"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --rotary-dim 3"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --dim 8 --rotary-dim 10"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --rope-base 1"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 5 --padded 6"), InvalidInput);
  EXPECT_THROW(run("--cp 2 --lengths 10000000"), InvalidInput);  // too many values
}

TEST(RopeDriver, GateCasesPassAndAreNeverVacuous) {
  std::vector<LengthSet> sets = {{"constant", std::vector<std::int64_t>(40, 4096)},
                                 {"tiny", {3}},
                                 {"huge", {std::int64_t{1} << 40, 5, 1000000}}};
  std::set<std::string> pairings;
  std::set<bool> partial, yarn;
  const std::vector<Problem> cases = rope_driver().gate_cases(Tier::kSmoke, sets, 7);
  ASSERT_FALSE(cases.empty());
  for (const Problem& problem : cases) {
    const std::string command = print_command(problem);
    EXPECT_EQ(parse_command(command), problem) << command;
    const CaseResult result = rope_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << command << ": " << all_findings(result);
    pairings.insert(problem.pairing);
    partial.insert(problem.rotary_dim != 0);
    yarn.insert(problem.yarn_scale != 1.0);
  }
  EXPECT_EQ(pairings.size() + partial.size() + yarn.size(), 6U);
  EXPECT_EQ(rope_driver().gate_cases(Tier::kSmoke, sets, 7), cases);
}

TEST(RopeDriver, SmokeCasesOfTheShippedLengthsPass) {
  for (const Problem& problem : rope_driver().gate_cases(Tier::kSmoke, fixture_length_sets(), 1)) {
    const CaseResult result = rope_driver().run(problem);
    EXPECT_EQ(result.status(), Status::kPassed) << print_command(problem) << all_findings(result);
  }
}

}  // namespace
}  // namespace dyncp
