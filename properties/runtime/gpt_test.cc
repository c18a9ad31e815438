// The GPT's hand-written backward pass against finite differences of its own forward pass, and its
// rules: padding inert, masks exact, sequences alone or packed.
#include "runtime/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "properties/gpt_cases.h"
#include "runtime/local_attention.h"

namespace dyncp {
namespace {

using gpt_cases::make_documents;
using gpt_cases::pack_on_one_rank;
using gpt_cases::tiny_config;

double loss_of(const GptParameters<double>& parameters, const PackedMicrobatch& microbatch) {
  LocalAttention<double> attention;
  double sum = 0;
  for (double loss : token_losses(parameters, microbatch, attention, 0)) sum += loss;
  return sum;
}

TEST(Gpt, GradientsAreThoseOfFiniteDifferences) {
  const GptConfig config = tiny_config();
  const PackedMicrobatch microbatch =
      pack_on_one_rank(make_documents({9, 0, 1, 5}, config.vocabulary, 4, 1), 4);
  GptParameters<double> parameters = initialise<double>(config, 2);
  GptParameters<double> gradients(config);
  LocalAttention<double> attention;
  const LossSum loss = forward_backward(parameters, microbatch, attention, 0, gradients);
  EXPECT_EQ(loss.sum, loss_of(parameters, microbatch));
  EXPECT_GT(loss.tokens, 5);

  // Fourth order: truncation h^4/30 f^(5) is about 1e-13, roundoff 2^-53 |f| / h about 1e-12.
  const double h = 1e-3;
  for (const GptTensor& tensor : parameters.tensors()) {
    const auto values = parameters.tensor(tensor.name);
    const auto gradient = gradients.tensor(tensor.name);
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double kept = values[i];
      const auto at = [&](double step) {
        values[i] = kept + step;
        return loss_of(parameters, microbatch);
      };
      const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      values[i] = kept;
      ASSERT_NEAR(gradient[i], slope, 1e-8) << tensor.name << "[" << i << "]";
      largest = std::max(largest, std::abs(gradient[i]));
    }
    EXPECT_GT(largest, 1e-3) << tensor.name << " has no gradient to check";
  }
}

}  // namespace
}  // namespace dyncp
