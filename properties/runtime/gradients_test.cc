// Division by tokens, norms and clipping of flat gradients, against reference/loss.h.
#include "runtime/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "properties/gpt_cases.h"
#include "reference/adamw.h"
#include "reference/error.h"

namespace dyncp {
namespace {

using gpt_cases::named_values;
using gpt_cases::tiny_config;

TEST(Gradients, DivideOnceAsTheSpecificationDoes) {
  for (const std::int64_t tokens : {0, 1, 7, 4096}) {
    auto gradients = initialise<double>(tiny_config(), 1);
    const NamedGradients expected = normalise(named_values(gradients), tokens);
    divide_by_tokens(gradients, tokens);
    EXPECT_EQ(named_values(gradients), expected) << tokens << " tokens";
  }
  auto gradients = initialise<float>(tiny_config(), 1);
  EXPECT_THROW(divide_by_tokens(gradients, -1), InvalidInput);
}

TEST(Gradients, NormIsThatOfTheSpecification) {
  const auto gradients = initialise<double>(tiny_config(), 2);
  const double expected = gradient_norm(named_values(gradients));
  // Sums of the same squares in another order of tensors.
  const auto values = static_cast<std::int64_t>(gradients.values().size());
  EXPECT_NEAR(gradient_norm(gradients), expected,
              reordering_bound(values, expected * expected) / expected);

  double squares = 0;
  const auto norms = tensor_norms(gradients);
  ASSERT_EQ(norms.size(), gradients.tensors().size());
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const NamedGradients one = {{"x", named_values(gradients)[gradients.tensors()[i].name]}};
    EXPECT_EQ(norms[i], gradient_norm(one)) << gradients.tensors()[i].name;
    squares += norms[i] * norms[i];
  }
  EXPECT_NEAR(std::sqrt(squares), expected,
              2 * reordering_bound(values, expected * expected) / expected);
}

TEST(Gradients, NormOfFloatsIsAddedUpInDouble) {
  // In float the squares below 2^-24 of the sum would vanish.
  GptParameters<float> gradients(tiny_config());
  for (float& value : gradients.values()) value = 1e-5f;
  gradients.values()[0] = 1.0f;
  const double rest = static_cast<double>(gradients.values().size() - 1) * double{1e-5f} * 1e-5f;
  EXPECT_NEAR(gradient_norm(gradients), std::sqrt(1 + rest), 1e-12);
  EXPECT_GT(gradient_norm(gradients), 1.0);
}

TEST(Gradients, ClippingScalesToTheNormAndLeavesShorterOnesAlone) {
  const auto before = initialise<double>(tiny_config(), 3);
  const double norm = gradient_norm(before);
  for (const double max_norm : {0.0, norm * 1.5}) {
    auto gradients = before;
    clip_gradients(gradients, norm, max_norm);
    EXPECT_EQ(gradients, before) << "max_norm " << max_norm;
  }
  auto gradients = before;
  clip_gradients(gradients, norm, norm / 4);
  EXPECT_NEAR(gradient_norm(gradients), norm / 4, 1e-6);
  EXPECT_EQ(gradients.values()[5], before.values()[5] * clip_factor(norm, norm / 4));
  EXPECT_THROW(clip_gradients(gradients, norm, -1.0), InvalidInput);
  EXPECT_THROW(clip_gradients(gradients, norm, std::numeric_limits<double>::infinity()),
               InvalidInput);
}

}  // namespace
}  // namespace dyncp
