// AdamW against values worked out by hand, and one test per refused input.
#include "reference/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/error.h"

namespace dyncp {
namespace {

// A few operations on values of order 1.
constexpr double kRoundoff = 16 * std::numeric_limits<double>::epsilon();

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheSign) {
  // m / (1 - beta1) = g and v / (1 - beta2) = g^2, so the step is rate * g / (|g| + epsilon).
  NamedGradients parameters = {{"w", {1.0, -2.0, 3.0}}};
  NamedMoments moments;
  adamw_step(parameters, {{"w", {0.5, -4.0, 0.0}}}, {}, moments,
             {.learning_rate = 0.25, .epsilon = 1e-300});
  EXPECT_NEAR(parameters["w"][0], 0.75, kRoundoff);
  EXPECT_NEAR(parameters["w"][1], -1.75, kRoundoff);
  EXPECT_EQ(parameters["w"][2], 3.0);
  EXPECT_EQ(moments.steps, 1);
}

TEST(AdamW, TwoStepsByHand) {
  // beta1 = 1/2, beta2 = 3/4, gradients 1 then 2:
  //   m = 1/2, then 1/4 + 1 = 5/4; v = 1/4, then 3/16 + 1 = 19/16
  //   m / (1 - 1/4) = 5/3; v / (1 - 9/16) = 19/7
  NamedGradients parameters = {{"w", {10.0}}};
  NamedMoments moments;
  const AdamWOptions options{.learning_rate = 1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.5};
  adamw_step(parameters, {{"w", {1.0}}}, {}, moments, options);
  EXPECT_NEAR(parameters["w"][0], 10 - 1 / 1.5, 10 * kRoundoff);
  adamw_step(parameters, {{"w", {2.0}}}, {}, moments, options);
  EXPECT_NEAR(parameters["w"][0], 10 - 1 / 1.5 - (5.0 / 3) / (std::sqrt(19.0 / 7) + 0.5),
              10 * kRoundoff);
  EXPECT_EQ(moments.first["w"][0], 1.25);
  EXPECT_EQ(moments.second["w"][0], 1.1875);
}

TEST(AdamW, DecayIsDecoupledAndForTheNamedParametersAlone) {
  NamedGradients parameters = {{"norm", {4.0}}, {"w", {4.0}}};
  NamedMoments moments;
  adamw_step(parameters, {{"norm", {0.0}}, {"w", {0.0}}}, {"w"}, moments,
             {.learning_rate = 0.5, .weight_decay = 0.25});
  EXPECT_EQ(parameters["norm"][0], 4.0);
  EXPECT_EQ(parameters["w"][0], 3.5);  // 4 (1 - 1/8), and no moment saw it
  EXPECT_EQ(moments.second["w"][0], 0.0);
}

TEST(AdamW, RefusesWhatIsOutOfRange) {
  const auto refusal = [](const AdamWOptions& options) -> std::string {
    try {
      require_valid(options);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.learning_rate = -1}),
            "AdamW: learning_rate is -1.000000, expected 0 or more");
  EXPECT_NE(refusal({.learning_rate = std::nan("")}), "");
  EXPECT_EQ(refusal({.beta1 = 1}), "AdamW: beta1 is 1.000000, expected a number in [0, 1)");
  EXPECT_NE(refusal({.beta1 = std::nan("")}), "");
  EXPECT_NE(refusal({.beta2 = -0.5}), "");
  EXPECT_EQ(refusal({.epsilon = 0}), "AdamW: epsilon is 0.000000, expected a number above 0");
  EXPECT_NE(refusal({.weight_decay = std::numeric_limits<double>::infinity()}), "");

  NamedGradients parameters = {{"w", {1.0, 2.0}}};
  NamedMoments moments;
  EXPECT_THROW(adamw_step(parameters, {}, {}, moments, {}), InvalidInput);
  EXPECT_THROW(adamw_step(parameters, {{"v", {1.0, 2.0}}}, {}, moments, {}), InvalidInput);
  EXPECT_THROW(adamw_step(parameters, {{"w", {1.0}}}, {}, moments, {}), InvalidInput);
}

TEST(ClipFactor, ClipsOnlyWhatIsLonger) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_LT(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0);
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1.0)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0);
}

}  // namespace
}  // namespace dyncp
