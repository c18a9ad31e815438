// RoPE on arbitrary packs: position maps, the transposed rotation, invariants of the rotation, and
// the error bound. Bounds are counted in units of roundoff; how many stands with each.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "properties/generators.h"
#include "reference/error.h"
#include "reference/rope.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

using Positions = std::vector<std::int64_t>;

constexpr double kUnit = 0x1p-53;

double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;  // [-1, 1)
}

Tensor<double> random_tensor(std::int64_t rows, int heads, int dim, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor<double> x(rows, heads, dim);
  for (double& value : x.data) value = uniform(random);
  return x;
}

rc::Gen<std::uint64_t> genSeed() { return rc::gen::arbitrary<std::uint64_t>(); }

RopeOptions draw_options() {
  RopeOptions options;
  options.rotary_dim = 2 * *genInt(1, 5);
  options.base = *rc::gen::element(100.0, 10000.0, 500000.0, 10000000.0);
  options.pairing = *rc::gen::element(Pairing::kHalf, Pairing::kInterleaved);
  if (*rc::gen::arbitrary<bool>()) {
    options.yarn = YarnScaling{.scale = *rc::gen::element(1.0, 2.0, 8.0, 40.0),
                               .original_max_positions = *rc::gen::element(32.0, 4096.0),
                               .mscale = *rc::gen::element(1.0, 0.707),
                               .mscale_all_dim = *rc::gen::element(0.0, 1.0)};
  }
  return options;
}

Positions draw_positions(std::int64_t rows, std::int64_t max_position) {
  std::mt19937_64 random(*genSeed());
  Positions positions;
  for (std::int64_t row = 0; row < rows; ++row) {
    positions.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(max_position + 1)));
  }
  return positions;
}

std::pair<int, int> dims(int pair, const RopeOptions& options) {
  if (options.pairing == Pairing::kHalf) return {pair, pair + options.rotary_dim / 2};
  return {2 * pair, 2 * pair + 1};
}

// The bits, so that NaN equals itself and 0 differs from -0.
bool same_bits(const Tensor<double>& a, const Tensor<double>& b) {
  if (!a.same_shape(b)) return false;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(a.data[i]) != std::bit_cast<std::uint64_t>(b.data[i])) {
      return false;
    }
  }
  return true;
}

RC_GTEST_PROP(RopePositionProperties, EverySequenceCountsFromZero, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const Positions local = local_boundaries(pack, size);
  std::vector<std::vector<int>> seen;
  for (int s = 0; s < pack.sequences(); ++s) {
    seen.emplace_back(static_cast<std::size_t>(pack.padded_length(s)), 0);
  }
  for (int rank = 0; rank < size; ++rank) {
    const Positions positions = rope_positions(pack, size, rank);
    RC_ASSERT(static_cast<std::int64_t>(positions.size()) * size == pack.padded_tokens());
    for (std::size_t s = 0; s < seen.size(); ++s) {
      for (std::int64_t i = local[s]; i < local[s + 1]; ++i) {
        ++seen[s].at(static_cast<std::size_t>(positions[static_cast<std::size_t>(i)]));
      }
    }
  }
  for (const auto& counts : seen) {
    for (int count : counts) RC_ASSERT(count == 1);
  }
}

// The formula Megatron-LM evaluates, from its description: with l local tokens of which half a
// segment each, position = p < l/2 ? rank*l/2 + p : l*size - (rank+1)*l/2 + (p - l/2).
RC_GTEST_PROP(RopePositionProperties, AgreeWithTheClosedForm, ()) {
  const int size = *genCpSizeAboveOne();
  const Pack pack = *genPack(size);
  for (int rank = 0; rank < size; ++rank) {
    Positions expected;
    for (int s = 0; s < pack.sequences(); ++s) {
      const std::int64_t l = pack.padded_length(s) / size;
      const std::int64_t segment = l / 2;
      for (std::int64_t p = 0; p < l; ++p) {
        expected.push_back(p < segment ? rank * segment + p
                                       : l * size - (rank + 1) * segment + (p - segment));
      }
    }
    RC_ASSERT(rope_positions(pack, size, rank) == expected);
  }
}

RC_GTEST_PROP(RopePositionProperties, PackedTableHoldsATokenWhereThePackDoes, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  for (int rank = 0; rank < size; ++rank) {
    RC_ASSERT(rope_positions_packed_table(pack, size, rank) == zigzag_rows(pack, size, rank));
  }
}

// What a token id tensor goes through - made for the whole pack, then sliced - gives the same.
RC_GTEST_PROP(RopePositionProperties, SlicedPositionIdsAreThePositions, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  Positions ids;
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < pack.padded_length(s); ++j) ids.push_back(j);
  }
  for (int rank = 0; rank < size; ++rank) {
    RC_ASSERT(gather(ids, zigzag_rows(pack, size, rank)) == rope_positions(pack, size, rank));
  }
}

RC_GTEST_PROP(RopePositionProperties, RealLengthsDoNotMatter, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  std::vector<Sequence> full;
  for (int s = 0; s < pack.sequences(); ++s) {
    full.push_back({pack.padded_length(s), pack.padded_length(s)});
  }
  const int rank = *genInt(0, size - 1);
  RC_ASSERT(rope_positions(Pack(full), size, rank) == rope_positions(pack, size, rank));
}

RC_GTEST_PROP(RopeProperties, PairsKeepTheirNormTimesTheConcentration, ()) {
  const RopeOptions options = draw_options();
  const int dim = options.rotary_dim + *genInt(0, 3);
  const std::int64_t rows = *genInt(0, 12);
  const Positions positions = draw_positions(rows, 1'000'000);
  const Tensor<double> x = random_tensor(rows, 2, dim, *genSeed());
  const Tensor<double> y = rope(x, positions, options);
  const double c = rope_concentration(options);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int h = 0; h < 2; ++h) {
      for (int j = 0; j < options.rotary_dim / 2; ++j) {
        const auto [a, b] = dims(j, options);
        const double before = x.at(row, h, a) * x.at(row, h, a) + x.at(row, h, b) * x.at(row, h, b);
        const double after = y.at(row, h, a) * y.at(row, h, a) + y.at(row, h, b) * y.at(row, h, b);
        // An output is off by 5 units (cosine 2, concentration, product, sum) of c(|a|+|b|); the
        // sum of squares by 20 units of c^2(a^2+b^2), and squaring, adding, c^2 add 6.
        RC_ASSERT(std::fabs(after - c * c * before) <= 26 * kUnit * c * c * before);
      }
    }
  }
}

RC_GTEST_PROP(RopeProperties, BackwardIsTheAdjoint, ()) {
  const RopeOptions options = draw_options();
  const int dim = options.rotary_dim + *genInt(0, 3);
  const std::int64_t rows = *genInt(1, 8);
  const Tensor<double> x = random_tensor(rows, 2, dim, *genSeed());
  const Tensor<double> g = random_tensor(rows, 2, dim, *genSeed());
  // Angles of their own for both dimensions of a pair: a backward that takes the angle of the
  // dimension it writes, instead of the one it reads, is right only when they agree.
  Tensor<double> angles = random_tensor(rows, 1, options.rotary_dim, *genSeed());
  for (double& angle : angles.data) angle *= 10.0;
  const Tensor<double> y = rotate(x, angles, options);
  const Tensor<double> dx = rotate_transposed(g, angles, options);
  double forward = 0, backward = 0, size = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    forward += y.data[i] * g.data[i];
    backward += x.data[i] * dx.data[i];
  }
  const double c = rope_concentration(options);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int h = 0; h < 2; ++h) {
      for (int d = 0; d < dim; ++d) size += std::fabs(x.at(row, h, d) * g.at(row, h, d));
      for (int j = 0; j < options.rotary_dim / 2; ++j) {
        const auto [a, b] = dims(j, options);
        size += c * (std::fabs(x.at(row, h, a)) + std::fabs(x.at(row, h, b))) *
                (std::fabs(g.at(row, h, a)) + std::fabs(g.at(row, h, b)));
      }
    }
  }
  // Both sides use the same cosines: product and sum of each element (2 units), the products of the
  // dot product (1) and its n additions, on either side; second order fits in one more.
  const double n = static_cast<double>(x.data.size());
  RC_ASSERT(std::fabs(forward - backward) <= 2 * (n + 4) * kUnit * size);
}

RC_GTEST_PROP(RopeProperties, BackwardOfForwardIsConcentrationSquared, ()) {
  const RopeOptions options = draw_options();
  const int dim = options.rotary_dim + *genInt(0, 3);
  const std::int64_t rows = *genInt(0, 12);
  const Positions positions = draw_positions(rows, 1'000'000);
  const Tensor<double> x = random_tensor(rows, 2, dim, *genSeed());
  const Tensor<double> back = rope_backward(rope(x, positions, options), positions, options);
  const double c = rope_concentration(options);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int h = 0; h < 2; ++h) {
      for (int j = 0; j < options.rotary_dim / 2; ++j) {
        const auto [a, b] = dims(j, options);
        const double size = std::fabs(x.at(row, h, a)) + std::fabs(x.at(row, h, b));
        // 5 units of c(|a|+|b|) forward, grown by at most 2c backward, and 5 of 2c^2(|a|+|b|)
        // there; c^2 x itself 3.
        const double bound = 24 * kUnit * c * c * size;
        RC_ASSERT(std::fabs(back.at(row, h, a) - c * c * x.at(row, h, a)) <= bound);
        RC_ASSERT(std::fabs(back.at(row, h, b) - c * c * x.at(row, h, b)) <= bound);
      }
      for (int d = options.rotary_dim; d < dim; ++d) {
        RC_ASSERT(back.at(row, h, d) == x.at(row, h, d));
      }
    }
  }
}

// A score depends on the distance of query and key alone.
RC_GTEST_PROP(RopeProperties, ScoresDoNotChangeUnderAShift, ()) {
  const RopeOptions options = draw_options();
  const std::int64_t shift = *genInt(1, 5000);
  const Positions at = {*genInt(0, 3000), *genInt(0, 3000)};
  const Positions moved = {at[0] + shift, at[1] + shift};
  const Tensor<double> x = random_tensor(2, 1, options.rotary_dim, *genSeed());
  const auto score = [&x, &options](const Positions& positions) {
    const Tensor<double> y = rope(x, positions, options);
    double sum = 0;
    for (int d = 0; d < options.rotary_dim; ++d) sum += y.at(0, 0, d) * y.at(1, 0, d);
    return sum;
  };
  const double c = rope_concentration(options);
  const std::vector<double> w = rope_inverse_frequencies(options);
  const double largest = static_cast<double>(std::max(moved[0], moved[1]));
  double bound = 0;
  for (int j = 0; j < options.rotary_dim / 2; ++j) {
    const auto [a, b] = dims(j, options);
    const double size = (std::fabs(x.at(0, 0, a)) + std::fabs(x.at(0, 0, b))) *
                        (std::fabs(x.at(1, 0, a)) + std::fabs(x.at(1, 0, b)));
    // Per side, query and key each: one unit of the angle, 5 of the rotation; then the dot product.
    const double angle = largest * w[static_cast<std::size_t>(j)];
    bound += 2 * (2 * (angle + 5) + options.rotary_dim + 2) * kUnit * c * c * 2 * size;
  }
  RC_ASSERT(std::fabs(score(at) - score(moved)) <= bound);
}

// Interleaved pairs are half pairs after a permutation of the dimensions, to the bit.
RC_GTEST_PROP(RopeProperties, PairingsArePermutationsOfEachOther, ()) {
  RopeOptions options = draw_options();
  const int half = options.rotary_dim / 2;
  const int dim = options.rotary_dim + *genInt(0, 3);
  const std::int64_t rows = *genInt(0, 8);
  const Positions positions = draw_positions(rows, 100'000);
  const Tensor<double> x = random_tensor(rows, 2, dim, *genSeed());
  const auto to_half = [&](const Tensor<double>& interleaved) {
    Tensor<double> result = interleaved;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int h = 0; h < 2; ++h) {
        for (int j = 0; j < half; ++j) {
          result.at(row, h, j) = interleaved.at(row, h, 2 * j);
          result.at(row, h, j + half) = interleaved.at(row, h, 2 * j + 1);
        }
      }
    }
    return result;
  };
  options.pairing = Pairing::kInterleaved;
  const Tensor<double> interleaved = rope(x, positions, options);
  const Tensor<double> interleaved_back = rope_backward(x, positions, options);
  options.pairing = Pairing::kHalf;
  RC_ASSERT(same_bits(to_half(interleaved), rope(to_half(x), positions, options)));
  RC_ASSERT(same_bits(to_half(interleaved_back), rope_backward(to_half(x), positions, options)));
}

RC_GTEST_PROP(RopeProperties, RotateThenSliceIsSliceThenRotate, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {.max_length = 40, .max_count = 4});
  const RopeOptions options = draw_options();
  const Tensor<double> x =
      random_tensor(pack.padded_tokens(), 2, options.rotary_dim + *genInt(0, 2), *genSeed());
  const Tensor<double> whole = rope(x, rope_positions(pack, 1, 0), options);
  const Tensor<double> whole_back = rope_backward(x, rope_positions(pack, 1, 0), options);
  for (int rank = 0; rank < size; ++rank) {
    const Positions rows = zigzag_rows(pack, size, rank);
    const Positions positions = rope_positions(pack, size, rank);
    RC_ASSERT(same_bits(gather(whole, rows), rope(gather(x, rows), positions, options)));
    RC_ASSERT(
        same_bits(gather(whole_back, rows), rope_backward(gather(x, rows), positions, options)));
  }
}

// A pack is its sequences side by side: neither neighbours nor the place in the pack are seen.
RC_GTEST_PROP(RopeProperties, PackIsTheConcatenationOfItsSequences, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {.max_length = 40, .max_count = 4});
  const RopeOptions options = draw_options();
  const int rank = *genInt(0, size - 1);
  const Positions local = local_boundaries(pack, size);
  const Tensor<double> x = random_tensor(local.back(), 1, options.rotary_dim, *genSeed());
  Tensor<double> singles(local.back(), 1, options.rotary_dim);
  for (int s = 0; s < pack.sequences(); ++s) {
    Positions rows;
    for (std::int64_t i = local[static_cast<std::size_t>(s)];
         i < local[static_cast<std::size_t>(s) + 1]; ++i) {
      rows.push_back(i);
    }
    const Pack alone({pack.sequence(s)});
    scatter(rope(gather(x, rows), rope_positions(alone, size, rank), options), rows, singles);
  }
  RC_ASSERT(same_bits(rope(x, rope_positions(pack, size, rank), options), singles));
}

// A packed table is every sequence's own table laid end to end, read at packed positions.
RC_GTEST_PROP(RopeProperties, PackedTableRotatesLikeRestartingPositions, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {.max_length = 40, .max_count = 4});
  const RopeOptions options = draw_options();
  Positions counting;
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < pack.padded_length(s); ++j) counting.push_back(j);
  }
  const Tensor<double> table = rope_angles(counting, options);
  for (int rank = 0; rank < size; ++rank) {
    const Positions packed = rope_positions_packed_table(pack, size, rank);
    const Tensor<double> x =
        random_tensor(static_cast<std::int64_t>(packed.size()), 1, options.rotary_dim, *genSeed());
    RC_ASSERT(same_bits(rotate(x, gather(table, packed), options),
                        rope(x, rope_positions(pack, size, rank), options)));
  }
}

RC_GTEST_PROP(RopeProperties, TheTailIsUntouchedToTheBit, ()) {
  const RopeOptions options = draw_options();
  const int tail = *genInt(1, 5);
  const std::int64_t rows = *genInt(1, 6);
  const Positions positions = draw_positions(rows, 1000);
  Tensor<double> x = random_tensor(rows, 2, options.rotary_dim + tail, *genSeed());
  const double odd[] = {-0.0, std::numeric_limits<double>::quiet_NaN(),
                        -std::numeric_limits<double>::infinity(), 0x1p-1074};
  for (std::int64_t row = 0; row < rows; ++row) {
    x.at(row, 0, options.rotary_dim) = odd[static_cast<std::size_t>(row) % 4];
  }
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  for (const Tensor<double>& y :
       {rope(x, positions, options), rope_backward(x, positions, options)}) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int h = 0; h < 2; ++h) {
        for (int d = options.rotary_dim; d < x.dim; ++d) {
          RC_ASSERT(bits(y.at(row, h, d)) == bits(x.at(row, h, d)));
        }
      }
    }
  }
}

RC_GTEST_PROP(RopeProperties, NanInPaddingStaysInPadding, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {.max_length = 40, .max_count = 4});
  const RopeOptions options = draw_options();
  for (int rank = 0; rank < size; ++rank) {
    const Positions positions = rope_positions(pack, size, rank);
    Tensor<double> zero = random_tensor(static_cast<std::int64_t>(positions.size()), 2,
                                        options.rotary_dim, *genSeed());
    fill_padding(zero, pack, size, rank, 0.0);
    Tensor<double> poisoned = zero;
    fill_padding(poisoned, pack, size, rank);
    for (const bool backward : {false, true}) {
      Tensor<double> expected =
          backward ? rope_backward(zero, positions, options) : rope(zero, positions, options);
      const Tensor<double> got = backward ? rope_backward(poisoned, positions, options)
                                          : rope(poisoned, positions, options);
      fill_padding(expected, pack, size, rank);
      for (std::size_t i = 0; i < got.data.size(); ++i) {
        const bool both_nan = std::isnan(expected.data[i]) && std::isnan(got.data[i]);
        RC_ASSERT(both_nan || got.data[i] == expected.data[i]);
      }
    }
  }
}

// Rotating (1, 0) writes the position into the output; atan2 reads it back.
RC_GTEST_PROP(RopeProperties, AProbeReadsThePositionBack, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const Pairing pairing = *rc::gen::element(Pairing::kHalf, Pairing::kInterleaved);
  const int rank = *genInt(0, size - 1);
  // Pair 1 turns once in 10^6 tokens times 2 pi, so its angle names the position.
  const RopeOptions options{.rotary_dim = 4, .base = 1e12, .pairing = pairing};
  const Positions positions = rope_positions(pack, size, rank);
  const auto [first, second] = dims(1, options);
  Tensor<double> probe(static_cast<std::int64_t>(positions.size()), 1, 4, 0.0);
  for (std::int64_t row = 0; row < probe.rows; ++row) probe.at(row, 0, first) = 1.0;
  const Tensor<double> y = rope(probe, positions, options);
  for (std::int64_t row = 0; row < probe.rows; ++row) {
    const double angle = std::atan2(y.at(row, 0, second), y.at(row, 0, first));
    RC_ASSERT(std::llround(angle * 1e6) == positions[static_cast<std::size_t>(row)]);
  }
}

double to_float(double value) { return static_cast<double>(static_cast<float>(value)); }

// To nearest, ties to even, at 8 significant bits.
double to_bf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // 0.5 <= |fraction| < 1
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

double exact(double value) { return value; }

RC_GTEST_PROP(RopeProperties, RoundedArithmeticStaysWithinTheBound, ()) {
  const RopeOptions options = draw_options();
  const int dim = options.rotary_dim + *genInt(0, 2);
  const std::int64_t rows = *genInt(1, 10);
  const Positions positions = draw_positions(rows, *rc::gen::element(10, 4000, 1'000'000));
  Tensor<double> x = random_tensor(rows, 2, dim, *genSeed());
  struct Arithmetic {
    double (*round)(double);
    double (*round_angle)(double);
    RopePrecision precision;
  };
  const Arithmetic arithmetic = *rc::gen::elementOf(std::vector<Arithmetic>{
      {exact, exact, {}},
      {to_float, to_float, {.unit = 0x1p-24, .underflow = 0x1p-150, .angle_unit = 0x1p-24}},
      {to_bf16, to_float, {.unit = 0x1p-8, .underflow = 0x1p-134, .angle_unit = 0x1p-24}}});
  for (double& value : x.data) value = arithmetic.round(value);
  const Tensor<double> exactly = rope(x, positions, options);
  const Tensor<double> rounded =
      rope_rounded(x, positions, options, arithmetic.round, arithmetic.round_angle);
  const Tensor<double> bound = rope_error_bound(x, positions, options, arithmetic.precision);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    RC_ASSERT(std::fabs(rounded.data[i] - exactly.data[i]) <= bound.data[i]);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int d = options.rotary_dim; d < dim; ++d) RC_ASSERT(bound.at(row, 1, d) == 0.0);
  }
}

// The bound is worth something: within 4,000 tokens, in bf16, no neighbour's rotation fits into it.
RC_GTEST_PROP(RopeProperties, TheBoundTellsNeighboursApart, ()) {
  const RopeOptions options = draw_options();
  const std::int64_t position = *genInt(0, 4000);
  Tensor<double> x(1, 1, options.rotary_dim, 0.0);
  x.at(0, 0, dims(0, options).first) = 1.0;
  const Tensor<double> right = rope(x, {position}, options);
  const Tensor<double> bound = rope_error_bound(
      x, {position}, options, {.unit = 0x1p-8, .underflow = 0x1p-134, .angle_unit = 0x1p-24});
  for (const std::int64_t other : {position - 1, position + 1}) {
    const Tensor<double> wrong = rope(x, {other}, options);
    bool outside = false;
    for (std::size_t i = 0; i < wrong.data.size(); ++i) {
      // Twice: the wrong implementation rounds as well.
      outside = outside || std::fabs(wrong.data[i] - right.data[i]) > 2 * bound.data[i];
    }
    RC_ASSERT(outside);
  }
}

}  // namespace
}  // namespace dyncp
