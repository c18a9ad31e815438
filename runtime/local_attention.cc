// Attention by tiles of queries: each tile sees the keys up to its own end, and the triangle above
// the diagonal is set to probability zero.
#include "runtime/local_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "runtime/matmul.h"

namespace dyncp {
namespace {

constexpr std::int64_t kTile = 64;  // queries

template <typename T>
void require_shapes(const PackedSeqParams& params, const Tensor<T>& q, const Tensor<T>& k,
                    const Tensor<T>& v) {
  if (params.context().cp_on()) {
    throw std::logic_error("LocalAttention: CP is on, and it holds no other rank's keys");
  }
  const std::int64_t rows = params.total_tokens();
  const bool heads_fit = k.heads > 0 ? q.heads % k.heads == 0 : q.heads == 0;
  if (q.rows != rows || k.rows != rows || !v.same_shape(k) || q.dim != k.dim || !heads_fit) {
    throw std::logic_error("LocalAttention: the shapes of q, k, v and the pack do not fit");
  }
}

/// `count` rows of one head from `first` on: [count, dim].
template <typename T>
MatrixView<const T> head_rows(const Tensor<T>& x, int head, std::int64_t first,
                              std::int64_t count) {
  return {x.data.data() + x.offset(first, head, 0), count, x.dim,
          static_cast<std::int64_t>(x.heads) * x.dim, 1};
}
template <typename T>
MatrixView<T> head_rows(Tensor<T>& x, int head, std::int64_t first, std::int64_t count) {
  return {x.data.data() + x.offset(first, head, 0), count, x.dim,
          static_cast<std::int64_t>(x.heads) * x.dim, 1};
}

/// One tile: queries begin..end-1 of a sequence that starts at row `first`, keys 0..end-1.
struct Tile {
  std::int64_t first, begin, end;
  std::int64_t queries() const { return end - begin; }
  std::int64_t keys() const { return end; }
};

/// left right^T, [queries, keys], into `to`.
template <typename T>
void product(const MatrixView<const T>& left, const MatrixView<const T>& right,
             std::vector<T>& to) {
  to.assign(static_cast<std::size_t>(left.rows * right.rows), T(0));
  multiply_add(left, right.transposed(), dense(to.data(), left.rows, right.rows));
}

/// Calls body(tile, head, kv_head) for every tile of every sequence and head.
template <typename T, typename Body>
void for_each_tile(const PackedSeqParams& params, const Tensor<T>& q, const Tensor<T>& k,
                   Body body) {
  const Pack& pack = params.pack();
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t length = pack.real_length(s);
    for (int head = 0; head < q.heads; ++head) {
      for (std::int64_t begin = 0; begin < length; begin += kTile) {
        const Tile tile{pack.first_row(s), begin, std::min(begin + kTile, length)};
        body(tile, head, head / (q.heads / k.heads));
      }
    }
  }
}

}  // namespace

template <typename T>
AttentionOutput<T> LocalAttention<T>::forward(const PackedSeqParams& params, const Tensor<T>& q,
                                              const Tensor<T>& k, const Tensor<T>& v, int, int) {
  require_shapes(params, q, k, v);
  const T scale = T(1) / std::sqrt(static_cast<T>(q.dim));
  AttentionOutput<T> output{Tensor<T>(q.rows, q.heads, q.dim), {}};
  output.lse.assign(
      static_cast<std::size_t>(q.heads),
      std::vector<T>(static_cast<std::size_t>(q.rows), -std::numeric_limits<T>::infinity()));
  std::vector<T> scores;
  for_each_tile(params, q, k, [&](const Tile& tile, int head, int kv_head) {
    const std::int64_t first_query = tile.first + tile.begin;
    product(head_rows(q, head, first_query, tile.queries()),
            head_rows(k, kv_head, tile.first, tile.keys()), scores);
    for (std::int64_t i = 0; i < tile.queries(); ++i) {
      T* row = scores.data() + i * tile.keys();
      const std::int64_t visible = tile.begin + i + 1;
      T largest = -std::numeric_limits<T>::infinity();
      for (std::int64_t j = 0; j < visible; ++j) {
        row[j] *= scale;
        largest = std::max(largest, row[j]);
      }
      T sum = 0;
      for (std::int64_t j = 0; j < visible; ++j) {
        row[j] = std::exp(row[j] - largest);
        sum += row[j];
      }
      for (std::int64_t j = 0; j < visible; ++j) row[j] /= sum;
      std::fill(row + visible, row + tile.keys(), T(0));
      output.lse[static_cast<std::size_t>(head)][static_cast<std::size_t>(first_query + i)] =
          largest + std::log(sum);
    }
    multiply_add(dense<const T>(scores.data(), tile.queries(), tile.keys()),
                 head_rows(v, kv_head, tile.first, tile.keys()),
                 head_rows(output.o, head, first_query, tile.queries()));
  });
  return output;
}

template <typename T>
AttentionGradients<T> LocalAttention<T>::backward(const PackedSeqParams& params, const Tensor<T>& q,
                                                  const Tensor<T>& k, const Tensor<T>& v,
                                                  const AttentionOutput<T>& output,
                                                  const Tensor<T>& d_o, int, int) {
  require_shapes(params, q, k, v);
  if (!output.o.same_shape(q) || !d_o.same_shape(q) ||
      output.lse.size() != static_cast<std::size_t>(q.heads)) {
    throw std::logic_error("LocalAttention: the shapes of o, d_o and lse do not fit q");
  }
  const T scale = T(1) / std::sqrt(static_cast<T>(q.dim));
  AttentionGradients<T> gradients{Tensor<T>(q.rows, q.heads, q.dim),
                                  Tensor<T>(k.rows, k.heads, k.dim),
                                  Tensor<T>(v.rows, v.heads, v.dim)};
  std::vector<T> p, ds;
  for_each_tile(params, q, k, [&](const Tile& tile, int head, int kv_head) {
    const std::int64_t first_query = tile.first + tile.begin;
    const auto q_tile = head_rows(q, head, first_query, tile.queries());
    const auto d_o_tile = head_rows(d_o, head, first_query, tile.queries());
    const auto k_tile = head_rows(k, kv_head, tile.first, tile.keys());
    product(q_tile, k_tile, p);
    product(d_o_tile, head_rows(v, kv_head, tile.first, tile.keys()), ds);
    for (std::int64_t i = 0; i < tile.queries(); ++i) {
      const std::int64_t row = first_query + i;
      const T lse = output.lse[static_cast<std::size_t>(head)][static_cast<std::size_t>(row)];
      T along = 0;  // D = dO . O
      for (int d = 0; d < q.dim; ++d) along += d_o.at(row, head, d) * output.o.at(row, head, d);
      T* p_row = p.data() + i * tile.keys();
      T* ds_row = ds.data() + i * tile.keys();
      const std::int64_t visible = tile.begin + i + 1;
      for (std::int64_t j = 0; j < visible; ++j) {
        p_row[j] = std::exp(p_row[j] * scale - lse);
        ds_row[j] = p_row[j] * (ds_row[j] - along) * scale;
      }
      std::fill(p_row + visible, p_row + tile.keys(), T(0));
      std::fill(ds_row + visible, ds_row + tile.keys(), T(0));
    }
    const auto p_view = dense<const T>(p.data(), tile.queries(), tile.keys());
    const auto ds_view = dense<const T>(ds.data(), tile.queries(), tile.keys());
    multiply_add(p_view.transposed(), d_o_tile,
                 head_rows(gradients.dv, kv_head, tile.first, tile.keys()));
    multiply_add(ds_view, k_tile, head_rows(gradients.dq, head, first_query, tile.queries()));
    multiply_add(ds_view.transposed(), q_tile,
                 head_rows(gradients.dk, kv_head, tile.first, tile.keys()));
  });
  return gradients;
}

template class LocalAttention<float>;
template class LocalAttention<double>;

}  // namespace dyncp
