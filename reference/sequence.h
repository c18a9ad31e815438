// Sequences and padding: the first step of the data flow (lengths -> schedule -> slice -> ...).
// Lengths are in tokens. A sequence has a real length and, once the CP size it runs on is known (or
// once a size-independent rule is chosen), a padded length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dyncp {

/// How lengths are padded before they run.
///   kNone    the given lengths are taken as padded already
///   kGlobal  to a multiple of 2 * ranks * tensor_parallel: runnable on any CP size of the domain
///   kGroup   to a multiple of 2 * size * tensor_parallel, size being the CP group that runs it
enum class Padding { kNone, kGlobal, kGroup };

/// "none", "global" or "group".
std::string_view to_string(Padding padding);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Padding parse_padding(std::string_view name);

/// One document or conversation.
/// REQUIRES: 0 <= real_length <= padded_length.
struct Sequence {
  std::int64_t real_length = 0;    // tokens
  std::int64_t padded_length = 0;  // tokens
  bool operator==(const Sequence&) const = default;
};

/// ceil(numerator / denominator) for numerator >= 0, denominator >= 1.
constexpr std::int64_t ceil_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator + (numerator % denominator != 0);
}

/// The smallest multiple of `multiple` that is at least `length`. Zero stays zero.
/// REQUIRES: length >= 0, multiple >= 1.
constexpr std::int64_t round_up(std::int64_t length, std::int64_t multiple) {
  return ceil_div(length, multiple) * multiple;
}

/// The multiple that zigzag slicing over `size` ranks and sequence parallelism over
/// `tensor_parallel` ranks need: 2 * size * tensor_parallel tokens.
constexpr std::int64_t padding_multiple(int size, int tensor_parallel) {
  return std::int64_t{2} * size * tensor_parallel;
}

/// Longest single sequence dyncp accepts, in tokens. Sums of 2^20 such sequences still fit 63 bits.
inline constexpr std::int64_t kMaxSequenceLength = std::int64_t{1} << 40;

/// Throws InvalidInput naming the index of the first length outside [0, kMaxSequenceLength].
void require_valid_lengths(const std::vector<std::int64_t>& lengths);

}  // namespace dyncp
