// Padding arithmetic and names: values by hand and bad input.
#include "reference/sequence.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace dyncp {
namespace {

static_assert(ceil_div(0, 4) == 0 && ceil_div(1, 4) == 1 && ceil_div(4, 4) == 1);
static_assert(ceil_div(5, 4) == 2 && ceil_div(7, 1) == 7);
static_assert(round_up(0, 8) == 0 && round_up(1, 8) == 8 && round_up(8, 8) == 8);
static_assert(round_up(9, 6) == 12 && padding_multiple(3, 2) == 12 && padding_multiple(1, 1) == 2);
// The largest inputs do not overflow.
static_assert(ceil_div(kMaxSequenceLength, 1) == kMaxSequenceLength);
static_assert(round_up(kMaxSequenceLength, padding_multiple(65536, 65536)) == kMaxSequenceLength);

TEST(Sequence, PaddingNamesReadBack) {
  for (Padding padding : {Padding::kNone, Padding::kGlobal, Padding::kGroup}) {
    EXPECT_EQ(parse_padding(to_string(padding)), padding);
  }
  EXPECT_THROW(parse_padding("None"), InvalidInput);
  EXPECT_THROW(parse_padding(""), InvalidInput);
}

TEST(Sequence, LengthsOutOfRangeAreNamed) {
  EXPECT_NO_THROW(require_valid_lengths({}));
  EXPECT_NO_THROW(require_valid_lengths({0, 1, kMaxSequenceLength}));
  EXPECT_THROW(require_valid_lengths({3, kMaxSequenceLength + 1}), InvalidInput);
  try {
    require_valid_lengths({0, 7, -1, -2});
    ADD_FAILURE() << "accepted a negative length";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(), "length -1 of sequence 2 is outside 0..1099511627776");
  }
}

}  // namespace
}  // namespace dyncp
