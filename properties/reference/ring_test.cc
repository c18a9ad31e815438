// The ring plan against the published tables, its proof against damaged plans, and its execution
// against the direct reference in every arithmetic.
#include "reference/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "reference/error.h"
#include "reference/numerics.h"
#include "reference/zigzag.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// --- the plan ------------------------------------------------------------------------------------

TEST(RingPlan, FourRanksByHand) {
  // One sequence of 16 real tokens on 4 ranks: chunks of 2 tokens, 4 rows a rank.
  const RingPlan plan = make_ring_plan(Pack({{16, 16}}), 4, true);
  ASSERT_EQ(plan.steps.size(), 4u);
  const auto only = [&](int rank, int step) {
    const auto& segments = plan.steps[std::size_t(rank)][std::size_t(step)].segments;
    EXPECT_EQ(segments.size(), 1u);
    return segments.at(0);
  };
  const Segment diagonal{0, 4, 0, 4, true, 0, -1};
  const Segment lower{0, 4, 0, 2, false, 0, -1};
  const Segment upper{2, 2, 0, 4, false, 0, -1};
  // source of (rank, step), as a table
  const int sources[4][4] = {{0, 3, 2, 1}, {1, 0, 3, 2}, {2, 1, 0, 3}, {3, 2, 1, 0}};
  for (int rank = 0; rank < 4; ++rank) {
    for (int step = 0; step < 4; ++step) {
      const int source = sources[rank][step];
      EXPECT_EQ(plan.steps[std::size_t(rank)][std::size_t(step)].source, source);
      EXPECT_EQ(only(rank, step), step == 0 ? diagonal : source < rank ? lower : upper);
    }
  }
}

TEST(RingPlan, RealLengthsAreExact) {
  // 7 of 8 tokens on 2 ranks: rank 0 holds positions 0 1 6 (7), rank 1 holds 2 3 4 5.
  const RingPlan plan = make_ring_plan(Pack({{0, 4}, {7, 8}}), 2, true);
  const auto& rank0 = plan.steps[0];
  const auto& rank1 = plan.steps[1];
  EXPECT_EQ(rank0[0].segments, (std::vector<Segment>{{2, 3, 2, 3, true, 0, -1}}));
  EXPECT_EQ(rank0[1].segments, (std::vector<Segment>{{4, 1, 2, 4, false, 0, -1}}));
  EXPECT_EQ(rank1[0].segments, (std::vector<Segment>{{2, 4, 2, 4, true, 0, -1}}));
  EXPECT_EQ(rank1[1].segments, (std::vector<Segment>{{2, 4, 2, 2, false, 0, -1}}));
}

TEST(RingPlan, EmptyChunksAreLeftOut) {
  // One real token: only its own rank computes anything.
  const RingPlan plan = make_ring_plan(Pack({{1, 6}}), 3, true);
  std::int64_t pairs = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (int step = 0; step < 3; ++step) {
      const auto& segments = plan.steps[std::size_t(rank)][std::size_t(step)].segments;
      EXPECT_EQ(segments.size(), rank == 0 && step == 0 ? 1u : 0u);
      pairs += step_pairs(plan, rank, step);
    }
  }
  EXPECT_EQ(pairs, 1);
}

TEST(RingPlan, WindowedSegmentsByHand) {
  // 8 tokens on 2 ranks, window 1; rank 0: 0 1 | 6 7, rank 1: 2 3 | 4 5.
  const RingPlan plan = make_ring_plan(Pack({{8, 8}}), 2, true, 1);
  EXPECT_EQ(plan.steps[0][0].segments,
            (std::vector<Segment>{{0, 2, 0, 2, true, 0, 1}, {2, 2, 2, 2, true, 0, 1}}));
  // Query 6 sees key 5 of rank 1's mirror chunk.
  EXPECT_EQ(plan.steps[0][1].segments, (std::vector<Segment>{{2, 2, 2, 2, true, 2, 1}}));
  // Chunk 2 sees chunk 1 of rank 0: query 2 sees key 1; chunk 3 sees chunk 2.
  EXPECT_EQ(plan.steps[1][1].segments, (std::vector<Segment>{{0, 2, 0, 2, true, 2, 1}}));
}

TEST(RingPlan, WorkIsBalancedInEveryStep) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    const std::int64_t chunk = 3;
    const Pack pack({{2 * size * chunk, 2 * size * chunk}, {2 * size, 2 * size}});
    const RingPlan plan = make_ring_plan(pack, size, true);
    for (int step = 0; step < size; ++step) {
      for (int rank = 0; rank < size; ++rank) {
        const auto pairs = [&](std::int64_t p) { return 2 * p * p + (step == 0 ? p : 0); };
        EXPECT_EQ(step_pairs(plan, rank, step), pairs(chunk) + pairs(1))
            << size << " " << rank << " " << step;
      }
    }
  }
}

TEST(RingPlan, ContributionCountsOfFullSequences) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    const std::int64_t length = 2 * size * 2;
    const auto counts = contribution_counts(make_ring_plan(Pack({{length, length}}), size, true));
    for (int rank = 0; rank < size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const auto halves = [&](int front, int mirror) {
        // With size 1 the whole sequence is one chunk.
        return size == 1 ? std::vector<int>{1, 1, 1, 1}
                         : std::vector<int>{front, front, mirror, mirror};
      };
      EXPECT_EQ(counts.dq[r], halves(rank + 1, size));
      EXPECT_EQ(counts.dkv[r], halves(size, rank + 1));
    }
  }
}

TEST(RingPlan, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(make_ring_plan(Pack({{7, 7}}), 2, true), InvalidInput);
  EXPECT_THROW(make_ring_plan(Pack({{8, 8}}), 0, true), InvalidInput);
  EXPECT_THROW(make_ring_plan(Pack({{8, 8}}), 2, true, -2), InvalidInput);
}

TEST(RingPlan, CopyAndAddRulesMatchThePublishedTable) {
  // Backward index i replays forward step size-1-i; sequences of full chunks.
  using enum Accumulate;
  for (int size = 2; size <= 8; ++size) {
    const auto rules = backward_rules(make_ring_plan(Pack({{4 * size, 4 * size}}), size, true));
    for (int r = 0; r < size; ++r) {
      for (int i = 0; i < size; ++i) {
        const auto& step = rules[std::size_t(r)][std::size_t(size - 1 - i)];
        ASSERT_EQ(step.size(), 1u);
        const SegmentRules& rule = step[0];
        HalfRules dq, dkv;
        if (i < size - 1 - r) {
          dq = {kNone, i == 0 ? kCopy : kAdd};
        } else if (i == size - 1 - r) {
          dq = {kCopy, i == 0 ? kCopy : kAdd};
        } else {
          dq = {kAdd, kAdd};
        }
        if (i == size - 1) {
          dkv = {kAdd, r == 0 ? kCopy : kAdd};
        } else if (i >= size - 1 - r) {
          dkv = {i == 0 && r == size - 1 ? kCopy : kAdd, kNone};
        } else {
          dkv = {i == 0 ? kCopy : kAdd, i == 0 ? kCopy : kAdd};
        }
        EXPECT_EQ(rule.dq, dq) << size << " " << r << " " << i;
        EXPECT_EQ(rule.dkv, dkv) << size << " " << r << " " << i;
      }
    }
  }
}

// --- the proof -----------------------------------------------------------------------------------

/// Counts every (query, key) pair one by one: slow, and independent of the interval proof.
bool covers_by_counting(const RingPlan& plan) {
  const Pack& pack = plan.pack;
  const std::int64_t tokens = pack.padded_tokens();
  std::vector<int> count(static_cast<std::size_t>(tokens * tokens));
  for (int rank = 0; rank < plan.size; ++rank) {
    const auto queries = zigzag_rows(pack, plan.size, rank);
    for (int step = 0; step < plan.size; ++step) {
      const auto keys = zigzag_rows(pack, plan.size, plan.source(rank, step));
      for (const Segment& s : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
        for (std::int64_t i = 0; i < s.qlen; ++i) {
          for (std::int64_t j = 0; j < s.klen; ++j) {
            if (s.causal && j > i + s.shift) continue;
            if (s.window >= 0 && j < i + s.shift - s.window) continue;
            ++count[std::size_t(queries[std::size_t(s.q0 + i)] * tokens +
                                keys[std::size_t(s.k0 + j)])];
          }
        }
      }
    }
  }
  std::vector<int> expected(count.size());
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      for (std::int64_t j = 0; j < pack.real_length(s); ++j) {
        if (plan.causal && j > i) continue;
        if (plan.window >= 0 && j < i - plan.window) continue;
        expected[std::size_t((pack.first_row(s) + i) * tokens + pack.first_row(s) + j)] = 1;
      }
    }
  }
  return count == expected;
}

TEST(Coverage, HoldsForEveryLengthAndSizeInASmallScope) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    for (std::int64_t real = 0; real < 70; ++real) {
      const Pack pack({{real, round_up(real, 2 * size) + (real % 3 == 0 ? 2 * size : 0)},
                       {real / 7, round_up(real / 7, 2 * size)}});
      for (bool causal : {true, false}) {
        for (std::int64_t window : {-1, 0, 1, 5, 100}) {
          const RingPlan plan = make_ring_plan(pack, size, causal, window);
          const auto fault = check_coverage(plan);
          ASSERT_FALSE(fault) << fault->sentence;
          if (real % 5 == 0 && window != 1) {
            ASSERT_TRUE(covers_by_counting(plan)) << size << " " << real << " " << window;
          }
        }
      }
    }
  }
}

TEST(Coverage, LongPacksAreProvedToo) {
  const Pack pack = Pack::padded_to({12289, 7, 3, 5, 0, 1, 4096}, 16);
  EXPECT_FALSE(check_coverage(make_ring_plan(pack, 8, true)));
  EXPECT_FALSE(check_coverage(make_ring_plan(pack, 8, true, 512)));
}

class DamagedPlan : public testing::Test {
 protected:
  // Rank r holds of sequence 1 (13 of 16 tokens, chunks of 2): r0 0 1 (14 15), r1 2 3 12 (13),
  // r2 4 5 10 11, r3 6 7 8 9; local rows 2..5, behind 2 rows of sequence 0.
  RingPlan plan_ = make_ring_plan(Pack({{3, 8}, {13, 16}}), 4, true);

  Segment& segment(int rank, int step) {
    for (Segment& s : plan_.steps[std::size_t(rank)][std::size_t(step)].segments) {
      if (s.q0 >= 2) return s;
    }
    throw std::logic_error("no segment of sequence 1");
  }
  CoverageFault fault() {
    const auto found = check_coverage(plan_);
    EXPECT_TRUE(found);
    EXPECT_FALSE(covers_by_counting(plan_));
    return found.value_or(CoverageFault{});
  }
};

TEST_F(DamagedPlan, DroppedStep) {
  plan_.steps[2][1].segments.clear();  // rank 2 skips the keys of rank 1
  EXPECT_EQ(
      fault().sentence,
      "rank 2 step 1: sequence 0 query 2 key 1 is never computed (the key belongs to rank 1)");
}

TEST_F(DamagedPlan, DroppedKey) {
  --segment(3, 1).klen;
  const CoverageFault f = fault();
  EXPECT_EQ(
      f.sentence,
      "rank 3 step 1: sequence 1 query 6 key 5 is never computed (the key belongs to rank 2)");
  EXPECT_EQ(f.rank, 3);
  EXPECT_EQ(f.step, 1);
  EXPECT_EQ(f.sequence, 1);
  EXPECT_EQ(f.query, 6);
  EXPECT_EQ(f.key, 5);
}

TEST_F(DamagedPlan, DroppedQuery) {
  ++segment(3, 2).q0;
  --segment(3, 2).qlen;
  EXPECT_EQ(
      fault().sentence,
      "rank 3 step 2: sequence 1 query 6 key 2 is never computed (the key belongs to rank 1)");
}

TEST_F(DamagedPlan, DuplicatedSegment) {
  plan_.steps[3][1].segments.push_back(segment(3, 1));
  EXPECT_EQ(fault().sentence,
            "rank 3 step 1: sequence 1 query 6 key 4 is computed twice (also in step 1)");
}

TEST_F(DamagedPlan, LowerTileReadsBothHalves) {
  segment(3, 1).klen = 4;  // positions 4 5 10 11 instead of 4 5
  EXPECT_EQ(fault().sentence,
            "rank 3 step 1: sequence 1 query 6 key 10 is computed, but the mask hides it");
}

TEST_F(DamagedPlan, NextTokenVisible) {
  segment(3, 0).shift = 1;
  EXPECT_EQ(fault().sentence,
            "rank 3 step 0: sequence 1 query 6 key 7 is computed, but the mask hides it");
}

TEST_F(DamagedPlan, DiagonalDropped) {
  segment(3, 0).shift = -1;
  EXPECT_EQ(
      fault().sentence,
      "rank 3 step 0: sequence 1 query 6 key 6 is never computed (the key belongs to rank 3)");
}

TEST_F(DamagedPlan, OtherSequence) {
  segment(3, 1).k0 = 1;
  EXPECT_EQ(fault().sentence,
            "rank 3 step 1 (K/V of rank 2): sequence 1 query 6 sees key 5 of sequence 0");
}

TEST_F(DamagedPlan, PaddingQuery) {
  segment(0, 0).qlen = 4;
  EXPECT_EQ(fault().sentence,
            "rank 0 step 0: sequence 1 query 14 key 0 is computed, but the query is padding");
}

TEST_F(DamagedPlan, PaddingKey) {
  plan_ = make_ring_plan(Pack({{3, 8}, {13, 16}}), 4, false);
  segment(0, 0).klen = 3;
  EXPECT_EQ(fault().sentence,
            "rank 0 step 0: sequence 1 query 0 key 14 is computed, but the key is padding");
}

TEST_F(DamagedPlan, OutsideTheSlice) {
  segment(0, 0).klen = 40;
  const auto found = check_coverage(plan_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sentence,
            "rank 0 step 0: a segment of query rows 2+2 and key rows 2+40 leaves the slice of 6 "
            "rows");
}

TEST_F(DamagedPlan, WrongSource) {
  std::swap(plan_.steps[1][1], plan_.steps[1][2]);
  const auto found = check_coverage(plan_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sentence,
            "rank 1 step 1 expects K/V of rank 3, but the ring holds those of rank 0");
}

TEST_F(DamagedPlan, MissingStep) {
  plan_.steps[1].pop_back();
  const auto found = check_coverage(plan_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sentence, "the plan does not have 4 ranks of 4 steps");
}

// The floor rule of real lengths, a real fault: floor(real / size) rows on every rank.
TEST(Coverage, FindsFlooredRealLengths) {
  for (int size : {2, 3, 4}) {
    for (std::int64_t real = 1; real < 40; ++real) {
      const Pack pack({{real, round_up(real, 2 * size)}});
      const Pack floored({{real / (2 * size) * 2 * size, round_up(real, 2 * size)}});
      RingPlan plan = make_ring_plan(floored, size, true);
      plan.pack = pack;
      EXPECT_EQ(check_coverage(plan).has_value(), real % (2 * size) != 0) << size << " " << real;
    }
  }
}

// --- merging -------------------------------------------------------------------------------------

TEST(MergeLse, WorkedExample) {
  const auto merged = merge_lse(1.0, 0.0);
  EXPECT_NEAR(merged.lse, 1.313262, 5e-7);
  EXPECT_NEAR(merged.share_a, 0.731059, 5e-7);
  EXPECT_NEAR(merged.share_b, 0.268941, 5e-7);
}

TEST(MergeLse, EmptySets) {
  const auto nothing = merge_lse(-kInfinity, -kInfinity);
  EXPECT_EQ(nothing.lse, -kInfinity);
  EXPECT_EQ(nothing.share_a, 0);
  EXPECT_EQ(nothing.share_b, 0);
  for (const auto& merged : {merge_lse(-kInfinity, 3.0), merge_lse(3.0, -kInfinity)}) {
    EXPECT_EQ(merged.lse, 3.0);
    EXPECT_EQ(merged.share_a + merged.share_b, 1.0);
  }
}

TEST(MergeLse, DoesNotOverflow) {
  EXPECT_EQ(merge_lse(5e4, -5e4).lse, 5e4);
  EXPECT_FLOAT_EQ(merge_lse(1e30f, 1e30f).lse, 1e30f);
  EXPECT_DOUBLE_EQ(merge_lse(800.0, 800.0).lse, 800 + std::log(2.0));
}

// --- execution -----------------------------------------------------------------------------------

struct Setup {
  const char* name;
  AttentionShape shape;
  AttentionOptions options;
};

class Execution : public testing::TestWithParam<Setup> {};

// Empty, one-token and all-padding-chunk sequences, none a multiple of 2*size.
Pack hard_pack(int size) { return Pack::padded_to({23, 7, 3, 0, 1, 2 * size + 1}, 2 * size); }

TEST_P(Execution, AgreesWithTheDirectReference) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    const Pack pack = hard_pack(size);
    const RingPlan plan =
        make_ring_plan(pack, size, GetParam().options.causal, GetParam().options.window);
    for (Arithmetic arithmetic :
         {Arithmetic::kDouble, Arithmetic::kFloat, Arithmetic::kBf16, Arithmetic::kFp16}) {
      for (Accumulation accumulation :
           {Accumulation::kWide, Accumulation::kRoundedPartials, Accumulation::kRounded}) {
        const AttentionCase c = make_attention_case(pack, GetParam().shape, GetParam().options, 1,
                                                    storage_format(arithmetic));
        const RingOptions options{c.options.scale, c.options.sink, arithmetic, accumulation, {}};
        const RingResult ring = ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
        const AttentionForward forward = attention_forward(pack, c.q, c.k, c.v, c.options);
        const AttentionBackward backward =
            attention_backward(pack, c.q, c.k, c.v, forward, c.d_o, c.options);
        const auto precision = ring_precision(plan, arithmetic, accumulation);
        const auto scales =
            attention_scales(pack, c.q, c.k, c.v, forward, c.d_o, c.options, precision);
        const auto hold = [&](const char* what, const Tensor<double>& got,
                              const Tensor<double>& expected, const ErrorScale& scale) {
          const TensorError error = compare(got, expected, scale, scales.real, precision);
          EXPECT_LE(error.bound_ratio, 1)
              << what << " size " << size << " " << to_string(arithmetic) << " "
              << to_string(accumulation) << " row " << error.worst.row << " expected "
              << error.expected << " got " << error.got;
          EXPECT_LE(error.row_statistic, row_statistic_limit(precision, expected.dim)) << what;
          if (arithmetic == Arithmetic::kDouble) {
            for (std::size_t i = 0; i < got.data.size(); ++i) {
              EXPECT_NEAR(got.data[i], expected.data[i], 1e-12 * (1 + scale.storage.data[i]));
            }
          }
          for (std::int64_t row = 0; row < got.rows; ++row) {
            if (scales.real[std::size_t(row)]) continue;
            for (int h = 0; h < got.heads; ++h) {
              for (int d = 0; d < got.dim; ++d) EXPECT_EQ(got.at(row, h, d), 0) << what;
            }
          }
        };
        hold("o", ring.output.o, forward.o, scales.o);
        hold("dq", ring.gradients.dq, backward.dq, scales.dq);
        hold("dk", ring.gradients.dk, backward.dk, scales.dk);
        hold("dv", ring.gradients.dv, backward.dv, scales.dv);
        const LseError lse =
            compare_lse(ring.output.lse, forward.lse, scales, precision.accumulator);
        EXPECT_LE(lse.ratio, 1) << size << " " << to_string(arithmetic);
        for (std::int64_t row = 0; row < c.q.rows; ++row) {
          if (!scales.real[std::size_t(row)]) {
            EXPECT_EQ(ring.output.lse.at(0, row), -kInfinity);
          }
        }
        ASSERT_EQ(ring.gradients.d_sink.size(), backward.d_sink.size());
        if (arithmetic == Arithmetic::kDouble) {
          for (std::size_t h = 0; h < backward.d_sink.size(); ++h) {
            EXPECT_NEAR(ring.gradients.d_sink[h], backward.d_sink[h], 1e-12);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Setups, Execution,
    testing::Values(Setup{"causal", {4, 2, 16, 16}, {}},
                    Setup{"full", {2, 1, 8, 8}, {false, -1, 0, {}}},
                    Setup{"other_value_dim", {3, 3, 6, 10}, {true, -1, 0.3, {}}},
                    Setup{"window", {4, 1, 8, 8}, {true, 3, 0, {}}},
                    Setup{"full_window", {2, 2, 8, 8}, {false, 4, 0, {}}},
                    Setup{"sink", {4, 2, 8, 4}, {true, -1, 0, {0.5, -1, 3, 0}}},
                    Setup{"window_sink", {4, 2, 8, 4}, {true, 1, 0, {0.5, -1, 3, 0}}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Execution, OrderOfSimulationDoesNotMatter) {
  const Pack pack = hard_pack(5);
  const RingPlan plan = make_ring_plan(pack, 5, true);
  const AttentionCase c = make_attention_case(pack, {4, 2, 8, 8}, {}, 1);
  RingOptions options;
  options.arithmetic = Arithmetic::kFloat;
  const RingResult first = ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
  for (const std::vector<int>& order : {std::vector<int>{4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}}) {
    options.rank_order = order;
    const RingResult other = ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
    EXPECT_EQ(first.output, other.output);
    EXPECT_EQ(first.gradients, other.gradients);
  }
  options.rank_order = {0, 1, 2, 3, 3};
  EXPECT_THROW(ring_attention(plan, c.q, c.k, c.v, c.d_o, options), InvalidInput);
}

TEST(Execution, AStepThatIsNeverComputedLeavesPoison) {
  const Pack pack({{12, 12}});
  RingPlan plan = make_ring_plan(pack, 3, true);
  const AttentionCase c = make_attention_case(pack, {1, 1, 4, 4}, {}, 1);
  plan.steps[0][0].segments.clear();  // the front chunk of rank 0 gets nothing at all
  const RingResult ring = ring_attention(plan, c.q, c.k, c.v, c.d_o, {});
  EXPECT_TRUE(std::isnan(ring.output.o.at(0, 0, 0)));
  EXPECT_EQ(ring.output.lse.at(0, 0), -kInfinity);
  EXPECT_TRUE(std::isnan(ring.gradients.dq.at(0, 0, 0)));
}

TEST(Execution, MergingManyRoundedStepsGrowsTheError) {
  // What the accumulation mode is for: the error of rounded sums is larger than that of wide ones.
  const Pack pack = Pack::padded_to({333}, 16);
  const RingPlan plan = make_ring_plan(pack, 8, true);
  const AttentionCase c = make_attention_case(pack, {1, 1, 32, 32}, {}, 1, Format::kBf16);
  const auto forward = attention_forward(pack, c.q, c.k, c.v, {});
  const auto error = [&](Accumulation accumulation) {
    RingOptions options;
    options.arithmetic = Arithmetic::kBf16;
    options.accumulation = accumulation;
    const auto ring = ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
    double sum = 0;
    for (std::size_t i = 0; i < forward.o.data.size(); ++i) {
      sum += std::pow(ring.output.o.data[i] - forward.o.data[i], 2);
    }
    return std::sqrt(sum);
  };
  EXPECT_GT(error(Accumulation::kRoundedPartials), 1.1 * error(Accumulation::kWide));
  EXPECT_GT(error(Accumulation::kRounded), 1.2 * error(Accumulation::kRoundedPartials));
}

TEST(Execution, RefusesSlicesThatDoNotFit) {
  const Pack pack({{8, 8}});
  const RingPlan plan = make_ring_plan(pack, 2, true);
  const std::vector<Tensor<double>> good(2, Tensor<double>(4, 2, 4));
  EXPECT_NO_THROW(ring_forward(plan, good, good, good, {}));
  EXPECT_THROW(ring_forward(plan, {good[0]}, good, good, {}), InvalidInput);
  EXPECT_THROW(ring_forward(plan, good, good, {good[0], Tensor<double>(4, 2, 3)}, {}),
               InvalidInput);
  EXPECT_THROW(ring_forward(plan, good, {good[0], Tensor<double>(3, 2, 4)}, good, {}),
               InvalidInput);
  RingForward output = ring_forward(plan, good, good, good, {});
  output.lse[1] = HeadRows<double>(1, 4);
  EXPECT_THROW(ring_backward(plan, good, good, good, output, good, {}), InvalidInput);
  EXPECT_THROW(slice_pack(pack, 2, Tensor<double>(7, 1, 1)), InvalidInput);
}

TEST(Execution, PartsOfAChunkAreRefusedInBackward) {
  RingPlan plan = make_ring_plan(Pack({{8, 8}}), 2, true);
  --plan.steps[1][0].segments[0].qlen;
  EXPECT_THROW(backward_rules(plan), InvalidInput);
}

}  // namespace
}  // namespace dyncp
