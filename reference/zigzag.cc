#include "reference/zigzag.h"

#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

// The bijection is proved at compile time on every token of small sequences.
constexpr bool is_bijection(std::int64_t length, int size) {
  const ZigzagLayout layout{size};
  std::int64_t seen = 0;
  for (int rank = 0; rank < size; ++rank) {
    std::int64_t previous = -1;
    for (std::int64_t local = 0; local < layout.local_length(length); ++local) {
      const std::int64_t global = layout.global_index(length, rank, local);
      if (global <= previous || global >= length) return false;  // ascending, in range
      if (layout.rank_of(length, global) != rank) return false;
      if (layout.local_index(length, global) != local) return false;
      previous = global;
      ++seen;
    }
  }
  return seen == length;
}

constexpr bool real_counts_add_up(std::int64_t length, int size) {
  const ZigzagLayout layout{size};
  for (std::int64_t real = 0; real <= length; ++real) {
    std::int64_t total = 0;
    for (int rank = 0; rank < size; ++rank) {
      const std::int64_t front = layout.real_front(real, length, rank);
      const std::int64_t mirror = layout.real_mirror(real, length, rank);
      if (mirror > 0 && front != layout.front_length(length)) return false;
      total += front + mirror;
    }
    if (total != real) return false;
  }
  return true;
}

static_assert(is_bijection(0, 1) && is_bijection(1, 1) && is_bijection(7, 1));
static_assert(is_bijection(0, 4) && is_bijection(8, 2) && is_bijection(16, 4));
static_assert(is_bijection(12, 3) && is_bijection(30, 5) && is_bijection(48, 8));
static_assert(real_counts_add_up(7, 1) && real_counts_add_up(12, 2) && real_counts_add_up(30, 5));
// Length 8 over 2 ranks: rank 0 holds 0 1 6 7, rank 1 holds 2 3 4 5.
static_assert(ZigzagLayout{2}.global_index(8, 0, 2) == 6);
static_assert(ZigzagLayout{2}.global_index(8, 1, 2) == 4);

void require_rank(int size, int rank) {
  if (rank < 0 || rank >= size) {
    throw InvalidInput("CP rank " + std::to_string(rank) + " is outside 0.." +
                       std::to_string(size - 1));
  }
}

}  // namespace

void require_divisible(const Pack& pack, int size) {
  if (size < 1) throw InvalidInput("CP size " + std::to_string(size) + " must be at least 1");
  const ZigzagLayout layout{size};
  for (int s = 0; s < pack.sequences(); ++s) {
    if (!layout.divides(pack.padded_length(s))) {
      throw InvalidInput("padded length " + std::to_string(pack.padded_length(s)) +
                         " of sequence " + std::to_string(s) +
                         " is no multiple of 2*size = " + std::to_string(2 * size));
    }
  }
}

std::vector<std::int64_t> zigzag_rows(const Pack& pack, int size, int rank) {
  require_divisible(pack, size);
  require_rank(size, rank);
  const ZigzagLayout layout{size};
  std::vector<std::int64_t> rows;
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t length = pack.padded_length(s);
    for (std::int64_t local = 0; local < layout.local_length(length); ++local) {
      rows.push_back(pack.first_row(s) + layout.global_index(length, rank, local));
    }
  }
  return rows;
}

std::vector<std::int64_t> local_boundaries(const Pack& pack, int size) {
  require_divisible(pack, size);
  std::vector<std::int64_t> boundaries;
  for (std::int64_t boundary : pack.cu_seqlens_padded()) boundaries.push_back(boundary / size);
  return boundaries;
}

std::vector<std::int64_t> real_lengths_on_rank(const Pack& pack, int size, int rank) {
  require_divisible(pack, size);
  require_rank(size, rank);
  const ZigzagLayout layout{size};
  std::vector<std::int64_t> lengths;
  for (int s = 0; s < pack.sequences(); ++s) {
    lengths.push_back(layout.real_front(pack.real_length(s), pack.padded_length(s), rank) +
                      layout.real_mirror(pack.real_length(s), pack.padded_length(s), rank));
  }
  return lengths;
}

std::vector<std::int64_t> zigzag_positions(std::int64_t length, int size, int rank) {
  return zigzag_rows(Pack({Sequence{length, length}}), size, rank);
}

std::vector<std::int64_t> shift_labels(const Pack& pack, const std::vector<std::int64_t>& tokens,
                                       std::int64_t ignore) {
  if (static_cast<std::int64_t>(tokens.size()) != pack.padded_tokens()) {
    throw InvalidInput(std::to_string(tokens.size()) + " tokens given for a pack of " +
                       std::to_string(pack.padded_tokens()) + " padded tokens");
  }
  std::vector<std::int64_t> labels(tokens.size(), ignore);
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t j = 0; j + 1 < pack.real_length(s); ++j) {
      const auto row = static_cast<std::size_t>(pack.first_row(s) + j);
      labels[row] = tokens[row + 1];
    }
  }
  return labels;
}

}  // namespace dyncp
