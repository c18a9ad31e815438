// RoPE: golden position maps and frequencies, values worked by hand, and bad input.
#include "reference/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/error.h"

namespace dyncp {
namespace {

using Positions = std::vector<std::int64_t>;

TEST(RopePositions, Golden) {
  std::ifstream file(DYNCP_SOURCE_DIR "/fixtures/vectors/zigzag.json");
  const auto cases = nlohmann::json::parse(file).at("slices");
  ASSERT_GE(cases.size(), 9U);
  for (const auto& c : cases) {
    const Positions cu = c.at("cu_seqlens_padded");
    std::vector<Sequence> sequences;
    for (std::size_t s = 0; s + 1 < cu.size(); ++s) {
      sequences.push_back({cu[s + 1] - cu[s], cu[s + 1] - cu[s]});
    }
    const Pack pack(std::move(sequences));
    const int size = c.at("size");
    for (int rank = 0; rank < size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      EXPECT_EQ(rope_positions(pack, size, rank), c.at("positions")[index].get<Positions>()) << c;
      // A packed table holds a token's angle where the pack holds the token.
      EXPECT_EQ(rope_positions_packed_table(pack, size, rank), c.at("rows")[index].get<Positions>())
          << c;
    }
  }
}

TEST(RopePositions, PaddedNotRealLengthsDecide) {
  const Pack pack({{5, 8}, {1, 4}});
  EXPECT_EQ(rope_positions(pack, 2, 0), (Positions{0, 1, 6, 7, 0, 3}));
  EXPECT_EQ(rope_positions(pack, 2, 1), (Positions{2, 3, 4, 5, 1, 2}));
}

TEST(RopeFrequencies, PlainPowersOfTheBase) {
  const RopeOptions options{.rotary_dim = 8, .base = 10000.0};
  const std::vector<double> w = rope_inverse_frequencies(options);
  ASSERT_EQ(w.size(), 4U);
  for (int j = 0; j < 4; ++j) {
    const double exact = std::pow(10.0, -j);
    EXPECT_NEAR(w[static_cast<std::size_t>(j)], exact, 0x1p-49 * exact);
  }
  EXPECT_EQ(rope_concentration(options), 1.0);
}

// Worked from the definition in exact steps: 64 dimensions, base 10^4, factor 40 over 4096 tokens,
// betas 32 and 1. Pairs up to 10 keep their frequency, from 23 on they are divided by 40, pair 16
// stands at 6/13 of the ramp.
TEST(RopeFrequencies, YarnGolden) {
  const RopeOptions options{.rotary_dim = 64, .base = 10000.0, .yarn = YarnScaling{.scale = 40.0}};
  const std::vector<double> w = rope_inverse_frequencies(options);
  ASSERT_EQ(w.size(), 32U);
  const auto near = [&w](std::size_t j, double expected) {
    EXPECT_NEAR(w[j], expected, 1e-14 * expected) << "pair " << j;
  };
  near(0, 1.0);
  near(10, 0.05623413251903491);
  near(11, 0.03900692656714386);
  near(16, 0.0055);
  near(22, 0.0001778279410038922);
  near(23, 3.33380358040831e-05);
  near(31, 3.3338035804083097e-06);
  EXPECT_NEAR(rope_concentration(options), 1.3688879454113936, 1e-15);

  RopeOptions both = options;
  both.yarn->mscale = 0.707;
  both.yarn->mscale_all_dim = 0.707;
  EXPECT_EQ(rope_concentration(both), 1.0);
  both.yarn->mscale_all_dim = 0.0;
  EXPECT_NEAR(rope_concentration(both), 1.2608037774058554, 1e-15);
}

TEST(RopeFrequencies, ScaleOneIsOff) {
  const RopeOptions plain{.rotary_dim = 16};
  RopeOptions yarn = plain;
  yarn.yarn = YarnScaling{};
  EXPECT_EQ(rope_inverse_frequencies(yarn), rope_inverse_frequencies(plain));
  EXPECT_EQ(rope_concentration(yarn), 1.0);
}

// One pair by a quarter turn is (a, b) -> (-b, a); its gradient turns back.
TEST(Rope, QuarterTurnByHand) {
  Tensor<double> x(1, 1, 6);
  x.data = {1, 2, 3, 4, 5, 6};
  RopeOptions options{.rotary_dim = 4, .base = 100.0};
  Tensor<double> angles(1, 1, 4);
  const double quarter = std::acos(0.0);
  angles.data = {quarter, 0, quarter, 0};  // pair 0 is dimensions 0 and 2
  const auto near = [](const Tensor<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.data.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(got.data[i], expected[i], 8 * 0x1p-52) << "dimension " << i;
    }
  };
  near(rotate(x, angles, options), {-3, 2, 1, 4, 5, 6});
  near(rotate_transposed(x, angles, options), {3, 2, -1, 4, 5, 6});
  options.pairing = Pairing::kInterleaved;
  angles.data = {quarter, quarter, 0, 0};  // pair 0 is dimensions 0 and 1
  near(rotate(x, angles, options), {-2, 1, 3, 4, 5, 6});
  near(rotate_transposed(x, angles, options), {2, -1, 3, 4, 5, 6});
}

// With another angle on a pair's second dimension forward and backward must use each dimension's
// own: a backward that takes the angle of the dimension it writes is caught here.
TEST(Rope, BackwardUsesThePartnersAngle) {
  Tensor<double> x(1, 1, 2);
  x.data = {1, 0};
  Tensor<double> g(1, 1, 2);
  g.data = {0, 1};
  const RopeOptions options{.rotary_dim = 2, .base = 100.0};
  Tensor<double> angles(1, 1, 2);
  angles.data = {0.25, 0.75};
  EXPECT_EQ(rotate(x, angles, options).data, (std::vector<double>{std::cos(0.25), std::sin(0.75)}));
  EXPECT_EQ(rotate_transposed(g, angles, options).data,
            (std::vector<double>{std::sin(0.75), std::cos(0.75)}));
}

TEST(Rope, BadInputIsNamed) {
  const Tensor<double> x(2, 1, 4);
  const auto refused = [](RopeOptions options) {
    EXPECT_THROW(rope_inverse_frequencies(options), InvalidInput);
    EXPECT_THROW(rope_angles({0}, options), InvalidInput);
    EXPECT_THROW(rope_concentration(options), InvalidInput);
  };
  refused({.rotary_dim = 0});
  refused({.rotary_dim = 3});
  refused({.rotary_dim = -2});
  refused({.rotary_dim = 4, .base = 1.0});
  refused({.rotary_dim = 4, .base = std::nan("")});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = 0.5}});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = std::nan("")}});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = 2, .original_max_positions = 0}});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = 2, .beta_fast = 1, .beta_slow = 1}});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = 2, .beta_slow = 0}});
  refused({.rotary_dim = 4, .yarn = YarnScaling{.scale = 2, .mscale = -1}});
  EXPECT_THROW(rope(x, {0, 1}, {.rotary_dim = 6}), InvalidInput);        // wider than the head
  EXPECT_THROW(rope(x, {0, 1, 2}, {.rotary_dim = 4}), InvalidInput);     // one position too many
  EXPECT_THROW(rope_backward(x, {0}, {.rotary_dim = 4}), InvalidInput);  // one too few
  EXPECT_THROW(rotate(x, Tensor<double>(2, 1, 2), {.rotary_dim = 4}), InvalidInput);
  EXPECT_THROW(rotate(x, Tensor<double>(1, 1, 4), {.rotary_dim = 4}), InvalidInput);
  EXPECT_THROW(rope_positions(Pack({{6, 6}}), 2, 0), InvalidInput);
  EXPECT_THROW(rope_positions(Pack({{8, 8}}), 2, 2), InvalidInput);
  EXPECT_EQ(parse_pairing("half"), Pairing::kHalf);
  EXPECT_EQ(parse_pairing("interleaved"), Pairing::kInterleaved);
  EXPECT_THROW(parse_pairing("neox"), InvalidInput);
}

}  // namespace
}  // namespace dyncp
