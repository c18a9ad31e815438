// Quantiles of small samples, where off-by-one shows.
#include "runtime/spread.h"

#include <gtest/gtest.h>

namespace dyncp {
namespace {

TEST(Spread, IsZeroOfNothingAndTheValueOfOne) {
  EXPECT_EQ(spread_of({}).count, 0u);
  EXPECT_EQ(spread_of({}).worst, 0);
  const Spread one = spread_of({3.5});
  EXPECT_EQ(one.count, 1u);
  for (double figure : {one.mean, one.least, one.p50, one.p99, one.worst}) EXPECT_EQ(figure, 3.5);
}

TEST(Spread, QuantilesAreValuesThatTheShareDoesNotExceed) {
  const Spread four = spread_of({4, 1, 3, 2});
  EXPECT_EQ(four.mean, 2.5);
  EXPECT_EQ(four.least, 1);
  EXPECT_EQ(four.p50, 2);
  EXPECT_EQ(four.p99, 4);
  EXPECT_EQ(four.worst, 4);
  std::vector<double> many;
  for (int i = 200; i >= 1; --i) many.push_back(i);
  const Spread spread = spread_of(many);
  EXPECT_EQ(spread.count, 200u);
  EXPECT_EQ(spread.p50, 100);
  EXPECT_EQ(spread.p99, 198);
  EXPECT_EQ(spread.worst, 200);
}

}  // namespace
}  // namespace dyncp
