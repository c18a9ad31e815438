// Zigzag slicing: which tokens of a sequence (or of a pack) a CP rank holds.
// Each padded sequence of L tokens is cut into 2*size chunks of L/(2*size) tokens; rank r keeps
// chunk r (the front chunk) and then chunk 2*size-1-r (the mirror chunk). Under a causal mask every
// rank then does the same work. All indices are in tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/pack.h"
#include "reference/tensor.h"

namespace dyncp {

/// The zigzag bijection (rank, local index) <-> global index for one sequence. A value; every
/// member is constexpr. REQUIRES: size >= 1; where a length is taken, length % (2*size) == 0 unless
/// size is 1 (size 1 is the identity for every length); ranks in 0..size-1; indices in range.
struct ZigzagLayout {
  int size = 1;

  constexpr bool divides(std::int64_t length) const {
    return size == 1 || length % (std::int64_t{2} * size) == 0;
  }
  /// Tokens each rank holds.
  constexpr std::int64_t local_length(std::int64_t length) const { return length / size; }
  /// Tokens in the front chunk; the mirror chunk holds the rest of the local length. With size 1
  /// everything is front, so that odd lengths need no special case.
  constexpr std::int64_t front_length(std::int64_t length) const {
    return size == 1 ? length : length / (std::int64_t{2} * size);
  }
  /// Global index of a rank's local token.
  constexpr std::int64_t global_index(std::int64_t length, int rank, std::int64_t local) const {
    const std::int64_t chunk = front_length(length);
    if (local < chunk) return rank * chunk + local;
    return (2 * size - 1 - rank) * chunk + (local - chunk);
  }
  /// The rank that holds a global token.
  constexpr int rank_of(std::int64_t length, std::int64_t global) const {
    if (size == 1) return 0;
    const auto chunk = static_cast<int>(global / front_length(length));
    return chunk < size ? chunk : 2 * size - 1 - chunk;
  }
  /// Local index of a global token on the rank that holds it.
  constexpr std::int64_t local_index(std::int64_t length, std::int64_t global) const {
    if (size == 1) return global;
    const std::int64_t chunk = front_length(length);
    return global / chunk < size ? global % chunk : chunk + global % chunk;
  }
  /// Real tokens in a rank's front chunk when only the first `real` of `length` tokens are real.
  constexpr std::int64_t real_front(std::int64_t real, std::int64_t length, int rank) const {
    const std::int64_t chunk = front_length(length);
    return clamp(real - rank * chunk, chunk);
  }
  /// Real tokens in a rank's mirror chunk. Positive only if the front chunk is all real, so the
  /// real tokens of a rank are always a prefix of its slice.
  constexpr std::int64_t real_mirror(std::int64_t real, std::int64_t length, int rank) const {
    if (size == 1) return 0;
    const std::int64_t chunk = front_length(length);
    return clamp(real - (2 * size - 1 - rank) * chunk, chunk);
  }

 private:
  static constexpr std::int64_t clamp(std::int64_t value, std::int64_t high) {
    return value < 0 ? 0 : (value > high ? high : value);
  }
};

/// Throws InvalidInput naming the first sequence whose padded length is no multiple of 2*size
/// (size > 1 only), or when size < 1.
void require_divisible(const Pack& pack, int size);

/// THD: rows of the whole pack that `rank` of a group of `size` holds, in local order. Each
/// sequence is cut by itself. padded_tokens/size entries. Throws InvalidInput like
/// require_divisible, or when rank is outside 0..size-1.
std::vector<std::int64_t> zigzag_rows(const Pack& pack, int size, int rank);

/// First local row of each sequence on any rank (padded boundaries / size), sequences + 1 entries.
std::vector<std::int64_t> local_boundaries(const Pack& pack, int size);

/// Real tokens that `rank` holds of each sequence; they are a prefix of the sequence's local rows.
std::vector<std::int64_t> real_lengths_on_rank(const Pack& pack, int size, int rank);

/// Batched (BSHD): positions along the sequence axis that `rank` keeps of a batch whose every row
/// is `length` tokens long. Throws InvalidInput when length is no multiple of 2*size.
std::vector<std::int64_t> zigzag_positions(std::int64_t length, int size, int rank);

/// source[rows[i]] for every i.
template <typename T>
std::vector<T> gather(const std::vector<T>& source, const std::vector<std::int64_t>& rows) {
  std::vector<T> result;
  result.reserve(rows.size());
  for (std::int64_t row : rows) result.push_back(source[static_cast<std::size_t>(row)]);
  return result;
}

/// Rows of a tensor, in the given order: [rows.size(), heads, dim].
template <typename T>
Tensor<T> gather(const Tensor<T>& source, const std::vector<std::int64_t>& rows) {
  Tensor<T> result(static_cast<std::int64_t>(rows.size()), source.heads, source.dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int h = 0; h < source.heads; ++h) {
      for (int d = 0; d < source.dim; ++d) {
        result.at(static_cast<std::int64_t>(i), h, d) = source.at(rows[i], h, d);
      }
    }
  }
  return result;
}

/// The inverse of gather: target[rows[i]] = slice[i] for every i.
template <typename T>
void scatter(const Tensor<T>& slice, const std::vector<std::int64_t>& rows, Tensor<T>& target) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int h = 0; h < slice.heads; ++h) {
      for (int d = 0; d < slice.dim; ++d) {
        target.at(rows[i], h, d) = slice.at(static_cast<std::int64_t>(i), h, d);
      }
    }
  }
}

/// Next-token labels of a whole pack, made BEFORE slicing: label[row] = token[row + 1] inside each
/// sequence's real tokens; the last real token of a sequence and all padding get `ignore`.
/// `tokens` has padded_tokens entries (throws InvalidInput otherwise).
std::vector<std::int64_t> shift_labels(const Pack& pack, const std::vector<std::int64_t>& tokens,
                                       std::int64_t ignore = -100);

}  // namespace dyncp
