// What the attention and ring drivers share: the inputs of a Problem, and the limit on its work.
#pragma once

#include <limits>
#include <vector>

#include "reference/attention.h"
#include "runtime/attention_case.h"
#include "runtime/problem.h"

namespace dyncp {

/// Heads and dimensions. Throws InvalidInput when kv_heads does not divide heads.
AttentionShape attention_shape(const Problem& problem);

/// Mask, window and sink; the scale is left at its default.
AttentionOptions attention_options(const Problem& problem);

/// The case's inputs in `format`, padding rows holding `padding`.
AttentionCase attention_case(const Problem& problem, const Pack& pack,
                             Format format = Format::kDouble,
                             double padding = std::numeric_limits<double>::quiet_NaN(),
                             const std::vector<int>& contents = {});

/// Multiply-adds of one forward pass: visible pairs * heads * (dim + value_dim).
double attention_work(const Pack& pack, const AttentionShape& shape,
                      const AttentionOptions& options);

/// Throws InvalidInput when the naive loops would take longer than about a minute.
void require_affordable(const Problem& problem, const Pack& pack, double passes);

/// Shapes, mask, window and sink of the number-th gate case: every combination within 24 numbers.
void vary_attention(Problem& problem, int number);

/// 0, 1, .. but `changed` for sequence `which`: contents of a pack in which one sequence differs.
std::vector<int> contents_with(int sequences, int which, int changed);

/// The sequence with most real tokens, -1 in an empty pack.
int longest_sequence(const Pack& pack);

}  // namespace dyncp
