// The families of lengths: inside their limits for every request, repeatable, the same numbers on
// every machine, and of the shape their summary names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

std::vector<std::int64_t> draw(std::string_view family, std::int64_t count, std::int64_t unit,
                               std::int64_t limit, std::uint64_t seed = 1) {
  return find_length_family(family).draw(count, unit, limit, seed);
}

double share_above(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  return static_cast<double>(
             std::count_if(lengths.begin(), lengths.end(), [&](auto l) { return l > length; })) /
         static_cast<double>(lengths.size());
}

TEST(LengthFamilies, EveryLengthIsInsideTheLimitForEveryRequest) {
  const std::vector<std::int64_t> units = {1, 2, 3, 7, 1024, 4097, kMaxSequenceLength};
  const std::vector<std::int64_t> limits = {0, 1, 2, 5, 1000, 8192, 1 << 20, kMaxSequenceLength};
  for (const LengthFamily& family : length_families()) {
    for (std::int64_t unit : units) {
      for (std::int64_t limit : limits) {
        for (std::int64_t count : {0, 1, 50}) {
          const auto lengths = family.draw(count, unit, limit, 3);
          ASSERT_EQ(static_cast<std::int64_t>(lengths.size()), count) << family.name;
          for (std::int64_t length : lengths) {
            ASSERT_GE(length, 0) << family.name;
            ASSERT_LE(length, limit) << family.name << ", unit " << unit;
          }
        }
      }
    }
  }
}

TEST(LengthFamilies, OneSeedOneListAndAnotherSeedAnotherList) {
  for (const LengthFamily& family : length_families()) {
    const auto first = family.draw(200, 1024, 8192, 5);
    EXPECT_EQ(first, family.draw(200, 1024, 8192, 5)) << family.name;
    EXPECT_NE(first, family.draw(200, 1024, 8192, 6)) << family.name;
    // A longer request starts with the shorter one.
    auto longer = family.draw(300, 1024, 8192, 5);
    longer.resize(200);
    EXPECT_EQ(first, longer) << family.name;
  }
}

TEST(LengthFamilies, NamesAreUniqueAndFindable) {
  std::set<std::string_view> names;
  for (const LengthFamily& family : length_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.summary.empty());
    EXPECT_EQ(&find_length_family(family.name), &family);
  }
  try {
    find_length_family("normal");
    FAIL() << "an unknown family was found";
  } catch (const InvalidInput& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'normal'"), std::string::npos) << text;
    for (std::string_view name : names) EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

TEST(LengthFamilies, RequestsOutOfRangeAreRefused) {
  for (const LengthFamily& family : length_families()) {
    EXPECT_THROW(family.draw(-1, 1024, 8192, 0), InvalidInput) << family.name;
    EXPECT_THROW(family.draw(kMaxLengths + 1, 1024, 8192, 0), InvalidInput) << family.name;
    EXPECT_THROW(family.draw(10, 0, 8192, 0), InvalidInput) << family.name;
    EXPECT_THROW(family.draw(10, kMaxSequenceLength + 1, 8192, 0), InvalidInput) << family.name;
    EXPECT_THROW(family.draw(10, 1024, -1, 0), InvalidInput) << family.name;
    EXPECT_THROW(family.draw(10, 1024, kMaxSequenceLength + 1, 0), InvalidInput) << family.name;
  }
}

TEST(LengthFamilies, LognormalHasItsMeanAndSpread) {
  const auto lengths = draw("lognormal", 200000, 1 << 20, std::int64_t{1} << 34);
  double sum = 0;
  std::vector<double> logs;
  for (auto length : lengths) {
    sum += static_cast<double>(length);
    logs.push_back(std::log(static_cast<double>(length)));
  }
  const double n = static_cast<double>(lengths.size());
  const double mean_log = std::accumulate(logs.begin(), logs.end(), 0.0) / n;
  double variance = 0;
  for (double value : logs) variance += (value - mean_log) * (value - mean_log) / n;
  // Standard errors: sigma/sqrt(n) of the mean of the logarithms, sigma/sqrt(2n) of their sigma,
  // mean * sqrt(exp(sigma^2) - 1) / sqrt(n) of the mean; five of each are allowed.
  EXPECT_NEAR(mean_log, std::log(0.5 * (1 << 20)) - 1.125, 5 * 1.5 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(variance), 1.5, 5 * 1.5 / std::sqrt(2 * n));
  EXPECT_NEAR(sum / n / (1 << 19), 1.0, 5 * std::sqrt((std::exp(2.25) - 1) / n));
}

TEST(LengthFamilies, ParetoHasItsTail) {
  const std::int64_t unit = 1 << 20;
  const auto lengths = draw("pareto", 200000, unit, std::int64_t{1} << 30);
  // P(L > x) = ((low/x)^a - (low/high)^a) / (1 - (low/high)^a) with low = 1/16, high = 16 units.
  const double cut = std::pow(1.0 / 256.0, 0.8);
  for (double x : {0.125, 0.25, 1.0, 4.0, 12.0}) {
    const double expected = (std::pow(1.0 / 16.0 / x, 0.8) - cut) / (1 - cut);
    const double error = std::sqrt(expected * (1 - expected) / 200000.0);
    EXPECT_NEAR(share_above(lengths, static_cast<std::int64_t>(x * unit)), expected, 5 * error);
  }
  EXPECT_EQ(share_above(lengths, 16 * unit), 0.0);
}

TEST(LengthFamilies, BimodalHasChatsAndBooksAndNothingBetween) {
  const auto lengths = draw("bimodal", 20000, 1000, 8000);
  for (auto length : lengths) EXPECT_TRUE(length <= 500 || length >= 2000) << length;
  EXPECT_NEAR(share_above(lengths, 1000), 0.05, 5 * std::sqrt(0.05 * 0.95 / 20000));
}

TEST(LengthFamilies, ConstantIsOneLength) {
  const auto lengths = draw("constant", 100, 1000, 8000);
  EXPECT_EQ(std::set<std::int64_t>(lengths.begin(), lengths.end()).size(), 1U);
  EXPECT_GE(lengths[0], 1);
}

TEST(LengthFamilies, UniformReachesOneToFourUnits) {
  const auto lengths = draw("uniform", 4000, 8, 1000);
  const std::set<std::int64_t> seen(lengths.begin(), lengths.end());
  EXPECT_EQ(seen.size(), 32U);
  EXPECT_EQ(*seen.begin(), 1);
  EXPECT_EQ(*seen.rbegin(), 32);
}

TEST(LengthFamilies, PowersOfTwoAndCapacitiesAreOffByAtMostOneAndBothSidesOccur) {
  std::set<std::int64_t> powers, capacities;
  for (auto length : draw("powers-of-two", 4000, 1024, 8192)) powers.insert(length);
  for (auto length : draw("capacity", 4000, 1000, 8000)) capacities.insert(length);
  std::set<std::int64_t> expected_powers, expected_capacities;
  for (std::int64_t power = 1; power <= 8192; power *= 2) {
    for (int off : {-1, 0, 1}) expected_powers.insert(std::min<std::int64_t>(8192, power + off));
  }
  for (std::int64_t k = 1; k <= 8; ++k) {
    for (int off : {-1, 0, 1}) {
      expected_capacities.insert(std::min<std::int64_t>(8000, 1000 * k + off));
    }
  }
  EXPECT_EQ(powers, expected_powers);
  EXPECT_EQ(capacities, expected_capacities);
}

TEST(LengthFamilies, ResiduesHoldEveryResidueOfEverySize) {
  const auto lengths = draw("residues", 64, 1024, 8192);
  for (int modulus = 2; modulus <= 64; modulus += 2) {
    std::set<std::int64_t> seen;
    for (int i = 0; i < modulus; ++i) seen.insert(lengths[static_cast<std::size_t>(i)] % modulus);
    EXPECT_EQ(static_cast<int>(seen.size()), modulus);
  }
}

TEST(LengthFamilies, ZerosAndOnesAreJustThat) {
  const auto lengths = draw("zeros-and-ones", 100, 1024, 8192);
  EXPECT_EQ((std::set<std::int64_t>(lengths.begin(), lengths.end())),
            (std::set<std::int64_t>{0, 1}));
}

TEST(LengthFamilies, GithubTailIsHeavierThanCommonCrawlAndWikipediaIsLight) {
  const std::int64_t unit = 4096, limit = 1 << 30;
  const auto github = draw("github-like", 100000, unit, limit);
  const auto crawl = draw("commoncrawl-like", 100000, unit, limit);
  const auto wikipedia = draw("wikipedia-like", 100000, unit, limit);
  for (std::int64_t above : {unit, 2 * unit, 4 * unit, 16 * unit}) {
    EXPECT_GT(share_above(github, above), 2 * share_above(crawl, above)) << above;
    EXPECT_GT(share_above(crawl, above), share_above(wikipedia, above)) << above;
  }
  // All three are mostly short: that is what makes dynamic CP worth its while.
  for (const auto* lengths : {&github, &crawl, &wikipedia}) {
    EXPECT_LT(share_above(*lengths, unit), 0.2);
    EXPECT_GT(share_above(*lengths, unit), 0.005);
  }
}

// Recomputed in Python from the definition of mt19937_64: another standard library or compiler has
// to draw the same. The real values behind these lengths are not close to an integer.
TEST(LengthFamilies, NumbersAreTheSameOnEveryMachine) {
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(draw("uniform", 5, 1024, 8192), (Lengths{3945, 2639, 1435, 143, 1849}));
  EXPECT_EQ(draw("lognormal", 5, 1024, 8192), (Lengths{1191, 1084, 1049, 860, 58}));
  EXPECT_EQ(draw("pareto", 5, 1024, 8192), (Lengths{76, 76, 133, 65, 108}));
  EXPECT_EQ(draw("github-like", 5, 1024, 8192), (Lengths{14, 1648, 949, 633, 242}));
}

}  // namespace
}  // namespace dyncp
