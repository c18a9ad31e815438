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

/// Byte lengths of the regular files below `directory` whose names end in one of `suffixes` (all
/// files when empty), in path order; .gz files count their uncompressed bytes.
/// Throws InvalidInput when the directory cannot be read.
std::vector<std::int64_t> measure_documents(const std::string& directory,
                                            const std::vector<std::string>& suffixes);

}  // namespace dyncp
