#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "reference/error.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

constexpr double kDoubleUnit = 0x1p-53;

// The two dimensions of pair j, the first one rotated by -sin.
struct PairDims {
  int first;
  int second;
};

PairDims dims_of_pair(int pair, const RopeOptions& options) {
  if (options.pairing == Pairing::kHalf) return {pair, pair + options.rotary_dim / 2};
  return {2 * pair, 2 * pair + 1};
}

// Pair index (a fraction of one when not rounded) whose frequency makes `turns` full turns within
// the original context.
double pair_with_turns(double turns, const RopeOptions& options) {
  return options.rotary_dim *
         std::log(options.yarn->original_max_positions / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(options.base));
}

// Share of the undivided frequency in each pair's blend: 1 for fast pairs, 0 for slow ones.
std::vector<double> undivided_share(const RopeOptions& options) {
  const int pairs = options.rotary_dim / 2;
  const double last_dim = options.rotary_dim - 1;
  const double low =
      std::clamp(std::floor(pair_with_turns(options.yarn->beta_fast, options)), 0.0, last_dim);
  double high =
      std::clamp(std::ceil(pair_with_turns(options.yarn->beta_slow, options)), 0.0, last_dim);
  if (low == high) high += 0.001;  // a step instead of a ramp
  std::vector<double> share;
  for (int j = 0; j < pairs; ++j) {
    share.push_back(1.0 - std::clamp((j - low) / (high - low), 0.0, 1.0));
  }
  return share;
}

double yarn_attention_factor(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

void require_table(const Tensor<double>& x, const Tensor<double>& angles,
                   const RopeOptions& options) {
  require_valid(options);
  if (options.rotary_dim > x.dim) {
    throw InvalidInput("rotary_dim " + std::to_string(options.rotary_dim) +
                       " is above the head dimension " + std::to_string(x.dim));
  }
  if (angles.rows != x.rows || angles.heads != 1 || angles.dim != options.rotary_dim) {
    throw InvalidInput("angle table is [" + std::to_string(angles.rows) + ", " +
                       std::to_string(angles.heads) + ", " + std::to_string(angles.dim) +
                       "], expected [" + std::to_string(x.rows) + ", 1, " +
                       std::to_string(options.rotary_dim) + "]");
  }
}

void require_positions(std::int64_t rows, const std::vector<std::int64_t>& positions) {
  if (static_cast<std::int64_t>(positions.size()) != rows) {
    throw InvalidInput(std::to_string(positions.size()) + " positions given for " +
                       std::to_string(rows) + " rows");
  }
}

}  // namespace

std::string_view to_string(Pairing pairing) {
  return pairing == Pairing::kHalf ? "half" : "interleaved";
}

Pairing parse_pairing(std::string_view name) {
  if (name == "half") return Pairing::kHalf;
  if (name == "interleaved") return Pairing::kInterleaved;
  throw InvalidInput("unknown pairing '" + std::string(name) + "': expected half or interleaved");
}

void require_valid(const RopeOptions& options) {
  if (options.rotary_dim < 2 || options.rotary_dim % 2 != 0) {
    throw InvalidInput("rotary_dim " + std::to_string(options.rotary_dim) +
                       " must be even and at least 2");
  }
  if (!std::isfinite(options.base) || options.base <= 1.0) {
    throw InvalidInput("rope base " + std::to_string(options.base) + " must be above 1");
  }
  if (!options.yarn) return;
  const YarnScaling& yarn = *options.yarn;
  if (!std::isfinite(yarn.scale) || yarn.scale < 1.0) {
    throw InvalidInput("yarn scale " + std::to_string(yarn.scale) + " must be at least 1");
  }
  if (!std::isfinite(yarn.original_max_positions) || yarn.original_max_positions <= 0.0) {
    throw InvalidInput("yarn original_max_positions " +
                       std::to_string(yarn.original_max_positions) + " must be above 0");
  }
  if (!std::isfinite(yarn.beta_fast) || !(yarn.beta_slow > 0.0) ||
      !(yarn.beta_fast > yarn.beta_slow)) {
    throw InvalidInput("yarn betas: beta_fast " + std::to_string(yarn.beta_fast) +
                       " must be above beta_slow " + std::to_string(yarn.beta_slow) +
                       ", and both above 0");
  }
  if (!std::isfinite(yarn.mscale) || !std::isfinite(yarn.mscale_all_dim) || yarn.mscale < 0.0 ||
      yarn.mscale_all_dim < 0.0) {
    throw InvalidInput("yarn mscale " + std::to_string(yarn.mscale) + " and mscale_all_dim " +
                       std::to_string(yarn.mscale_all_dim) + " must be at least 0");
  }
}

std::vector<std::int64_t> rope_positions(const Pack& pack, int size, int rank) {
  std::vector<std::int64_t> positions = zigzag_rows(pack, size, rank);
  const std::vector<std::int64_t> local = local_boundaries(pack, size);
  for (int s = 0; s < pack.sequences(); ++s) {
    const auto index = static_cast<std::size_t>(s);
    for (std::int64_t i = local[index]; i < local[index + 1]; ++i) {
      positions[static_cast<std::size_t>(i)] -= pack.first_row(s);
    }
  }
  return positions;
}

std::vector<std::int64_t> rope_positions_packed_table(const Pack& pack, int size, int rank) {
  std::vector<std::int64_t> positions = rope_positions(pack, size, rank);
  const std::vector<std::int64_t> local = local_boundaries(pack, size);
  for (int s = 0; s < pack.sequences(); ++s) {
    const auto index = static_cast<std::size_t>(s);
    for (std::int64_t i = local[index]; i < local[index + 1]; ++i) {
      positions[static_cast<std::size_t>(i)] += pack.cu_seqlens_padded()[index];
    }
  }
  return positions;
}

std::vector<double> rope_inverse_frequencies(const RopeOptions& options) {
  require_valid(options);
  std::vector<double> frequencies;
  for (int j = 0; j < options.rotary_dim / 2; ++j) {
    frequencies.push_back(std::pow(options.base, -2.0 * j / options.rotary_dim));
  }
  if (!options.yarn || options.yarn->scale == 1.0) return frequencies;
  const std::vector<double> share = undivided_share(options);
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    const double divided = frequencies[j] / options.yarn->scale;
    frequencies[j] = divided * (1.0 - share[j]) + frequencies[j] * share[j];
  }
  return frequencies;
}

double rope_concentration(const RopeOptions& options) {
  require_valid(options);
  if (!options.yarn) return 1.0;
  return yarn_attention_factor(options.yarn->scale, options.yarn->mscale) /
         yarn_attention_factor(options.yarn->scale, options.yarn->mscale_all_dim);
}

Tensor<double> rope_angles(const std::vector<std::int64_t>& positions, const RopeOptions& options) {
  const std::vector<double> frequencies = rope_inverse_frequencies(options);
  Tensor<double> angles(static_cast<std::int64_t>(positions.size()), 1, options.rotary_dim);
  for (std::int64_t row = 0; row < angles.rows; ++row) {
    const auto position = static_cast<double>(positions[static_cast<std::size_t>(row)]);
    for (int j = 0; j < options.rotary_dim / 2; ++j) {
      const PairDims dims = dims_of_pair(j, options);
      const double angle = position * frequencies[static_cast<std::size_t>(j)];
      angles.at(row, 0, dims.first) = angle;
      angles.at(row, 0, dims.second) = angle;
    }
  }
  return angles;
}

Tensor<double> rotate(const Tensor<double>& x, const Tensor<double>& angles,
                      const RopeOptions& options) {
  require_table(x, angles, options);
  const double c = rope_concentration(options);
  Tensor<double> y = x;  // the tail passes through
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (int j = 0; j < options.rotary_dim / 2; ++j) {
      const auto [first, second] = dims_of_pair(j, options);
      const double angle_first = angles.at(row, 0, first);
      const double angle_second = angles.at(row, 0, second);
      const double cos_first = c * std::cos(angle_first), sin_first = c * std::sin(angle_first);
      const double cos_second = c * std::cos(angle_second), sin_second = c * std::sin(angle_second);
      for (int h = 0; h < x.heads; ++h) {
        const double a = x.at(row, h, first);
        const double b = x.at(row, h, second);
        y.at(row, h, first) = a * cos_first - b * sin_first;
        y.at(row, h, second) = b * cos_second + a * sin_second;
      }
    }
  }
  return y;
}

Tensor<double> rotate_transposed(const Tensor<double>& gradient, const Tensor<double>& angles,
                                 const RopeOptions& options) {
  require_table(gradient, angles, options);
  const double c = rope_concentration(options);
  Tensor<double> dx = gradient;
  for (std::int64_t row = 0; row < gradient.rows; ++row) {
    for (int j = 0; j < options.rotary_dim / 2; ++j) {
      const auto [first, second] = dims_of_pair(j, options);
      const double angle_first = angles.at(row, 0, first);
      const double angle_second = angles.at(row, 0, second);
      const double cos_first = c * std::cos(angle_first), sin_first = c * std::sin(angle_first);
      const double cos_second = c * std::cos(angle_second), sin_second = c * std::sin(angle_second);
      for (int h = 0; h < gradient.heads; ++h) {
        const double g_first = gradient.at(row, h, first);
        const double g_second = gradient.at(row, h, second);
        dx.at(row, h, first) = g_first * cos_first + g_second * sin_second;
        dx.at(row, h, second) = g_second * cos_second - g_first * sin_first;
      }
    }
  }
  return dx;
}

Tensor<double> rope(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                    const RopeOptions& options) {
  require_positions(x.rows, positions);
  return rotate(x, rope_angles(positions, options), options);
}

Tensor<double> rope_backward(const Tensor<double>& gradient,
                             const std::vector<std::int64_t>& positions,
                             const RopeOptions& options) {
  require_positions(gradient.rows, positions);
  return rotate_transposed(gradient, rope_angles(positions, options), options);
}

Tensor<double> rope_error_bound(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                                const RopeOptions& options, const RopePrecision& precision) {
  require_positions(x.rows, positions);
  const Tensor<double> angles = rope_angles(positions, options);
  require_table(x, angles, options);
  const std::vector<double> frequencies = rope_inverse_frequencies(options);
  const double c = rope_concentration(options);
  const double u = precision.unit;
  const double eta = precision.underflow;
  // Relative error of position * frequency, in angle units: the exponent 2j/d is off by one unit,
  // which the power turns into ln(base); the power itself two ulps (four units), its reciprocal,
  // the position and the product one each; two more for terms of second order.
  const double angle_units = std::log(options.base) + 9.0;
  // A blend of YaRN adds three units on its two terms and three on the share, which weighs with
  // the undivided frequency however small the blend is.
  const bool blended = options.yarn && options.yarn->scale > 1.0;
  // Cast, concentration, product, sum: four factors (1 + e); one more for the concentration itself.
  // The reference does the same in double.
  const double grown = std::pow(1.0 + u, 5) * std::pow(1.0 + kDoubleUnit, 5);
  const double angle_unit = precision.angle_unit + kDoubleUnit;
  Tensor<double> bound(x.rows, x.heads, x.dim, 0.0);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const double position =
        std::fabs(static_cast<double>(positions[static_cast<std::size_t>(row)]));
    for (int j = 0; j < options.rotary_dim / 2; ++j) {
      const auto [first, second] = dims_of_pair(j, options);
      const double frequency = frequencies[static_cast<std::size_t>(j)];
      double frequency_error = frequency * angle_units;
      if (blended) {
        frequency_error +=
            3.0 * frequency + 3.0 * std::pow(options.base, -2.0 * j / options.rotary_dim);
      }
      // Cosine and sine move no faster than their angle; two ulps below 1 are four units.
      const double table = position * frequency_error * angle_unit + 4.0 * angle_unit;
      const double cos_size = std::fabs(std::cos(angles.at(row, 0, first)));
      const double sin_size = std::fabs(std::sin(angles.at(row, 0, first)));
      const double cos_error = c * ((cos_size + table) * grown - cos_size);
      const double sin_error = c * ((sin_size + table) * grown - sin_size);
      for (int h = 0; h < x.heads; ++h) {
        const double a = std::fabs(x.at(row, h, first));
        const double b = std::fabs(x.at(row, h, second));
        const double tiny = eta * (2.0 * (1.0 + c) * (a + b) + 4.0);
        bound.at(row, h, first) = a * cos_error + b * sin_error + tiny;
        bound.at(row, h, second) = b * cos_error + a * sin_error + tiny;
      }
    }
  }
  return bound;
}

Tensor<double> rope_rounded(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                            const RopeOptions& options, double (*round)(double),
                            double (*round_angle)(double)) {
  require_positions(x.rows, positions);
  require_table(x, rope_angles(positions, options), options);
  const double c = round(rope_concentration(options));
  const bool blended = options.yarn && options.yarn->scale > 1.0;
  const std::vector<double> share =
      blended ? undivided_share(options) : std::vector<double>(static_cast<std::size_t>(x.dim));
  Tensor<double> y = x;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const double position =
        round_angle(static_cast<double>(positions[static_cast<std::size_t>(row)]));
    for (int j = 0; j < options.rotary_dim / 2; ++j) {
      const auto [first, second] = dims_of_pair(j, options);
      const double exponent = round_angle(2.0 * j / options.rotary_dim);
      double frequency = round_angle(1.0 / round_angle(std::pow(options.base, exponent)));
      if (blended) {
        const double kept = round_angle(share[static_cast<std::size_t>(j)]);
        const double divided = round_angle(frequency / options.yarn->scale);
        frequency = round_angle(round_angle(divided * round_angle(1.0 - kept)) +
                                round_angle(frequency * kept));
      }
      const double angle = round_angle(position * frequency);
      const double cosine = round(round(round_angle(std::cos(angle))) * c);
      const double sine = round(round(round_angle(std::sin(angle))) * c);
      for (int h = 0; h < x.heads; ++h) {
        const double a = x.at(row, h, first);
        const double b = x.at(row, h, second);
        y.at(row, h, first) = round(round(a * cosine) - round(b * sine));
        y.at(row, h, second) = round(round(b * cosine) + round(a * sine));
      }
    }
  }
  return y;
}

}  // namespace dyncp
