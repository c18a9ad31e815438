// Rounding to bf16, fp16 and float: every value of the 16-bit formats, and every kind of tie.
#include "reference/rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dyncp {
namespace {

/// Decodes a 16-bit pattern by its fields, without the code under test.
double decode(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> fraction_bits) & ((1u << exponent_bits) - 1));
  const auto fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign *
         std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias - fraction_bits);
}

struct Layout {
  Format format;
  int exponent_bits;
  int fraction_bits;
};

class SixteenBits : public testing::TestWithParam<Layout> {
 protected:
  double value(std::uint32_t bits) const {
    return decode(bits, GetParam().exponent_bits, GetParam().fraction_bits);
  }
};

TEST_P(SixteenBits, EveryValueIsItsOwnRounding) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double x = value(bits);
    const double rounded = round_to(GetParam().format, x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(rounded));
    } else {
      ASSERT_EQ(rounded, x) << bits;
      ASSERT_EQ(std::signbit(rounded), std::signbit(x)) << bits;
    }
  }
}

TEST_P(SixteenBits, BetweenNeighboursTheNearerWinsAndTiesGoToEven) {
  for (std::uint32_t bits = 0; bits < 0x7fff; ++bits) {
    const double low = value(bits), high = value(bits + 1);
    if (!std::isfinite(high)) break;
    const double middle = low + (high - low) / 2;  // exact: one more bit than the format has
    const double even = bits % 2 == 0 ? low : high;
    for (double sign : {1.0, -1.0}) {
      ASSERT_EQ(round_to(GetParam().format, sign * middle), sign * even) << bits;
      ASSERT_EQ(round_to(GetParam().format, sign * std::nextafter(middle, low)), sign * low);
      ASSERT_EQ(round_to(GetParam().format, sign * std::nextafter(middle, high)), sign * high);
    }
  }
}

TEST_P(SixteenBits, OverflowStartsHalfASpacingAboveTheLargest) {
  const FormatLimits limits = format_limits(GetParam().format);
  const double spacing = limits.max * limits.unit_roundoff() / (1 - limits.unit_roundoff());
  const double limit = limits.max + spacing / 2;
  EXPECT_EQ(round_to(GetParam().format, std::nextafter(limit, 0)), limits.max);
  EXPECT_EQ(round_to(GetParam().format, limit), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_to(GetParam().format, -limit), -std::numeric_limits<double>::infinity());
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Layout{Format::kBf16, 8, 7}, Layout{Format::kFp16, 5, 10}),
                         [](const auto& test) {
                           return std::string(format_limits(test.param.format).name);
                         });

TEST(Rounding, FloatAgreesWithTheHardware) {
  std::uint64_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto x = std::bit_cast<double>(state ^ (state >> 29));
    if (std::isnan(x)) continue;
    ASSERT_EQ(round_to(Format::kFloat, x), static_cast<double>(static_cast<float>(x))) << x;
  }
  // Below the float range, and its ties.
  for (double x : {0x1p-149, 0x1p-150, 0x1.8p-149, 0x1.000002p-150, 0x1p-151, 0x1.fffffefp-127,
                   0x1.fffffefp127, 0x1.ffffffp127}) {
    EXPECT_EQ(round_to(Format::kFloat, x), static_cast<double>(static_cast<float>(x))) << x;
  }
}

TEST(Rounding, IsOneStepFromDouble) {
  // Through float the last bit would be lost first and the tie would go down to 1.
  EXPECT_EQ(round_to(Format::kBf16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(round_to(Format::kFp16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
}

TEST(Rounding, BitwiseBf16AgreesForEveryUpperHalf) {
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto x = std::bit_cast<float>((upper << 16) | lower);
      const double expected = round_to(Format::kBf16, static_cast<double>(x));
      const float rounded = round_to_bf16(x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(rounded));
      } else {
        ASSERT_EQ(static_cast<double>(rounded), expected) << x;
        ASSERT_EQ(std::signbit(rounded), std::signbit(x)) << x;
      }
    }
  }
}

TEST(Rounding, UnitRoundoffIsTheWorstCase) {
  for (Format format : {Format::kBf16, Format::kFp16, Format::kFloat}) {
    const double u = format_limits(format).unit_roundoff();
    EXPECT_EQ(round_to(format, 1 + u), 1) << format_limits(format).name;
    EXPECT_EQ(round_to(format, 1 + 2 * u), 1 + 2 * u);
    EXPECT_EQ(round_to(format, 1 + 3 * u), 1 + 4 * u);
  }
}

}  // namespace
}  // namespace dyncp
