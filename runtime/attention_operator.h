// The seam between the model and attention: a model layer hands its local rows to an operator and
// does not know whether a ring, a single rank or a fault stands behind it.
#pragma once

#include <vector>

#include "reference/context.h"
#include "reference/tensor.h"

namespace dyncp {

/// What attention returns for one microbatch on one rank. o: [local rows, heads, dim].
/// lse: [heads][local rows], natural log, -inf on padding rows.
template <typename T>
struct AttentionOutput {
  Tensor<T> o;
  std::vector<std::vector<T>> lse;
};

template <typename T>
struct AttentionGradients {
  Tensor<T> dq;  // [local rows, heads, dim]
  Tensor<T> dk;  // [local rows, kv_heads, dim]
  Tensor<T> dv;  // [local rows, kv_heads, dim]
};

/// Causal attention over packed sequences, forward and backward, on this rank's zigzag slice.
/// T is float or double.
template <typename T>
class AttentionOperator {
 public:
  virtual ~AttentionOperator() = default;

  /// q: [local rows, heads, dim], k and v: [local rows, kv_heads, dim], already rotated. The CP
  /// group is that of `params` (rule R2), never one remembered from another microbatch.
  /// `microbatch` and `layer` only label operations in reports.
  virtual AttentionOutput<T> forward(const PackedSeqParams& params, const Tensor<T>& q,
                                     const Tensor<T>& k, const Tensor<T>& v, int microbatch,
                                     int layer) = 0;

  /// Gradients from the final output and LSE of the matching forward call.
  virtual AttentionGradients<T> backward(const PackedSeqParams& params, const Tensor<T>& q,
                                         const Tensor<T>& k, const Tensor<T>& v,
                                         const AttentionOutput<T>& output, const Tensor<T>& d_o,
                                         int microbatch, int layer) = 0;
};

}  // namespace dyncp
