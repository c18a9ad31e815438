// Rotary position embedding (RoPE) on packed sequences, forward and backward, in double.
// A row's first `rotary_dim` dimensions form rotary_dim/2 pairs; pair j of a row at position p
// turns by the angle p * w[j], w being the inverse frequencies. Positions restart at 0 in every
// sequence and depend on the padded length, the CP size and the CP rank alone - never on neighbours
// in the pack. Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), Megatron-LM's THD path.
// Shapes: x, gradients [rows, heads, dim]; positions [rows], in tokens; angles [rows, 1,
// rotary_dim], in radians.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "reference/pack.h"
#include "reference/tensor.h"

namespace dyncp {

/// Which dimensions of a row form pair j, d being rotary_dim.
///   kHalf         (j, j + d/2): GPT-NeoX, Megatron's default
///   kInterleaved  (2j, 2j + 1): GPT-J
enum class Pairing { kHalf, kInterleaved };

/// "half" or "interleaved".
std::string_view to_string(Pairing pairing);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Pairing parse_pairing(std::string_view name);

/// YaRN: high frequencies stay, low ones are divided by `scale`, those between are blended, and cos
/// and sin are multiplied by the concentration.
struct YarnScaling {
  double scale = 1.0;                      // context extension factor, >= 1
  double original_max_positions = 4096.0;  // tokens the model was trained on before
  double beta_fast = 32.0;                 // turns within them above which a frequency stays
  double beta_slow = 1.0;                  // turns below which it is divided by scale
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  bool operator==(const YarnScaling&) const = default;
};

struct RopeOptions {
  int rotary_dim = 0;  // even, >= 2, at most the tensor's dim; the dimensions behind pass through
  double base = 10000.0;
  Pairing pairing = Pairing::kHalf;
  std::optional<YarnScaling> yarn = {};
  bool operator==(const RopeOptions&) const = default;
};

/// Throws InvalidInput naming the first option out of range: rotary_dim even and >= 2, base finite
/// and > 1, scale >= 1, original_max_positions > 0, beta_fast > beta_slow > 0, mscales >= 0.
void require_valid(const RopeOptions& options);

/// Position in its own sequence of every local row of `rank` in a group of `size`; padding rows
/// count on. [padded_tokens / size]. Throws InvalidInput like zigzag_rows.
std::vector<std::int64_t> rope_positions(const Pack& pack, int size, int rank);

/// The same rows inside a packed table, whose entry cu_seqlens_padded[s] + j belongs to token j of
/// sequence s: rope_positions plus cu_seqlens_padded[s].
std::vector<std::int64_t> rope_positions_packed_table(const Pack& pack, int size, int rank);

/// Radians per token of each pair, [rotary_dim / 2]: base^(-2j/rotary_dim), blended when YaRN is
/// on.
std::vector<double> rope_inverse_frequencies(const RopeOptions& options);

/// Factor of cos and sin: 1 without YaRN, else g(mscale)/g(mscale_all_dim) with
/// g(m) = 0.1 m ln(scale) + 1. A score q.k grows by its square.
double rope_concentration(const RopeOptions& options);

/// Angle of every dimension of every row. Both dimensions of a pair hold the pair's angle.
Tensor<double> rope_angles(const std::vector<std::int64_t>& positions, const RopeOptions& options);

/// y[d] = c (x[d] cos a[d] - x[partner] sin a[d]) on a pair's first dimension,
/// y[d] = c (x[d] cos a[d] + x[partner] sin a[d]) on its second, x[d] behind rotary_dim; c is
/// the concentration. A table need not hold the same angle twice in a pair.
/// Throws InvalidInput when the shapes do not fit each other or the options.
Tensor<double> rotate(const Tensor<double>& x, const Tensor<double>& angles,
                      const RopeOptions& options);

/// The transpose of rotate as a linear map: each input dimension collects from the outputs it went
/// into, so the partner's share is weighted with the partner's own angle.
Tensor<double> rotate_transposed(const Tensor<double>& gradient, const Tensor<double>& angles,
                                 const RopeOptions& options);

/// rotate(x, rope_angles(positions)). Throws InvalidInput unless positions has x.rows entries.
Tensor<double> rope(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                    const RopeOptions& options);

/// Gradient with respect to x from the gradient with respect to rope(x).
/// rope_backward(rope(x)) is concentration^2 * x.
Tensor<double> rope_backward(const Tensor<double>& gradient,
                             const std::vector<std::int64_t>& positions,
                             const RopeOptions& options);

/// How exactly an implementation computes. Every operation returns its exact result times
/// (1 + e) plus d, |e| <= unit, |d| <= underflow.
struct RopePrecision {
  double unit = 0x1p-53;         // of x, the table of cos and sin, and the products
  double underflow = 0x1p-1074;  // half the smallest subnormal of the same type, or a bound on it
  double angle_unit = 0x1p-53;   // of the arithmetic that makes angles and takes their cosine
};

/// Largest |computed - rope(x)| that a correct implementation of this precision can show,
/// elementwise and for x exactly as given: inverse frequencies, angle, cos and sin in `angle_unit`
/// (functions within two ulps), then cast, concentration, product and sum each rounded to `unit`.
/// rope's own error in double is included. Tail: 0. The angle's error grows with the position;
/// nothing here is measured. The same bound holds for rope_backward.
Tensor<double> rope_error_bound(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                                const RopeOptions& options, const RopePrecision& precision);

/// rope as frameworks compute it: every operation after the angle's cosine is passed through
/// `round`, every one before through `round_angle`. Exists to show that rope_error_bound holds.
Tensor<double> rope_rounded(const Tensor<double>& x, const std::vector<std::int64_t>& positions,
                            const RopeOptions& options, double (*round)(double),
                            double (*round_angle)(double));

}  // namespace dyncp
