// Rounding to the number formats that kernels store: bf16, fp16 and float, to nearest with ties to
// even, always from the exact double in one step. Values stay doubles (every value of these formats
// is a double), so that an emulated 16-bit tensor needs no type of its own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "reference/tensor.h"

namespace dyncp {

/// A binary floating-point format. Storage formats of tensors, and accumulator formats of kernels.
enum class Format { kDouble, kFloat, kBf16, kFp16 };

/// The constants of a format.
struct FormatLimits {
  std::string_view name;  // "double", "float", "bf16", "fp16"
  int digits = 53;        // significant bits, the implicit one included
  int min_exponent = 0;   // smallest normal number is 2^min_exponent
  double max = 0;         // largest finite number

  /// u: the largest relative error of rounding to nearest in the normal range.
  constexpr double unit_roundoff() const {
    double u = 1;
    for (int i = 0; i < digits; ++i) u /= 2;
    return u;
  }
  /// Distance between neighbouring subnormal numbers.
  double spacing_at_zero() const { return std::ldexp(1.0, min_exponent - (digits - 1)); }
};

/// The limits of a format.
constexpr FormatLimits format_limits(Format format) {
  switch (format) {
    case Format::kFloat:
      return {"float", 24, -126, 0x1.fffffep127};
    case Format::kBf16:
      return {"bf16", 8, -126, 0x1.fep127};
    case Format::kFp16:
      return {"fp16", 11, -14, 65504.0};
    case Format::kDouble:
      break;
  }
  return {"double", 53, -1022, std::numeric_limits<double>::max()};
}

/// `value` rounded to `format`: to nearest, ties to even, subnormals kept, overflow to infinity
/// from half a spacing above the largest finite number. NaN and infinities pass.
inline double round_to(Format format, double value) {
  if (format == Format::kDouble || !std::isfinite(value) || value == 0) return value;
  const FormatLimits limits = format_limits(format);
  // value lies in [2^exponent, 2^(exponent+1)); below the normal range the spacing stays constant.
  const int exponent = std::ilogb(value);
  const int kept = exponent < limits.min_exponent ? limits.min_exponent : exponent;
  const double spacing = std::ldexp(1.0, kept - (limits.digits - 1));
  // Dividing by a power of two is exact, so nearbyint sees the true tie.
  const double rounded = std::nearbyint(value / spacing) * spacing;
  if (std::fabs(rounded) > limits.max) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

/// The same for bf16 from a float, by its bits; fast enough for inner loops.
inline float round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;  // NaN and infinities pass
  const std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);
  return std::bit_cast<float>((bits + half) & 0xffff0000u);
}

/// Every element of a tensor rounded to `format`.
inline Tensor<double> round_to(Format format, Tensor<double> tensor) {
  for (double& value : tensor.data) value = round_to(format, value);
  return tensor;
}

}  // namespace dyncp
