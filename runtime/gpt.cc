// Forward and backward of the small GPT over the real rows of a microbatch.
// Local names: n real rows, activations [n, width] row-major.
#include "runtime/gpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/rope.h"
#include "reference/zigzag.h"
#include "runtime/matmul.h"

namespace dyncp {
namespace {

/// Local rows that hold real tokens, ascending.
std::vector<std::int64_t> real_rows(const PackedSeqParams& params) {
  const int size = params.context().size();
  const auto first = local_boundaries(params.pack(), size);
  const auto real = real_lengths_on_rank(params.pack(), size, params.context().rank());
  std::vector<std::int64_t> rows;
  for (std::size_t s = 0; s < real.size(); ++s) {
    for (std::int64_t j = 0; j < real[s]; ++j) rows.push_back(first[s] + j);
  }
  return rows;
}

/// What a pass needs to know of one microbatch, real rows only.
template <typename T>
struct Rows {
  std::vector<std::int64_t> local;     // [n] row of the microbatch
  std::vector<std::int64_t> tokens;    // [n]
  std::vector<std::int64_t> counting;  // indices into the n rows that have a loss
  std::vector<std::int64_t> labels;    // of the counting rows
  std::vector<T> cosine, sine;         // [n, head_dim / 2]

  std::int64_t count() const { return static_cast<std::int64_t>(local.size()); }
};

template <typename T>
Rows<T> rows_of(const GptConfig& config, const PackedMicrobatch& microbatch) {
  Rows<T> rows;
  rows.local = real_rows(microbatch.params);
  const auto frequencies =
      rope_inverse_frequencies({.rotary_dim = config.head_dim, .base = config.rope_base});
  for (std::int64_t row : rows.local) {
    const auto at = static_cast<std::size_t>(row);
    rows.tokens.push_back(microbatch.tokens[at]);
    if (microbatch.loss_mask[at] != 0 && microbatch.labels[at] != kIgnoreLabel) {
      rows.counting.push_back(static_cast<std::int64_t>(rows.tokens.size()) - 1);
      rows.labels.push_back(microbatch.labels[at]);
    }
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(microbatch.positions[at]) * frequency;
      rows.cosine.push_back(static_cast<T>(std::cos(angle)));
      rows.sine.push_back(static_cast<T>(std::sin(angle)));
    }
  }
  return rows;
}

template <typename T>
using Activations = std::vector<T>;

template <typename T>
Activations<T> zeros(std::int64_t rows, std::int64_t width) {
  return Activations<T>(static_cast<std::size_t>(rows * width), T(0));
}

/// A weight matrix [outputs, inputs] or its gradient.
template <typename T>
MatrixView<T> matrix(std::span<T> values, std::int64_t inputs) {
  return dense(values.data(), static_cast<std::int64_t>(values.size()) / inputs, inputs);
}

template <typename T>
MatrixView<const T> view(const Activations<T>& x, std::int64_t width) {
  return dense<const T>(x.data(), static_cast<std::int64_t>(x.size()) / width, width);
}

/// x [n, inputs] times the transpose of weight [outputs, inputs]: [n, outputs].
template <typename T>
Activations<T> linear(const Activations<T>& x, std::span<const T> weight, std::int64_t inputs) {
  const MatrixView<const T> w = matrix(weight, inputs);
  const MatrixView<const T> in = view(x, inputs);
  Activations<T> y = zeros<T>(in.rows, w.rows);
  multiply_add(in, w.transposed(), dense(y.data(), in.rows, w.rows));
  return y;
}

/// Adds to d_weight and d_x what the gradient d_y of linear(x, weight) gives.
template <typename T>
void linear_backward(const Activations<T>& x, std::span<const T> weight, std::int64_t inputs,
                     const Activations<T>& d_y, std::span<T> d_weight, Activations<T>& d_x) {
  const MatrixView<const T> w = matrix(weight, inputs);
  const MatrixView<const T> d_out = view(d_y, w.rows);
  multiply_add(d_out.transposed(), view(x, inputs), matrix(d_weight, inputs));
  multiply_add(d_out, w, dense(d_x.data(), d_out.rows, inputs));
}

template <typename T>
struct Norm {
  Activations<T> y;              // [n, width]
  std::vector<T> inverse_scale;  // [n]: 1 / sqrt(mean(x^2) + epsilon)
};

template <typename T>
Norm<T> norm(const Activations<T>& x, std::span<const T> weight, double epsilon) {
  const std::size_t width = weight.size();
  Norm<T> result{zeros<T>(1, static_cast<std::int64_t>(x.size())), {}};
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    T squares = 0;
    for (std::size_t d = 0; d < width; ++d) squares += x[begin + d] * x[begin + d];
    const T inverse = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon));
    for (std::size_t d = 0; d < width; ++d) {
      result.y[begin + d] = x[begin + d] * inverse * weight[d];
    }
    result.inverse_scale.push_back(inverse);
  }
  return result;
}

/// Adds to d_weight and d_x what the gradient d_y of norm(x, weight) gives:
/// with r = inverse_scale and g = d_y * weight, dx = r g - r^3 x (g . x) / width.
template <typename T>
void norm_backward(const Activations<T>& x, std::span<const T> weight,
                   const std::vector<T>& inverse_scale, const Activations<T>& d_y,
                   std::span<T> d_weight, Activations<T>& d_x) {
  const std::size_t width = weight.size();
  for (std::size_t row = 0; row < inverse_scale.size(); ++row) {
    const std::size_t begin = row * width;
    const T inverse = inverse_scale[row];
    T along = 0;  // g . x
    for (std::size_t d = 0; d < width; ++d) {
      d_weight[d] += d_y[begin + d] * (x[begin + d] * inverse);
      along += d_y[begin + d] * weight[d] * x[begin + d];
    }
    const T projection = along * inverse * inverse / static_cast<T>(width);
    for (std::size_t d = 0; d < width; ++d) {
      d_x[begin + d] += inverse * (d_y[begin + d] * weight[d] - x[begin + d] * projection);
    }
  }
}

/// Turns every head of x [n, heads * head_dim] by its row's angle; backwards for the gradient.
template <typename T>
void turn(Activations<T>& x, const Rows<T>& rows, int heads, int head_dim, bool backwards) {
  const auto half = static_cast<std::size_t>(head_dim) / 2;
  T* head = x.data();
  for (std::size_t row = 0; row < rows.local.size(); ++row) {
    const T* cosine = rows.cosine.data() + row * half;
    const T* sine = rows.sine.data() + row * half;
    for (int h = 0; h < heads; ++h, head += head_dim) {
      for (std::size_t d = 0; d < half; ++d) {
        const T first = head[d], second = head[half + d];
        const T s = backwards ? -sine[d] : sine[d];
        head[d] = first * cosine[d] - second * s;
        head[half + d] = second * cosine[d] + first * s;
      }
    }
  }
}

/// Real rows put into a tensor of the whole slice; padding rows are zero.
template <typename T>
Tensor<T> spread(const Activations<T>& x, const Rows<T>& rows, std::int64_t total, int heads,
                 int dim) {
  Tensor<T> result(total, heads, dim);
  const auto width = static_cast<std::int64_t>(heads) * dim;
  for (std::size_t i = 0; i < rows.local.size(); ++i) {
    std::copy_n(x.begin() + static_cast<std::int64_t>(i) * width, width,
                result.data.begin() + rows.local[i] * width);
  }
  return result;
}

/// The inverse of spread: real rows alone.
template <typename T>
Activations<T> collect(const Tensor<T>& x, const Rows<T>& rows, std::int64_t total, int heads,
                       int dim) {
  if (x.rows != total || x.heads != heads || x.dim != dim) {
    throw std::logic_error(
        fmt::format("attention gave [{}, {}, {}], expected [{}, {}, {}] (rows, heads, dim)", x.rows,
                    x.heads, x.dim, total, heads, dim));
  }
  const auto width = static_cast<std::int64_t>(heads) * dim;
  Activations<T> result = zeros<T>(rows.count(), width);
  for (std::size_t i = 0; i < rows.local.size(); ++i) {
    std::copy_n(x.data.begin() + rows.local[i] * width, width,
                result.begin() + static_cast<std::int64_t>(i) * width);
  }
  return result;
}

/// The parameters of one layer, or their gradients. T is const where they are only read.
template <typename T>
struct LayerParameters {
  std::span<T> attention_norm, query, key, value, output, mlp_norm, gate, up, down;
};

template <typename T, typename Parameters>
LayerParameters<T> layer_parameters(Parameters& parameters, int layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const auto tensor = [&](const char* name) { return parameters.tensor(prefix + name); };
  return {tensor("attention_norm.weight"),   tensor("attention.query.weight"),
          tensor("attention.key.weight"),    tensor("attention.value.weight"),
          tensor("attention.output.weight"), tensor("mlp_norm.weight"),
          tensor("mlp.gate.weight"),         tensor("mlp.up.weight"),
          tensor("mlp.down.weight")};
}

/// What the forward pass of one layer leaves for the backward pass.
template <typename T>
struct LayerTrace {
  Activations<T> x;  // input of the layer
  Norm<T> attention_norm;
  Tensor<T> q, k, v;  // rotated, whole slice
  AttentionOutput<T> attention;
  Activations<T> attended;  // attention.o, real rows
  Activations<T> middle;    // x after attention
  Norm<T> mlp_norm;
  Activations<T> gate, up, product;  // product = silu(gate) * up
};

template <typename T>
struct Trace {
  Rows<T> rows;
  std::vector<LayerTrace<T>> layers;
  Activations<T> x;         // output of the last layer, counting rows alone
  Norm<T> final_norm;       // of x
  Activations<T> logits;    // [counting rows, vocabulary]
  std::vector<T> log_sums;  // log_sum_exp of the logits, [counting rows]
  std::vector<T> losses;    // [counting rows]
};

template <typename T>
T silu_factor(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
Activations<T> layer_forward(const GptConfig& config, const LayerParameters<const T>& weights,
                             const PackedMicrobatch& microbatch, const Rows<T>& rows,
                             AttentionOperator<T>& attention, int index, int layer,
                             LayerTrace<T>& trace) {
  const std::int64_t total = microbatch.params.total_tokens();
  const int dim = config.head_dim;
  trace.attention_norm = norm(trace.x, weights.attention_norm, config.norm_epsilon);
  const Activations<T>& h = trace.attention_norm.y;
  Activations<T> q = linear(h, weights.query, config.hidden);
  Activations<T> k = linear(h, weights.key, config.hidden);
  turn(q, rows, config.heads, dim, false);
  turn(k, rows, config.kv_heads, dim, false);
  trace.q = spread(q, rows, total, config.heads, dim);
  trace.k = spread(k, rows, total, config.kv_heads, dim);
  trace.v = spread(linear(h, weights.value, config.hidden), rows, total, config.kv_heads, dim);
  trace.attention = attention.forward(microbatch.params, trace.q, trace.k, trace.v, index, layer);
  trace.attended = collect(trace.attention.o, rows, total, config.heads, dim);
  trace.middle = linear(trace.attended, weights.output, std::int64_t{config.heads} * dim);
  for (std::size_t i = 0; i < trace.middle.size(); ++i) trace.middle[i] += trace.x[i];

  trace.mlp_norm = norm(trace.middle, weights.mlp_norm, config.norm_epsilon);
  trace.gate = linear(trace.mlp_norm.y, weights.gate, config.hidden);
  trace.up = linear(trace.mlp_norm.y, weights.up, config.hidden);
  trace.product = trace.up;
  for (std::size_t i = 0; i < trace.gate.size(); ++i) {
    trace.product[i] *= trace.gate[i] * silu_factor(trace.gate[i]);
  }
  Activations<T> x = linear(trace.product, weights.down, config.ffn);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += trace.middle[i];
  return x;
}

template <typename T>
Trace<T> forward(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
                 AttentionOperator<T>& attention, int index) {
  const GptConfig& config = parameters.config();
  require_valid(config, microbatch);
  Trace<T> trace;
  trace.rows = rows_of<T>(config, microbatch);
  const Rows<T>& rows = trace.rows;
  const std::int64_t hidden = config.hidden;
  const auto embedding = parameters.tensor("embedding.weight");
  Activations<T> x;
  x.reserve(static_cast<std::size_t>(rows.count() * hidden));
  for (std::int64_t token : rows.tokens) {
    const auto begin = embedding.begin() + token * hidden;
    x.insert(x.end(), begin, begin + hidden);
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    LayerTrace<T>& saved = trace.layers.emplace_back();
    saved.x = std::move(x);
    x = layer_forward(config, layer_parameters<const T>(parameters, layer), microbatch, rows,
                      attention, index, layer, saved);
  }

  for (std::int64_t row : rows.counting) {
    const auto begin = x.begin() + row * hidden;
    trace.x.insert(trace.x.end(), begin, begin + hidden);
  }
  trace.final_norm = norm(trace.x, parameters.tensor("final_norm.weight"), config.norm_epsilon);
  trace.logits = linear(trace.final_norm.y, parameters.tensor("head.weight"), hidden);
  for (std::size_t i = 0; i < rows.labels.size(); ++i) {
    const T* logits = trace.logits.data() + i * static_cast<std::size_t>(config.vocabulary);
    const T largest = *std::max_element(logits, logits + config.vocabulary);
    T sum = 0;
    for (int v = 0; v < config.vocabulary; ++v) sum += std::exp(logits[v] - largest);
    trace.log_sums.push_back(largest + std::log(sum));
    trace.losses.push_back(trace.log_sums.back() - logits[rows.labels[i]]);
  }
  return trace;
}

/// d_x: gradient of the layer's output on entry, of its input on return.
template <typename T>
void layer_backward(const GptConfig& config, const LayerParameters<const T>& weights,
                    const PackedMicrobatch& microbatch, const Rows<T>& rows,
                    AttentionOperator<T>& attention, int index, int layer,
                    const LayerTrace<T>& trace, const LayerParameters<T>& gradients,
                    Activations<T>& d_x) {
  const std::int64_t n = rows.count();
  const std::int64_t total = microbatch.params.total_tokens();
  const int dim = config.head_dim;
  const std::int64_t query_width = std::int64_t{config.heads} * dim;

  // x = middle + down product: the residual passes d_x on, the branch adds to it.
  Activations<T> d_product = zeros<T>(n, config.ffn);
  linear_backward(trace.product, weights.down, config.ffn, d_x, gradients.down, d_product);
  Activations<T> d_gate = std::move(d_product), d_up = d_gate;
  for (std::size_t i = 0; i < d_gate.size(); ++i) {
    const T factor = silu_factor(trace.gate[i]);
    d_up[i] *= trace.gate[i] * factor;
    d_gate[i] *= trace.up[i] * (factor * (T(1) + trace.gate[i] * (T(1) - factor)));
  }
  Activations<T> d_h = zeros<T>(n, config.hidden);
  linear_backward(trace.mlp_norm.y, weights.gate, config.hidden, d_gate, gradients.gate, d_h);
  linear_backward(trace.mlp_norm.y, weights.up, config.hidden, d_up, gradients.up, d_h);
  norm_backward(trace.middle, weights.mlp_norm, trace.mlp_norm.inverse_scale, d_h,
                gradients.mlp_norm, d_x);

  // middle = x + output attended, likewise.
  Activations<T> d_attended = zeros<T>(n, query_width);
  linear_backward(trace.attended, weights.output, query_width, d_x, gradients.output, d_attended);
  const AttentionGradients<T> inner =
      attention.backward(microbatch.params, trace.q, trace.k, trace.v, trace.attention,
                         spread(d_attended, rows, total, config.heads, dim), index, layer);
  Activations<T> d_q = collect(inner.dq, rows, total, config.heads, dim);
  Activations<T> d_k = collect(inner.dk, rows, total, config.kv_heads, dim);
  const Activations<T> d_v = collect(inner.dv, rows, total, config.kv_heads, dim);
  turn(d_q, rows, config.heads, dim, true);
  turn(d_k, rows, config.kv_heads, dim, true);
  std::fill(d_h.begin(), d_h.end(), T(0));
  const Activations<T>& h = trace.attention_norm.y;
  linear_backward(h, weights.query, config.hidden, d_q, gradients.query, d_h);
  linear_backward(h, weights.key, config.hidden, d_k, gradients.key, d_h);
  linear_backward(h, weights.value, config.hidden, d_v, gradients.value, d_h);
  norm_backward(trace.x, weights.attention_norm, trace.attention_norm.inverse_scale, d_h,
                gradients.attention_norm, d_x);
}

template <typename T>
void backward(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
              AttentionOperator<T>& attention, int index, const Trace<T>& trace,
              GptParameters<T>& gradients) {
  const GptConfig& config = parameters.config();
  const Rows<T>& rows = trace.rows;
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const auto vocabulary = static_cast<std::size_t>(config.vocabulary);

  // d logits = softmax(logits) - one at the label.
  Activations<T> d_logits = trace.logits;
  for (std::size_t i = 0; i < rows.labels.size(); ++i) {
    T* row = d_logits.data() + i * vocabulary;
    for (std::size_t v = 0; v < vocabulary; ++v) row[v] = std::exp(row[v] - trace.log_sums[i]);
    row[rows.labels[i]] -= T(1);
  }
  const auto counting = static_cast<std::int64_t>(rows.counting.size());
  Activations<T> d_normed = zeros<T>(counting, config.hidden), d_last = d_normed;
  linear_backward(trace.final_norm.y, parameters.tensor("head.weight"), config.hidden, d_logits,
                  gradients.tensor("head.weight"), d_normed);
  norm_backward(trace.x, parameters.tensor("final_norm.weight"), trace.final_norm.inverse_scale,
                d_normed, gradients.tensor("final_norm.weight"), d_last);
  Activations<T> d_x = zeros<T>(rows.count(), config.hidden);
  for (std::size_t i = 0; i < rows.counting.size(); ++i) {
    std::copy_n(d_last.begin() + static_cast<std::int64_t>(i * hidden), hidden,
                d_x.begin() + rows.counting[i] * config.hidden);
  }

  for (int layer = config.layers - 1; layer >= 0; --layer) {
    layer_backward(config, layer_parameters<const T>(parameters, layer), microbatch, rows,
                   attention, index, layer, trace.layers[static_cast<std::size_t>(layer)],
                   layer_parameters<T>(gradients, layer), d_x);
  }
  const auto d_embedding = gradients.tensor("embedding.weight");
  for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
    T* to = d_embedding.data() + static_cast<std::size_t>(rows.tokens[i]) * hidden;
    for (std::size_t d = 0; d < hidden; ++d) to[d] += d_x[i * hidden + d];
  }
}

}  // namespace

void require_valid(const GptConfig& config, const PackedMicrobatch& microbatch) {
  const auto total = static_cast<std::size_t>(microbatch.params.total_tokens());
  const auto check_size = [total](const char* name, std::size_t size) {
    if (size != total) {
      throw InvalidInput(fmt::format("microbatch: {} has {} entries, expected one a local row ({})",
                                     name, size, total));
    }
  };
  check_size("tokens", microbatch.tokens.size());
  check_size("labels", microbatch.labels.size());
  check_size("positions", microbatch.positions.size());
  check_size("loss_mask", microbatch.loss_mask.size());
  const auto check = [](const char* name, std::int64_t row, std::int64_t value, bool good,
                        const std::string& expected) {
    if (good) return;
    throw InvalidInput(fmt::format("microbatch: {} of local row {} is {}, expected {}", name, row,
                                   value, expected));
  };
  const std::string vocabulary = fmt::format("0..{}", config.vocabulary - 1);
  for (std::int64_t row : real_rows(microbatch.params)) {
    const auto at = static_cast<std::size_t>(row);
    const std::int64_t token = microbatch.tokens[at], label = microbatch.labels[at];
    check("token", row, token, token >= 0 && token < config.vocabulary, vocabulary);
    check("position", row, microbatch.positions[at], microbatch.positions[at] >= 0, "0 or more");
    check("loss mask", row, microbatch.loss_mask[at], microbatch.loss_mask[at] <= 1, "0 or 1");
    if (microbatch.loss_mask[at] == 0 || label == kIgnoreLabel) continue;
    check("label", row, label, label >= 0 && label < config.vocabulary, vocabulary);
  }
}

template <typename T>
LossSum forward_backward(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
                         AttentionOperator<T>& attention, int index, GptParameters<T>& gradients) {
  if (!(gradients.config() == parameters.config())) {
    throw std::logic_error("forward_backward: the gradients belong to another configuration");
  }
  const Trace<T> trace = forward(parameters, microbatch, attention, index);
  backward(parameters, microbatch, attention, index, trace, gradients);
  LossSum result;
  for (T loss : trace.losses) result.sum += static_cast<double>(loss);
  result.tokens = static_cast<std::int64_t>(trace.losses.size());
  return result;
}

template <typename T>
std::vector<T> token_losses(const GptParameters<T>& parameters, const PackedMicrobatch& microbatch,
                            AttentionOperator<T>& attention, int index) {
  const Trace<T> trace = forward(parameters, microbatch, attention, index);
  std::vector<T> losses(static_cast<std::size_t>(microbatch.params.total_tokens()), T(0));
  for (std::size_t i = 0; i < trace.losses.size(); ++i) {
    const auto row = static_cast<std::size_t>(trace.rows.counting[i]);
    losses[static_cast<std::size_t>(trace.rows.local[row])] = trace.losses[i];
  }
  return losses;
}

template LossSum forward_backward(const GptParameters<float>&, const PackedMicrobatch&,
                                  AttentionOperator<float>&, int, GptParameters<float>&);
template LossSum forward_backward(const GptParameters<double>&, const PackedMicrobatch&,
                                  AttentionOperator<double>&, int, GptParameters<double>&);
template std::vector<float> token_losses(const GptParameters<float>&, const PackedMicrobatch&,
                                         AttentionOperator<float>&, int);
template std::vector<double> token_losses(const GptParameters<double>&, const PackedMicrobatch&,
                                          AttentionOperator<double>&, int);

}  // namespace dyncp
