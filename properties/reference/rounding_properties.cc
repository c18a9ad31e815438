// Rounding is monotone, odd, idempotent and within u of the value.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "properties/generators.h"
#include "reference/rounding.h"

namespace dyncp {
namespace {

Format any_format() {
  return std::array{Format::kBf16, Format::kFp16, Format::kFloat}[std::size_t(*genInt(0, 2))];
}

/// A double near the range of the 16-bit formats, every bit pattern of the fraction possible.
double any_double() {
  const auto fraction = static_cast<std::uint64_t>(*genInt(0, 0x3fffffff)) |
                        (static_cast<std::uint64_t>(*genInt(0, 0x3fffff)) << 30);
  const double magnitude = std::ldexp(1.0 + std::ldexp(double(fraction), -52), *genInt(-160, 130));
  return *genInt(0, 1) == 1 ? -magnitude : magnitude;
}

RC_GTEST_PROP(Rounding, IsMonotoneOddAndIdempotent, ()) {
  const Format format = any_format();
  const double a = any_double();
  const double b = *genInt(0, 1) == 1 ? any_double() : a * (1 + 0x1p-30 * *genInt(0, 1000));
  const double low = std::min(a, b), high = std::max(a, b);
  RC_ASSERT(round_to(format, low) <= round_to(format, high));
  RC_ASSERT(round_to(format, -a) == -round_to(format, a));
  RC_ASSERT(round_to(format, round_to(format, a)) == round_to(format, a));
}

RC_GTEST_PROP(Rounding, ErrorIsWithinTheUnitRoundoff, ()) {
  const Format format = any_format();
  const FormatLimits limits = format_limits(format);
  const double x = any_double();
  const double rounded = round_to(format, x);
  if (std::isinf(rounded)) {
    RC_ASSERT(std::fabs(x) > limits.max);
  } else {
    RC_ASSERT(std::fabs(rounded - x) <=
              std::max(limits.unit_roundoff() * std::fabs(x), limits.spacing_at_zero() / 2));
  }
}

}  // namespace
}  // namespace dyncp
