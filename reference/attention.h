// Attention over a pack, in double and in naive loops: the specification that every ring, kernel
// and recorded tensor is held to. Real tokens alone take part: padded rows get O = 0, LSE = -inf
// and zero gradients, and no bit of padding (NaN included) is ever read.
//
// Shapes: q [rows, heads, dim], k [rows, kv_heads, dim], v [rows, kv_heads, value_dim], rows being
// the pack's padded tokens. Query head h uses K/V head h / (heads / kv_heads).
//
//   s_ij = scale * q_i . k_j                          for the visible keys j of query i
//   lse_i = log(sum_j exp(s_ij) [+ exp(sink_h)])      natural logarithm
//   P_ij = exp(s_ij - lse_i),  O_i = sum_j P_ij v_j
//   D_i = dO_i . O_i,  dP_ij = dO_i . v_j,  dS_ij = P_ij (dP_ij - D_i)
//   dV_j = sum_i P_ij dO_i,  dQ_i = scale sum_j dS_ij k_j,  dK_j = scale sum_i dS_ij q_i
//   dsink_h = - sum_i exp(sink_h - lse_i) D_i
#pragma once

#include <cstdint>
#include <vector>

#include "reference/pack.h"
#include "reference/tensor.h"

namespace dyncp {

/// One number per head and row, [heads, rows], rows fastest: the layout of LSE.
template <typename T>
struct HeadRows {
  int heads = 0;
  std::int64_t rows = 0;
  std::vector<T> data;

  HeadRows() = default;
  HeadRows(int heads_in, std::int64_t rows_in, T fill = T())
      : heads(heads_in),
        rows(rows_in),
        data(static_cast<std::size_t>(heads_in) * static_cast<std::size_t>(rows_in), fill) {}

  std::size_t offset(int head, std::int64_t row) const {
    return static_cast<std::size_t>(head) * static_cast<std::size_t>(rows) +
           static_cast<std::size_t>(row);
  }
  T& at(int head, std::int64_t row) { return data[offset(head, row)]; }
  const T& at(int head, std::int64_t row) const { return data[offset(head, row)]; }
  bool operator==(const HeadRows&) const = default;
};

/// Which keys a query sees, and the constants of the softmax.
struct AttentionOptions {
  bool causal = true;        // key j <= query i
  std::int64_t window = -1;  // keys to the left a query sees besides itself; -1 all
  double scale = 0;          // softmax scale; 0 stands for 1/sqrt(dim)
  std::vector<double> sink;  // one logit per query head; empty = none
};

/// Half-open run of positions inside a sequence.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool contains(std::int64_t key) const { return key >= begin && key < end; }
  bool operator==(const KeyRange&) const = default;
};

/// The keys that query `query` of a sequence with `real` real tokens sees.
/// REQUIRES: 0 <= query < real.
KeyRange visible_keys(bool causal, std::int64_t window, std::int64_t query, std::int64_t real);

/// options.scale, or 1/sqrt(dim) where it is 0.
double softmax_scale(const AttentionOptions& options, int dim);

/// Throws InvalidInput, naming the tensor and the expected shape, unless q, k and v fit `rows` and
/// one another, heads is a multiple of kv_heads, window >= -1 and sink is empty or one per head.
void require_valid_attention(std::int64_t rows, const Tensor<double>& q, const Tensor<double>& k,
                             const Tensor<double>& v, const AttentionOptions& options);

struct AttentionForward {
  Tensor<double> o;      // [rows, heads, value_dim]
  HeadRows<double> lse;  // [heads, rows], sink included; -inf on padded rows
  bool operator==(const AttentionForward&) const = default;
};

struct AttentionBackward {
  Tensor<double> dq;           // [rows, heads, dim]
  Tensor<double> dk;           // [rows, kv_heads, dim]
  Tensor<double> dv;           // [rows, kv_heads, value_dim]
  std::vector<double> d_sink;  // one per head, or empty without a sink
  bool operator==(const AttentionBackward&) const = default;
};

/// Throws InvalidInput like require_valid_attention.
AttentionForward attention_forward(const Pack& pack, const Tensor<double>& q,
                                   const Tensor<double>& k, const Tensor<double>& v,
                                   const AttentionOptions& options);

/// Gradients of sum(O * d_o), from the O and LSE of the forward pass.
/// Throws InvalidInput like require_valid_attention, or when output or d_o have another shape.
AttentionBackward attention_backward(const Pack& pack, const Tensor<double>& q,
                                     const Tensor<double>& k, const Tensor<double>& v,
                                     const AttentionForward& output, const Tensor<double>& d_o,
                                     const AttentionOptions& options);

}  // namespace dyncp
