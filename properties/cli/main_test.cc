// What all subcommands share: usage errors, version, help, and outputs that cannot be written.
#include <gtest/gtest.h>

#include <string>

#include "properties/cli/run_command.h"

namespace dyncp {
namespace {

TEST(Command, UsageErrorsGetOneLineAndExit2) {
  for (const char* arguments :
       {"", "nosuch", "--nosuch", "gate check", "list drivers schedulers"}) {
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_TRUE(is_one_line(outcome.err)) << arguments << "\n" << outcome.err;
  }
}

TEST(Command, VersionAndHelpExit0) {
  EXPECT_EQ(run_command("--version").out.rfind("dyncp ", 0), 0U);
  for (const char* arguments :
       {"--version", "--help", "gate --help", "check --help", "check ring --help", "list --help",
        "schedule --help", "check-scheduler --help", "lengths --help"}) {
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments;
    EXPECT_NE(outcome.out, "") << arguments;
    EXPECT_EQ(outcome.err, "") << arguments;
  }
}

TEST(Command, AReaderThatGoesAwayDoesNotChangeTheVerdict) {
  const ScratchFolder folder;
  const std::string code = folder.path() + "/code";
  for (const char* arguments : {"list cases --tier ci", "gate", "list drivers"}) {
    // The status of dyncp itself, not that of head.
    const Outcome outcome =
        run_command(std::string(arguments) + "; echo $? >" + code, "(", ") | head -c 10");
    EXPECT_EQ(outcome.out.size(), 10U) << arguments;
    EXPECT_EQ(read_file(code), "0\n") << arguments;
  }
}

TEST(Command, AFullDiskIsToldWithExitCode3) {
  const Outcome outcome = run_command("list drivers", "", ">/dev/full");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(is_one_line(outcome.err)) << outcome.err;
}

}  // namespace
}  // namespace dyncp
