// The small GPT on one rank: forward and backward by hand over a packed microbatch, in float or
// double. Real tokens alone are computed: padding rows are left out at the entrance, so no bit of
// theirs reaches a real token or a gradient (rule R8), and rows that do not count never meet the
// head.
//
//   x = embedding[token]
//   each layer:  h = norm(x);  q, k = rope(Wq h), rope(Wk h);  v = Wv h
//                x += Wo attention(q, k, v)
//                h = norm(x);  x += Wdown (silu(Wgate h) * Wup h)
//   logits = Whead norm(x);  loss = log_sum_exp(logits) - logits[label]
//   norm(x) = weight * x / sqrt(mean(x^2) + epsilon), silu(x) = x / (1 + exp(-x))
//
// RoPE turns the halves of a head against each other (Pairing::kHalf). Products are those of
// runtime/matmul.h: sums in T, in runs; a microbatch's weight gradients are added to the given
// gradients run by run, rows in ascending order. Everything is deterministic.
#pragma once

#include <vector>

#include "reference/loss.h"
#include "runtime/attention_operator.h"
#include "runtime/gpt_parameters.h"
#include "runtime/microbatch.h"

namespace dyncp {

/// Throws InvalidInput unless every vector of the microbatch has params.total_tokens() entries and
/// every real row has a token in 0..vocabulary-1, a position >= 0, a mask of 0 or 1 and, where it
/// counts, a label in 0..vocabulary-1. Padding rows may hold anything.
void require_valid(const GptConfig& config, const PackedMicrobatch& microbatch);

/// Adds the gradients of the SUM of the token losses over this rank's rows that count (real, mask
/// 1, label not kIgnoreLabel) to `gradients`, and returns that sum in nats (added up in double) and
/// the number of those rows. Without a row that counts the sum and what is added are exactly zero;
/// attention still runs, so that the ranks of a CP group stay in step. `index` labels the
/// microbatch in the operator's reports.
/// Throws InvalidInput like require_valid, std::logic_error when gradients belong to another
/// configuration, and what the operator throws; `gradients` then hold part of the sum.
template <typename T>
LossSum forward_backward(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
                         AttentionOperator<T>& attention, int index, GptParameters<T>& gradients);

/// Loss of every local row, [total_tokens], in nats; exactly 0 where a row does not count. The same
/// bits as forward_backward sums up. Throws like forward_backward.
template <typename T>
std::vector<T> token_losses(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
                            AttentionOperator<T>& attention, int index);

}  // namespace dyncp
