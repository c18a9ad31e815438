// The fit tells a factor from a change of direction.
#include "reference/scale_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/error.h"

namespace dyncp {
namespace {

TEST(ScaleFit, FactorsAreFoundAndCosineStaysOne) {
  const std::vector<double> reference = {1, -2, 0.5, 4};
  for (double factor : {1.0, 2.0, 4.0, 0.25, -1.0, 3.0}) {
    std::vector<double> candidate = reference;
    for (double& x : candidate) x *= factor;
    const ScaleFit fit = fit_scale(reference, candidate);
    EXPECT_NEAR(fit.alpha, factor, 4e-16 * std::abs(factor));
    EXPECT_NEAR(fit.cosine, factor < 0 ? -1 : 1, 4e-16);
  }
}

TEST(ScaleFit, DirectionsAreFound) {
  const ScaleFit orthogonal = fit_scale({1, 0}, {0, 5});
  EXPECT_EQ(orthogonal.alpha, 0);
  EXPECT_EQ(orthogonal.cosine, 0);
  const ScaleFit slanted = fit_scale({1, 0}, {1, 1});
  EXPECT_EQ(slanted.alpha, 1);
  EXPECT_NEAR(slanted.cosine, std::sqrt(0.5), 4e-16);
}

TEST(ScaleFit, ZerosExtremesAndUndefinedValues) {
  EXPECT_EQ(fit_scale({}, {}).alpha, 1);
  EXPECT_EQ(fit_scale({0, 0}, {0, 0}).cosine, 1);
  EXPECT_EQ(fit_scale({0, 0}, {1, 0}).cosine, 0);
  EXPECT_EQ(fit_scale({1, 0}, {0, 0}).alpha, 0);
  EXPECT_EQ(fit_scale({1e300, 1e300}, {2e300, 2e300}).alpha, 2);
  EXPECT_EQ(fit_scale({1e-300, 1e-300}, {3e-300, 3e-300}).alpha, 3);
  EXPECT_TRUE(std::isnan(fit_scale({1}, {std::numeric_limits<double>::quiet_NaN()}).alpha));
  EXPECT_TRUE(std::isnan(fit_scale({1}, {std::numeric_limits<double>::infinity()}).cosine));
  EXPECT_THROW(fit_scale({1}, {1, 2}), InvalidInput);
}

}  // namespace
}  // namespace dyncp
