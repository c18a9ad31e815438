// dyncp check-scheduler as a person runs it: findings by name, reproducers that reproduce, external
// schedulers, and how it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "properties/cli/run_command.h"
#include "properties/runtime/scratch_folder.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

// stdout and stderr as they come.
Outcome run(const std::string& command) { return run_shell(command + " 2>&1"); }

Outcome check_scheduler(const std::string& arguments) {
  return run(std::string(DYNCP_COMMAND) + " check-scheduler " + arguments);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The command behind "repeat: " number `index`, with this build's dyncp for "dyncp".
std::string repeat_command(const std::string& output, int index = 0) {
  std::size_t at = 0;
  for (int i = 0; i <= index; ++i) {
    at = output.find("repeat: ", at);
    if (at == std::string::npos) return "";
    at += 8;
  }
  const std::string command = output.substr(at, output.find('\n', at) - at);
  EXPECT_EQ(command.rfind("dyncp ", 0), 0u) << command;
  return std::string(DYNCP_COMMAND) + command.substr(5);
}

TEST(CheckSchedulerCommand, FindsTheMisalignedGroupAndRepeatsIt) {
  const Outcome found =
      check_scheduler("megatron-balanced --ranks 8 --max-tokens 1024 --cases 20000");
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_TRUE(contains(found.out, "\nFAILED group-aligned: ")) << found.out;
  const std::string sentence =
      "run sequence 2 but no such CP group exists: size-4 groups start at multiples of 4 (0..3, "
      "4..7)\n";
  EXPECT_TRUE(contains(found.out, "microbatch 2: ranks 2..5 (size 4) " + sentence));
  EXPECT_TRUE(contains(found.out, "check-scheduler: cases:20000 "));
  EXPECT_TRUE(contains(found.out, "broken-rules:1 seed:1 FAILED\n"));
  const Outcome repeated = run(repeat_command(found.out));
  EXPECT_EQ(repeated.exit_code, 1);
  EXPECT_TRUE(contains(repeated.out, "VIOLATION group-aligned: microbatch 2: ranks 2..5"))
      << repeated.out;
}

TEST(CheckSchedulerCommand, PassesAValidDomain) {
  const Outcome outcome = check_scheduler(
      "megatron-packing-aware --ranks 1..64 --power-of-two-only --cases 2000 --seed 5");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_TRUE(contains(outcome.out,
                       "domain    1..64 ranks, powers of two only (7 domains), 1024 tokens a rank, "
                       "pack execution, group policy aligned, padding none\n"));
  EXPECT_TRUE(contains(outcome.out, "broken-rules:0 seed:5 PASSED\n"));
  EXPECT_EQ(check_scheduler("megatron-packing-aware --ranks 1..64 --power-of-two-only --cases 2000 "
                            "--seed 5")
                .out,
            outcome.out);
}

TEST(CheckSchedulerCommand, FailsByNameInOtherDomains) {
  for (const char* ranks : {"6", "12"}) {
    const Outcome outcome =
        check_scheduler(std::string("megatron-packing-aware --cases 500 --ranks ") + ranks);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.out, "FAILED size-allowed: ")) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, "FAILED refusal: "));
    const bool refusal_first =
        outcome.out.find("FAILED refusal") < outcome.out.find("FAILED size-allowed");
    EXPECT_EQ(run(repeat_command(outcome.out, refusal_first ? 0 : 1)).exit_code, 2);
    EXPECT_EQ(run(repeat_command(outcome.out, refusal_first ? 1 : 0)).exit_code, 1);
  }
}

TEST(CheckSchedulerCommand, RepeatsUnderEveryOption) {
  const Outcome outcome = check_scheduler(
      "megatron-packing-aware --ranks 8 --cases 2000 --min-cp 2 --tp 2 --microbatch-multiple 1 "
      "--max-sequences 4 --group-policy pow2-any-slice --padding group --families uniform");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.out, "FAILED max-sequences: ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "families  uniform\n"));
  int findings = 0;
  for (;; ++findings) {
    const std::string command = repeat_command(outcome.out, findings);
    if (command.empty()) break;
    EXPECT_NE(run(command).exit_code, 0) << command;
    EXPECT_TRUE(contains(command,
                         "--min-cp 2 --tp 2 --max-sequences 4 --group-policy pow2-any-slice "
                         "--padding group --lengths "))
        << command;
  }
  EXPECT_GE(findings, 2);
}

TEST(CheckSchedulerCommand, WritesJson) {
  const ScratchFolder folder;
  const std::string file = folder.path() + "/report.json";
  EXPECT_EQ(
      check_scheduler("megatron-packing-aware --ranks 6 --cases 300 --json " + file).exit_code, 1);
  const auto json = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(json.at("scheduler"), "megatron-packing-aware");
  EXPECT_EQ(json.at("cases"), 300);
  EXPECT_EQ(json.at("domain").at("ranks"), nlohmann::json::array({6}));
  ASSERT_EQ(json.at("findings").size(), 2u);
  for (const auto& finding : json.at("findings")) {
    EXPECT_GT(finding.at("cases"), 0);
    EXPECT_FALSE(finding.at("sentence").get<std::string>().empty());
    EXPECT_LE(finding.at("minimal").at("real").size(), finding.at("found").at("real").size());
  }
}

TEST(CheckSchedulerCommand, SaysWhenNothingWasProved) {
  const Outcome outcome = check_scheduler("megatron-packing-aware --ranks 1 --cases 20");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.out, "MISTRUSTED (no schedule had a CP group larger than 1)"));
}

TEST(CheckSchedulerCommand, RefusesBadUsageInOneLine) {
  for (const char* arguments : {"",
                                "no-such",
                                "megatron-balanced --ranks 0",
                                "megatron-balanced --ranks 8..4",
                                "megatron-balanced --ranks 8..",
                                "megatron-balanced --ranks x",
                                "megatron-balanced --ranks 99999999999",
                                "megatron-balanced --cases 0",
                                "megatron-balanced --max-tokens 0",
                                "megatron-balanced --min-cp 9",
                                "megatron-balanced --execution later",
                                "megatron-balanced --padding much",
                                "megatron-balanced --group-policy none",
                                "megatron-balanced --families no-such",
                                "megatron-balanced --ranks 3 --power-of-two-only",
                                "megatron-balanced --max-sequences -1",
                                "megatron-balanced --exec true",
                                "--exec true --deadline 0",
                                "megatron-balanced --seed x",
                                "megatron-balanced --cases 5 --json /no/such/folder/file.json"}) {
    const Outcome outcome = check_scheduler(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << outcome.out;
    EXPECT_TRUE(contains(outcome.out, "dyncp: ")) << arguments;
  }
}

// --- Schedulers in other processes. ---

TEST(CheckSchedulerCommand, SearchesAProgram) {
  const Outcome outcome = check_scheduler(
      std::string("--exec '") + DYNCP_COMMAND +
      " serve --scheduler megatron-packing-aware' --ranks 6 --cases 100 --deadline 10");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.out, "FAILED size-allowed: ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "repeat: echo '{"));
}

TEST(CheckSchedulerCommand, ReportsAProgramThatPrintsGarbage) {
  const Outcome outcome =
      check_scheduler("--exec 'while read line; do echo nonsense; done' --cases 100 --deadline 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.out, "FAILED malformed-answer: 50 of 50 cases")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "stopped   after 50 "));
}

TEST(CheckSchedulerCommand, ReportsAProgramThatEnds) {
  const Outcome outcome = check_scheduler("--exec 'read line; exit 3' --cases 100 --deadline 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.out, "FAILED crash: 50 of 50 cases")) << outcome.out;
}

}  // namespace
}  // namespace dyncp
