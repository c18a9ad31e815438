// dyncp check as a person runs it: verdicts, reproducers, sweeps, batches, report files, and how it
// refuses bad input.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/run_command.h"

namespace dyncp {
namespace {

// Megatron's balanced scheduler forms a group that does not exist: a real failure.
constexpr const char* kFailing =
    "schedule --scheduler megatron-balanced --max-tokens 1024 --lengths "
    "2049,2049,2049,1025,1025,1025,1025,1025,1";

// Bad input: one line on stderr, exit code 2, and nothing that looks like a verdict.
void expect_refused(const std::string& arguments, const std::string& part) {
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.exit_code, 2) << arguments;
  EXPECT_TRUE(is_one_line(outcome.err)) << arguments << "\n" << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << arguments << "\n" << outcome.err;
  EXPECT_EQ(outcome.out.find("PASSED"), std::string::npos) << outcome.out;
}

TEST(CheckCommand, ASingleCaseIsToldInFull) {
  const Outcome outcome = run_command("check zigzag --cp 3 --lengths 7,0,1,50");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.rfind("run: dyncp check zigzag --lengths 7,0,1,50 --cp 3\n", 0), 0U);
  EXPECT_NE(outcome.out.find("\nPASSED: zigzag."), std::string::npos) << outcome.out;
  EXPECT_EQ(last_line(outcome.out), "tests:1 passed:1 failed:0 mistrusted:0 skipped:0 invalid:0");
}

TEST(CheckCommand, TheReproducerRepeatsTheOutput) {
  const Outcome first =
      run_command("check rope --seed 5 --cp 4 --pairing=interleaved --lengths 9,4");
  const std::string command = first.out.substr(5, first.out.find('\n') - 5);
  ASSERT_EQ(command.rfind("dyncp check rope ", 0), 0U) << first.out;
  const Outcome second = run_command(command.substr(6));
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.exit_code, second.exit_code);
}

TEST(CheckCommand, AFailureIsNamedAndExits1) {
  const Outcome outcome = run_command(std::string("check ") + kFailing);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("FAILED schedule.group-aligned (schedule): microbatch 2: ranks 2..5"),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(last_line(outcome.out), "tests:1 passed:0 failed:1 mistrusted:0 skipped:0 invalid:0");
}

TEST(CheckCommand, ACaseThatCannotFailIsMistrusted) {
  const Outcome outcome = run_command("check zigzag --cp 1 --lengths 7");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("\nMISTRUSTED "), std::string::npos);
  EXPECT_EQ(last_line(outcome.out), "tests:1 passed:0 failed:0 mistrusted:1 skipped:0 invalid:0");
}

TEST(CheckCommand, RopeTellsTheTwoPositionMapsApart) {
  const Outcome outcome = run_command("check rope --cp 2 --lengths 4,4");
  EXPECT_NE(outcome.out.find("rank 0: restarting positions 0 3 0 3"), std::string::npos);
  EXPECT_NE(outcome.out.find("rank 0: packed-table positions 0 3 4 7"), std::string::npos);
}

TEST(CheckCommand, RingCoversExactly) {
  const Outcome outcome =
      run_command("check ring --cp 4 --lengths 698,7,3,5,0,1 --heads 4 --kv-heads 2 --dim 16");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("ring.coverage"), std::string::npos) << outcome.out;
  EXPECT_EQ(last_line(outcome.out), "tests:1 passed:1 failed:0 mistrusted:0 skipped:0 invalid:0");
}

TEST(CheckCommand, ASweepRunsTheCrossProduct) {
  const Outcome outcome =
      run_command("check zigzag --lengths 5,9,13 --sweep cp=2,3,5 --sweep first-rank=0,4 -v");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  std::size_t at = 0;
  for (const char* cp : {"2", "3", "5"}) {
    for (const char* rank : {"", " --first-rank 4"}) {
      const std::string line =
          std::string("run: dyncp check zigzag --lengths 5,9,13 --cp ") + cp + rank + "\n";
      at = outcome.out.find(line, at);
      ASSERT_NE(at, std::string::npos) << line << outcome.out;
    }
  }
  EXPECT_EQ(last_line(outcome.out), "tests:6 passed:6 failed:0 mistrusted:0 skipped:0 invalid:0");
}

TEST(CheckCommand, ABatchMixesDriversAndListsWhatFailed) {
  const ScratchFolder folder;
  folder.file("lengths.txt", "5 9 13\n");
  folder.file("more/inner.txt", "zigzag --cp 1 --lengths 7\n");
  const std::string batch = folder.file(
      "cases.txt", "# cases\nzigzag --cp 2 --lengths lengths.txt\n" + std::string(kFailing) +
                       "\nloss --lengths 7,9 --padded 8\n--batch more/inner.txt\n");
  const Outcome outcome = run_command("check --batch " + batch);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(last_line(outcome.out), "tests:4 passed:1 failed:1 mistrusted:1 skipped:0 invalid:1");
  EXPECT_NE(outcome.out.find("run: dyncp check schedule "), std::string::npos);
  EXPECT_NE(outcome.out.find("repeat: dyncp check loss --lengths 7,9 --padded 8\n"),
            std::string::npos);
  EXPECT_NE(outcome.out.find("repeat: dyncp check zigzag --lengths 7\n"), std::string::npos);
  expect_refused("check zigzag --batch " + batch, "has a case of driver schedule");
}

TEST(CheckCommand, ReportFilesAreWrittenWholeAndWithoutClockReadings) {
  const ScratchFolder folder;
  const std::string stem = folder.path() + "/r";
  const std::string arguments = "check zigzag --lengths 5,9 --sweep cp=2,3 --junit " + stem +
                                ".xml --json " + stem + ".json --html " + stem + ".html";
  EXPECT_EQ(run_command(arguments).exit_code, 0);
  const std::string junit = read_file(stem + ".xml"), json = read_file(stem + ".json"),
                    html = read_file(stem + ".html");
  EXPECT_NE(junit.find("<testsuite name=\"dyncp.zigzag\" tests=\"2\""), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(json).at("summary").at("passed"), 2);
  EXPECT_NE(html.find("</html>"), std::string::npos);
  EXPECT_EQ(run_command(arguments + " --timings " + stem + ".t --jobs 2").exit_code, 0);
  EXPECT_EQ(read_file(stem + ".xml"), junit);
  EXPECT_EQ(read_file(stem + ".json"), json);
  EXPECT_EQ(read_file(stem + ".html"), html);
  EXPECT_GE(nlohmann::json::parse(read_file(stem + ".t")).at("drivers").at("zigzag"), 0.0);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 4U);  // no partial file is left
}

TEST(CheckCommand, ReportsThatCannotBeWrittenAreRefusedBeforeTheRun) {
  const ScratchFolder folder;
  const std::string case_of = "check zigzag --cp 2 --lengths 5 ";
  for (const char* option : {"--junit", "--json", "--html", "--timings"}) {
    expect_refused(case_of + option + " " + folder.path() + "/none/x", "there is no folder");
    expect_refused(case_of + option + " " + folder.path(), "no regular file");
  }
  EXPECT_EQ(run_command(case_of + "--json /dev/full").out, "");
}

TEST(CheckCommand, ACaseOverItsDeadlineFailsAndTheRunEnds) {
  // The reference takes some ten seconds for this.
  const Outcome outcome =
      run_command("check attention --lengths 1001 --heads 64 --kv-heads 64 --deadline 0.2");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("FAILED attention.deadline (communication): the case ran past its "
                             "deadline of 0.2 s"),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(last_line(outcome.out), "tests:1 passed:0 failed:1 mistrusted:0 skipped:0 invalid:0");
}

TEST(CheckCommand, BadInputGetsOneLineAndExits2) {
  const ScratchFolder folder;
  expect_refused("check", "check needs a driver");
  expect_refused("check nosuch", "unknown driver 'nosuch'");
  expect_refused("check zigzag --lengths -5,3", "negative length '-5'");
  expect_refused("check zigzag --lengths 5,x", "'x'");
  expect_refused("check zigzag --lengths 5,99999999999999999999", "99999999999999999999");
  expect_refused("check zigzag --lengths " + folder.path() + "/none", "none");
  expect_refused("check zigzag --lengths " + folder.file("text.csv", "id,len\na,12\nb,twelve\n"),
                 "twelve");
  expect_refused("check zigzag --lengths " + folder.file("cut.json", "[5, 7,"), "cut.json");
  expect_refused("check zigzag --lengths 5 --padded 4", "4");
  expect_refused("check zigzag --lengths 5 7", "found '7'");
  expect_refused("check zigzag --cp", "--cp");
  expect_refused("check zigzag --cp --lengths 5", "--cp: the value is missing");
  expect_refused("check zigzag --cp 2 --cp 3", "--cp is given twice");
  expect_refused("check zigzag --cp 2x", "--cp '2x'");
  expect_refused("check zigzag --cp 99999999999", "--cp '99999999999'");
  expect_refused("check zigzag --scheduler dyncp", "--scheduler is not read by driver zigzag");
  expect_refused("check zigzag --no-such 3", "unknown option --no-such");
  expect_refused("check zigzag --sweep cp", "--sweep 'cp'");
  expect_refused("check zigzag --sweep cp=1,2 --cp 2", "given or swept twice");
  expect_refused("check zigzag --lengths 5 --deadline 0", "--deadline");
  expect_refused("check zigzag --lengths 5 --deadline soon", "--deadline");
  expect_refused("check zigzag --lengths 5 --jobs -1", "--jobs");
  expect_refused("check schedule --scheduler nosuch --lengths 5", "unknown scheduler 'nosuch'");
  expect_refused("check schedule --ranks 2 --max-tokens 16 --lengths 999", "sequence 0");
  expect_refused("check zigzag --batch " + folder.file("empty.txt", "# nothing\n"), "has no case");
  expect_refused("check zigzag --batch " + folder.file("b.txt", "zigzag --cp x\n"),
                 "b.txt:1: --cp");
  expect_refused("check zigzag --cp 2 --batch " + folder.file("c.txt", "zigzag --cp 2\n"),
                 "--batch");
}

// Refused, not run until memory ends.
TEST(CheckCommand, TenMillionLengthsGetOneLine) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 10'000'000; ++i) text += "1\n";
  expect_refused("check zigzag --cp 2 --lengths " + folder.file("many.txt", text), "tokens");
}

TEST(CheckCommand, BadCandidatesGetOneLineAndExit2) {
  const ScratchFolder folder;
  expect_refused("check rope --candidate " + folder.path() + "/none", "none");
  expect_refused("check rope --candidate " + folder.file("short", "abc"), "short");
  const std::string no_header("\x02\0\0\0\0\0\0\0{}", 10);
  expect_refused("check rope --candidate " + folder.file("bare", no_header), "dyncp");
  expect_refused("check rope --cp 2 --candidate x", "--candidate");
  expect_refused("check schedule --candidate x", "--candidate");
}

}  // namespace
}  // namespace dyncp
