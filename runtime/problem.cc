#include "runtime/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/lengths.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

constexpr std::int64_t kMostHeads = 1024;
constexpr std::int64_t kMostDim = 4096;
constexpr std::int64_t kMostVocabulary = 1 << 20;

template <typename T>
T parse_integer(std::string_view option, const std::string& text, std::int64_t low,
                std::uint64_t high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && !text.empty();
  bool in_range = whole;
  if constexpr (std::is_signed_v<T>) {
    in_range = whole && value >= low && (value < 0 || static_cast<std::uint64_t>(value) <= high);
  } else {
    in_range = whole && value <= high;
  }
  if (!in_range) {
    throw InvalidInput(
        fmt::format("--{} '{}': expected an integer in {}..{}", option, text, low, high));
  }
  return value;
}

double parse_number(std::string_view option, const std::string& text, double low) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < low) {
    throw InvalidInput(
        fmt::format("--{} '{}': expected a number of at least {}", option, text, low));
  }
  return value;
}

// Shortest text that reads back as the same double.
std::string number_text(double value) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

// Inverse of list_text; besides, the path of a length file.
std::vector<std::int64_t> parse_list(const std::string& text) {
  if (text.empty()) return {};
  return lengths_from_option(text);
}

std::string list_text(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

using IntMember = int Problem::*;

ProblemOption integer_option(std::string_view name, std::string_view help, IntMember member,
                             int low, std::int64_t high) {
  return {name, help, false, [member](const Problem& p) { return std::to_string(p.*member); },
          [name, member, low, high](Problem& p, const std::string& text) {
            p.*member = parse_integer<int>(name, text, low, static_cast<std::uint64_t>(high));
          }};
}

ProblemOption long_option(std::string_view name, std::string_view help,
                          std::int64_t Problem::*member, std::int64_t low, std::int64_t high) {
  return {name, help, false, [member](const Problem& p) { return std::to_string(p.*member); },
          [name, member, low, high](Problem& p, const std::string& text) {
            p.*member =
                parse_integer<std::int64_t>(name, text, low, static_cast<std::uint64_t>(high));
          }};
}

ProblemOption number_option(std::string_view name, std::string_view help, double Problem::*member,
                            double low) {
  return {name, help, false, [member](const Problem& p) { return number_text(p.*member); },
          [name, member, low](Problem& p, const std::string& text) {
            p.*member = parse_number(name, text, low);
          }};
}

// One of a few words.
ProblemOption word_option(std::string_view name, std::string_view help,
                          std::string Problem::*member, std::vector<std::string_view> words) {
  return {name, help, false, [member](const Problem& p) { return p.*member; },
          [name, member, words = std::move(words)](Problem& p, const std::string& text) {
            if (std::find(words.begin(), words.end(), text) == words.end()) {
              throw InvalidInput(
                  fmt::format("--{} '{}': expected {}", name, text, fmt::join(words, ", ")));
            }
            p.*member = text;
          }};
}

// A value with to_string and a parser of its own.
template <typename T>
ProblemOption parsed_option(std::string_view name, std::string_view help, T Problem::*member,
                            T (*parse)(std::string_view)) {
  return {name, help, false,
          [member](const Problem& p) { return std::string(to_string(p.*member)); },
          [member, parse](Problem& p, const std::string& text) { p.*member = parse(text); }};
}

std::vector<ProblemOption> make_options() {
  constexpr std::int64_t kMostTokens = kMaxSequenceLength;
  std::vector<ProblemOption> options;
  options.push_back({"lengths", "real lengths in tokens: 7,3,0 or the path of a length file", false,
                     [](const Problem& p) { return list_text(p.lengths); },
                     [](Problem& p, const std::string& text) { p.lengths = parse_list(text); }});
  options.push_back({"padded", "padded lengths; default: multiples of 2*cp*tp", false,
                     [](const Problem& p) { return list_text(p.padded); },
                     [](Problem& p, const std::string& text) { p.padded = parse_list(text); }});
  options.push_back(integer_option("cp", "CP group size", &Problem::cp, 1, kMaxRanks));
  options.push_back(integer_option("first-rank", "global rank of the group's first member",
                                   &Problem::first_rank, 0, kMaxRanks));
  options.push_back(parsed_option<Contract>("contract", "v1: size 1 has no group; v2: a singleton",
                                            &Problem::contract, parse_contract));
  options.push_back(integer_option("tp", "tensor parallel size, a factor of the padding multiple",
                                   &Problem::tensor_parallel, 1, kMaxRanks));
  options.push_back(integer_option("heads", "query heads", &Problem::heads, 1, kMostHeads));
  options.push_back(integer_option("kv-heads", "key/value heads; divides --heads",
                                   &Problem::kv_heads, 1, kMostHeads));
  options.push_back(integer_option("dim", "query/key head dimension", &Problem::dim, 1, kMostDim));
  options.push_back(integer_option("value-dim", "value head dimension; 0 = --dim",
                                   &Problem::value_dim, 0, kMostDim));
  options.push_back(word_option("mask", "causal or full", &Problem::mask, {"causal", "full"}));
  options.push_back(long_option("window", "keys to the left a query sees besides itself; -1 = all",
                                &Problem::window, -1, kMostTokens));
  options.push_back({"sink", "one learnable sink logit a head", true,
                     [](const Problem& p) { return std::string(p.sink ? "1" : "0"); },
                     [](Problem& p, const std::string& text) {
                       if (text != "0" && text != "1") {
                         throw InvalidInput("--sink '" + text + "': expected 0 or 1");
                       }
                       p.sink = text == "1";
                     }});
  options.push_back(
      word_option("pairing", "half or interleaved", &Problem::pairing, {"half", "interleaved"}));
  options.push_back(integer_option("rotary-dim", "rotated dimensions; 0 = --dim",
                                   &Problem::rotary_dim, 0, kMostDim));
  options.push_back(
      number_option("rope-base", "base of the inverse frequencies", &Problem::rope_base, 1.0));
  options.push_back(
      number_option("yarn-scale", "YaRN context extension; 1 = off", &Problem::yarn_scale, 1.0));
  options.push_back(
      integer_option("vocabulary", "logits a token", &Problem::vocabulary, 1, kMostVocabulary));
  options.push_back(word_option("loss-mask", "all, random, none or one-rank", &Problem::loss_mask,
                                {"all", "random", "none", "one-rank"}));
  options.push_back(
      {"scheduler", "name of a scheduler (dyncp list schedulers)", false,
       [](const Problem& p) { return p.scheduler; },
       [](Problem& p, const std::string& text) { p.scheduler = find_scheduler(text).name(); }});
  options.push_back(
      integer_option("ranks", "ranks of the domain (DP x CP)", &Problem::ranks, 1, kMaxRanks));
  options.push_back(
      long_option("max-tokens", "most tokens a rank", &Problem::max_tokens, 1, kMostTokens));
  options.push_back(integer_option("min-cp", "smallest CP group", &Problem::min_cp, 1, kMaxRanks));
  options.push_back(integer_option("microbatch-multiple",
                                   "the number of microbatches is a multiple of this",
                                   &Problem::microbatch_multiple, 1, 1 << 20));
  options.push_back(integer_option("max-sequences", "most sequences in a pack; 0 = no limit",
                                   &Problem::max_sequences, 0, std::numeric_limits<int>::max()));
  options.push_back(word_option("execution", "pack or serial; default: the scheduler's own",
                                &Problem::execution, {"pack", "serial"}));
  options.push_back(parsed_option<GroupPolicy>("group-policy",
                                               "aligned, pow2-any-slice, divisors or interval",
                                               &Problem::group_policy, parse_group_policy));
  options.push_back(
      parsed_option<Padding>("padding", "none, global or group", &Problem::padding, parse_padding));
  options.push_back({"seed", "seed of every random value of the case", false,
                     [](const Problem& p) { return std::to_string(p.seed); },
                     [](Problem& p, const std::string& text) {
                       p.seed = parse_integer<std::uint64_t>(
                           "seed", text, 0, std::numeric_limits<std::uint64_t>::max());
                     }});
  return options;
}

// Words of a command line: separated by white space; single or double quotes keep it.
std::vector<std::string> split_words(std::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : command) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) throw InvalidInput(fmt::format("a {} is never closed", quote));
  if (in_word) words.push_back(word);
  return words;
}

}  // namespace

Pack Problem::pack() const {
  if (padded.empty()) return Pack::padded_to(lengths, padding_multiple(cp, tensor_parallel));
  if (padded.size() != lengths.size()) {
    throw InvalidInput(
        fmt::format("--padded has {} lengths and --lengths has {}", padded.size(), lengths.size()));
  }
  std::vector<Sequence> sequences;
  sequences.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) sequences.push_back({lengths[i], padded[i]});
  return Pack(std::move(sequences));
}

ScheduleProblem Problem::schedule_problem() const {
  ScheduleProblem result;
  result.lengths = lengths;
  result.ranks = ranks;
  result.max_tokens_per_rank = max_tokens;
  result.min_cp = min_cp;
  result.tensor_parallel = tensor_parallel;
  result.microbatch_multiple = microbatch_multiple;
  if (max_sequences > 0) result.max_sequences = max_sequences;
  const Scheduler& chosen = find_scheduler(scheduler.empty() ? kDefaultScheduler : scheduler);
  result.execution = execution.empty() ? chosen.execution() : parse_execution(execution);
  result.group_policy = group_policy;
  result.padding = padding;
  require_valid(result);
  return result;
}

const std::vector<ProblemOption>& problem_options() {
  static const std::vector<ProblemOption> options = make_options();
  return options;
}

const ProblemOption& find_problem_option(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ProblemOption& option : problem_options()) {
    if (option.name == name) return option;
    known.push_back(option.name);
  }
  throw InvalidInput(
      fmt::format("unknown option --{}: expected --{}", name, fmt::join(known, ", --")));
}

std::string print_command(const Problem& problem) {
  static const Problem defaults;
  std::string command = "dyncp check " + problem.driver;
  for (const ProblemOption& option : problem_options()) {
    const std::string text = option.text(problem);
    // An empty --lengths is the default, but a command without it would not say what it packs.
    if (text == option.text(defaults) && option.name != "lengths") continue;
    command += fmt::format(" --{}", option.name);
    if (option.flag) continue;
    command += text.empty() ? " ''" : " " + text;
  }
  return command;
}

Problem parse_command(std::string_view command) try {
  std::vector<std::string> words = split_words(command);
  std::size_t at = 0;
  if (at < words.size() && words[at] == "dyncp") ++at;
  if (at < words.size() && words[at] == "check") ++at;
  if (at == words.size()) throw InvalidInput("a case begins with the name of a driver");
  const Driver& driver = find_driver(words[at]);
  Problem problem;
  problem.driver = words[at++];
  std::set<std::string_view> seen;
  while (at < words.size()) {
    const std::string& word = words[at++];
    if (word.size() < 3 || word.compare(0, 2, "--") != 0) {
      throw InvalidInput(
          fmt::format("'{}' is no option: options are the problem, as in "
                      "--lengths 7,3,0",
                      word));
    }
    const std::size_t equals = word.find('=');
    const ProblemOption& option = find_problem_option(
        std::string_view(word).substr(2, equals == std::string::npos ? equals : equals - 2));
    if (std::find(driver.options.begin(), driver.options.end(), option.name) ==
        driver.options.end()) {
      throw InvalidInput(fmt::format("driver {} does not read --{}", driver.name, option.name));
    }
    if (!seen.insert(option.name).second) {
      throw InvalidInput(fmt::format("--{} is given twice", option.name));
    }
    if (option.flag && equals == std::string::npos) {
      option.set(problem, "1");
    } else if (equals != std::string::npos) {
      option.set(problem, word.substr(equals + 1));
    } else if (at < words.size()) {
      option.set(problem, words[at++]);
    } else {
      throw InvalidInput(fmt::format("--{} needs a value", option.name));
    }
  }
  return problem;
} catch (const InvalidInput& error) {
  // Words of the command stand in the messages, and any bytes in the words.
  throw InvalidInput(one_line(error.what(), 400));
}

}  // namespace dyncp
