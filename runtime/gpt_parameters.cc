// Names, shapes and first values of the small GPT's parameters.
#include "runtime/gpt_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "reference/error.h"

namespace dyncp {
namespace {

void require_size(std::string_view name, int value) {
  constexpr int kLargest = 1 << 20;
  if (value < 1 || value > kLargest) {
    throw InvalidInput(fmt::format("model: {} is {}, expected 1..{}", name, value, kLargest));
  }
}

}  // namespace

void require_valid(const GptConfig& config) {
  require_size("layers", config.layers);
  require_size("heads", config.heads);
  require_size("kv_heads", config.kv_heads);
  require_size("head_dim", config.head_dim);
  require_size("hidden", config.hidden);
  require_size("ffn", config.ffn);
  require_size("vocabulary", config.vocabulary);
  if (config.heads % config.kv_heads != 0) {
    throw InvalidInput(fmt::format("model: heads is {}, expected a multiple of kv_heads ({})",
                                   config.heads, config.kv_heads));
  }
  if (config.head_dim % 2 != 0) {
    throw InvalidInput(
        fmt::format("model: head_dim is {}, expected an even number (RoPE)", config.head_dim));
  }
  if (!std::isfinite(config.rope_base) || config.rope_base <= 1) {
    throw InvalidInput(
        fmt::format("model: rope_base is {}, expected a number above 1", config.rope_base));
  }
  if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon <= 0) {
    throw InvalidInput(
        fmt::format("model: norm_epsilon is {}, expected a number above 0", config.norm_epsilon));
  }
  const double hidden = config.hidden;
  const double attention = 2.0 * (config.heads + config.kv_heads) * config.head_dim;
  const double layer = hidden * (attention + 3.0 * config.ffn + 2);
  const double total = config.layers * layer + hidden * (2.0 * config.vocabulary + 1);
  if (total > 0x1p31) {
    throw InvalidInput(
        fmt::format("model: {:.0f} parameters, expected at most {:.0f}", total, 0x1p31));
  }
}

std::vector<GptTensor> gpt_tensors(const GptConfig& config) {
  require_valid(config);
  std::vector<GptTensor> tensors;
  std::int64_t offset = 0;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    std::int64_t size = 1;
    for (std::int64_t extent : shape) size *= extent;
    tensors.push_back({std::move(name), std::move(shape), offset, size});
    offset += size;
  };
  const std::int64_t hidden = config.hidden;
  const std::int64_t query = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t key = std::int64_t{config.kv_heads} * config.head_dim;
  add("embedding.weight", {config.vocabulary, hidden});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    add(prefix + "attention_norm.weight", {hidden});
    add(prefix + "attention.query.weight", {query, hidden});
    add(prefix + "attention.key.weight", {key, hidden});
    add(prefix + "attention.value.weight", {key, hidden});
    add(prefix + "attention.output.weight", {hidden, query});
    add(prefix + "mlp_norm.weight", {hidden});
    add(prefix + "mlp.gate.weight", {config.ffn, hidden});
    add(prefix + "mlp.up.weight", {config.ffn, hidden});
    add(prefix + "mlp.down.weight", {hidden, config.ffn});
  }
  add("final_norm.weight", {hidden});
  add("head.weight", {config.vocabulary, hidden});
  return tensors;
}

template <typename T>
GptParameters<T>::GptParameters(const GptConfig& config)
    : config_(config), tensors_(gpt_tensors(config)) {
  values_.assign(static_cast<std::size_t>(tensors_.back().offset + tensors_.back().size), T(0));
}

template <typename T>
const GptTensor& GptParameters<T>::find(std::string_view name) const {
  for (const GptTensor& tensor : tensors_) {
    if (tensor.name == name) return tensor;
  }
  throw std::logic_error(fmt::format("the model has no parameter {}", name));
}

template <typename T>
std::span<T> GptParameters<T>::tensor(std::string_view name) {
  const GptTensor& found = find(name);
  return values().subspan(static_cast<std::size_t>(found.offset),
                          static_cast<std::size_t>(found.size));
}

template <typename T>
std::span<const T> GptParameters<T>::tensor(std::string_view name) const {
  const GptTensor& found = find(name);
  return values().subspan(static_cast<std::size_t>(found.offset),
                          static_cast<std::size_t>(found.size));
}

template <typename T>
void GptParameters<T>::zero() {
  std::fill(values_.begin(), values_.end(), T(0));
}

template <typename T>
void GptParameters<T>::add(T factor, const GptParameters& other) {
  if (other.values_.size() != values_.size()) {
    throw std::logic_error("GptParameters::add: the models differ in size");
  }
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += factor * other.values_[i];
}

template <typename T>
GptParameters<T> initialise(const GptConfig& config, std::uint64_t seed) {
  GptParameters<T> parameters(config);
  std::mt19937_64 random(seed);
  for (const GptTensor& tensor : parameters.tensors()) {
    const std::span<T> values = parameters.tensor(tensor.name);
    if (tensor.shape.size() == 1) {
      std::fill(values.begin(), values.end(), T(1));
      continue;
    }
    double deviation = 1;
    if (tensor.name != "embedding.weight") {
      deviation /= std::sqrt(static_cast<double>(tensor.shape.back()));
    }
    if (tensor.name.ends_with("attention.output.weight") ||
        tensor.name.ends_with("mlp.down.weight")) {
      deviation /= std::sqrt(2.0 * config.layers);
    }
    for (T& value : values) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1;  // [-1, 1)
      value = static_cast<T>(uniform * (std::sqrt(3.0) * deviation));
    }
  }
  return parameters;
}

template class GptParameters<float>;
template class GptParameters<double>;
template GptParameters<float> initialise(const GptConfig&, std::uint64_t);
template GptParameters<double> initialise(const GptConfig&, std::uint64_t);

}  // namespace dyncp
