// dyncp gate as a CI system runs it: one exit code, one summary line, report files, other lengths.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/run_command.h"
#include "runtime/check.h"

namespace dyncp {
namespace {

void expect_refused(const std::string& arguments, const std::string& part) {
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.exit_code, 2) << arguments << outcome.out;
  EXPECT_TRUE(is_one_line(outcome.err)) << arguments << "\n" << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << arguments << "\n" << outcome.err;
}

TEST(GateCommand, TheSmokeTierHoldsAndSaysWhatItDidAndLeftOut) {
  const ScratchFolder folder;
  const std::string stem = folder.path() + "/gate";
  const Outcome outcome = run_command("gate --junit " + stem + ".xml --json " + stem +
                                      ".json --html " + stem + ".html");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.rfind("dyncp gate --tier smoke --seed 1: ", 0), 0U);
  EXPECT_NE(outcome.out.find("python-stdlib"), std::string::npos);
  EXPECT_NE(outcome.out.find("not checked: "), std::string::npos);
  EXPECT_NE(outcome.out.find("all held; next: dyncp gate --tier ci\n"), std::string::npos);

  const nlohmann::json json = nlohmann::json::parse(read_file(stem + ".json"));
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("summary").at("passed"), json.at("summary").at("tests"));
  EXPECT_EQ(json.at("cases").size(), json.at("summary").at("tests"));
  EXPECT_GE(json.at("length_sets").size(), 3U);
  // Every driver took part, with CP groups of several sizes and sequences that need padding.
  int with_groups = 0;
  ASSERT_EQ(json.at("drivers").size(), drivers().size());
  for (const nlohmann::json& driver : json.at("drivers")) {
    EXPECT_GT(driver.at("summary").at("passed"), 0) << driver.at("driver");
    EXPECT_GE(driver.at("checks").size(), 3U) << driver.at("driver");
    if (driver.at("cp_sizes").empty()) continue;  // the driver forms no CP group
    ++with_groups;
    EXPECT_GE(driver.at("cp_sizes").size(), 2U) << driver.at("driver");
    EXPECT_GT(driver.at("sequences").at("unaligned"), 0) << driver.at("driver");
  }
  EXPECT_GE(with_groups, 4);
  EXPECT_NE(read_file(stem + ".xml").find("</testsuites>"), std::string::npos);
  EXPECT_NE(read_file(stem + ".html").find("Every check held. Exit code 0."), std::string::npos);

  // The summary line is the last, and counts what the JSON file counts.
  const auto tests = json.at("summary").at("tests").get<int>();
  EXPECT_EQ(last_line(outcome.out), "tests:" + std::to_string(tests) +
                                        " passed:" + std::to_string(tests) +
                                        " failed:0 mistrusted:0 skipped:0 invalid:0");
}

TEST(GateCommand, TakesOtherLengthsAndRepeatsItself) {
  const ScratchFolder folder;
  const std::string lengths = folder.file("mine.txt", "3 5 7 11 13 17 19 300 1 0\n");
  const std::string arguments = "gate --seed 9 --lengths " + lengths;
  const Outcome first = run_command(arguments);
  EXPECT_EQ(first.out.rfind("dyncp gate --tier smoke --seed 9 --lengths " + lengths, 0), 0U);
  EXPECT_EQ(first.out.find("python-stdlib"), std::string::npos);
  EXPECT_EQ(run_command(arguments + " --jobs 1").out, first.out);
}

// Without a token there is nothing to get wrong: the gate must say so, not pass.
TEST(GateCommand, MistrustedCasesFailTheGateUnlessAllowed) {
  const Outcome strict = run_command("gate --lengths 0,0");
  const Outcome lenient = run_command("gate --allow-mistrusted --lengths 0,0");
  ASSERT_EQ(strict.out.find("mistrusted:0 "), std::string::npos) << strict.out;
  EXPECT_EQ(strict.exit_code, 1);
  EXPECT_EQ(lenient.exit_code, 0) << lenient.out;
  EXPECT_NE(strict.out.find("not all held; next: dyncp check "), std::string::npos) << strict.out;
}

TEST(GateCommand, BadInputGetsOneLineAndExits2) {
  const ScratchFolder folder;
  expect_refused("gate --tier nightly", "--tier 'nightly'");
  expect_refused("gate --seed x", "--seed");
  expect_refused("gate --deadline -1", "--deadline");
  expect_refused("gate --lengths " + folder.path() + "/none", "none");
  expect_refused("gate --lengths -4", "negative length '-4'");
  expect_refused("gate --lengths " + folder.file("cut.json", R"({"id": 1, "le)"), "cut.json");
  expect_refused("gate --lengths " + folder.file("empty.txt", ""), "empty.txt");
  expect_refused("gate --json " + folder.path() + "/none/x.json", "there is no folder");
  expect_refused("gate --no-such", "--no-such");
  expect_refused("gate smoke", "smoke");
}

TEST(GateCommand, LacksItsFixturesWithExitCode2Or3AndOneLine) {
  const Outcome outcome = run_command("gate", "DYNCP_FIXTURES=/no/such/folder");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(is_one_line(outcome.err)) << outcome.err;
}

}  // namespace
}  // namespace dyncp
