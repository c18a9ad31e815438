// The flat AdamW against the specification: the same bits in double, the roundoff bound in float.
#include "runtime/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "properties/gpt_cases.h"
#include "reference/error.h"

namespace dyncp {
namespace {

using gpt_cases::named_values;
using gpt_cases::tiny_config;

constexpr AdamWOptions kOptions{.learning_rate = 0.03, .weight_decay = 0.2};

/// Gradients of many magnitudes, zeros among them.
template <typename T>
GptParameters<T> random_gradients(const GptConfig& config, std::mt19937_64& random) {
  GptParameters<T> gradients(config);
  for (T& value : gradients.values()) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    const int exponent = static_cast<int>(random() % 24) - 16;
    value = random() % 8 == 0 ? T(0) : static_cast<T>(std::ldexp(uniform, exponent));
  }
  return gradients;
}

std::set<std::string> matrices(const GptConfig& config) {
  std::set<std::string> names;
  for (const GptTensor& tensor : gpt_tensors(config)) {
    if (tensor.name.find("norm") == std::string::npos) names.insert(tensor.name);
  }
  return names;
}

TEST(RuntimeAdamW, DoubleHasTheBitsOfTheSpecification) {
  const GptConfig config = tiny_config();
  std::mt19937_64 random(1);
  auto parameters = initialise<double>(config, 2);
  AdamWState<double> state(config);
  NamedGradients expected = named_values(parameters);
  NamedMoments moments;
  for (int step = 0; step < 12; ++step) {
    const auto gradients = random_gradients<double>(config, random);
    adamw_step(parameters, gradients, state, kOptions);
    adamw_step(expected, named_values(gradients), matrices(config), moments, kOptions);
    ASSERT_EQ(named_values(parameters), expected) << "step " << step;
  }
  EXPECT_EQ(named_values(state.first), moments.first);
  EXPECT_EQ(named_values(state.second), moments.second);
  EXPECT_EQ(state.steps, 12);
}

// First order, u = 2^-24, step t: m is off by (3t + 3) u M, M the moment of |g| (each beta and each
// step's three roundings), v by (4t + 4) u v, hence the update by (5t + 16) u of rate M / (1 -
// beta1^t) / (sqrt + epsilon), and the parameter by 3 u |p| more (keep, product, difference).
TEST(RuntimeAdamW, FloatStaysWithinRoundoffOfDouble) {
  const GptConfig config = tiny_config();
  std::mt19937_64 random(3), again(3);
  auto parameters = initialise<float>(config, 4);
  AdamWState<float> state(config);
  NamedGradients exact = named_values(parameters);
  NamedMoments moments;
  NamedGradients magnitudes, allowed;
  for (auto& [name, values] : exact) {
    magnitudes[name].assign(values.size(), 0.0);
    allowed[name].assign(values.size(), 0.0);
  }
  double used = 0;
  for (int step = 1; step <= 20; ++step) {
    const auto gradients = random_gradients<float>(config, random);
    const NamedGradients named = named_values(gradients);
    adamw_step(parameters, gradients, state, kOptions);
    adamw_step(exact, named, matrices(config), moments, kOptions);
    const NamedGradients got = named_values(parameters);
    for (auto& [name, values] : exact) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        double& m = magnitudes[name][i];
        m = kOptions.beta1 * m + (1 - kOptions.beta1) * std::abs(named.at(name)[i]);
        const double root =
            std::sqrt(moments.second[name][i] / (1 - std::pow(kOptions.beta2, step)));
        const double update = kOptions.learning_rate * m / (1 - std::pow(kOptions.beta1, step)) /
                              (root + kOptions.epsilon);
        double& bound = allowed[name][i];
        bound += 1.1 * 0x1p-24 * ((5 * step + 16) * update + 3 * std::abs(values[i])) + 0x1p-149;
        const double error = std::abs(got.at(name)[i] - values[i]);
        ASSERT_LE(error, bound) << name << "[" << i << "], step " << step;
        used = std::max(used, error / bound);
      }
    }
  }
  EXPECT_GT(used, 0.01);  // a bound that nothing comes near would guard nothing
}

template <typename T>
void expect_repeatable() {
  const GptConfig config = tiny_config();
  std::vector<GptParameters<T>> results;
  for (int run = 0; run < 2; ++run) {
    std::mt19937_64 random(5);
    auto parameters = initialise<T>(config, 6);
    AdamWState<T> state(config);
    for (int step = 0; step < 3; ++step) {
      adamw_step(parameters, random_gradients<T>(config, random), state, kOptions);
    }
    results.push_back(parameters);
  }
  EXPECT_EQ(std::memcmp(results[0].values().data(), results[1].values().data(),
                        results[0].values().size_bytes()),
            0);
}

TEST(RuntimeAdamW, IsRepeatableBitForBit) {
  expect_repeatable<float>();
  expect_repeatable<double>();
}

TEST(RuntimeAdamW, RefusesOptionsAndOtherModelsAndChangesNothing) {
  const GptConfig config = tiny_config();
  GptConfig wider = config;
  wider.ffn += 1;
  auto parameters = initialise<float>(config, 7);
  const auto before = parameters;
  AdamWState<float> state(config);
  EXPECT_THROW(adamw_step(parameters, before, state, {.beta1 = 2}), InvalidInput);
  EXPECT_THROW(adamw_step(parameters, GptParameters<float>(wider), state, {}), std::logic_error);
  AdamWState<float> other(wider);
  EXPECT_THROW(adamw_step(parameters, before, other, {}), std::logic_error);
  EXPECT_EQ(parameters, before);
  EXPECT_EQ(state, AdamWState<float>(config));
}

}  // namespace
}  // namespace dyncp
