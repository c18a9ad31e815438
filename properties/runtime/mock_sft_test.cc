// Megatron's mock SFT lengths, against numpy 2.4.6: numpy.random.seed(SEED), then
// clip(lognormal(log(mean) - sigma**2 / 2, sigma, 1000000), min, max).astype(int).
#include "runtime/mock_sft.h"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/error.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

struct Recorded {
  MockSftDistribution distribution;
  std::uint64_t seed;
  std::vector<std::int64_t> first_eight;
  std::int64_t sum;  // of the first million
  std::int64_t last;
};

TEST(MockSft, AMillionLengthsAreNumpysOwn) {
  const std::vector<Recorded> recorded = {
      {{100, 4096, 2048, 1.1}, 0, {4096, 1736, 3282, 4096, 4096, 381, 3180, 946}, 1578612730, 4096},
      {{1, 12288, 6144, 1.1},
       0,
       {12288, 5210, 9846, 12288, 12288, 1145, 9540, 2840},
       4735496405,
       12288},
      {{64, 32768, 4096, 1.5}, 7, {16790, 661, 1396, 2450, 407, 1333, 1328, 95}, 3552908733, 64},
  };
  for (const Recorded& r : recorded) {
    auto lengths = draw_mock_sft(r.distribution, 1000000, r.seed);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), r.sum);
    EXPECT_EQ(lengths.back(), r.last);
    lengths.resize(8);
    EXPECT_EQ(lengths, r.first_eight);
  }
}

TEST(MockSft, ConstantWhenSigmaIsZero) {
  // exp(ln 1000) is 999.99... in double, which Megatron truncates as well.
  EXPECT_EQ(draw_mock_sft({1, 5000, 1000, 0}, 3, 12345),
            (std::vector<std::int64_t>{999, 999, 999}));
  EXPECT_EQ(draw_mock_sft({77, 77, 1000, 20}, 3, 1), (std::vector<std::int64_t>{77, 77, 77}));
}

TEST(MockSft, RequestsOutOfRangeAreRefused) {
  const MockSftDistribution distribution{1, 10, 5, 1};
  EXPECT_THROW(draw_mock_sft(distribution, -1, 0), InvalidInput);
  EXPECT_THROW(draw_mock_sft(distribution, kMaxLengths + 1, 0), InvalidInput);
  EXPECT_THROW(draw_mock_sft(distribution, 1, std::uint64_t{1} << 32), InvalidInput);
  EXPECT_TRUE(draw_mock_sft(distribution, 0, 0).empty());
}

}  // namespace
}  // namespace dyncp
