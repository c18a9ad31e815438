// dyncp schedule as a person runs it: the golden schedule, violations, and how it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/run_command.h"

namespace dyncp {
namespace {

constexpr const char* kGolden =
    "schedule --scheduler megatron-packing-aware --ranks 8 --max-tokens 1024 "
    "--lengths 4096,1024,1024,512,512,512,256,256";

void expect_refused(const std::string& arguments, const std::string& part) {
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.exit_code, 2) << arguments << outcome.out.substr(0, 200);
  EXPECT_TRUE(is_one_line(outcome.err)) << arguments << "\n" << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << arguments << "\n" << outcome.err;
}

// The text without the blanks that align its columns.
std::string single_spaced(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool starts = result.empty() || result.back() == '\n' || result.back() == ' ';
    if (c != ' ' || !starts) result += c;
  }
  return result;
}

TEST(ScheduleCommand, PrintsTheGoldenScheduleAsATable) {
  const Outcome outcome = run_command(kGolden);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string words = single_spaced(outcome.out);
  for (const char* row : {"\n0 0..3 4 1024 4194304 0:4096\n", "\n4 1 1024 1048576 1:1024\n",
                          "\n5 1 1024 1048576 2:1024\n", "\n6 1 1024 524288 3:512 4:512\n",
                          "\n7 1 1024 393216 5:512 6:256 7:256\n"}) {
    EXPECT_NE(words.find(row), std::string::npos) << row << outcome.out;
  }
  EXPECT_NE(outcome.out.find("valid; makespan "), std::string::npos);
  EXPECT_NE(outcome.out.find("cost model flat"), std::string::npos);
  EXPECT_NE(outcome.out.find("padding 0.0 %"), std::string::npos);
}

TEST(ScheduleCommand, PrintsTheGoldenScheduleAsJson) {
  const Outcome outcome = run_command(std::string(kGolden) + " --json");
  EXPECT_EQ(outcome.exit_code, 0);
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("microbatches"),
            nlohmann::json::parse(R"([[{"first_rank":0,"size":4,"sequences":[0]},
                                       {"first_rank":4,"size":1,"sequences":[1]},
                                       {"first_rank":5,"size":1,"sequences":[2]},
                                       {"first_rank":6,"size":1,"sequences":[3,4]},
                                       {"first_rank":7,"size":1,"sequences":[5,6,7]}]])"));
  const ScratchFolder folder;
  const std::string file = folder.path() + "/s.json";
  EXPECT_EQ(run_command(std::string(kGolden) + " --json " + file).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_file(file)), json);
}

TEST(ScheduleCommand, NamesViolationsAndExits1) {
  const std::string arguments =
      "schedule --scheduler megatron-balanced --ranks 8 --max-tokens 1024 --lengths "
      "2049,2049,2049,1025,1025,1025,1025,1025,1";
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("VIOLATION group-aligned: microbatch 2: ranks 2..5"),
            std::string::npos);
  EXPECT_EQ(outcome.out.find("valid;"), std::string::npos);
  // With JSON on stdout the violations go to stderr, so that the JSON stays JSON.
  const Outcome json = run_command(arguments + " --json");
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_TRUE(nlohmann::json::accept(json.out));
  EXPECT_EQ(json.err.rfind("VIOLATION group-aligned: ", 0), 0U);
}

TEST(ScheduleCommand, BadInputGetsOneLineAndExits2) {
  const ScratchFolder folder;
  expect_refused("schedule", "--lengths");
  expect_refused("schedule --lengths -5", "negative length '-5'");
  expect_refused("schedule --scheduler nosuch --lengths 5", "unknown scheduler 'nosuch'");
  // Longer than the whole domain holds.
  expect_refused("schedule --ranks 4 --max-tokens 16 --lengths 5,65", "sequence 1");
  expect_refused("schedule --lengths " + folder.file("t.csv", "id,len\nx,long\n"), "'long'");
  expect_refused("schedule --lengths " + folder.file("t.json", "[12, 13"), "t.json");
  expect_refused("schedule --lengths 5 --ranks 0", "--ranks");
  expect_refused("schedule --lengths 5 --ranks 8 --min-cp 16", "min");
  expect_refused("schedule --lengths 5 --heads 4", "--heads is not read");
  expect_refused("schedule --lengths 5 --cost free", "cost model");
  expect_refused("schedule --lengths 5 --barrier some", "barrier");
  expect_refused("schedule --lengths 5 --padding all", "--padding");
}

TEST(ScheduleCommand, AMillionLengthsAreHandled) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "1\n";
  const Outcome outcome =
      run_command("schedule --scheduler static-packing --max-tokens 65536 --lengths " +
                      folder.file("many.txt", text),
                  "", "| tail -n 3");
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("valid; makespan "), std::string::npos) << outcome.out.substr(0, 300);
}

}  // namespace
}  // namespace dyncp
