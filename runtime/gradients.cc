// Division, norms and clipping of flat gradients.
#include "runtime/gradients.h"

#include <fmt/format.h>

#include <cmath>

#include "reference/adamw.h"
#include "reference/error.h"

namespace dyncp {
namespace {

template <typename T>
double sum_of_squares(std::span<const T> values) {
  double sum = 0;
  for (T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

}  // namespace

template <typename T>
void divide_by_tokens(GptParameters<T>& gradients, std::int64_t tokens) {
  if (tokens < 0) {
    throw InvalidInput(fmt::format("gradients: {} tokens, expected 0 or more", tokens));
  }
  if (tokens <= 1) return;
  const auto divisor = static_cast<T>(tokens);
  for (T& value : gradients.values()) value /= divisor;
}

template <typename T>
std::vector<double> tensor_norms(const GptParameters<T>& gradients) {
  std::vector<double> norms;
  for (const GptTensor& tensor : gradients.tensors()) {
    norms.push_back(std::sqrt(sum_of_squares<T>(gradients.tensor(tensor.name))));
  }
  return norms;
}

template <typename T>
double gradient_norm(const GptParameters<T>& gradients) {
  return std::sqrt(sum_of_squares<T>(gradients.values()));
}

template <typename T>
void clip_gradients(GptParameters<T>& gradients, double norm, double max_norm) {
  if (!std::isfinite(max_norm) || max_norm < 0) {
    throw InvalidInput(fmt::format("gradients: max_norm is {}, expected 0 or more", max_norm));
  }
  const double factor = clip_factor(norm, max_norm);
  if (factor == 1) return;
  for (T& value : gradients.values()) value *= static_cast<T>(factor);
}

template void divide_by_tokens(GptParameters<float>&, std::int64_t);
template void divide_by_tokens(GptParameters<double>&, std::int64_t);
template std::vector<double> tensor_norms(const GptParameters<float>&);
template std::vector<double> tensor_norms(const GptParameters<double>&);
template double gradient_norm(const GptParameters<float>&);
template double gradient_norm(const GptParameters<double>&);
template void clip_gradients(GptParameters<float>&, double, double);
template void clip_gradients(GptParameters<double>&, double, double);

}  // namespace dyncp
