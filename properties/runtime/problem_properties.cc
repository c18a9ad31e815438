// The problem grammar prints and parses itself: what one prints the other reads back, for every
// driver; and whatever it is given, it answers with a problem or with one line.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "properties/generators.h"
#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/problem.h"
#include "runtime/scheduler.h"

namespace dyncp {

// How RapidCheck prints counterexamples.
static void showValue(const Problem& problem, std::ostream& out) {
  for (const ProblemOption& option : problem_options()) {
    out << option.name << '=' << option.text(problem) << ' ';
  }
}

namespace {

// A driver that reads every option, so that no option goes untested for want of a reader.
const Driver& every_option() {
  static const Driver driver = [] {
    Driver all{"every-option", "", {}, nullptr, nullptr, nullptr};
    for (const ProblemOption& option : problem_options()) all.options.push_back(option.name);
    return all;
  }();
  return driver;
}

template <typename Integer>
Integer drawn(Integer low, Integer high) {
  return *rc::gen::oneOf(rc::gen::element(low, high), rc::gen::inRange<Integer>(low, high));
}

std::string word(std::vector<std::string> words) { return *rc::gen::elementOf(std::move(words)); }

// Any problem within the grammar's limits, edges included. Every field differs from its default
// more often than not.
Problem drawn_problem() {
  Problem p;
  p.lengths = *genLengths({.max_length = 5000, .min_count = 0, .max_count = 6});
  if (!p.lengths.empty()) p.lengths[0] = drawn<std::int64_t>(0, kMaxSequenceLength);
  if (drawn(0, 1) == 1) {
    p.padded = *genLengths({.max_length = 5000, .min_count = 1, .max_count = 6});
  }
  p.seed = *rc::gen::oneOf(
      rc::gen::arbitrary<std::uint64_t>(),
      rc::gen::element<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()));
  p.cp = drawn(1, kMaxRanks);
  p.first_rank = drawn(0, kMaxRanks - 1);
  p.contract = *rc::gen::element(Contract::kV1, Contract::kV2);
  p.tensor_parallel = drawn(1, 1024);
  p.heads = drawn(1, 1024);
  p.kv_heads = drawn(1, 1024);
  p.dim = drawn(1, 4096);
  p.value_dim = drawn(0, 4096);
  p.mask = word({"causal", "full"});
  p.window = drawn<std::int64_t>(-1, kMaxSequenceLength);
  p.sink = *rc::gen::arbitrary<bool>();
  p.pairing = word({"half", "interleaved"});
  p.rotary_dim = drawn(0, 4096);
  // Any double of at least 1: the printed text must read back as the same bits.
  p.rope_base = 1.0 + std::abs(*rc::gen::arbitrary<double>());
  p.yarn_scale = *rc::gen::oneOf(rc::gen::element(1.0, 4.0, 1.0 / 3 + 1, 1e300),
                                 rc::gen::just(1.0 + std::abs(*rc::gen::arbitrary<double>())));
  p.vocabulary = drawn(1, 1 << 20);
  p.loss_mask = word({"all", "random", "none", "one-rank"});
  p.scheduler = *rc::gen::oneOf(
      rc::gen::just(std::string()),
      rc::gen::map(rc::gen::elementOf(schedulers()),
                   [](const Scheduler* scheduler) { return std::string(scheduler->name()); }));
  p.ranks = drawn(1, kMaxRanks);
  p.max_tokens = drawn<std::int64_t>(1, kMaxSequenceLength);
  p.min_cp = drawn(1, kMaxRanks);
  p.microbatch_multiple = drawn(1, 1 << 20);
  p.max_sequences = drawn(0, std::numeric_limits<int>::max());
  p.execution = word({"", "pack", "serial"});
  p.group_policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                     GroupPolicy::kDivisors, GroupPolicy::kInterval);
  p.padding = *rc::gen::element(Padding::kNone, Padding::kGlobal, Padding::kGroup);
  return p;
}

// The part of `problem` that `driver` reads; everything else has its default.
Problem as_read_by(const Driver& driver, const Problem& problem) {
  Problem result;
  result.driver = driver.name;
  for (const std::string_view name : driver.options) {
    const ProblemOption& option = find_problem_option(name);
    const std::string text = option.text(problem);
    if (!text.empty()) option.set(result, text);
  }
  return result;
}

RC_GTEST_PROP(Problem, ParseIsTheInverseOfPrintForEveryOption, ()) {
  Problem problem = drawn_problem();
  problem.driver = every_option().name;
  RC_ASSERT(parse_arguments(every_option(), print_arguments(every_option(), problem)) == problem);
}

RC_GTEST_PROP(Problem, ParseIsTheInverseOfPrintForEveryDriver, ()) {
  const Driver& driver = **rc::gen::elementOf(drivers());
  const Problem problem = as_read_by(driver, drawn_problem());
  const std::string command = print_command(problem);
  RC_ASSERT(parse_command(command) == problem);
  RC_ASSERT(parse_command(command.substr(std::string("dyncp ").size())) == problem);
  RC_ASSERT(parse_command(command.substr(std::string("dyncp check ").size())) == problem);
  RC_ASSERT(print_command(parse_command(command)) == command);
}

RC_GTEST_PROP(Problem, UnreadFieldsAreNotPrinted, ()) {
  const Driver& driver = **rc::gen::elementOf(drivers());
  Problem problem = drawn_problem();
  problem.driver = driver.name;
  RC_ASSERT(print_command(problem) == print_command(as_read_by(driver, problem)));
}

RC_GTEST_PROP(Problem, OnlyOptionsThatDifferFromTheDefaultArePrinted, ()) {
  Problem problem = drawn_problem();
  problem.driver = every_option().name;
  std::set<std::string> printed;
  for (const std::string& word : print_arguments(every_option(), problem)) {
    if (word.compare(0, 2, "--") == 0) printed.insert(word.substr(2));
  }
  for (const ProblemOption& option : problem_options()) {
    const bool differs = option.text(problem) != option.text(Problem());
    RC_ASSERT(printed.count(std::string(option.name)) == (differs ? 1U : 0U));
  }
}

RC_GTEST_PROP(Problem, TheOrderOfOptionsAndTheirSpellingDoNotMatter, ()) {
  Problem problem = drawn_problem();
  problem.driver = every_option().name;
  std::vector<std::vector<std::string>> options;  // an option with its value each
  for (const std::string& word : print_arguments(every_option(), problem)) {
    if (word.compare(0, 2, "--") == 0) {
      options.push_back({word});
    } else if (*rc::gen::arbitrary<bool>()) {
      options.back()[0] += "=" + word;
    } else {
      options.back().push_back(word);
    }
  }
  std::vector<std::string> words;
  while (!options.empty()) {
    const auto at = *rc::gen::inRange<std::size_t>(0, options.size());
    words.insert(words.end(), options[at].begin(), options[at].end());
    options.erase(options.begin() + static_cast<std::ptrdiff_t>(at));
  }
  RC_ASSERT(parse_arguments(every_option(), words) == problem);
}

RC_GTEST_PROP(Words, SplitIsTheInverseOfJoin, (const std::vector<std::string>& words)) {
  RC_ASSERT(split_words(join_words(words)) == words);
}

// Answers with a problem or with one line, whatever comes.
void expect_answer(const std::string& command) {
  try {
    parse_command(command);
  } catch (const InvalidInput& error) {
    const std::string what = error.what();
    RC_ASSERT(!what.empty());
    RC_ASSERT(what.find('\n') == std::string::npos);
    RC_ASSERT(what.size() < 2000U);
  }
}

RC_GTEST_PROP(Problem, AnyTextGetsAnAnswer, (const std::string& text)) { expect_answer(text); }

RC_GTEST_PROP(Problem, AnyDamagedCommandGetsAnAnswer, ()) {
  const Driver& driver = **rc::gen::elementOf(drivers());
  std::string command = print_command(as_read_by(driver, drawn_problem()));
  const int damages = *genInt(1, 4);
  for (int i = 0; i < damages; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, command.size());
    const char byte = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                      rc::gen::elementOf(std::string("-,= 09'\"\\#/")));
    if (*rc::gen::arbitrary<bool>()) {
      command[at] = byte;
    } else {
      command.insert(at, 1, byte);
    }
  }
  expect_answer(command);
}

RC_GTEST_PROP(Sweep, IsTheCrossProduct, ()) {
  const int sizes = *genInt(1, 5);
  const int heads = *genInt(1, 5);
  std::string cp = "cp=", h = "heads=";
  for (int i = 1; i <= sizes; ++i) cp += std::to_string(i) + (i == sizes ? "" : ",");
  for (int i = 1; i <= heads; ++i) h += std::to_string(i) + (i == heads ? "" : ",");
  const std::vector<Problem> problems =
      sweep_problems(every_option(), {"--lengths", "7,0", "--sink"}, {cp, h});
  RC_ASSERT(problems.size() == static_cast<std::size_t>(sizes * heads));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Problem expected;
    expected.driver = every_option().name;
    expected.lengths = {7, 0};
    expected.sink = true;
    expected.cp = 1 + static_cast<int>(i) / heads;
    expected.heads = 1 + static_cast<int>(i) % heads;
    RC_ASSERT(problems[i] == expected);
  }
}

}  // namespace
}  // namespace dyncp
