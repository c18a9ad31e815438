// The cost model's formula against values worked out by hand.
#include "reference/cost.h"

#include <gtest/gtest.h>

namespace dyncp {
namespace {

// Parameters for which every term is a small exact number.
CostModel round_numbers() {
  CostModel cost;
  cost.a = 0.5;
  cost.b = 2;
  cost.c0 = 16;
  cost.c1 = 4;
  cost.hidden = 0.25;
  cost.d = 7;
  cost.fast_domain = 2;
  cost.slow_c0 = 1000;
  cost.slow_c1 = 8;
  return cost;
}

TEST(Cost, PackTimeByHand) {
  const CostModel cost = round_numbers();
  // Lengths 4 and 8: S = 12, Q = 80. One rank: 0.5*80 + 2*12 + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 1), 71);
  // Two ranks: 20 + 12 + max(0, 1*(16 + 4*6) - 0.25*20) + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 2), 20 + 12 + 35 + 7);
  // Four ranks are beyond the fast domain: 10 + 6 + (3*(1000 + 8*3) - 0.25*10) + 7.
  EXPECT_EQ(cost.pack_time(12, 80, 4), 10 + 6 + (3072 - 2.5) + 7);
}

TEST(Cost, RingStepsHideBehindAttention) {
  CostModel cost = round_numbers();
  cost.hidden = 1;
  // Q = 4096 on 2 ranks: attention 1024 hides all of 16 + 4*32.
  EXPECT_EQ(cost.pack_time(64, 4096, 2), 1024 + 64 + 7);
}

TEST(Cost, DefaultsAreThoseOfThePage) {
  const CostModel flat = CostModel::flat();
  EXPECT_DOUBLE_EQ(flat.pack_time(1000, 1e6, 1), 57.34 + 1870 + 75);
  EXPECT_DOUBLE_EQ(flat.pack_time(1000, 1e6, 2),
                   28.67 + 935 + (50 + 0.0351 * 500 - 0.8 * 28.67) + 75);
  const CostModel tiers = CostModel::two_tier();
  EXPECT_EQ(tiers.pack_time(1e5, 1e10, 8), flat.pack_time(1e5, 1e10, 8));
  EXPECT_DOUBLE_EQ(tiers.pack_time(1600, 160000, 16),
                   0.5734 + 187 + (15 * (100 + 0.245 * 100) - 0.8 * 0.5734) + 75);
  EXPECT_EQ(CostModel::quadratic().pack_time(12, 80, 4), 20);
}

}  // namespace
}  // namespace dyncp
