// The problem grammar: what it says to each kind of mistake, batch files, sweeps, and that every
// case of the gate repeats itself from its printed command.
#include "runtime/problem.h"

#include <gtest/gtest.h>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/fixtures.h"

namespace dyncp {
namespace {

// What is thrown, or "" when nothing is.
template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of_command(const std::string& command) {
  return refusal([&] { parse_command(command); });
}

// Reads the options named here, whatever the real drivers read.
const Driver kDriver{
    "test",  "",      {"lengths", "padded", "cp", "sink", "window", "rope-base", "mask"},
    nullptr, nullptr, nullptr};

std::string refusal_of(const std::vector<std::string>& words) {
  return refusal([&] { parse_arguments(kDriver, words); });
}

TEST(ProblemGrammar, PrintsWhatDiffersFromTheDefault) {
  Problem problem;
  problem.driver = "zigzag";
  EXPECT_EQ(print_command(problem), "dyncp check zigzag");
  problem.lengths = {698, 7, 0};
  problem.cp = 4;
  problem.seed = 18446744073709551615U;
  problem.contract = Contract::kV2;
  const std::string command = print_command(problem);
  EXPECT_NE(command.find(" --cp 4"), std::string::npos);
  EXPECT_NE(command.find(" --lengths 698,7,0"), std::string::npos);
  EXPECT_EQ(parse_command(command).cp, 4);
}

TEST(ProblemGrammar, EveryMistakeGetsItsLine) {
  EXPECT_EQ(refusal_of({"--cp"}), "--cp: the value is missing, expected N");
  EXPECT_EQ(refusal_of({"--cp", "--sink"}), "--cp: the value is missing, expected N");
  EXPECT_EQ(refusal_of({"--cp", "x"}), "--cp 'x': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", ""}), "--cp '': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "4 "}), "--cp '4 ': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "4.0"}), "--cp '4.0': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "+4"}), "--cp '+4': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "0"}), "--cp '0': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "65537"}), "--cp '65537': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "99999999999999999999"}),
            "--cp '99999999999999999999': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of({"--cp", "2", "--cp=4"}), "--cp is given twice");
  EXPECT_EQ(refusal_of({"--sink", "--sink"}), "--sink is given twice");
  EXPECT_EQ(refusal_of({"--sink=2"}), "--sink '2': expected an integer in 0..1");
  EXPECT_EQ(refusal_of({"--window", "-2"}),
            "--window '-2': expected an integer in -1..1099511627776");
  EXPECT_EQ(refusal_of({"--rope-base", "nan"}),
            "--rope-base 'nan': expected a number of at least 1");
  EXPECT_EQ(refusal_of({"--rope-base", "1e999"}),
            "--rope-base '1e999': expected a number of at least 1");
  EXPECT_EQ(refusal_of({"--mask", "Causal"}), "--mask 'Causal': expected causal, full");
  EXPECT_EQ(refusal_of({"--heads", "4"}),
            "--heads is not read by driver test, which reads --lengths, --padded, --cp, --mask, "
            "--window, --sink, --rope-base");
  EXPECT_EQ(refusal_of({"--no-such", "4"}),
            "unknown option --no-such: driver test reads --lengths, --padded, --cp, --mask, "
            "--window, --sink, --rope-base");
  EXPECT_EQ(refusal_of({"4"}),
            "found '4', expected an option: test reads --lengths, --padded, --cp, --mask, "
            "--window, --sink, --rope-base");
  EXPECT_EQ(refusal_of({"--padded", "8,,8"}),
            "--padded '': expected an integer in 0..1099511627776");
  EXPECT_EQ(refusal_of({"--padded", "-8"}),
            "--padded '-8': expected an integer in 0..1099511627776");
  EXPECT_NE(refusal_of({"--lengths", "7,-3"}).find("negative length '-3'"), std::string::npos);
  EXPECT_NE(refusal_of({"--lengths", "no/such/file"}).find("'no/such/file'"), std::string::npos);
}

TEST(ProblemGrammar, EveryMistakeOfACommandGetsItsLine) {
  EXPECT_EQ(refusal_of_command(""), "a case begins with the name of a driver");
  EXPECT_EQ(refusal_of_command("dyncp check"), "a case begins with the name of a driver");
  EXPECT_EQ(
      refusal_of_command("nosuch --cp 4").rfind("unknown driver 'nosuch': expected schedule, ", 0),
      0U);
  EXPECT_EQ(refusal_of_command("zigzag --lengths '7"), "a quote ' is not closed");
  EXPECT_EQ(
      refusal_of_command("schedule --scheduler nosuch").rfind("unknown scheduler 'nosuch'", 0), 0U);
}

TEST(ProblemGrammar, LongInputMakesShortLines) {
  EXPECT_LT(refusal_of({"--cp", std::string(1 << 20, '7')}).size(), 200U);
  EXPECT_LT(refusal_of({"--" + std::string(1 << 20, 'x'), "7"}).size(), 400U);
  EXPECT_LT(refusal_of({std::string(1 << 20, 'x')}).size(), 400U);
}

TEST(ProblemGrammar, LengthsFromADistributionDependOnTheSeedWhereverItStands) {
  const ScratchFolder folder;
  const std::string file = folder.file(
      "sft.json", R"({"mode":"distribution","type":"lognormal","min_seq_len":10,"max_seq_len":900,)"
                  R"("mean_seq_len":200,"lognormal_sigma":1.1})");
  const Problem early = parse_command("zigzag --seed 7 --lengths " + file);
  const Problem late = parse_command("zigzag --lengths " + file + " --seed 7");
  const Problem other = parse_command("zigzag --lengths " + file + " --seed 8");
  EXPECT_EQ(early, late);
  EXPECT_NE(early.lengths, other.lengths);
  EXPECT_EQ(early.lengths.size(), 1024U);
}

TEST(ProblemGrammar, WordsAreThoseOfAShell) {
  EXPECT_EQ(split_words("  a\t'b c'  \"d 'e\" f\\ g \\'h x'y'z '' "),
            (std::vector<std::string>{"a", "b c", "d 'e", "f g", "'h", "xyz", ""}));
  EXPECT_EQ(join_words({"a", "", "b c", "it's", "#"}), "a '' 'b c' 'it'\\''s' '#'");
}

TEST(ProblemPack, PadsToMultiplesUnlessPaddedIsGiven) {
  Problem problem;
  problem.lengths = {7, 3, 0};
  problem.cp = 2;
  problem.tensor_parallel = 3;
  EXPECT_EQ(problem.pack(), Pack::padded_to({7, 3, 0}, 12));
  problem.padded = {8, 8, 4};
  EXPECT_EQ(problem.pack(), Pack({{7, 8}, {3, 8}, {0, 4}}));
  problem.padded = {8, 8};
  EXPECT_EQ(refusal([&] { problem.pack(); }), "--padded has 2 lengths and --lengths has 3");
  problem.padded = {6, 8, 4};
  EXPECT_NE(refusal([&] { problem.pack(); }), "");
}

TEST(ProblemSchedule, TakesTheExecutionOfTheSchedulerUnlessSaid) {
  Problem problem = parse_command("schedule --scheduler megatron-balanced --lengths 7");
  EXPECT_EQ(problem.schedule_problem().execution, Execution::kSerial);
  problem = parse_command("schedule --scheduler megatron-packing-aware --lengths 7");
  EXPECT_EQ(problem.schedule_problem().execution, Execution::kPack);
  problem = parse_command("schedule --scheduler megatron-balanced --execution pack --lengths 7");
  EXPECT_EQ(problem.schedule_problem().execution, Execution::kPack);
  // An alias is printed as the name it stands for.
  EXPECT_EQ(parse_command("schedule --scheduler dp_balanced").scheduler, "static-packing");
  problem.min_cp = 9;
  EXPECT_NE(refusal([&] { problem.schedule_problem(); }), "");
}

TEST(Sweep, EveryMistakeGetsItsLine) {
  const auto refusal_of_sweeps = [](const std::vector<std::string>& words,
                                    const std::vector<std::string>& sweeps) {
    return refusal([&] { sweep_problems(kDriver, words, sweeps); });
  };
  const std::string expected = "expected OPTION=VALUE,VALUE as in cp=1,2,4";
  EXPECT_EQ(refusal_of_sweeps({}, {"cp"}), "--sweep 'cp': " + expected);
  EXPECT_EQ(refusal_of_sweeps({}, {"=1"}), "--sweep '=1': " + expected);
  EXPECT_EQ(refusal_of_sweeps({}, {"cp="}), "--cp '': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of_sweeps({}, {"cp=1,,2"}), "--cp '': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of_sweeps({}, {"cp=1,x"}), "--cp 'x': expected an integer in 1..65536");
  EXPECT_EQ(refusal_of_sweeps({}, {"cp=1", "cp=2"}), "--cp is given or swept twice");
  EXPECT_EQ(refusal_of_sweeps({"--cp", "2"}, {"cp=2"}), "--cp is given or swept twice");
  EXPECT_NE(refusal_of_sweeps({}, {"lengths=7,3"}).find("--batch"), std::string::npos);
  EXPECT_EQ(refusal_of_sweeps({}, {"heads=1"}).rfind("--heads is not read by driver test", 0), 0U);
  std::string many = "cp=1";
  for (int i = 2; i <= 400; ++i) many += "," + std::to_string(i);
  EXPECT_EQ(refusal_of_sweeps({}, {many, "window" + many.substr(2)}),
            "--sweep: 160000 cases, expected at most 100000");
}

TEST(Batch, ReadsLinesCommentsAndNestedFiles) {
  const ScratchFolder folder;
  folder.file("sub/l.txt", "5 6 7\n");
  folder.file("sub/inner.txt", "zigzag --cp 3 --lengths l.txt\r\n");
  const std::string path = folder.file(
      "cases.txt",
      "# a comment\n\n   # another\ndyncp check zigzag --cp 2 --lengths 5\n--batch sub/inner.txt\n"
      "  zigzag --lengths 1");
  const std::vector<Problem> problems = read_batch(path);
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(print_command(problems[0]), "dyncp check zigzag --lengths 5 --cp 2");
  EXPECT_EQ(print_command(problems[1]), "dyncp check zigzag --lengths 5,6,7 --cp 3");
  EXPECT_EQ(print_command(problems[2]), "dyncp check zigzag --lengths 1");
}

TEST(Batch, AMistakeIsNamedByFileAndLine) {
  const ScratchFolder folder;
  const std::string inner = folder.file("inner.txt", "zigzag\nzigzag --cp x\n");
  const std::string outer = folder.file("outer.txt", "\n--batch inner.txt\n");
  EXPECT_EQ(refusal([&] { read_batch(outer); }),
            inner + ":2: --cp 'x': expected an integer in 1..65536");
  const std::string quote = folder.file("quote.txt", "zigzag 'x\n");
  EXPECT_EQ(refusal([&] { read_batch(quote); }), quote + ":1: a quote ' is not closed");
  const std::string two = folder.file("two.txt", "--batch inner.txt outer.txt\n");
  EXPECT_EQ(refusal([&] { read_batch(two); }), two + ":1: expected --batch FILE alone on its line");
  const std::string self = folder.file("self.txt", "--batch self.txt\n");
  EXPECT_EQ(refusal([&] { read_batch(self); }),
            self + ":1: batch files are nested more than 8 deep");
  EXPECT_NE(refusal([&] { read_batch(folder.path() + "/none.txt"); }), "");
  EXPECT_NE(refusal([&] { read_batch(folder.path()); }), "");
}

// A report is worth what its commands are worth: every case of the gate must read back as itself.
TEST(GateCases, RepeatThemselvesFromTheirCommands) {
  const std::vector<LengthSet> sets = fixture_length_sets();
  int cases = 0;
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) continue;
    for (const Tier tier : {Tier::kSmoke, Tier::kCi}) {
      for (const Problem& problem : driver->gate_cases(tier, sets, 1)) {
        ASSERT_EQ(problem.driver, driver->name);
        ASSERT_EQ(parse_command(print_command(problem)), problem) << print_command(problem);
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 100);
}

TEST(GateCases, DependOnTheSeedAndOnNothingElse) {
  const std::vector<LengthSet> sets = fixture_length_sets();
  for (const Driver* driver : drivers()) {
    if (driver->gate_cases == nullptr) continue;
    EXPECT_EQ(driver->gate_cases(Tier::kSmoke, sets, 5), driver->gate_cases(Tier::kSmoke, sets, 5));
    EXPECT_NE(driver->gate_cases(Tier::kSmoke, sets, 5), driver->gate_cases(Tier::kSmoke, sets, 6))
        << driver->name;
  }
}

TEST(Drivers, ReadOnlyOptionsThatExist) {
  for (const Driver* driver : drivers()) {
    for (const std::string_view name : driver->options) EXPECT_NO_THROW(find_problem_option(name));
  }
}

}  // namespace
}  // namespace dyncp
