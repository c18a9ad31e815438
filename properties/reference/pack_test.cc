// Packs: the two boundary arrays by hand, and what cannot be a pack.
#include "reference/pack.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace dyncp {
namespace {

using Boundaries = std::vector<std::int64_t>;

TEST(Pack, BoundariesCountRealAndPaddedTokens) {
  const Pack pack({{7, 8}, {0, 0}, {3, 12}, {0, 4}});
  EXPECT_EQ(pack.cu_seqlens(), (Boundaries{0, 7, 7, 10, 10}));
  EXPECT_EQ(pack.cu_seqlens_padded(), (Boundaries{0, 8, 8, 20, 24}));
  EXPECT_EQ(pack.first_row(2), 8);
  EXPECT_EQ(pack.real_tokens(), 10);
  EXPECT_EQ(pack.padded_tokens(), 24);
  EXPECT_EQ(pack.max_padded_length(), 12);
}

TEST(Pack, Empty) {
  const Pack pack;
  EXPECT_EQ(pack.sequences(), 0);
  EXPECT_EQ(pack.cu_seqlens(), Boundaries{0});
  EXPECT_EQ(pack.cu_seqlens_padded(), Boundaries{0});
  EXPECT_EQ(pack.max_padded_length(), 0);
  EXPECT_EQ(pack, Pack::padded_to({}, 4));
}

TEST(Pack, PaddedToPadsZeroToZero) {
  EXPECT_EQ(Pack::padded_to({7, 0, 8, 1}, 8), Pack({{7, 8}, {0, 0}, {8, 8}, {1, 8}}));
}

TEST(Pack, WhatIsNoPackIsNamed) {
  EXPECT_THROW(Pack({{-1, 4}}), InvalidInput);
  EXPECT_THROW(Pack({{4, 3}}), InvalidInput);
  EXPECT_THROW(Pack({{0, kMaxSequenceLength + 1}}), InvalidInput);
  EXPECT_THROW(Pack::padded_to({1}, 0), InvalidInput);
  EXPECT_THROW(Pack::padded_to({1, -1}, 4), InvalidInput);
  try {
    Pack({{1, 4}, {5, 4}});
    ADD_FAILURE() << "accepted more real than padded tokens";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(),
                 "sequence 1 of the pack has real length 5 and padded length 4: expected 0 <= real "
                 "<= padded <= 2^40");
  }
}

}  // namespace
}  // namespace dyncp
