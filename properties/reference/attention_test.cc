// The reference of all attention: worked values, finite differences, invariants, refused inputs.
#include "reference/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/error.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of at most some hundred terms of size 1 in double.
constexpr double kRoundoff = 1e-13;

AttentionForward forward(const AttentionCase& c) {
  return attention_forward(c.pack, c.q, c.k, c.v, c.options);
}
AttentionBackward backward(const AttentionCase& c) {
  return attention_backward(c.pack, c.q, c.k, c.v, forward(c), c.d_o, c.options);
}

/// What the gradients are gradients of.
double objective(const AttentionCase& c) {
  const AttentionForward output = forward(c);
  double sum = 0;
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < c.pack.real_length(s); ++i) {
      for (int h = 0; h < c.q.heads; ++h) {
        for (int d = 0; d < c.v.dim; ++d) {
          const std::int64_t row = c.pack.first_row(s) + i;
          sum += output.o.at(row, h, d) * c.d_o.at(row, h, d);
        }
      }
    }
  }
  return sum;
}

TEST(Attention, TwoTokensByHand) {
  const Pack pack({{2, 3}});
  Tensor<double> q(3, 1, 1), k(3, 1, 1), v(3, 1, 2);
  q.at(0, 0, 0) = 5;
  q.at(1, 0, 0) = 2;
  k.at(0, 0, 0) = 1;
  k.at(1, 0, 0) = 3;
  v.data = {1, 0, 0, 1, 7, 7};
  AttentionOptions options;
  options.scale = 0.5;
  const AttentionForward output = attention_forward(pack, q, k, v, options);
  // Query 0 sees key 0 alone: score 0.5*5*1. Query 1: scores 1 and 3.
  EXPECT_DOUBLE_EQ(output.lse.at(0, 0), 2.5);
  EXPECT_DOUBLE_EQ(output.lse.at(0, 1), std::log(std::exp(1.0) + std::exp(3.0)));
  EXPECT_EQ(output.lse.at(0, 2), -kInfinity);
  EXPECT_EQ(output.o.at(0, 0, 0), 1);
  EXPECT_EQ(output.o.at(0, 0, 1), 0);
  EXPECT_DOUBLE_EQ(output.o.at(1, 0, 0), 1 / (1 + std::exp(2.0)));
  EXPECT_DOUBLE_EQ(output.o.at(1, 0, 1), 1 / (1 + std::exp(-2.0)));
  EXPECT_EQ(output.o.at(2, 0, 0), 0);
  EXPECT_EQ(output.o.at(2, 0, 1), 0);
}

TEST(Attention, SinkIsCountedOnceInTheDenominator) {
  const Pack pack({{1, 1}});
  const Tensor<double> one(1, 1, 1, 1.0);
  AttentionOptions options;
  options.scale = 1;
  options.sink = {2.0};
  const AttentionForward output = attention_forward(pack, one, one, one, options);
  EXPECT_DOUBLE_EQ(output.lse.at(0, 0), std::log(std::exp(1.0) + std::exp(2.0)));
  EXPECT_DOUBLE_EQ(output.o.at(0, 0, 0), 1 / (1 + std::exp(1.0)));
}

TEST(Attention, VisibleKeysByHand) {
  EXPECT_EQ(visible_keys(true, -1, 4, 9), (KeyRange{0, 5}));
  EXPECT_EQ(visible_keys(true, 2, 4, 9), (KeyRange{2, 5}));
  EXPECT_EQ(visible_keys(true, 0, 4, 9), (KeyRange{4, 5}));
  EXPECT_EQ(visible_keys(true, 7, 4, 9), (KeyRange{0, 5}));
  EXPECT_EQ(visible_keys(false, -1, 4, 9), (KeyRange{0, 9}));
  EXPECT_EQ(visible_keys(false, 1, 4, 9), (KeyRange{3, 9}));
}

TEST(Attention, HugeScoresDoNotOverflow) {
  const Pack pack({{3, 3}});
  AttentionCase c = make_attention_case(pack, {1, 1, 4, 4}, {}, 1);
  for (double& value : c.q.data) value *= 1e3;
  for (double& value : c.k.data) value *= 1e3;
  const AttentionForward output = forward(c);
  for (double value : output.o.data) EXPECT_TRUE(std::isfinite(value));
  for (double value : output.lse.data) EXPECT_TRUE(std::isfinite(value));
}

// Every gradient element against a central difference. With step h the truncation is O(h^2) and
// the roundoff about |f| u / h; h = 1e-5 makes both about 1e-10 for values of size 1..100.
struct Mode {
  const char* name;
  AttentionOptions options;
};

class Gradients : public testing::TestWithParam<Mode> {};

TEST_P(Gradients, MatchFiniteDifferences) {
  const Pack pack({{5, 8}, {0, 8}, {1, 8}, {3, 3}});
  AttentionCase c = make_attention_case(pack, {4, 2, 3, 2}, GetParam().options, 7);
  const AttentionBackward gradients = backward(c);
  constexpr double kStep = 1e-5;
  const auto check = [&](const char* name, std::vector<double>& values,
                         const std::vector<double>& gradient) {
    ASSERT_EQ(values.size(), gradient.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      if (std::isnan(value)) {
        EXPECT_EQ(gradient[i], 0) << name << " " << i;
        continue;
      }
      values[i] = value + kStep;
      const double above = objective(c);
      values[i] = value - kStep;
      const double below = objective(c);
      values[i] = value;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << name << " " << i;
    }
  };
  check("dq", c.q.data, gradients.dq.data);
  check("dk", c.k.data, gradients.dk.data);
  check("dv", c.v.data, gradients.dv.data);
  check("d_sink", c.options.sink, gradients.d_sink);
}

INSTANTIATE_TEST_SUITE_P(Modes, Gradients,
                         testing::Values(Mode{"causal", {}}, Mode{"full", {false, -1, 0, {}}},
                                         Mode{"window", {true, 1, 0, {}}},
                                         Mode{"full_window", {false, 2, 0, {}}},
                                         Mode{"sink", {true, -1, 0.7, {0.5, -1, 2, 0}}},
                                         Mode{"window_sink", {true, 0, 0, {0.5, -1, 2, 0}}}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Attention, ConstantValuesGiveConstantOutput) {
  const Pack pack({{13, 16}, {1, 8}, {0, 0}, {6, 6}});
  for (bool causal : {true, false}) {
    AttentionCase c = make_attention_case(pack, {4, 2, 8, 5}, {causal, -1, 0, {}}, 3);
    std::fill(c.v.data.begin(), c.v.data.end(), 1.0);
    const AttentionForward output = forward(c);
    for (int s = 0; s < pack.sequences(); ++s) {
      for (std::int64_t i = 0; i < pack.padded_length(s); ++i) {
        for (int h = 0; h < 4; ++h) {
          for (int d = 0; d < 5; ++d) {
            EXPECT_NEAR(output.o.at(pack.first_row(s) + i, h, d), i < pack.real_length(s) ? 1 : 0,
                        kRoundoff);
          }
        }
      }
    }
  }
}

TEST(Attention, ZeroQueriesCountTheirKeys) {
  const Pack pack({{9, 10}});
  AttentionCase c = make_attention_case(pack, {1, 1, 2, 9}, {}, 3);
  std::fill(c.q.data.begin(), c.q.data.end(), 0.0);
  std::fill(c.v.data.begin(), c.v.data.end(), 0.0);
  for (std::int64_t j = 0; j < 9; ++j) c.v.at(j, 0, static_cast<int>(j)) = 1;
  const AttentionForward output = forward(c);
  for (std::int64_t i = 0; i < 9; ++i) {
    for (int j = 0; j < 9; ++j) {
      EXPECT_DOUBLE_EQ(output.o.at(i, 0, j), j <= i ? 1.0 / double(i + 1) : 0.0);
    }
    EXPECT_DOUBLE_EQ(output.lse.at(0, i), std::log(double(i + 1)));
  }
}

TEST(Attention, SumsOfGradientsAgree) {
  // sum_j dV_j = sum_i sum_j P_ij dO_i, and without a sink every row of P sums to 1.
  const Pack pack({{11, 12}, {4, 4}});
  const AttentionCase c = make_attention_case(pack, {6, 2, 4, 3}, {}, 5);
  const AttentionBackward gradients = backward(c);
  for (int s = 0; s < pack.sequences(); ++s) {
    for (int kv = 0; kv < 2; ++kv) {
      for (int d = 0; d < 3; ++d) {
        double d_v = 0, d_o = 0;
        for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
          const std::int64_t row = pack.first_row(s) + i;
          d_v += gradients.dv.at(row, kv, d);
          for (int h = 3 * kv; h < 3 * kv + 3; ++h) d_o += c.d_o.at(row, h, d);
        }
        EXPECT_NEAR(d_v, d_o, kRoundoff * 100);
      }
    }
  }
}

TEST(Attention, ConstantKeysGiveNoQueryGradient) {
  const Pack pack({{7, 8}, {5, 8}});
  AttentionCase c = make_attention_case(pack, {2, 1, 4, 4}, {}, 5);
  std::fill(c.k.data.begin(), c.k.data.end(), 0.25);
  for (double value : backward(c).dq.data) EXPECT_NEAR(value, 0, kRoundoff);
}

TEST(Attention, ShiftingAllKeysShiftsTheLseOnly) {
  const Pack pack({{7, 8}, {5, 8}});
  const AttentionCase c = make_attention_case(pack, {2, 1, 4, 4}, {}, 5);
  AttentionCase shifted = c;
  const double shift[4] = {0.5, -1, 2, 0.125};
  for (std::int64_t row = 0; row < c.k.rows; ++row) {
    for (int d = 0; d < 4; ++d) shifted.k.at(row, 0, d) += shift[d];
  }
  const AttentionForward before = forward(c), after = forward(shifted);
  for (int s = 0; s < 2; ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const std::int64_t row = pack.first_row(s) + i;
      for (int h = 0; h < 2; ++h) {
        double dot = 0;
        for (int d = 0; d < 4; ++d) dot += c.q.at(row, h, d) * shift[d];
        EXPECT_NEAR(after.lse.at(h, row), before.lse.at(h, row) + 0.5 * dot, kRoundoff);
        for (int d = 0; d < 4; ++d) {
          EXPECT_NEAR(after.o.at(row, h, d), before.o.at(row, h, d), kRoundoff);
        }
      }
    }
  }
}

TEST(Attention, GroupedHeadsEqualTheirExpansion) {
  const Pack pack({{9, 12}, {1, 4}});
  const AttentionCase grouped = make_attention_case(pack, {6, 2, 4, 3}, {}, 9);
  AttentionCase expanded = grouped;
  expanded.k = Tensor<double>(grouped.k.rows, 6, 4);
  expanded.v = Tensor<double>(grouped.v.rows, 6, 3);
  for (std::int64_t row = 0; row < grouped.k.rows; ++row) {
    for (int h = 0; h < 6; ++h) {
      for (int d = 0; d < 4; ++d) expanded.k.at(row, h, d) = grouped.k.at(row, h / 3, d);
      for (int d = 0; d < 3; ++d) expanded.v.at(row, h, d) = grouped.v.at(row, h / 3, d);
    }
  }
  EXPECT_EQ(forward(grouped), forward(expanded));
  const AttentionBackward small = backward(grouped), large = backward(expanded);
  EXPECT_EQ(small.dq, large.dq);
  for (std::int64_t row = 0; row < grouped.k.rows; ++row) {
    for (int kv = 0; kv < 2; ++kv) {
      const auto sum_of_group = [&](const Tensor<double>& tensor, int d) {
        return tensor.at(row, 3 * kv, d) + tensor.at(row, 3 * kv + 1, d) +
               tensor.at(row, 3 * kv + 2, d);
      };
      for (int d = 0; d < 4; ++d) {
        EXPECT_NEAR(small.dk.at(row, kv, d), sum_of_group(large.dk, d), kRoundoff);
      }
      for (int d = 0; d < 3; ++d) {
        EXPECT_NEAR(small.dv.at(row, kv, d), sum_of_group(large.dv, d), kRoundoff);
      }
    }
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Pack pack({{3, 4}});
  const AttentionCase good = make_attention_case(pack, {4, 2, 2, 2}, {}, 1);
  const auto refuse = [&](auto damage) {
    AttentionCase c = good;
    damage(c);
    EXPECT_THROW(forward(c), InvalidInput);
  };
  EXPECT_NO_THROW(forward(good));
  refuse([](AttentionCase& c) { c.q = Tensor<double>(3, 4, 2); });
  refuse([](AttentionCase& c) { c.q = Tensor<double>(4, 3, 2); });
  refuse([](AttentionCase& c) { c.q = Tensor<double>(4, 4, 0); });
  refuse([](AttentionCase& c) { c.k = Tensor<double>(4, 2, 3); });
  refuse([](AttentionCase& c) { c.k = Tensor<double>(4, 0, 2); });
  refuse([](AttentionCase& c) { c.v = Tensor<double>(4, 1, 2); });
  refuse([](AttentionCase& c) { c.options.window = -2; });
  refuse([](AttentionCase& c) { c.options.sink = {1, 2}; });
  AttentionForward output = forward(good);
  EXPECT_THROW(attention_backward(pack, good.q, good.k, good.v, output, Tensor<double>(4, 4, 3),
                                  good.options),
               InvalidInput);
  output.lse = HeadRows<double>(3, 4);
  EXPECT_THROW(attention_backward(pack, good.q, good.k, good.v, output, good.d_o, good.options),
               InvalidInput);
}

}  // namespace
}  // namespace dyncp
