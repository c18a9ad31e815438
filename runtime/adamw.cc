// AdamW over flat values, tensor by tensor.
#include "runtime/adamw.h"

#include <cmath>
#include <stdexcept>

namespace dyncp {

template <typename T>
void adamw_step(GptParameters<T>& parameters, const GptParameters<T>& gradients,
                AdamWState<T>& state, const AdamWOptions& options) {
  require_valid(options);
  const GptConfig& config = parameters.config();
  if (!(gradients.config() == config && state.first.config() == config &&
        state.second.config() == config)) {
    throw std::logic_error("adamw_step: gradients or moments belong to another configuration");
  }
  state.steps += 1;
  const auto t = static_cast<double>(state.steps);
  const auto beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const auto rest1 = static_cast<T>(1 - options.beta1), rest2 = static_cast<T>(1 - options.beta2);
  const auto correction1 = static_cast<T>(1 - std::pow(options.beta1, t));
  const auto correction2 = static_cast<T>(1 - std::pow(options.beta2, t));
  const auto rate = static_cast<T>(options.learning_rate);
  const auto epsilon = static_cast<T>(options.epsilon);
  for (const GptTensor& tensor : parameters.tensors()) {
    const bool decayed = tensor.shape.size() > 1;
    const T keep =
        decayed ? static_cast<T>(1 - options.learning_rate * options.weight_decay) : T(1);
    const auto begin = static_cast<std::size_t>(tensor.offset);
    const auto end = begin + static_cast<std::size_t>(tensor.size);
    for (std::size_t i = begin; i < end; ++i) {
      const T g = gradients.values()[i];
      T& first = state.first.values()[i];
      T& second = state.second.values()[i];
      T& value = parameters.values()[i];
      first = beta1 * first + rest1 * g;
      second = beta2 * second + rest2 * g * g;
      const T mean = first / correction1;
      const T square = second / correction2;
      value = value * keep - rate * mean / (std::sqrt(square) + epsilon);
    }
  }
}

template void adamw_step(GptParameters<float>&, const GptParameters<float>&, AdamWState<float>&,
                         const AdamWOptions&);
template void adamw_step(GptParameters<double>&, const GptParameters<double>&, AdamWState<double>&,
                         const AdamWOptions&);

}  // namespace dyncp
