// dyncp lengths as a person runs it: what it prints, what it writes, and how it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "properties/cli/run_command.h"
#include "properties/runtime/scratch_folder.h"
#include "runtime/files.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

// stdout and stderr as they come.
Outcome dyncp_lengths(const std::string& arguments) {
  return run_shell(std::string(DYNCP_COMMAND) + " lengths " + arguments + " 2>&1");
}

TEST(LengthsCommand, ShowsAFile) {
  const ScratchFolder folder;
  const std::string file = folder.file("l.csv", "id,len\na,1\nb,100\nc,4097\nd,8192\n");
  const Outcome outcome = dyncp_lengths("--file " + file);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(
      outcome.out.substr(0, outcome.out.find("            1..1")),
      "sequences 4   tokens 12390\n"
      "min 1   p50 100   p90 8192   p99 8192   max 8192\n"
      "longer than 4096 tokens (need CP > 1): 50.00% of the sequences, 99.18% of the tokens\n");
  const auto json =
      nlohmann::json::parse(dyncp_lengths("--file " + file + " --json --max-tokens 8191").out);
  EXPECT_EQ(json.at("count"), 4);
  EXPECT_EQ(json.at("total"), 12390);
  EXPECT_EQ(json.at("max_tokens"), 8191);
  EXPECT_EQ(json.at("share_above_max_tokens"), 0.25);
  EXPECT_EQ(json.at("histogram").size(), 14U);
}

TEST(LengthsCommand, MeasuresDocumentsIntoAFileThatReadsBack) {
  const ScratchFolder folder;
  folder.file("docs/a.py", "12345");
  folder.file("docs/sub/b.py", std::string(70, 'x'));
  folder.file("docs/c.txt", "no");
  const std::string out = folder.path() + "/out.txt";
  const Outcome outcome =
      dyncp_lengths("--from " + folder.path() + "/docs --suffix .py,.pyi --out " + out +
                    " --note 'two documents'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_EQ(read_file(out),
            "# bytes of 2 files ending in .py .pyi, in the order of their paths\n"
            "# two documents\n5\n70\n");
  EXPECT_EQ(read_lengths(out), (std::vector<std::int64_t>{5, 70}));
}

TEST(LengthsCommand, DrawsAFamilyThatRepeats) {
  const std::string arguments = "--family uniform --count 50 --unit 100 --limit 350 --seed 9";
  const Outcome outcome = dyncp_lengths(arguments + " --out -");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find('\n')),
            "# dyncp lengths --family uniform --count 50 --unit 100 --limit 350 --seed 9");
  EXPECT_EQ(parse_lengths(outcome.out, "output"),
            find_length_family("uniform").draw(50, 100, 350, 9));
  EXPECT_EQ(dyncp_lengths(arguments + " --out -").out, outcome.out);
}

TEST(LengthsCommand, BadInputIsOneLineAndExitCodeTwo) {
  const ScratchFolder folder;
  const std::string text = folder.file("text.csv", "len\n5\nsix\n");
  const std::string good = folder.file("good.txt", "5\n");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "--from,--file,--family"},
      {"--file " + good + " --family uniform", "--from,--file,--family"},
      {"--file " + text, "text.csv:3: found text, 'six'"},
      {"--file " + folder.path() + "/none", "cannot be opened"},
      {"--file " + folder.path(), "is a directory"},
      {"--file " + good + " --max-tokens 0", "max tokens per rank is 0"},
      {"--file " + good + " --out " + folder.path() + "/none/x", "cannot be written"},
      {"--file " + good + " --suffix .py", "--suffix requires --from"},
      {"--family normal", "unknown family of lengths 'normal'"},
      {"--family uniform --count -1", "number of lengths to draw is -1"},
      {"--family uniform --count 0", "no lengths"},
      {"--family uniform --unit 0", "unit of the lengths to draw is 0"},
      {"--family uniform --limit -5", "limit"},
      {"--family uniform --unit 9223372036854775807", "unit of the lengths to draw is"},
      {"--from " + folder.path() + "/none", "is no directory"},
      {"--from " + folder.path() + " --suffix .py", "no regular file ends in .py"},
  };
  for (const auto& [arguments, found] : cases) {
    SCOPED_TRACE(arguments);
    const Outcome outcome = dyncp_lengths(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
    EXPECT_EQ(outcome.out.substr(0, 7), "dyncp: ") << outcome.out;
    EXPECT_NE(outcome.out.find(found), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace dyncp
