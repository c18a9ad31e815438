// Naive loops; see attention.h for the formulas.
#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

void require_shape(const char* name, const Tensor<double>& tensor, std::int64_t rows, int heads,
                   int dim) {
  if (tensor.rows == rows && tensor.heads == heads && tensor.dim == dim) return;
  throw InvalidInput(std::string("attention: ") + name + " is [" + std::to_string(tensor.rows) +
                     ", " + std::to_string(tensor.heads) + ", " + std::to_string(tensor.dim) +
                     "], expected [" + std::to_string(rows) + ", " + std::to_string(heads) + ", " +
                     std::to_string(dim) + "]");
}

double dot(const Tensor<double>& a, std::int64_t a_row, int a_head, const Tensor<double>& b,
           std::int64_t b_row, int b_head) {
  double sum = 0;
  for (int d = 0; d < a.dim; ++d) sum += a.at(a_row, a_head, d) * b.at(b_row, b_head, d);
  return sum;
}

}  // namespace

KeyRange visible_keys(bool causal, std::int64_t window, std::int64_t query, std::int64_t real) {
  return {window < 0 ? 0 : std::max<std::int64_t>(0, query - window), causal ? query + 1 : real};
}

double softmax_scale(const AttentionOptions& options, int dim) {
  return options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(dim));
}

void require_valid_attention(std::int64_t rows, const Tensor<double>& q, const Tensor<double>& k,
                             const Tensor<double>& v, const AttentionOptions& options) {
  if (q.heads < 1 || k.heads < 1 || q.dim < 1 || v.dim < 1 || q.heads % k.heads != 0) {
    throw InvalidInput("attention: " + std::to_string(q.heads) + " query heads of dim " +
                       std::to_string(q.dim) + " and " + std::to_string(k.heads) +
                       " key heads; expected positive counts, query heads a multiple of key heads");
  }
  require_shape("q", q, rows, q.heads, q.dim);
  require_shape("k", k, rows, k.heads, q.dim);
  require_shape("v", v, rows, k.heads, v.dim);
  if (options.window < -1) {
    throw InvalidInput("attention: window " + std::to_string(options.window) +
                       ", expected -1 (all keys) or a count of keys");
  }
  if (!options.sink.empty() && options.sink.size() != static_cast<std::size_t>(q.heads)) {
    throw InvalidInput("attention: " + std::to_string(options.sink.size()) +
                       " sink logits, expected one for each of " + std::to_string(q.heads) +
                       " heads");
  }
}

AttentionForward attention_forward(const Pack& pack, const Tensor<double>& q,
                                   const Tensor<double>& k, const Tensor<double>& v,
                                   const AttentionOptions& options) {
  require_valid_attention(pack.padded_tokens(), q, k, v, options);
  const double scale = softmax_scale(options, q.dim);
  const int group = q.heads / k.heads;
  AttentionForward output{Tensor<double>(q.rows, q.heads, v.dim),
                          HeadRows<double>(q.heads, q.rows, kMinusInfinity)};
  std::vector<double> p;
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t first = pack.first_row(s);
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const KeyRange keys = visible_keys(options.causal, options.window, i, pack.real_length(s));
      for (int h = 0; h < q.heads; ++h) {
        p.clear();
        double max = kMinusInfinity;
        if (!options.sink.empty()) max = options.sink[std::size_t(h)];
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          p.push_back(scale * dot(q, first + i, h, k, first + j, h / group));
          max = std::max(max, p.back());
        }
        double sum = options.sink.empty() ? 0 : std::exp(options.sink[std::size_t(h)] - max);
        for (double& value : p) {
          value = std::exp(value - max);
          sum += value;
        }
        for (int d = 0; d < v.dim; ++d) {
          double o = 0;
          for (std::int64_t j = keys.begin; j < keys.end; ++j) {
            o += p[std::size_t(j - keys.begin)] * v.at(first + j, h / group, d);
          }
          output.o.at(first + i, h, d) = o / sum;
        }
        output.lse.at(h, first + i) = max + std::log(sum);
      }
    }
  }
  return output;
}

AttentionBackward attention_backward(const Pack& pack, const Tensor<double>& q,
                                     const Tensor<double>& k, const Tensor<double>& v,
                                     const AttentionForward& output, const Tensor<double>& d_o,
                                     const AttentionOptions& options) {
  require_valid_attention(pack.padded_tokens(), q, k, v, options);
  require_shape("o", output.o, q.rows, q.heads, v.dim);
  require_shape("d_o", d_o, q.rows, q.heads, v.dim);
  if (output.lse.heads != q.heads || output.lse.rows != q.rows) {
    throw InvalidInput("attention: lse is [" + std::to_string(output.lse.heads) + ", " +
                       std::to_string(output.lse.rows) + "], expected [" + std::to_string(q.heads) +
                       ", " + std::to_string(q.rows) + "]");
  }
  const double scale = softmax_scale(options, q.dim);
  const int group = q.heads / k.heads;
  AttentionBackward gradients{
      Tensor<double>(q.rows, q.heads, q.dim), Tensor<double>(k.rows, k.heads, k.dim),
      Tensor<double>(v.rows, v.heads, v.dim), std::vector<double>(options.sink.size(), 0.0)};
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t first = pack.first_row(s);
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const KeyRange keys = visible_keys(options.causal, options.window, i, pack.real_length(s));
      for (int h = 0; h < q.heads; ++h) {
        const int kv = h / group;
        const double lse = output.lse.at(h, first + i);
        const double row_dot = dot(d_o, first + i, h, output.o, first + i, h);
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const double p = std::exp(scale * dot(q, first + i, h, k, first + j, kv) - lse);
          const double dp = dot(d_o, first + i, h, v, first + j, kv);
          const double ds = p * (dp - row_dot);
          for (int d = 0; d < v.dim; ++d) {
            gradients.dv.at(first + j, kv, d) += p * d_o.at(first + i, h, d);
          }
          for (int d = 0; d < q.dim; ++d) {
            gradients.dq.at(first + i, h, d) += scale * ds * k.at(first + j, kv, d);
            gradients.dk.at(first + j, kv, d) += scale * ds * q.at(first + i, h, d);
          }
        }
        if (!options.sink.empty()) {
          gradients.d_sink[std::size_t(h)] -=
              std::exp(options.sink[std::size_t(h)] - lse) * row_dot;
        }
      }
    }
  }
  return gradients;
}

}  // namespace dyncp
