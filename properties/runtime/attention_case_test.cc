// Inputs of attention cases: the same sequence has the same contents wherever it stands.
#include "runtime/attention_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace dyncp {
namespace {

TEST(AttentionCase, ContentsFollowTheSequence) {
  const AttentionShape shape{2, 1, 3, 2};
  const AttentionCase one = make_attention_case(Pack({{5, 8}, {2, 4}}), shape, {}, 9);
  const AttentionCase other = make_attention_case(Pack({{2, 2}, {0, 6}, {5, 5}}), shape, {}, 9,
                                                  Format::kDouble, 0.0, {1, 7, 0});
  for (std::int64_t i = 0; i < 5; ++i) {
    for (int d = 0; d < 3; ++d) EXPECT_EQ(one.q.at(i, 1, d), other.q.at(8 + i, 1, d));
    for (int d = 0; d < 2; ++d) EXPECT_EQ(one.d_o.at(i, 1, d), other.d_o.at(8 + i, 1, d));
  }
  for (std::int64_t i = 0; i < 2; ++i) EXPECT_EQ(one.k.at(8 + i, 0, 1), other.k.at(i, 0, 1));
}

TEST(AttentionCase, TensorsSeedsHeadsAndRowsDiffer) {
  const AttentionCase c = make_attention_case(Pack({{4, 4}}), {2, 2, 4, 4}, {}, 1);
  EXPECT_NE(c.q.at(0, 0, 0), c.k.at(0, 0, 0));
  EXPECT_NE(c.q.at(0, 0, 0), c.q.at(0, 1, 0));
  EXPECT_NE(c.q.at(0, 0, 0), c.q.at(1, 0, 0));
  EXPECT_NE(c.q.at(0, 0, 0), c.q.at(0, 0, 1));
  const AttentionCase other = make_attention_case(Pack({{4, 4}}), {2, 2, 4, 4}, {}, 2);
  EXPECT_NE(c.q.at(0, 0, 0), other.q.at(0, 0, 0));
}

TEST(AttentionCase, PaddingAndFormatAreAsAsked) {
  const AttentionCase c = make_attention_case(Pack({{3, 4}}), {1, 1, 8, 8}, {}, 1, Format::kBf16);
  for (int d = 0; d < 8; ++d) {
    EXPECT_TRUE(std::isnan(c.q.at(3, 0, d)));
    EXPECT_EQ(c.q.at(0, 0, d), round_to(Format::kBf16, c.q.at(0, 0, d)));
  }
}

TEST(AttentionCase, EntriesAreCloseToNormal) {
  const AttentionCase c = make_attention_case(Pack({{1000, 1000}}), {4, 1, 16, 1}, {}, 3);
  double sum = 0, squares = 0, cubes = 0;
  for (double value : c.q.data) {
    sum += value;
    squares += value * value;
    cubes += value * value * value;
    EXPECT_LE(std::fabs(value), 3.47);
  }
  const auto count = static_cast<double>(c.q.data.size());
  // Five standard deviations of the sample moments.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(cubes / count, 0, 5 * std::sqrt(15 / count));
}

TEST(AttentionCase, SinksDifferByHead) {
  const std::vector<double> sink = make_sink(4, 1);
  ASSERT_EQ(sink.size(), 4U);
  for (double value : sink) EXPECT_LE(std::fabs(value), 1);
  EXPECT_NE(sink[0], sink[1]);
  EXPECT_EQ(make_sink(4, 1), sink);
  EXPECT_NE(make_sink(4, 2), sink);
}

}  // namespace
}  // namespace dyncp
