// Inputs of an attention case: reproducible tensors over a pack.
// Every value is a function of (seed, tensor, sequence, position, head, dimension) alone, so that
// the same sequence has the same contents in every pack, at every padding and on every CP size.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/attention.h"
#include "reference/pack.h"
#include "reference/rounding.h"
#include "reference/tensor.h"

namespace dyncp {

struct AttentionShape {
  int heads = 4;
  int kv_heads = 2;
  int dim = 16;
  int value_dim = 16;
};

struct AttentionCase {
  Pack pack;
  AttentionOptions options;
  Tensor<double> q, k, v, d_o;
};

/// q, k, v and d_o with entries that are close to normal with variance 1 (a sum of four uniform
/// variables, within +-3.47), rounded to `format`; padding rows hold `padding`. `options` passes
/// through. `contents[s]` is the identity of sequence s; empty = its index.
AttentionCase make_attention_case(const Pack& pack, const AttentionShape& shape,
                                  const AttentionOptions& options, std::uint64_t seed,
                                  Format format = Format::kDouble,
                                  double padding = std::numeric_limits<double>::quiet_NaN(),
                                  const std::vector<int>& contents = {});

/// One sink logit per head, between -1 and 1. Deterministic in seed.
std::vector<double> make_sink(int heads, std::uint64_t seed);

}  // namespace dyncp
