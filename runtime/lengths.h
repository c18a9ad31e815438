// Where sequence lengths come from: files in the formats users already have, directories of real
// documents, and published distribution families. Lengths are in tokens (bytes for documents).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dyncp {

/// Most lengths read from one source: more is an error, not a crash.
inline constexpr std::int64_t kMaxLengths = 20'000'000;

/// Parses the text of a length file; the format is recognised by content:
///   plain list   integers separated by white space or commas, '#' comments
///   CSV          a header line, then rows; the column named seq_len, length or len, or the only
///   one JSON lines   {"id": .., "len": ..} a line ("length" and "seq_len" are read too) JSON array
///   [1, 2, 3] mock SFT     Megatron's configuration in JSON: {"mode":"file","path":..}, every
///   value of a CSV
///                file whose first line is dropped, or {"mode":"distribution","type":"lognormal",
///                "min_seq_len":..,"max_seq_len":..,"mean_seq_len":..,"lognormal_sigma":..}, of
///                which the first `count` lengths are drawn with `seed` (Megatron's own is 0)
/// `origin` names the source in errors; a relative "path" is taken from its folder.
/// Throws InvalidInput: origin, line, what was found, what was expected.
std::vector<std::int64_t> parse_lengths(std::string_view text, const std::string& origin,
                                        std::int64_t count = 1024, std::uint64_t seed = 0);

/// The text of a length file, a plain list: each note as a '#' comment of its own, then one length
/// a line. parse_lengths gives the lengths back, unless there are none (an error there).
std::string print_lengths(const std::vector<std::int64_t>& lengths,
                          const std::vector<std::string>& notes);

/// Reads a length file. Throws InvalidInput.
std::vector<std::int64_t> read_lengths(const std::string& path, std::int64_t count = 1024,
                                       std::uint64_t seed = 0);

/// The value of --lengths: integers separated by commas, or an existing path.
/// Throws InvalidInput naming the offending item.
std::vector<std::int64_t> lengths_from_option(const std::string& value, std::int64_t count = 1024,
                                              std::uint64_t seed = 0);

/// A family of lengths, scaled in units of `unit` tokens (the scheduler's max_tokens_per_rank).
struct LengthFamily {
  std::string_view name;     // "lognormal", "pareto", "bimodal", "constant", "uniform", ...
  std::string_view summary;  // one line with parameters and source
  /// `count` lengths, each in 0..limit. Deterministic in seed.
  std::vector<std::int64_t> (*draw)(std::int64_t count, std::int64_t unit, std::int64_t limit,
                                    std::uint64_t seed);
};

/// Every family, in the order `dyncp list distributions` prints them.
const std::vector<LengthFamily>& length_families();

/// Throws InvalidInput that lists the known names.
const LengthFamily& find_length_family(std::string_view name);

/// Whether this build can look into .gz files (it was built with zlib).
bool can_measure_gz();

/// What measure_documents found.
struct DocumentLengths {
  std::vector<std::int64_t> lengths;  // bytes, in the order of the documents' paths
  std::int64_t skipped_gz = 0;        // .gz files passed over because can_measure_gz() is false
};

/// Byte lengths of the regular files below `directory` whose names end in one of `suffixes` (all
/// files when empty). A .gz file counts its uncompressed bytes, and its name without .gz may match
/// too; symbolic links are not followed, so that every document counts once.
/// Throws InvalidInput when the directory, a folder below it or a file cannot be read, a .gz file
/// is damaged, or there are more than kMaxLengths documents.
DocumentLengths measure_documents(const std::string& directory,
                                  const std::vector<std::string>& suffixes);

/// Figures of a list of lengths, in tokens. Percentiles are nearest-rank: the smallest length that
/// at least that share of the sequences does not exceed.
struct LengthSummary {
  /// Sequences of low..high tokens.
  struct Bin {
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::int64_t count = 0;
    std::int64_t tokens = 0;
  };
  std::int64_t count = 0;
  std::int64_t total = 0;
  std::int64_t min = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  std::vector<Bin> histogram;  // 0..0, 1..1, 2..3, 4..7, ... from the first to the last used one
  // Of sequences longer than max_tokens, which need CP > 1: their share, and of all tokens theirs.
  double share_above = 0;
  double token_share_above = 0;
};

/// REQUIRES: every length in 0..kMaxSequenceLength. Throws InvalidInput when there are no lengths
/// or max_tokens < 1.
LengthSummary summarize_lengths(const std::vector<std::int64_t>& lengths, std::int64_t max_tokens);

}  // namespace dyncp
