// Per-token cross entropy and its normalisation: the sum over the unmasked tokens of all ranks and
// microbatches, divided ONCE by their global number. Nothing here knows a CP size: each real token
// is held by exactly one rank, so sums and counts add up whatever the assignment (rule R10).
// Losses in nats. A row counts when its mask is 1 and its label is not `ignore`; a row that does
// not count contributes exactly 0 to everything, whatever bits its logits hold (rule R8).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/tensor.h"

namespace dyncp {

/// Label of a row that has no next token: the last of a sequence, and padding.
inline constexpr std::int64_t kIgnoreLabel = -100;

/// What to predict, row by row of a pack or of one rank's slice of it.
struct LossTargets {
  std::vector<std::int64_t> labels;  // [rows], 0..vocabulary-1 where the row counts
  std::vector<std::uint8_t> mask;    // [rows], 0 or 1
  std::int64_t ignore = kIgnoreLabel;

  std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
  /// Whether the row contributes to the loss. REQUIRES: 0 <= row < rows().
  bool counts(std::int64_t row) const {
    const auto r = static_cast<std::size_t>(row);
    return mask[r] != 0 && labels[r] != ignore;
  }
  bool operator==(const LossTargets&) const = default;
};

/// Throws InvalidInput unless labels and mask have one entry a row, the mask is 0 or 1, and the
/// label of every row that counts is in 0..vocabulary-1.
void require_valid(const LossTargets& targets, std::int64_t rows, int vocabulary);

/// Sum of token losses, in nats, and number of tokens that counted. This pair is all that ranks and
/// microbatches exchange.
struct LossSum {
  double sum = 0;
  std::int64_t tokens = 0;
  bool operator==(const LossSum&) const = default;
};

/// Totals over ranks and microbatches, added in the given order.
LossSum combine(const std::vector<LossSum>& parts);

/// The loss that is logged: sum / tokens; exactly 0 when no token counted.
double reported_loss(const LossSum& total);

/// log(sum_i exp(values[i])), the maximum subtracted first, so that finite values never overflow.
/// Empty or all -infinity: -infinity. Any NaN: NaN. Else any +infinity: +infinity.
double log_sum_exp(const double* values, int count);

/// Loss of every row, [rows]: log_sum_exp(logits[row]) - logits[row][label]; exactly 0 where the
/// row does not count. A row depends on its own logits alone, so a rank's slice gives the same bits
/// as the whole pack. `logits` is [rows, 1, vocabulary].
/// Throws InvalidInput as require_valid does, or when logits.heads is not 1.
std::vector<double> token_losses(const Tensor<double>& logits, const LossTargets& targets);

/// Sum of token_losses in row order, and the number of rows that count. Throws as token_losses.
LossSum loss_sum(const Tensor<double>& logits, const LossTargets& targets);

/// Gradient of the SUM with respect to the logits, [rows, 1, vocabulary]: softmax minus one at the
/// label; exactly 0 where the row does not count. Throws as token_losses.
Tensor<double> loss_gradient(const Tensor<double>& logits, const LossTargets& targets);

/// Parameters and their gradients by name, each parameter once. Values in the parameter's own
/// (row-major) order.
using NamedGradients = std::map<std::string, std::vector<double>>;

/// Element-wise total over ranks and microbatches, added in the given order. Throws InvalidInput
/// when names or sizes differ. No parts: no parameters.
NamedGradients combine(const std::vector<NamedGradients>& parts);

/// Gradients of the mean: gradients of the sum, each divided by the GLOBAL number of tokens. With 0
/// tokens they are divided by 1: the gradient of an empty sum is exactly 0 and stays so, and a NaN
/// that leaked into it stays visible. Throws InvalidInput when tokens < 0.
NamedGradients normalise(const NamedGradients& gradients_of_sum, std::int64_t tokens);

/// Pre-clip gradient norm: sqrt of the sum of squares over every element of every parameter.
double gradient_norm(const NamedGradients& gradients);

/// What one rank, or one microbatch of it, hands to the reduction.
struct RankLoss {
  LossSum loss;
  NamedGradients gradients;  // of the rank's SUM
};

/// What a training step sees.
struct ReducedLoss {
  double loss = 0;           // reported, nats per token
  std::int64_t tokens = 0;   // global number of unmasked tokens
  NamedGradients gradients;  // of the mean
  double gradient_norm = 0;  // pre-clip
};

/// combine, reported_loss, normalise and gradient_norm in one: sums and counts are added over all
/// ranks and microbatches and divided once. No CP size enters. Throws InvalidInput as combine.
ReducedLoss reduce_loss(const std::vector<RankLoss>& ranks);

/// Derivatives of `function` at `point` by central differences: (f(x + h) - f(x - h)) / 2h for each
/// coordinate. Truncation error h^2/6 times the third derivative, roundoff about 2^-53 |f| / h.
/// REQUIRES: step > 0.
std::vector<double> central_differences(
    const std::function<double(const std::vector<double>&)>& function, std::vector<double> point,
    double step);

/// Most by which two sums of the same `terms` doubles in different orders can differ, given the sum
/// of their magnitudes: 2 gamma_n sum|x| with gamma_n = n u / (1 - n u), u = 2^-53 (Higham,
/// Accuracy and Stability of Numerical Algorithms, section 4.2).
double reordering_bound(std::int64_t terms, double sum_of_magnitudes);

}  // namespace dyncp
