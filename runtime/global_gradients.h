// From microbatches to the gradients of a training step: sums over the microbatches of a rank, then
// over the ranks, divided once by the global number of tokens that count. No CP size enters (rule
// R10). Losses in nats. Gradients lie flat as gpt_tensors says.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/attention_operator.h"
#include "runtime/cp_binding.h"
#include "runtime/data_iterator.h"
#include "runtime/gpt.h"
#include "runtime/transport.h"

namespace dyncp {

/// What one rank, or all ranks together, add up: gradients are those of the loss sum.
struct GradientSum {
  double loss = 0;
  std::int64_t tokens = 0;
  GptParameters<double> gradients;
};

/// The sum over a rank's microbatches, in their order. Gradients are added up in T over a rank
/// and widened to double at the end. Without microbatches everything is zero. `module`, when there
/// is one, is bound to the CP group of each microbatch while that runs (rule R3). Throws as
/// forward_backward and CpBinding.
template <typename T>
GradientSum sum_gradients(const GptParameters<T>& parameters, const RankBatch& batch,
                          AttentionOperator<T>& attention, CpModule* module = nullptr);

/// Makes the sum of a rank that of all ranks, added in double in rank order: the same bits on every
/// rank. Collective. Throws TransportError.
void add_over_ranks(Transport& transport, GradientSum& sum);

/// What a training step sees.
struct MeanGradients {
  double loss = 0;  // nats a token; 0 when no token counted
  std::int64_t tokens = 0;
  GptParameters<double> gradients;  // of the mean
  double norm = 0;                  // of all gradients together, before clipping
};

/// Divides once by the number of tokens, by 1 when there is none (reference/loss.h, normalise).
MeanGradients mean_of(GradientSum sum);

/// Values of another precision, each rounded once.
template <typename To, typename From>
GptParameters<To> converted(const GptParameters<From>& parameters) {
  GptParameters<To> result(parameters.config());
  for (std::size_t i = 0; i < result.values().size(); ++i) {
    result.values()[i] = static_cast<To>(parameters.values()[i]);
  }
  return result;
}

}  // namespace dyncp
