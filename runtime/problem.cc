#include "runtime/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <type_traits>
#include <utility>

#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/lengths.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

// Limits on sizes: a slip of the keyboard is refused rather than run until memory ends.
constexpr int kMostHeads = 1024;
constexpr int kMostDim = 4096;
constexpr int kMostVocabulary = 1 << 20;
constexpr int kMostTensorParallel = 1024;

constexpr std::size_t kLongestRefusal = 400;  // bytes

template <typename Integer>
Integer parse_integer(std::string_view option, std::string_view text, Integer low, Integer high) {
  Integer value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value < low || value > high) {
    throw InvalidInput(
        fmt::format("--{} {}: expected an integer in {}..{}", option, quote(text), low, high));
  }
  return value;
}

template <typename Integer>
ProblemOption integer_option(std::string_view name, std::string_view help, Integer Problem::*member,
                             Integer low, Integer high) {
  return {name,
          "N",
          help,
          false,
          [member](const Problem& p) { return std::to_string(p.*member); },
          [=](Problem& p, const std::string& text) {
            p.*member = parse_integer<Integer>(name, text, low, high);
          }};
}

// A number of at least `low`; its text is the shortest that reads back as the same double.
ProblemOption number_option(std::string_view name, std::string_view help, double Problem::*member,
                            double low) {
  return {name,
          "X",
          help,
          false,
          [member](const Problem& p) { return fmt::format("{}", p.*member); },
          [=](Problem& p, const std::string& text) {
            double value = 0;
            const char* const last = text.data() + text.size();
            const auto [end, error] = std::from_chars(text.data(), last, value);
            if (error != std::errc() || end != last || !std::isfinite(value) || value < low) {
              throw InvalidInput(
                  fmt::format("--{} {}: expected a number of at least {}", name, quote(text), low));
            }
            p.*member = value;
          }};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// One of the words of `value`, which are separated by '|'.
ProblemOption word_option(std::string_view name, std::string_view value, std::string_view help,
                          std::string Problem::*member) {
  return {name,
          value,
          help,
          false,
          [member](const Problem& p) { return p.*member; },
          [=](Problem& p, const std::string& text) {
            const std::vector<std::string> words = split(value, '|');
            if (std::find(words.begin(), words.end(), text) == words.end()) {
              throw InvalidInput(
                  fmt::format("--{} {}: expected {}", name, quote(text), fmt::join(words, ", ")));
            }
            p.*member = text;
          }};
}

// A value with to_string and a parser of its own.
template <typename T>
ProblemOption parsed_option(std::string_view name, std::string_view value, std::string_view help,
                            T Problem::*member, T (*parse)(std::string_view)) {
  return {name,
          value,
          help,
          false,
          [member](const Problem& p) { return std::string(to_string(p.*member)); },
          [=](Problem& p, const std::string& text) {
            try {
              p.*member = parse(text);
            } catch (const InvalidInput& error) {
              throw InvalidInput(fmt::format("--{}: {}", name, error.what()));
            }
          }};
}

std::vector<ProblemOption> make_options() {
  return {
      integer_option<std::uint64_t>("seed", "seed of every random value of the case",
                                    &Problem::seed, 0, std::numeric_limits<std::uint64_t>::max()),
      {"lengths", "LIST|FILE", "real lengths in tokens: 7,3,0 or the path of a length file", false,
       [](const Problem& p) { return fmt::format("{}", fmt::join(p.lengths, ",")); },
       [](Problem& p, const std::string& text) {
         constexpr std::int64_t kDrawn = 1024;  // where the file describes a distribution
         p.lengths.clear();
         if (text.empty()) return;
         p.lengths = lengths_from_option(text, kDrawn, p.seed);
         require_valid_lengths(p.lengths);
       }},
      {"padded", "LIST", "padded lengths, one for each length; default: multiples of 2*cp*tp",
       false, [](const Problem& p) { return fmt::format("{}", fmt::join(p.padded, ",")); },
       [](Problem& p, const std::string& text) {
         p.padded.clear();
         if (text.empty()) return;
         for (const std::string& part : split(text, ',')) {
           p.padded.push_back(parse_integer<std::int64_t>("padded", part, 0, kMaxSequenceLength));
         }
       }},
      integer_option("cp", "CP group size", &Problem::cp, 1, kMaxRanks),
      integer_option("first-rank", "global rank of the group's first member", &Problem::first_rank,
                     0, kMaxRanks - 1),
      parsed_option("contract", "v1|v2", "what size 1 means: v1 no group, v2 a singleton group",
                    &Problem::contract, parse_contract),
      integer_option("tp", "tensor parallel size, a factor of the padding multiple",
                     &Problem::tensor_parallel, 1, kMostTensorParallel),
      integer_option("heads", "query heads", &Problem::heads, 1, kMostHeads),
      integer_option("kv-heads", "key/value heads; divides --heads", &Problem::kv_heads, 1,
                     kMostHeads),
      integer_option("dim", "query/key head dimension", &Problem::dim, 1, kMostDim),
      integer_option("value-dim", "value head dimension; 0 = --dim", &Problem::value_dim, 0,
                     kMostDim),
      word_option("mask", "causal|full", "attention mask", &Problem::mask),
      integer_option<std::int64_t>("window",
                                   "keys to the left a query sees besides itself; -1 = all",
                                   &Problem::window, -1, kMaxSequenceLength),
      {"sink", "", "one learnable sink logit a head", true,
       [](const Problem& p) { return std::string(p.sink ? "1" : "0"); },
       [](Problem& p, const std::string& text) {
         p.sink = parse_integer<int>("sink", text, 0, 1) == 1;
       }},
      word_option("pairing", "half|interleaved", "the dimensions that RoPE rotates together",
                  &Problem::pairing),
      integer_option("rotary-dim", "rotated dimensions; 0 = --dim", &Problem::rotary_dim, 0,
                     kMostDim),
      number_option("rope-base", "base of the inverse frequencies", &Problem::rope_base, 1.0),
      number_option("yarn-scale", "YaRN context extension; 1 = off", &Problem::yarn_scale, 1.0),
      integer_option("vocabulary", "logits a token", &Problem::vocabulary, 1, kMostVocabulary),
      word_option("loss-mask", "all|random|none|one-rank", "the tokens that count in the loss",
                  &Problem::loss_mask),
      {"scheduler", "NAME", "a scheduler (dyncp list schedulers)", false,
       [](const Problem& p) { return p.scheduler; },
       [](Problem& p, const std::string& text) { p.scheduler = find_scheduler(text).name(); }},
      integer_option("ranks", "ranks of the domain (DP x CP)", &Problem::ranks, 1, kMaxRanks),
      integer_option<std::int64_t>("max-tokens", "most tokens a rank", &Problem::max_tokens, 1,
                                   kMaxSequenceLength),
      integer_option("min-cp", "smallest CP group", &Problem::min_cp, 1, kMaxRanks),
      integer_option("microbatch-multiple", "the number of microbatches is a multiple of this",
                     &Problem::microbatch_multiple, 1, 1 << 20),
      integer_option("max-sequences", "most sequences in a pack; 0 = no limit",
                     &Problem::max_sequences, 0, std::numeric_limits<int>::max()),
      word_option("execution", "pack|serial",
                  "how a group runs its sequences; default: the "
                  "scheduler's own",
                  &Problem::execution),
      parsed_option("group-policy", "aligned|pow2-any-slice|divisors|interval",
                    "which CP groups exist", &Problem::group_policy, parse_group_policy),
      parsed_option("padding", "none|global|group", "how lengths are padded before scheduling",
                    &Problem::padding, parse_padding),
  };
}

bool is_list(const ProblemOption& option) {
  return option.name == "lengths" || option.name == "padded";
}

bool reads(const Driver& driver, std::string_view name) {
  return std::find(driver.options.begin(), driver.options.end(), name) != driver.options.end();
}

// The options a driver reads, in the order of the table.
std::string read_by(const Driver& driver) {
  std::vector<std::string_view> names;
  for (const ProblemOption& option : problem_options()) {
    if (reads(driver, option.name)) names.push_back(option.name);
  }
  if (names.empty()) return "no option";
  return fmt::format("--{}", fmt::join(names, ", --"));
}

// Values by the name of their option, not yet read.
using Given = std::map<std::string_view, std::string>;

Given collect(const Driver& driver, const std::vector<std::string>& words) {
  Given given;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 3 || word.compare(0, 2, "--") != 0) {
      throw InvalidInput(fmt::format("found {}, expected an option: {} reads {}", quote(word),
                                     driver.name, read_by(driver)));
    }
    const std::size_t equals = word.find('=');
    const ProblemOption& option = find_problem_option(
        driver,
        std::string_view(word).substr(2, equals == std::string::npos ? equals : equals - 2));
    std::string value = "1";
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (!option.flag) {
      // The next option is no value; a negative number is one.
      if (i + 1 == words.size() || words[i + 1].compare(0, 2, "--") == 0) {
        throw InvalidInput(
            fmt::format("--{}: the value is missing, expected {}", option.name, option.value));
      }
      value = words[++i];
    }
    if (!given.emplace(option.name, std::move(value)).second) {
      throw InvalidInput(fmt::format("--{} is given twice", option.name));
    }
  }
  return given;
}

Problem build(const Driver& driver, const Given& given) {
  Problem problem;
  problem.driver = driver.name;
  for (const ProblemOption& option : problem_options()) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    try {
      option.set(problem, found->second);
    } catch (const InvalidInput& error) {
      throw InvalidInput(one_line(error.what(), kLongestRefusal));  // it may hold the value's bytes
    }
  }
  return problem;
}

void read_batch_file(const std::filesystem::path& path, int depth, std::vector<Problem>& problems) {
  constexpr int kDeepest = 8;
  std::istringstream text(read_file(path.string()));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string where = fmt::format("{}:{}: ", path.string(), number);
    std::vector<std::string> words;
    try {
      words = split_words(line);
      if (words.front() != "--batch") {
        for (std::size_t i = 1; i < words.size(); ++i) {
          if (words[i - 1] != "--lengths") continue;
          const std::filesystem::path beside = path.parent_path() / words[i];
          std::error_code ignored;
          if (std::filesystem::exists(beside, ignored)) words[i] = beside.string();
        }
        problems.push_back(parse_command(join_words(words)));
      } else if (words.size() != 2) {
        throw InvalidInput("expected --batch FILE alone on its line");
      } else if (depth == kDeepest) {
        throw InvalidInput(fmt::format("batch files are nested more than {} deep", kDeepest));
      }
    } catch (const InvalidInput& error) {
      throw InvalidInput(where + error.what());
    }
    // Outside the handler: an error in the nested file is named by that file and line alone.
    if (words.front() == "--batch") {
      read_batch_file(path.parent_path() / words[1], depth + 1, problems);
    }
    if (static_cast<std::int64_t>(problems.size()) > kMaxCases) {
      throw InvalidInput(fmt::format("{}more than {} cases", where, kMaxCases));
    }
  }
}

// One shell word: itself, or in quotes where a shell would take it apart.
std::string quote_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
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
  throw InvalidInput(fmt::format("unknown option --{}: expected --{}", one_line(name, 40),
                                 fmt::join(known, ", --")));
}

const ProblemOption& find_problem_option(const Driver& driver, std::string_view name) {
  for (const ProblemOption& option : problem_options()) {
    if (option.name != name) continue;
    if (reads(driver, name)) return option;
    throw InvalidInput(fmt::format("--{} is not read by driver {}, which reads {}", name,
                                   driver.name, read_by(driver)));
  }
  throw InvalidInput(fmt::format("unknown option --{}: driver {} reads {}", one_line(name, 40),
                                 driver.name, read_by(driver)));
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;  // inside a word
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (quote == '\0' && blank) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') throw InvalidInput(fmt::format("a quote {} is not closed", quote));
  return words;
}

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += quote_word(word);
  }
  return text;
}

std::vector<std::string> print_arguments(const Driver& driver, const Problem& problem) {
  static const Problem defaults;
  std::vector<std::string> words;
  for (const ProblemOption& option : problem_options()) {
    if (!reads(driver, option.name)) continue;
    std::string text = option.text(problem);
    if (text == option.text(defaults)) continue;
    words.push_back(fmt::format("--{}", option.name));
    if (!option.flag) words.push_back(std::move(text));
  }
  return words;
}

Problem parse_arguments(const Driver& driver, const std::vector<std::string>& words) {
  return build(driver, collect(driver, words));
}

std::string print_command(const Problem& problem) {
  const Driver& driver = find_driver(problem.driver);
  const std::vector<std::string> arguments = print_arguments(driver, problem);
  std::string command = fmt::format("dyncp check {}", driver.name);
  if (!arguments.empty()) command += " " + join_words(arguments);
  return command;
}

Problem parse_command(std::string_view command) {
  const std::vector<std::string> words = split_words(command);
  auto next = words.begin();
  if (next != words.end() && *next == "dyncp") ++next;
  if (next != words.end() && *next == "check") ++next;
  if (next == words.end()) throw InvalidInput("a case begins with the name of a driver");
  const Driver& driver = find_driver(*next);
  return parse_arguments(driver, {next + 1, words.end()});
}

std::vector<Problem> sweep_problems(const Driver& driver, const std::vector<std::string>& words,
                                    const std::vector<std::string>& sweeps) {
  struct Axis {
    std::string_view option;
    std::vector<std::string> values;
  };
  Given given = collect(driver, words);
  std::vector<Axis> axes;
  std::int64_t cases = 1;
  for (const std::string& sweep : sweeps) {
    const std::size_t equals = sweep.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw InvalidInput(
          fmt::format("--sweep {}: expected OPTION=VALUE,VALUE as in cp=1,2,4", quote(sweep)));
    }
    const ProblemOption& option =
        find_problem_option(driver, std::string_view(sweep).substr(0, equals));
    if (is_list(option)) {
      throw InvalidInput(fmt::format(
          "--sweep {}: a list cannot be swept; write the cases to a file and give --batch FILE",
          quote(sweep)));
    }
    axes.push_back({option.name, split(std::string_view(sweep).substr(equals + 1), ',')});
    Problem probe;  // every value must be good before any case runs
    for (const std::string& value : axes.back().values) option.set(probe, value);
    if (!given.emplace(option.name, "").second) {
      throw InvalidInput(fmt::format("--{} is given or swept twice", option.name));
    }
    cases *= static_cast<std::int64_t>(axes.back().values.size());
    if (cases > kMaxCases) {
      throw InvalidInput(fmt::format("--sweep: {} cases, expected at most {}", cases, kMaxCases));
    }
  }
  std::vector<Problem> problems;
  problems.reserve(static_cast<std::size_t>(cases));
  for (std::int64_t i = 0; i < cases; ++i) {
    std::int64_t rest = i;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const auto count = static_cast<std::int64_t>(axis->values.size());
      given[axis->option] = axis->values[static_cast<std::size_t>(rest % count)];
      rest /= count;
    }
    problems.push_back(build(driver, given));
  }
  return problems;
}

std::vector<Problem> read_batch(const std::string& path) {
  std::vector<Problem> problems;
  read_batch_file(path, 0, problems);
  return problems;
}

}  // namespace dyncp
