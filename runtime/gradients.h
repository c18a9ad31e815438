// From the sum of all ranks' gradients to what the optimiser takes: division by the global number
// of tokens, pre-clip norm, clipping. Norms are added up in double in the order of the parameters,
// so they have the same bits on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/gpt_parameters.h"

namespace dyncp {

/// Gradients of the sum become gradients of the mean: each value divided once by the global number
/// of tokens that count. With 0 tokens they are divided by 1, as normalise of reference/loss.h does.
/// Throws InvalidInput when tokens < 0.
template <typename T>
void divide_by_tokens(GptParameters<T>& gradients, std::int64_t tokens);

/// Norm of each tensor, in the order of gradients.tensors(): sqrt of the sum of squares.
template <typename T>
std::vector<double> tensor_norms(const GptParameters<T>& gradients);

/// Pre-clip gradient norm: sqrt of the sum of squares of every value.
template <typename T>
double gradient_norm(const GptParameters<T>& gradients);

/// Multiplies every value with clip_factor(norm, max_norm) of reference/adamw.h, unless that is 1.
/// max_norm 0 switches clipping off. Throws InvalidInput when max_norm is negative or not finite.
template <typename T>
void clip_gradients(GptParameters<T>& gradients, double norm, double max_norm);

}  // namespace dyncp
