// The roundoff bounds: worked values, that they hold, and that they notice: every fault of a ring
// that is injected here is seen by the measure that is meant to see it.
#include "reference/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/attention_case.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Numerics, ScalesOfTwoTokensByHand) {
  // One head, dim 1, scale 1: scores of query 1 are both 0, so P = (1/2, 1/2).
  const Pack pack({{2, 3}});
  Tensor<double> q(3, 1, 1), k(3, 1, 1, 1.0), v(3, 1, 1), d_o(3, 1, 1, 1.0);
  v.data = {4, -2, 9};
  AttentionOptions options;
  options.scale = 1;
  const AttentionForward forward = attention_forward(pack, q, k, v, options);
  EXPECT_EQ(forward.o.data, (std::vector<double>{4, 1, 0}));
  const AttentionScales scales = attention_scales(pack, q, k, v, forward, d_o, options, {});
  // B_O = sum P|V| + |O|; walk = sum P^2 V^2 + O^2.
  EXPECT_EQ(scales.o.storage.data, (std::vector<double>{8, 4, 0}));
  EXPECT_EQ(scales.o.walk.data, (std::vector<double>{32, 6, 0}));
  // dV_0 = 1 + 1/2, dV_1 = 1/2; B_dV = sum P|dO| + |dV|.
  EXPECT_EQ(scales.dv.storage.data, (std::vector<double>{3, 1, 0}));
  // dS_1 = 1/2 (4 - 1), 1/2 (-2 - 1); E = |O| = 1, EA = 3:
  // sum_j |dS| + P (E + EA) = 3 + 4, and |dQ| = |3/2 - 3/2| = 0.
  EXPECT_EQ(scales.dq.storage.at(1, 0, 0), 7);
  EXPECT_EQ(scales.real, (std::vector<bool>{true, true, false}));
  EXPECT_GT(scales.lse.at(0, 1), 0);
  EXPECT_EQ(scales.lse.at(0, 2), 0);
}

TEST(Numerics, HardBoundByHand) {
  ErrorScale scale{Tensor<double>(1, 1, 1, 3.0), Tensor<double>(1, 1, 1, 100.0),
                   Tensor<double>(1, 1, 1, 5.0), Tensor<double>(1, 1, 1, 1.0)};
  const AttentionPrecision bf16{Format::kBf16, Format::kFloat, Accumulation::kWide, 4};
  const double x = 2 * 0x1p-8;
  EXPECT_NEAR(hard_bound(scale, 0, bf16), x / (1 - x) * 3 + 1.1 * 0x1p-24 * 100, 1e-12);
  const AttentionPrecision fp16{Format::kFp16, Format::kFloat, Accumulation::kRounded, 4};
  const double y = 7 * 0x1p-11;
  EXPECT_NEAR(hard_bound(scale, 0, fp16), y / (1 - y) * 3 + 1.1 * 0x1p-24 * 100 + 7 * 0x1p-25 * 5,
              1e-12);
}

TEST(Numerics, NaNNeverPasses) {
  const Tensor<double> reference(1, 1, 2, 1.0);
  Tensor<double> candidate = reference;
  const ErrorScale scale{reference, reference, reference, reference};
  EXPECT_TRUE(compare(candidate, reference, scale, {true}, {}).holds());
  for (double bad : {std::nan(""), kInfinity}) {
    candidate.at(0, 0, 1) = bad;
    const TensorError error = compare(candidate, reference, scale, {true}, {});
    EXPECT_FALSE(error.holds());
    EXPECT_EQ(error.worst.d, 1);
    EXPECT_EQ(error.row_statistic, kInfinity);
    EXPECT_TRUE(compare(candidate, reference, scale, {false}, {}).holds());
  }
  AttentionScales scales;
  scales.lse = HeadRows<double>(1, 1, 10.0);
  scales.real = {true};
  scales.dim = 1;
  for (double bad : {std::nan(""), kInfinity, -kInfinity}) {
    const LseError error = compare_lse(HeadRows<double>(1, 1, bad), HeadRows<double>(1, 1, 1.0),
                                       scales, Format::kFloat);
    EXPECT_FALSE(error.holds());
  }
}

TEST(Numerics, NoErrorIsAllowedWhereNoneCanArise) {
  const Tensor<double> zero(1, 1, 1);
  const ErrorScale scale{zero, zero, zero, zero};
  EXPECT_TRUE(compare(zero, zero, scale, {true}, {}).holds());
  EXPECT_FALSE(compare(Tensor<double>(1, 1, 1, 1e-300), zero, scale, {true}, {}).holds());
}

TEST(Numerics, MergesCountTheSegmentsOfARow) {
  const Pack pack({{32, 32}});
  const auto merges = [&](int size, std::int64_t window) {
    return ring_precision(make_ring_plan(pack, size, true, window), Arithmetic::kBf16,
                          Accumulation::kRounded)
        .merges;
  };
  EXPECT_EQ(merges(1, -1), 1);
  EXPECT_EQ(merges(4, -1), 4);
  // Chunks of 4; a window of 9 spans the own chunk and up to 3 before it.
  EXPECT_EQ(merges(4, 9), 4);
  EXPECT_EQ(merges(4, 0), 1);
}

// --- what the measures see -----------------------------------------------------------------------

/// A clean bf16 case on 4 ranks, and how damaged executions of it compare.
class Detection : public testing::Test {
 protected:
  Pack pack_ = Pack::padded_to({203, 7}, 8);
  RingPlan plan_ = make_ring_plan(pack_, 4, true);
  AttentionCase input_ = make_attention_case(pack_, {1, 1, 64, 64}, {}, 3, Format::kBf16);
  AttentionPrecision precision_ = ring_precision(plan_, Arithmetic::kBf16, Accumulation::kWide);
  AttentionForward reference_ =
      attention_forward(pack_, input_.q, input_.k, input_.v, input_.options);
  AttentionBackward gradients_ = attention_backward(pack_, input_.q, input_.k, input_.v, reference_,
                                                    input_.d_o, input_.options);
  AttentionScales scales_ = attention_scales(pack_, input_.q, input_.k, input_.v, reference_,
                                             input_.d_o, input_.options, precision_);
  TensorError o_, dq_, dk_, dv_;
  LseError lse_;

  void run(const RingPlan& plan, double scale_factor = 1) {
    RingOptions options;
    options.arithmetic = Arithmetic::kBf16;
    options.scale = scale_factor / std::sqrt(64.0);
    const RingResult ring = ring_attention(plan, input_.q, input_.k, input_.v, input_.d_o, options);
    const auto compare_with = [&](const Tensor<double>& got, const Tensor<double>& expected,
                                  const ErrorScale& scale) {
      return compare(got, expected, scale, scales_.real, precision_);
    };
    o_ = compare_with(ring.output.o, reference_.o, scales_.o);
    dq_ = compare_with(ring.gradients.dq, gradients_.dq, scales_.dq);
    dk_ = compare_with(ring.gradients.dk, gradients_.dk, scales_.dk);
    dv_ = compare_with(ring.gradients.dv, gradients_.dv, scales_.dv);
    lse_ = compare_lse(ring.output.lse, reference_.lse, scales_, precision_.accumulator);
  }
  void run_forward(const RingPlan& plan) {
    RingOptions options;
    options.arithmetic = Arithmetic::kBf16;
    const RingForward ring =
        ring_forward(plan, slice_pack(pack_, 4, input_.q), slice_pack(pack_, 4, input_.k),
                     slice_pack(pack_, 4, input_.v), options);
    o_ = compare(unslice_pack(pack_, 4, ring.o), reference_.o, scales_.o, scales_.real, precision_);
    lse_ = compare_lse(unslice_pack(pack_, 4, ring.lse), reference_.lse, scales_,
                       precision_.accumulator);
  }
  double limit() const { return row_statistic_limit(precision_, 64); }
  Segment& segment(RingPlan& plan, int rank, int step) {
    return plan.steps[std::size_t(rank)][std::size_t(step)].segments.at(0);
  }
};

TEST_F(Detection, CleanExecutionHoldsEverywhere) {
  run(plan_);
  for (const TensorError* error : {&o_, &dq_, &dk_, &dv_}) {
    EXPECT_TRUE(error->holds());
    EXPECT_LT(error->row_statistic, limit());
    EXPECT_GT(error->bound_ratio, 0.02);  // the bound is no empty promise
    EXPECT_GT(error->row_statistic, 0.3);
  }
  EXPECT_TRUE(lse_.holds());
}

TEST_F(Detection, OneDroppedKey) {
  RingPlan plan = plan_;
  --segment(plan, 3, 2).klen;
  run_forward(plan);
  EXPECT_FALSE(lse_.holds());
  EXPECT_GT(lse_.ratio, 100);
  EXPECT_GT(o_.row_statistic, 2 * limit());
}

TEST_F(Detection, LastKeyOfTheLastRow) {
  RingPlan plan = plan_;
  // The last real query of sequence 0 (position 202) is rank 1's: see whether losing its own key
  // alone is noticed. LSE is the measure that must see it.
  Segment& diagonal = segment(plan, 1, 0);
  Segment last = diagonal;
  --diagonal.qlen;
  last.q0 += last.qlen - 1;
  last.causal = false;
  last.qlen = 1;
  --last.klen;
  plan.steps[1][0].segments.push_back(last);
  run_forward(plan);
  EXPECT_FALSE(lse_.holds());
}

TEST_F(Detection, SkippedStep) {
  RingPlan plan = plan_;
  plan.steps[3][1].segments.clear();
  run(plan);
  EXPECT_FALSE(lse_.holds());
  EXPECT_FALSE(o_.holds());
  EXPECT_GT(dq_.row_statistic, 2 * limit());
}

TEST_F(Detection, DuplicatedStep) {
  RingPlan plan = plan_;
  plan.steps[3][1].segments.push_back(segment(plan, 3, 1));
  run(plan);
  EXPECT_FALSE(lse_.holds());
  EXPECT_FALSE(o_.holds());
}

TEST_F(Detection, ScaleOnePercentOff) {
  run(plan_, 1.01);
  EXPECT_FALSE(lse_.holds());
  EXPECT_GT(lse_.ratio, 100);
}

TEST_F(Detection, ScaleATenThousandthOff) {
  run(plan_, 1.0001);
  EXPECT_FALSE(lse_.holds());
}

TEST_F(Detection, OneZeroedRow) {
  RingOptions options;
  options.arithmetic = Arithmetic::kBf16;
  Tensor<double> o =
      ring_attention(plan_, input_.q, input_.k, input_.v, input_.d_o, options).output.o;
  for (int d = 0; d < 64; ++d) o.at(190, 0, d) = 0;
  const TensorError error = compare(o, reference_.o, scales_.o, scales_.real, precision_);
  EXPECT_GT(error.row_statistic, 5 * limit());
  EXPECT_EQ(error.worst_row.row, 190);
}

TEST_F(Detection, LostGradientSteps) {
  for (int step = 0; step < 4; ++step) {
    RingPlan plan = plan_;
    plan.steps[3][std::size_t(step)].segments.clear();
    RingOptions options;
    options.arithmetic = Arithmetic::kBf16;
    const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
    const auto q = slice(input_.q), k = slice(input_.k), v = slice(input_.v),
               d_o = slice(input_.d_o);
    const RingForward clean = ring_forward(plan_, q, k, v, options);
    const RingBackward lost = ring_backward(plan, q, k, v, clean, d_o, options);
    const TensorError dq = compare(unslice_pack(pack_, 4, lost.dq), gradients_.dq, scales_.dq,
                                   scales_.real, precision_);
    const TensorError dk = compare(unslice_pack(pack_, 4, lost.dk), gradients_.dk, scales_.dk,
                                   scales_.real, precision_);
    EXPECT_GT(dq.row_statistic, 2 * limit()) << step;
    EXPECT_GT(dk.row_statistic, 2 * limit()) << step;
  }
}

TEST(Numerics, WhatAFixedToleranceMissesIsSeen) {
  // O off by 2e-2 in one element late in a sequence: inside an atol of 2.5e-2.
  const Pack pack({{400, 400}});
  const AttentionCase c = make_attention_case(pack, {1, 1, 16, 16}, {}, 1, Format::kBf16);
  const AttentionForward forward = attention_forward(pack, c.q, c.k, c.v, c.options);
  const AttentionPrecision precision{Format::kBf16, Format::kFloat, Accumulation::kWide, 1};
  const AttentionScales scales =
      attention_scales(pack, c.q, c.k, c.v, forward, c.d_o, c.options, precision);
  Tensor<double> candidate = forward.o;
  candidate.at(399, 0, 3) += 2e-2;
  EXPECT_FALSE(compare(candidate, forward.o, scales.o, scales.real, precision).holds());
}

}  // namespace
}  // namespace dyncp
