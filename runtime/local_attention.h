// Causal attention of a whole pack on one rank, CP off: the truth that every ring is compared with.
#pragma once

#include "runtime/attention_operator.h"

namespace dyncp {

/// Softmax scale 1/sqrt(dim). Products as in runtime/matmul.h, queries in tiles; probabilities are
/// made again in the backward pass from the LSE. Keeps nothing between calls.
/// Throws std::logic_error when CP is on, or when a tensor does not have the shape that the pack
/// and the other tensors ask for.
template <typename T>
class LocalAttention final : public AttentionOperator<T> {
 public:
  AttentionOutput<T> forward(const PackedSeqParams& params, const Tensor<T>& q, const Tensor<T>& k,
                             const Tensor<T>& v, int microbatch, int layer) override;
  AttentionGradients<T> backward(const PackedSeqParams& params, const Tensor<T>& q,
                                 const Tensor<T>& k, const Tensor<T>& v,
                                 const AttentionOutput<T>& output, const Tensor<T>& d_o,
                                 int microbatch, int layer) override;
};

extern template class LocalAttention<float>;
extern template class LocalAttention<double>;

}  // namespace dyncp
