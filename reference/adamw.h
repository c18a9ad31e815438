// AdamW and gradient clipping, in double and element by element: the specification of a training
// step's last part.
//
//   p <- p (1 - rate * decay)                    matrices alone
//   m <- beta1 m + (1 - beta1) g                 v <- beta2 v + (1 - beta2) g^2
//   p <- p - rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon),   t = 1, 2, ...
//
// Sources: Decoupled Weight Decay Regularization (arXiv 1711.05101), Adam (arXiv 1412.6980);
// clipping as in Megatron-LM and PyTorch (clip_grad_norm_).
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "reference/loss.h"

namespace dyncp {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool operator==(const AdamWOptions&) const = default;
};

/// Throws InvalidInput naming the first option out of range: learning_rate and weight_decay finite
/// and >= 0, betas in [0, 1), epsilon finite and > 0.
void require_valid(const AdamWOptions& options);

/// Moments by parameter name; empty before the first step.
struct NamedMoments {
  NamedGradients first, second;
  std::int64_t steps = 0;  // taken so far
  bool operator==(const NamedMoments&) const = default;
};

/// One step. Parameters in `decayed` lose weight_decay. Throws InvalidInput like require_valid, and
/// when parameters and gradients differ in names or sizes.
void adamw_step(NamedGradients& parameters, const NamedGradients& gradients,
                const std::set<std::string>& decayed, NamedMoments& moments,
                const AdamWOptions& options);

/// What gradients of the given pre-clip norm are multiplied with: max_norm / (norm + 1e-6) where
/// that is below 1, else 1. max_norm 0 switches clipping off. NaN stays NaN.
/// REQUIRES: max_norm >= 0.
double clip_factor(double norm, double max_norm);

}  // namespace dyncp
