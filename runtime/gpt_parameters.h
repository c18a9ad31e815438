// The parameters of the small GPT: configuration, names, shapes, and their values in one flat
// piece of memory, so that one all-reduce serves all gradients.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dyncp {

/// A decoder: token embedding, `layers` times (RMSNorm, grouped-query causal attention with RoPE,
/// residual, RMSNorm, SwiGLU, residual), RMSNorm, a head of its own. No biases.
struct GptConfig {
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int hidden = 64;
  int ffn = 128;
  int vocabulary = 256;
  double rope_base = 10000.0;
  double norm_epsilon = 1e-5;  // added to the mean square
  bool operator==(const GptConfig&) const = default;
};

/// Throws InvalidInput naming the first value out of range: every size in 1..2^20, heads a multiple
/// of kv_heads, head_dim even, rope_base finite and > 1, norm_epsilon finite and > 0, and at most
/// 2^31 parameters in all.
void require_valid(const GptConfig& config);

/// Where one parameter lies in the flat values. Matrices are [outputs, inputs], row-major.
struct GptTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in values
  std::int64_t size = 0;    // values
};

/// The parameters of a model in their order:
///   embedding.weight [vocabulary, hidden]
///   layers.N.attention_norm.weight [hidden]
///   layers.N.attention.query.weight [heads * head_dim, hidden]
///   layers.N.attention.key.weight, layers.N.attention.value.weight [kv_heads * head_dim, hidden]
///   layers.N.attention.output.weight [hidden, heads * head_dim]
///   layers.N.mlp_norm.weight [hidden]
///   layers.N.mlp.gate.weight, layers.N.mlp.up.weight [ffn, hidden]
///   layers.N.mlp.down.weight [hidden, ffn]
///   final_norm.weight [hidden]
///   head.weight [vocabulary, hidden]
/// Throws InvalidInput like require_valid.
std::vector<GptTensor> gpt_tensors(const GptConfig& config);

/// One value for every parameter element: the weights themselves, their gradients, or a moment of
/// the optimiser. T is float or double. Layout as gpt_tensors.
template <typename T>
class GptParameters {
 public:
  /// All zero. Throws InvalidInput like require_valid.
  explicit GptParameters(const GptConfig& config);

  const GptConfig& config() const { return config_; }
  /// In the order of the flat values.
  const std::vector<GptTensor>& tensors() const { return tensors_; }
  /// Every value of every tensor.
  std::span<T> values() { return values_; }
  std::span<const T> values() const { return values_; }
  /// The values of one tensor. Throws std::logic_error when there is none of that name.
  std::span<T> tensor(std::string_view name);
  std::span<const T> tensor(std::string_view name) const;

  void zero();
  /// this += factor * other, element by element. REQUIRES: other has the same configuration.
  void add(T factor, const GptParameters& other);

  /// Same configuration and equal values.
  bool operator==(const GptParameters& other) const {
    return config_ == other.config_ && values_ == other.values_;
  }

 private:
  const GptTensor& find(std::string_view name) const;

  GptConfig config_;
  std::vector<GptTensor> tensors_;
  std::vector<T> values_;
};

/// Fresh weights, the same for every T but for one rounding, and the same with every compiler and
/// library: drawn in double from a uniform distribution with mean 0 and standard deviation 1
/// (embedding), 1/sqrt(inputs) (matrices), or that over sqrt(2 * layers) (attention.output and
/// mlp.down); the weights of norms are 1. Throws InvalidInput like require_valid.
template <typename T>
GptParameters<T> initialise(const GptConfig& config, std::uint64_t seed);

extern template class GptParameters<float>;
extern template class GptParameters<double>;

}  // namespace dyncp
