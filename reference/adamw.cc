// AdamW, one parameter element after the other.
#include "reference/adamw.h"

#include <cmath>
#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

void require(bool good, const std::string& name, double value, const std::string& expected) {
  if (good) return;
  throw InvalidInput("AdamW: " + name + " is " + std::to_string(value) + ", expected " + expected);
}

}  // namespace

void require_valid(const AdamWOptions& options) {
  const auto not_negative = [](double value) { return std::isfinite(value) && value >= 0; };
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  require(not_negative(options.learning_rate), "learning_rate", options.learning_rate, "0 or more");
  require(fraction(options.beta1), "beta1", options.beta1, "a number in [0, 1)");
  require(fraction(options.beta2), "beta2", options.beta2, "a number in [0, 1)");
  require(not_negative(options.epsilon) && options.epsilon > 0, "epsilon", options.epsilon,
          "a number above 0");
  require(not_negative(options.weight_decay), "weight_decay", options.weight_decay, "0 or more");
}

void adamw_step(NamedGradients& parameters, const NamedGradients& gradients,
                const std::set<std::string>& decayed, NamedMoments& moments,
                const AdamWOptions& options) {
  require_valid(options);
  if (parameters.size() != gradients.size()) {
    throw InvalidInput("AdamW: " + std::to_string(parameters.size()) + " parameters, but " +
                       std::to_string(gradients.size()) + " gradients");
  }
  for (const auto& [name, values] : parameters) {
    const auto found = gradients.find(name);
    if (found == gradients.end() || found->second.size() != values.size()) {
      throw InvalidInput("AdamW: " + name + " has no gradient of its size");
    }
  }
  moments.steps += 1;
  const auto t = static_cast<double>(moments.steps);
  for (auto& [name, values] : parameters) {
    auto& first = moments.first[name];
    auto& second = moments.second[name];
    first.resize(values.size(), 0.0);
    second.resize(values.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double g = gradients.at(name)[i];
      if (decayed.contains(name)) values[i] *= 1 - options.learning_rate * options.weight_decay;
      first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
      second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
      const double mean = first[i] / (1 - std::pow(options.beta1, t));
      const double square = second[i] / (1 - std::pow(options.beta2, t));
      values[i] -= options.learning_rate * mean / (std::sqrt(square) + options.epsilon);
    }
  }
}

double clip_factor(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 || std::isnan(factor) ? factor : 1;
}

}  // namespace dyncp
