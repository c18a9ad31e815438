// dyncp lengths: takes sequence lengths from real documents, a file or a family, shows what they
// look like, and writes them as a length file.
#include "runtime/lengths.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

struct Options {
  std::string from;
  std::vector<std::string> suffixes;
  std::string file;
  std::string family;
  std::int64_t count = 1024;
  std::int64_t unit = 4096;
  std::optional<std::int64_t> limit;  // 64 units when not given
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 4096;
  std::string out;
  std::vector<std::string> notes;
  bool json = false;
};

// The lengths asked for and, as notes, what they are.
std::vector<std::int64_t> gather_lengths(const Options& options, std::vector<std::string>& notes) {
  if (!options.from.empty()) {
    DocumentLengths documents = measure_documents(options.from, options.suffixes);
    std::string endings;
    for (const std::string& suffix : options.suffixes) endings += " " + suffix;
    if (documents.skipped_gz > 0) {
      fmt::print(stderr, "note: {} .gz files were skipped, this build has no zlib\n",
                 documents.skipped_gz);
    }
    if (documents.lengths.empty()) {
      throw InvalidInput(fmt::format("{}: no regular file ends in{}, expected at least one",
                                     one_line(options.from),
                                     endings.empty() ? " any way" : endings));
    }
    notes.push_back(fmt::format("bytes of {} files{}{}, in the order of their paths",
                                documents.lengths.size(), endings.empty() ? "" : " ending in",
                                endings));
    return documents.lengths;
  }
  if (!options.family.empty()) {
    const LengthFamily& family = find_length_family(options.family);
    const std::int64_t limit = options.limit.value_or(
        options.unit > kMaxSequenceLength / 64 ? kMaxSequenceLength : 64 * options.unit);
    notes.push_back(
        fmt::format("dyncp lengths --family {} --count {} --unit {} --limit {} --seed {}",
                    family.name, options.count, options.unit, limit, options.seed));
    notes.emplace_back(family.summary);
    return family.draw(options.count, options.unit, limit, options.seed);
  }
  return read_lengths(options.file, options.count, options.seed);
}

nlohmann::json to_json(const LengthSummary& summary, std::int64_t max_tokens) {
  nlohmann::json histogram = nlohmann::json::array();
  for (const LengthSummary::Bin& bin : summary.histogram) {
    histogram.push_back(
        {{"low", bin.low}, {"high", bin.high}, {"count", bin.count}, {"tokens", bin.tokens}});
  }
  return {{"count", summary.count},
          {"total", summary.total},
          {"min", summary.min},
          {"p50", summary.p50},
          {"p90", summary.p90},
          {"p99", summary.p99},
          {"max", summary.max},
          {"max_tokens", max_tokens},
          {"share_above_max_tokens", summary.share_above},
          {"token_share_above_max_tokens", summary.token_share_above},
          {"histogram", histogram}};
}

void print_summary(const LengthSummary& summary, std::int64_t max_tokens) {
  say("sequences {}   tokens {}\n", summary.count, summary.total);
  say("min {}   p50 {}   p90 {}   p99 {}   max {}\n", summary.min, summary.p50, summary.p90,
      summary.p99, summary.max);
  say("longer than {} tokens (need CP > 1): {:.2f}% of the sequences, {:.2f}% of the tokens\n",
      max_tokens, 100 * summary.share_above, 100 * summary.token_share_above);
  std::int64_t most = 0;
  for (const LengthSummary::Bin& bin : summary.histogram) most = std::max(most, bin.count);
  constexpr int kBarWidth = 50;
  for (const LengthSummary::Bin& bin : summary.histogram) {
    // A bin that holds anything shows at least one mark.
    const auto width = static_cast<int>(ceil_div(bin.count * kBarWidth, most));
    say("{:>13}..{:<13} {:>9} {}\n", bin.low, bin.high, bin.count,
        std::string(static_cast<std::size_t>(width), '#'));
  }
}

void run(const Options& options) {
  std::vector<std::string> notes;
  const std::vector<std::int64_t> lengths = gather_lengths(options, notes);
  notes.insert(notes.end(), options.notes.begin(), options.notes.end());
  if (options.out == "-") {
    write_stdout(print_lengths(lengths, notes));
    return;
  }
  const LengthSummary summary = summarize_lengths(lengths, options.max_tokens);
  if (!options.out.empty()) write_file(options.out, print_lengths(lengths, notes));
  if (options.json) {
    say("{}\n", to_json(summary, options.max_tokens).dump(2));
  } else {
    print_summary(summary, options.max_tokens);
  }
}

}  // namespace

void add_lengths_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "lengths", "Measure, draw or read sequence lengths, show them, write a length file");
  auto* source = command->add_option_group("source", "where the lengths come from, one of");
  auto* from = source->add_option(
      "--from", options->from, "a directory: the bytes of each document below it (.gz unpacked)");
  source->add_option("--file", options->file,
                     "a length file: plain list, CSV, JSON lines, JSON array or mock-SFT JSON");
  auto* family = source->add_option("--family", options->family,
                                    "a family of dyncp list distributions, such as lognormal");
  source->require_option(1);
  command->add_option("--suffix", options->suffixes, "only documents that end so: .py,.txt")
      ->delimiter(',')
      ->needs(from);
  command->add_option("--count", options->count, "lengths to draw from a family or mock-SFT JSON")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "seed of the draw")->capture_default_str();
  command->add_option("--unit", options->unit, "scale of a family, in tokens")
      ->capture_default_str()
      ->needs(family);
  command->add_option("--limit", options->limit, "longest length of a family (default 64 units)")
      ->needs(family);
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "tokens a rank holds: longer sequences need CP > 1")
      ->capture_default_str();
  command->add_option("--out", options->out, "write a length file; - for standard output");
  command->add_option("--note", options->notes, "a comment line for the length file, repeatable");
  command->add_flag("--json", options->json, "print the figures as JSON");
  command->callback([options, &exit_code] {
    run(*options);
    exit_code = 0;
  });
}

}  // namespace dyncp
