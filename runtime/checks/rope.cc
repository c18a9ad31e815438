// `dyncp check rope`: positions and rotations of every rank of one CP group. Positions are compared
// exactly, as arrays and read back from a rotated probe; rotations to the bit where the same
// operations must give the same bits, and else within counted units of roundoff.
// The judge of recorded tensors is in rope_candidate.cc.
#include "reference/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "reference/context.h"
#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/check.h"
#include "runtime/checks/rope_candidate.h"
#include "runtime/checks/slice_case.h"
#include "runtime/diagnosis.h"

namespace dyncp {
namespace {

using Positions = std::vector<std::int64_t>;

constexpr std::int64_t kMaxValues = std::int64_t{1} << 26;  // of the query of the whole pack
constexpr std::int64_t kShownRows = 64;                     // of a rank, in the details
constexpr int kShownRanks = 16;
constexpr double kUnit = 0x1p-53;

Tensor<double> random_tensor(std::int64_t rows, int heads, int dim, std::mt19937_64& random) {
  Tensor<double> x(rows, heads, dim);
  for (double& value : x.data) value = static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
  return x;
}

// First row where the bits differ (NaN equals NaN), or rows.
std::int64_t first_difference(const Tensor<double>& a, const Tensor<double>& b) {
  const std::size_t width = static_cast<std::size_t>(a.heads) * static_cast<std::size_t>(a.dim);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const bool same = std::isnan(a.data[i]) ? std::isnan(b.data[i])
                                            : std::bit_cast<std::uint64_t>(a.data[i]) ==
                                                  std::bit_cast<std::uint64_t>(b.data[i]);
    if (!same) return static_cast<std::int64_t>(i / width);
  }
  return a.rows;
}

struct PairDims {
  int first;
  int second;
};

PairDims dims_of_pair(int pair, const RopeOptions& options) {
  if (options.pairing == Pairing::kHalf) return {pair, pair + options.rotary_dim / 2};
  return {2 * pair, 2 * pair + 1};
}

// One rank of the group: its rows, its positions, and which rows are padding.
struct Rank {
  int rank = 0;
  Positions rows;
  Positions positions;
  Positions packed;
  std::vector<bool> is_padding;
};

struct Case {
  Problem problem;
  Pack pack;
  RopeOptions options;
  std::vector<Rank> ranks;
  Positions whole;  // positions of the whole pack, CP off
  std::mt19937_64 random;

  std::string place(std::int64_t row) const {
    const Positions& cu = pack.cu_seqlens_padded();
    const auto s = static_cast<int>(std::upper_bound(cu.begin(), cu.end(), row) - cu.begin()) - 1;
    return fmt::format("sequence {}, position {}", s, row - pack.first_row(s));
  }
};

// ---- Positions --------------------------------------------------------------------------------

void check_formula(const Case& c, CaseResult& result) {
  const int size = c.problem.cp;
  for (const Rank& rank : c.ranks) {
    for (const bool packed : {false, true}) {
      const Positions& got = packed ? rank.packed : rank.positions;
      const Positions expected =
          positions_by_formula(c.pack.cu_seqlens_padded(), size, rank.rank,
                               static_cast<std::int64_t>(rank.rows.size()), packed);
      result.expect(
          packed ? "rope.packed_table" : "rope.positions", Kind::kPosition, got == expected, [&] {
            const auto at = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
            const auto row = at.first - got.begin();
            return fmt::format(
                "rank {}, local row {}: {} position {}, {} by the closed "
                "form",
                rank.rank, row, packed ? "packed-table" : "restarting",
                at.first == got.end() ? -1 : *at.first,
                at.second == expected.end() ? -1 : *at.second);
          });
    }
  }
}

// Over all ranks every sequence has the positions 0..padded-1 once each.
void check_permutation(const Case& c, CaseResult& result) {
  std::vector<int> times(static_cast<std::size_t>(c.pack.padded_tokens()), 0);
  for (const Rank& rank : c.ranks) {
    const Positions local = local_boundaries(c.pack, c.problem.cp);
    for (int s = 0; s < c.pack.sequences(); ++s) {
      for (std::int64_t i = local[static_cast<std::size_t>(s)];
           i < local[static_cast<std::size_t>(s) + 1]; ++i) {
        const std::int64_t position = rank.positions[static_cast<std::size_t>(i)];
        if (!result.expect("rope.permutation", Kind::kPosition,
                           position >= 0 && position < c.pack.padded_length(s), [&] {
                             return fmt::format(
                                 "rank {}, local row {}: position {} in sequence {} "
                                 "of {} tokens",
                                 rank.rank, i, position, s, c.pack.padded_length(s));
                           })) {
          return;
        }
        ++times[static_cast<std::size_t>(c.pack.first_row(s) + position)];
      }
    }
  }
  const auto wrong = std::find_if(times.begin(), times.end(), [](int n) { return n != 1; });
  result.expect("rope.permutation", Kind::kPosition, wrong == times.end(), [&] {
    return fmt::format("{} is given {} times over the ranks", c.place(wrong - times.begin()),
                       *wrong);
  });
}

// A packed table holds a token's angle in the row that holds the token.
void check_packed_table(const Case& c, CaseResult& result) {
  for (const Rank& rank : c.ranks) {
    const auto at = std::mismatch(rank.packed.begin(), rank.packed.end(), rank.rows.begin());
    result.expect("rope.packed_table", Kind::kPosition, at.first == rank.packed.end(), [&] {
      return fmt::format("rank {}, local row {}: packed-table position {} for row {} of the pack",
                         rank.rank, at.first - rank.packed.begin(), *at.first, *at.second);
    });
  }
}

// Rotating (1, 0) writes the position into the output. The probe's slow pair turns by less than a
// radian over the longest sequence, so that its angle names the position.
void check_read_back(const Case& c, CaseResult& result) {
  const double longest = std::max(1.0, static_cast<double>(c.pack.max_padded_length()));
  const RopeOptions options{.rotary_dim = 4,
                            .base = std::max(100.0, 16.0 * longest * longest),
                            .pairing = c.options.pairing};
  const double frequency = rope_inverse_frequencies(options)[1];
  const auto [first, second] = dims_of_pair(1, options);
  Tensor<double> probe(c.pack.padded_tokens(), 1, 4, 0.0);
  for (std::int64_t row = 0; row < probe.rows; ++row) probe.at(row, 0, first) = 1.0;
  for (const Rank& rank : c.ranks) {
    const Tensor<double> y = rope(gather(probe, rank.rows), rank.positions, options);
    for (std::int64_t i = 0; i < y.rows; ++i) {
      const std::int64_t read =
          std::llround(std::atan2(y.at(i, 0, second), y.at(i, 0, first)) / frequency);
      const std::int64_t row = rank.rows[static_cast<std::size_t>(i)];
      const Positions& cu = c.pack.cu_seqlens_padded();
      const std::int64_t start = *(std::upper_bound(cu.begin(), cu.end(), row) - 1);
      if (!result.expect("rope.read_back", Kind::kPosition, read == row - start, [&] {
            return fmt::format("rank {}, local row {} ({}): a rotated probe reads position {}",
                               rank.rank, i, c.place(row), read);
          })) {
        return;
      }
    }
  }
}

// ---- Rotations, to the bit --------------------------------------------------------------------

void check_slice_commutes(const Case& c, const Tensor<double>& x, std::string_view name,
                          CaseResult& result) {
  const Tensor<double> whole = rope(x, c.whole, c.options);
  const Tensor<double> whole_back = rope_backward(x, c.whole, c.options);
  for (const Rank& rank : c.ranks) {
    const Tensor<double> slice = gather(x, rank.rows);
    for (const bool backward : {false, true}) {
      const Tensor<double> got = backward ? rope_backward(slice, rank.positions, c.options)
                                          : rope(slice, rank.positions, c.options);
      const std::int64_t row =
          first_difference(got, gather(backward ? whole_back : whole, rank.rows));
      result.expect("rope.slice_commutes", Kind::kPosition, row == got.rows, [&] {
        return fmt::format(
            "{} {}, rank {}, local row {} ({}): rotating the slice is not slicing "
            "the rotated pack",
            name, backward ? "backward" : "forward", rank.rank, row,
            c.place(rank.rows[static_cast<std::size_t>(row)]));
      });
    }
  }
}

// A table of every sequence's angles laid end to end, read at packed positions, rotates like one
// sequence's table read at restarting ones; a pack rotates like its sequences one by one.
void check_packing(const Case& c, const Tensor<double>& x, CaseResult& result) {
  Positions counting;
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < c.pack.padded_length(s); ++j) counting.push_back(j);
  }
  const Tensor<double> table = rope_angles(counting, c.options);
  const Positions local = local_boundaries(c.pack, c.problem.cp);
  for (const Rank& rank : c.ranks) {
    const Tensor<double> slice = gather(x, rank.rows);
    const Tensor<double> expected = rope(slice, rank.positions, c.options);
    const std::int64_t row =
        first_difference(rotate(slice, gather(table, rank.packed), c.options), expected);
    result.expect("rope.packed_table", Kind::kPosition, row == slice.rows, [&] {
      return fmt::format(
          "rank {}, local row {} ({}): the packed table rotates otherwise than "
          "restarting positions",
          rank.rank, row, c.place(rank.rows[static_cast<std::size_t>(row)]));
    });
    for (int s = 0; s < c.pack.sequences(); ++s) {
      Positions rows;
      for (std::int64_t i = local[static_cast<std::size_t>(s)];
           i < local[static_cast<std::size_t>(s) + 1]; ++i) {
        rows.push_back(i);
      }
      const Pack alone({c.pack.sequence(s)});
      const Tensor<double> single =
          rope(gather(slice, rows), rope_positions(alone, c.problem.cp, rank.rank), c.options);
      result.expect("rope.concatenation", Kind::kPosition,
                    first_difference(single, gather(expected, rows)) == single.rows, [&] {
                      return fmt::format(
                          "rank {}: sequence {} alone rotates otherwise than in the "
                          "pack",
                          rank.rank, s);
                    });
    }
  }
}

// Interleaved pairs are half pairs after a permutation of the dimensions.
void check_pairings(const Case& c, const Tensor<double>& x, CaseResult& result) {
  RopeOptions half = c.options, interleaved = c.options;
  half.pairing = Pairing::kHalf;
  interleaved.pairing = Pairing::kInterleaved;
  const auto permuted = [&](const Tensor<double>& from) {
    Tensor<double> to = from;
    for (std::int64_t row = 0; row < from.rows; ++row) {
      for (int h = 0; h < from.heads; ++h) {
        for (int j = 0; j < c.options.rotary_dim / 2; ++j) {
          const PairDims source = dims_of_pair(j, interleaved), target = dims_of_pair(j, half);
          to.at(row, h, target.first) = from.at(row, h, source.first);
          to.at(row, h, target.second) = from.at(row, h, source.second);
        }
      }
    }
    return to;
  };
  const std::int64_t row =
      first_difference(permuted(rope(x, c.whole, interleaved)), rope(permuted(x), c.whole, half));
  result.expect("rope.pairing", Kind::kPosition, row == x.rows, [&] {
    return fmt::format("{}: interleaved pairs are not the permuted half pairs", c.place(row));
  });
}

void check_tail(const Case& c, const Tensor<double>& x, CaseResult& result) {
  if (c.options.rotary_dim == x.dim) return;
  for (const bool backward : {false, true}) {
    const Tensor<double> y =
        backward ? rope_backward(x, c.whole, c.options) : rope(x, c.whole, c.options);
    std::int64_t changed = 0;
    for (std::int64_t row = 0; row < x.rows; ++row) {
      for (int h = 0; h < x.heads; ++h) {
        for (int d = c.options.rotary_dim; d < x.dim; ++d) {
          changed += std::bit_cast<std::uint64_t>(x.at(row, h, d)) !=
                     std::bit_cast<std::uint64_t>(y.at(row, h, d));
        }
      }
    }
    result.expect("rope.partial", Kind::kPosition, changed == 0, [&] {
      return fmt::format("{} values behind rotary dimension {} changed ({})", changed,
                         c.options.rotary_dim, backward ? "backward" : "forward");
    });
  }
}

// NaN in padding rows must not reach a real row: those come out with the same bits as without.
void check_padding(const Case& c, const Tensor<double>& x, CaseResult& result) {
  for (const Rank& rank : c.ranks) {
    const Tensor<double> slice = gather(x, rank.rows);
    Tensor<double> poisoned = slice;
    for (std::int64_t row = 0; row < slice.rows; ++row) {
      if (!rank.is_padding[static_cast<std::size_t>(row)]) continue;
      for (int h = 0; h < slice.heads; ++h) {
        for (int d = 0; d < slice.dim; ++d) {
          poisoned.at(row, h, d) = std::numeric_limits<double>::quiet_NaN();
        }
      }
    }
    for (const bool backward : {false, true}) {
      Tensor<double> expected = backward ? rope_backward(slice, rank.positions, c.options)
                                         : rope(slice, rank.positions, c.options);
      const Tensor<double> got = backward ? rope_backward(poisoned, rank.positions, c.options)
                                          : rope(poisoned, rank.positions, c.options);
      for (std::int64_t row = 0; row < slice.rows; ++row) {
        if (!rank.is_padding[static_cast<std::size_t>(row)]) continue;
        for (int h = 0; h < slice.heads; ++h) {
          for (int d = 0; d < slice.dim; ++d) expected.at(row, h, d) = poisoned.at(row, h, d);
        }
      }
      const std::int64_t row = first_difference(got, expected);
      result.expect("rope.padding", Kind::kPadding, row == got.rows, [&] {
        return fmt::format("rank {}, local row {} ({}) changes when padding rows hold NaN ({})",
                           rank.rank, row, c.place(rank.rows[static_cast<std::size_t>(row)]),
                           backward ? "backward" : "forward");
      });
    }
  }
}

// ---- Rotations, in units of roundoff ----------------------------------------------------------

// Backward of forward is concentration^2 x, and a pair keeps its norm times the concentration. How
// many units: each output is off by 5 (cosine 2, concentration, product, sum) of c(|a|+|b|).
void check_inverse_and_norm(const Case& c, const Tensor<double>& x, CaseResult& result) {
  const Tensor<double> y = rope(x, c.whole, c.options);
  const Tensor<double> back = rope_backward(y, c.whole, c.options);
  const double factor = rope_concentration(c.options) * rope_concentration(c.options);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (int h = 0; h < x.heads; ++h) {
      for (int j = 0; j < c.options.rotary_dim / 2; ++j) {
        const auto [first, second] = dims_of_pair(j, c.options);
        const double a = x.at(row, h, first), b = x.at(row, h, second);
        const double off = std::max(std::fabs(back.at(row, h, first) - factor * a),
                                    std::fabs(back.at(row, h, second) - factor * b));
        if (!result.expect("rope.inverse", Kind::kPosition,
                           off <= 24 * kUnit * factor * (std::fabs(a) + std::fabs(b)), [&] {
                             return fmt::format(
                                 "{}, head {}, pair {}: backward of forward is off "
                                 "by {:.3g} from {:.6g} x",
                                 c.place(row), h, j, off, factor);
                           })) {
          return;
        }
        const double before = a * a + b * b;
        const double after =
            y.at(row, h, first) * y.at(row, h, first) + y.at(row, h, second) * y.at(row, h, second);
        if (!result.expect("rope.norm", Kind::kPosition,
                           std::fabs(after - factor * before) <= 26 * kUnit * factor * before, [&] {
                             return fmt::format(
                                 "{}, head {}, pair {}: squared norm {:.17g}, "
                                 "expected {:.17g}",
                                 c.place(row), h, j, after, factor * before);
                           })) {
          return;
        }
      }
    }
  }
}

// <rope(x), g> = <x, backward(g)>, row by row, with angles of their own on both dimensions of a
// pair as well: a backward that reads the wrong partner's angle is right only where they agree.
void check_adjoint(const Case& c, const Tensor<double>& x, const Tensor<double>& g,
                   std::mt19937_64& random, CaseResult& result) {
  Tensor<double> uneven = rope_angles(c.whole, c.options);
  for (double& angle : uneven.data) angle += static_cast<double>(random() >> 11) * 0x1p-53;
  const double concentration = rope_concentration(c.options);
  for (const Tensor<double>& angles : {rope_angles(c.whole, c.options), uneven}) {
    const Tensor<double> y = rotate(x, angles, c.options);
    const Tensor<double> dx = rotate_transposed(g, angles, c.options);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      double forward = 0, backward = 0, size = 0;
      for (int h = 0; h < x.heads; ++h) {
        for (int d = 0; d < x.dim; ++d) {
          forward += y.at(row, h, d) * g.at(row, h, d);
          backward += x.at(row, h, d) * dx.at(row, h, d);
          if (d >= c.options.rotary_dim) size += std::fabs(x.at(row, h, d) * g.at(row, h, d));
        }
        for (int j = 0; j < c.options.rotary_dim / 2; ++j) {
          const auto [first, second] = dims_of_pair(j, c.options);
          size += concentration *
                  (std::fabs(x.at(row, h, first)) + std::fabs(x.at(row, h, second))) *
                  (std::fabs(g.at(row, h, first)) + std::fabs(g.at(row, h, second)));
        }
      }
      // Product and sum of each element (2 units), the product (1) and n additions of the dot
      // product, on both sides; one more for second order.
      const double n = static_cast<double>(x.heads) * x.dim;
      if (!result.expect("rope.adjoint", Kind::kPosition,
                         std::fabs(forward - backward) <= 2 * (n + 4) * kUnit * size, [&] {
                           return fmt::format(
                               "{}: <rope(x), g> = {:.17g} but <x, backward(g)> = "
                               "{:.17g}",
                               c.place(row), forward, backward);
                         })) {
        return;
      }
    }
  }
}

// Scores depend on the distance of query and key alone: each row with the first row of its rank,
// both moved on by the same number of positions.
void check_shift(const Case& c, const Tensor<double>& q, const Tensor<double>& k,
                 std::mt19937_64& random, CaseResult& result) {
  const double factor = rope_concentration(c.options) * rope_concentration(c.options);
  const std::vector<double> frequencies = rope_inverse_frequencies(c.options);
  const auto shift = static_cast<std::int64_t>(1 + random() % 4096);
  for (const Rank& rank : c.ranks) {
    if (rank.rows.empty()) continue;
    Positions moved = rank.positions;
    for (std::int64_t& position : moved) position += shift;
    const Tensor<double> query = gather(q, rank.rows), key = gather(k, rank.rows);
    const Tensor<double> q0 = rope(query, rank.positions, c.options);
    const Tensor<double> q1 = rope(query, moved, c.options);
    const Tensor<double> k0 = rope(key, rank.positions, c.options);
    const Tensor<double> k1 = rope(key, moved, c.options);
    for (std::int64_t i = 0; i < query.rows; ++i) {
      double before = 0, after = 0, bound = 0;
      for (int d = 0; d < c.options.rotary_dim; ++d) {
        before += q0.at(i, 0, d) * k0.at(0, 0, d);
        after += q1.at(i, 0, d) * k1.at(0, 0, d);
      }
      for (int j = 0; j < c.options.rotary_dim / 2; ++j) {
        const auto [a, b] = dims_of_pair(j, c.options);
        const double size = (std::fabs(query.at(i, 0, a)) + std::fabs(query.at(i, 0, b))) *
                            (std::fabs(key.at(0, 0, a)) + std::fabs(key.at(0, 0, b)));
        const double largest =
            static_cast<double>(std::max(moved[static_cast<std::size_t>(i)], moved.front()));
        // Before and after, query and key: one unit of the angle and 5 of the rotation; then the
        // dot product.
        const double units = 2 * (2 * (largest * frequencies[static_cast<std::size_t>(j)] + 5) +
                                  c.options.rotary_dim + 2);
        bound += units * kUnit * factor * 2 * size;
      }
      if (!result.expect("rope.shift", Kind::kPosition, std::fabs(before - after) <= bound, [&] {
            return fmt::format(
                "rank {}, local rows {} and 0: score {:.17g}, {:.17g} after moving "
                "both by {}",
                rank.rank, i, before, after, shift);
          })) {
        return;
      }
    }
  }
}

// Wrong position maps that real code has had must not pass for right: each gives another array
// wherever it can.
void check_controls(const Case& c, CaseResult& result) {
  const int size = c.problem.cp;
  bool unequal = false;
  int with_tokens = 0;
  for (int s = 0; s < c.pack.sequences(); ++s) {
    unequal = unequal ||
              (c.pack.padded_length(s) > 0 && c.pack.padded_length(s) != c.pack.padded_length(0));
    with_tokens += c.pack.padded_length(s) > 0;
  }
  for (const Rank& rank : c.ranks) {
    if (rank.rows.empty()) continue;
    if (with_tokens > 1) {
      result.expect("rope.control_packed", Kind::kPosition, rank.positions != rank.packed, [&] {
        return fmt::format("rank {}: restarting and packed-table positions are the same",
                           rank.rank);
      });
    }
    if (size == 1) continue;
    const auto rows = static_cast<std::int64_t>(rank.rows.size());
    const Positions off = positions_by_formula(local_boundaries(c.pack, size), 1, 0, rows, false);
    result.expect("rope.control_build_time_group", Kind::kPosition, off != rank.positions, [&] {
      return fmt::format("rank {}: positions as if CP were off are the same", rank.rank);
    });
    if (!unequal) continue;
    const auto hypotheses = position_hypotheses(c.pack, size, rank.rank, false);
    const auto first = std::find_if(hypotheses.begin(), hypotheses.end(), [](const Hypothesis& h) {
      return h.name.starts_with("the first sequence's chunk size");
    });
    result.expect("rope.control_first_sequence", Kind::kPosition,
                  first != hypotheses.end() && first->values() != rank.positions, [&] {
                    return fmt::format(
                        "rank {}: the first sequence's chunk size gives the same "
                        "positions to sequences of other lengths",
                        rank.rank);
                  });
  }
}

CaseResult run(const Problem& problem) {
  Case c;
  c.problem = problem;
  c.pack = problem.pack();
  c.options = rope_options(problem, problem.dim);
  c.random.seed(problem.seed);
  if (problem.heads < 1 || problem.kv_heads < 1 || problem.dim < 1) {
    throw InvalidInput(fmt::format("heads {}, kv-heads {} and dim {} must be at least 1",
                                   problem.heads, problem.kv_heads, problem.dim));
  }
  require_valid(c.options);
  if (c.options.rotary_dim > problem.dim) {
    throw InvalidInput(
        fmt::format("rotary-dim {} is above dim {}", c.options.rotary_dim, problem.dim));
  }
  const std::int64_t values_per_token =
      std::int64_t{std::max(problem.heads, problem.kv_heads)} * problem.dim;
  if (c.pack.padded_tokens() > kMaxValues / values_per_token) {
    throw InvalidInput(
        fmt::format("check rope rotates {} padded tokens of {} values each, more "
                    "than {} in all",
                    c.pack.padded_tokens(), values_per_token, kMaxValues));
  }
  require_divisible(c.pack, problem.cp);
  CaseResult result;
  for (const PackedSeqParams& params : params_of_group(problem, c.pack, "rope.params", result)) {
    const CpContext& context = params.context();
    Rank rank;
    rank.rank = context.rank();
    rank.rows = zigzag_rows(params.pack(), context.size(), context.rank());
    rank.positions = rope_positions(params.pack(), context.size(), context.rank());
    rank.packed = rope_positions_packed_table(params.pack(), context.size(), context.rank());
    const bool right =
        rank.positions.size() == rank.rows.size() && rank.packed.size() == rank.rows.size();
    if (!result.expect("rope.row_count", Kind::kPosition, right, [&] {
          return fmt::format("rank {} has {} positions and {} in the packed table for {} rows",
                             rank.rank, rank.positions.size(), rank.packed.size(),
                             rank.rows.size());
        })) {
      return result;
    }
    const Positions local = local_boundaries(c.pack, problem.cp);
    const Positions real = real_lengths_on_rank(c.pack, problem.cp, rank.rank);
    rank.is_padding.assign(rank.rows.size(), false);
    for (std::size_t s = 0; s < real.size(); ++s) {
      for (std::int64_t i = local[s] + real[s]; i < local[s + 1]; ++i) {
        rank.is_padding[static_cast<std::size_t>(i)] = true;
      }
    }
    c.ranks.push_back(std::move(rank));
  }
  if (c.ranks.empty()) return result;
  c.whole = rope_positions(c.pack, 1, 0);

  check_formula(c, result);
  check_permutation(c, result);
  check_packed_table(c, result);
  check_controls(c, result);
  const bool positions_hold = result.findings().empty();
  check_read_back(c, result);
  const Tensor<double> q =
      random_tensor(c.pack.padded_tokens(), problem.heads, problem.dim, c.random);
  const Tensor<double> k =
      random_tensor(c.pack.padded_tokens(), problem.kv_heads, problem.dim, c.random);
  const Tensor<double> g =
      random_tensor(c.pack.padded_tokens(), problem.heads, problem.dim, c.random);
  check_slice_commutes(c, q, "query", result);
  check_slice_commutes(c, k, "key", result);
  // Wrong positions may point outside the table.
  if (positions_hold) check_packing(c, q, result);
  check_pairings(c, q, result);
  check_tail(c, q, result);
  check_padding(c, q, result);
  check_inverse_and_norm(c, q, result);
  check_adjoint(c, q, g, c.random, result);
  check_shift(c, q, k, c.random, result);

  if (c.pack.padded_tokens() / problem.cp <= kShownRows && problem.cp <= kShownRanks) {
    for (const Rank& rank : c.ranks) {
      result.detail(fmt::format("rank {}: restarting positions {}", rank.rank,
                                fmt::join(rank.positions, " ")));
      result.detail(fmt::format("rank {}: packed-table positions {}", rank.rank,
                                fmt::join(rank.packed, " ")));
    }
  }
  mistrust_vacuous_slices(problem, result);
  return result;
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  const auto vary = [](Problem& problem, int number) {
    constexpr int kDims[] = {8, 16, 10, 64};
    problem.dim = kDims[number % 4];
    problem.heads = 1 + number % 3;
    problem.kv_heads = 1;
    if (number % 2 == 1) problem.pairing = "interleaved";
    if (number % 3 == 1) problem.rotary_dim = problem.dim - 2;
    if (number % 4 >= 2) problem.rope_base = number % 4 == 2 ? 500000.0 : 1000000.0;
    if (number % 5 == 3) problem.yarn_scale = 4.0;
  };
  const WindowPlan plan =
      tier == Tier::kSmoke ? WindowPlan{.windows = 1, .sequences = 4, .longest = 100}
      : tier == Tier::kCi  ? WindowPlan{.windows = 2, .sequences = 12, .longest = 400}
                           : WindowPlan{.windows = 8, .sequences = 32, .longest = 2000};
  return window_cases("rope", sets, seed, plan, vary);
}

}  // namespace

const Driver& rope_driver() {
  static const Driver driver{
      "rope",
      "positions and rotations of each CP rank: restarting, packed table, gradients, YaRN",
      {"lengths", "padded", "seed", "cp", "first-rank", "contract", "tp", "heads", "kv-heads",
       "dim", "pairing", "rotary-dim", "rope-base", "yarn-scale"},
      run,
      judge_rope,
      gate_cases};
  return driver;
}

}  // namespace dyncp
