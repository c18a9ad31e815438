// Properties of the ring: coverage of every plan, size invariance, isolation, padding, merging in
// any order, and independence of what ran before.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "properties/cases.h"
#include "properties/generators.h"
#include "reference/numerics.h"
#include "reference/ring.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

const DefaultCases kCases(100);

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

AttentionShape any_shape() {
  const int kv_heads = *genInt(1, 2);
  return {kv_heads * *genInt(1, 2), kv_heads, *genInt(1, 4), *genInt(1, 4)};
}

AttentionOptions any_options(int heads) {
  AttentionOptions options;
  options.causal = *genInt(0, 3) > 0;
  options.window = *genInt(0, 2) == 0 ? *genInt(0, 20) : -1;
  if (*genInt(0, 2) == 0) options.sink = make_sink(heads, 3);
  return options;
}

Arithmetic any_arithmetic() {
  return std::array{Arithmetic::kDouble, Arithmetic::kFloat, Arithmetic::kBf16,
                    Arithmetic::kFp16}[std::size_t(*genInt(0, 3))];
}

Accumulation any_accumulation() {
  return std::array{Accumulation::kWide, Accumulation::kRoundedPartials,
                    Accumulation::kRounded}[std::size_t(*genInt(0, 2))];
}

RingResult run(const AttentionCase& c, int size, const RingOptions& extra) {
  RingOptions options = extra;
  options.scale = c.options.scale;
  options.sink = c.options.sink;
  const RingPlan plan = make_ring_plan(c.pack, size, c.options.causal, c.options.window);
  return ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
}

bool same(const RingResult& a, const RingResult& b) {
  return a.output == b.output && a.gradients == b.gradients;
}

/// Every row of a sequence's results, in one list.
std::vector<double> rows_of(const RingResult& result, const Pack& pack, int sequence) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < pack.real_length(sequence); ++i) {
    const std::int64_t row = pack.first_row(sequence) + i;
    for (const Tensor<double>* tensor :
         {&result.output.o, &result.gradients.dq, &result.gradients.dk, &result.gradients.dv}) {
      for (int h = 0; h < tensor->heads; ++h) {
        for (int d = 0; d < tensor->dim; ++d) values.push_back(tensor->at(row, h, d));
      }
    }
    for (int h = 0; h < result.output.lse.heads; ++h) {
      values.push_back(result.output.lse.at(h, row));
    }
  }
  return values;
}

RC_GTEST_PROP(RingPlan, CoversEveryPairExactlyOnce, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {400, 1, 8}, *genInt(1, 3));
  const std::int64_t window = *genInt(0, 1) == 0 ? -1 : *genInt(0, 450);
  const auto fault = check_coverage(make_ring_plan(pack, size, *genInt(0, 1) == 1, window));
  if (fault) RC_FAIL(fault->sentence);
}

RC_GTEST_PROP(RingPlan, PairsAddUpToTheMask, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const bool causal = *genInt(0, 1) == 1;
  const std::int64_t window = *genInt(0, 1) == 0 ? -1 : *genInt(0, 120);
  const RingPlan plan = make_ring_plan(pack, size, causal, window);
  std::int64_t computed = 0, allowed = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (int step = 0; step < size; ++step) computed += step_pairs(plan, rank, step);
  }
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const KeyRange keys = visible_keys(causal, window, i, pack.real_length(s));
      allowed += keys.end - keys.begin;
    }
  }
  RC_ASSERT(computed == allowed);
}

RC_GTEST_PROP(RingPlan, AnyDamageIsFound, ()) {
  // Whatever is changed in one segment: it covers the same pairs, or the proof says what is wrong.
  const int size = *genCpSizeAboveOne();
  const Pack pack = *genPack(size, {40, 1, 4});
  RC_PRE(pack.real_tokens() > 0);
  RingPlan plan = make_ring_plan(pack, size, true, *genInt(0, 1) == 0 ? -1 : *genInt(0, 20));
  std::vector<Segment*> segments;
  for (auto& steps : plan.steps) {
    for (auto& step : steps) {
      for (auto& segment : step.segments) segments.push_back(&segment);
    }
  }
  Segment& segment =
      *segments[static_cast<std::size_t>(*genInt(0, static_cast<int>(segments.size()) - 1))];
  const std::int64_t pairs = pair_count(segment);
  const int kind = *genInt(0, 5);
  switch (kind) {
    case 0:
      ++segment.q0;
      break;
    case 1:
      ++segment.k0;
      break;
    case 2:
      --segment.qlen;
      break;
    case 3:
      --segment.klen;
      break;
    case 4:
      segment.causal = !segment.causal;
      break;
    default:
      segment.shift += *genInt(0, 1) == 0 ? 1 : -1;
      break;
  }
  // A moved segment computes other pairs; a resized one must compute more or fewer.
  RC_PRE(kind < 2 || pair_count(segment) != pairs);
  RC_ASSERT(check_coverage(plan).has_value());
}

RC_GTEST_PROP(RingPlan, PaddingIsNoPartOfIt, ()) {
  // Work on real pairs does not depend on the amount of padding.
  const int size = *genCpSize();
  const auto lengths = *genLengths();
  const Pack pack = Pack::padded_to(lengths, 2 * size);
  const Pack more = Pack::padded_to(lengths, 6 * size);
  std::int64_t pairs = 0, pairs_more = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (int step = 0; step < size; ++step) {
      pairs += step_pairs(make_ring_plan(pack, size, true), rank, step);
      pairs_more += step_pairs(make_ring_plan(more, size, true), rank, step);
    }
  }
  RC_ASSERT(pairs == pairs_more);
}

RC_GTEST_PROP(Ring, SizeDoesNotMatter, ()) {
  // Every CP size agrees with the direct reference within the bound of its arithmetic, on one pack
  // that all of them can run.
  const Pack pack = *genPack(120, {60, 1, 4});
  const AttentionShape shape = any_shape();
  const Arithmetic arithmetic = any_arithmetic();
  const Accumulation accumulation = any_accumulation();
  const AttentionCase c =
      make_attention_case(pack, shape, any_options(shape.heads), 1, storage_format(arithmetic));
  const auto forward = attention_forward(pack, c.q, c.k, c.v, c.options);
  const auto backward = attention_backward(pack, c.q, c.k, c.v, forward, c.d_o, c.options);
  for (int size : kGeneratedCpSizes) {
    RingOptions options;
    options.arithmetic = arithmetic;
    options.accumulation = accumulation;
    const RingResult ring = run(c, size, options);
    const auto precision = ring_precision(
        make_ring_plan(pack, size, c.options.causal, c.options.window), arithmetic, accumulation);
    const auto scales = attention_scales(pack, c.q, c.k, c.v, forward, c.d_o, c.options, precision);
    const auto hold = [&](const Tensor<double>& got, const Tensor<double>& expected,
                          const ErrorScale& scale) {
      return compare(got, expected, scale, scales.real, precision).holds();
    };
    RC_ASSERT(hold(ring.output.o, forward.o, scales.o));
    RC_ASSERT(hold(ring.gradients.dq, backward.dq, scales.dq));
    RC_ASSERT(hold(ring.gradients.dk, backward.dk, scales.dk));
    RC_ASSERT(hold(ring.gradients.dv, backward.dv, scales.dv));
    RC_ASSERT(compare_lse(ring.output.lse, forward.lse, scales, precision.accumulator).holds());
  }
}

RC_GTEST_PROP(Ring, PaddingContentsAreInert, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {60, 1, 5});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  ring.accumulation = any_accumulation();
  const RingResult nans = run(make_attention_case(pack, shape, options, 1), size, ring);
  const RingResult zeros =
      run(make_attention_case(pack, shape, options, 1, Format::kDouble, 0.0), size, ring);
  RC_ASSERT(same(nans, zeros));
}

RC_GTEST_PROP(Ring, SequencesAreIsolated, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {60, 2, 5});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  ring.accumulation = any_accumulation();
  std::vector<int> contents(static_cast<std::size_t>(pack.sequences()));
  std::iota(contents.begin(), contents.end(), 0);
  const RingResult before = run(make_attention_case(pack, shape, options, 1), size, ring);
  const int changed = *genInt(0, pack.sequences() - 1);
  contents[static_cast<std::size_t>(changed)] = 1000;
  const RingResult after = run(
      make_attention_case(pack, shape, options, 1, Format::kDouble, kNaN, contents), size, ring);
  for (int s = 0; s < pack.sequences(); ++s) {
    if (s != changed) RC_ASSERT(rows_of(before, pack, s) == rows_of(after, pack, s));
  }
  RC_ASSERT(pack.real_length(changed) == 0 ||
            rows_of(before, pack, changed) != rows_of(after, pack, changed));
}

RC_GTEST_PROP(Ring, PermutedSequencesGivePermutedResults, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {60, 2, 5});
  const AttentionShape shape = any_shape();
  AttentionOptions options = any_options(shape.heads);
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  ring.accumulation = any_accumulation();
  const RingResult before = run(make_attention_case(pack, shape, options, 1), size, ring);
  std::vector<int> order(static_cast<std::size_t>(pack.sequences()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + *genInt(1, pack.sequences() - 1), order.end());
  std::swap(order.front(), order.back());
  std::vector<Sequence> sequences;
  for (int s : order) sequences.push_back(pack.sequence(s));
  const Pack permuted(sequences);
  const RingResult after = run(
      make_attention_case(permuted, shape, options, 1, Format::kDouble, kNaN, order), size, ring);
  for (int s = 0; s < pack.sequences(); ++s) {
    RC_ASSERT(rows_of(after, permuted, s) ==
              rows_of(before, pack, order[static_cast<std::size_t>(s)]));
  }
}

RC_GTEST_PROP(Ring, APackEqualsItsSequencesAlone, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {60, 1, 4});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  const RingResult whole = run(make_attention_case(pack, shape, options, 1), size, ring);
  for (int s = 0; s < pack.sequences(); ++s) {
    const Pack alone({pack.sequence(s)});
    const RingResult one =
        run(make_attention_case(alone, shape, options, 1, Format::kDouble, kNaN, {s}), size, ring);
    RC_ASSERT(rows_of(one, alone, 0) == rows_of(whole, pack, s));
  }
}

RC_GTEST_PROP(Ring, HistoryDoesNotMatter, ()) {
  // One process runs packs of other sizes and lengths before and between; every result is the one a
  // fresh run gives.
  const AttentionShape shape = any_shape();
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  ring.accumulation = any_accumulation();
  struct Member {
    AttentionCase input;
    int size;
    RingResult fresh;
  };
  std::vector<Member> members;
  for (int size : {2, 1, 4, 8}) {
    const Pack pack = *genPack(size, {40, 1, 3});
    AttentionCase input = make_attention_case(pack, shape, {}, static_cast<std::uint64_t>(size));
    RingResult fresh = run(input, size, ring);
    members.push_back({std::move(input), size, std::move(fresh)});
  }
  for (std::size_t index : {0, 1, 2, 0, 1, 3, 2}) {  // sizes 2, 1, 4, 2, 1, 8, 4
    const Member& member = members[index];
    RC_ASSERT(same(run(member.input, member.size, ring), member.fresh));
  }
}

RC_GTEST_PROP(Ring, RankOrderDoesNotMatter, ()) {
  const int size = *genCpSizeAboveOne();
  const Pack pack = *genPack(size, {40, 1, 4});
  const AttentionShape shape = any_shape();
  const AttentionCase c = make_attention_case(pack, shape, any_options(shape.heads), 1);
  RingOptions ring;
  ring.arithmetic = any_arithmetic();
  const RingResult first = run(c, size, ring);
  ring.rank_order.resize(static_cast<std::size_t>(size));
  std::iota(ring.rank_order.begin(), ring.rank_order.end(), 0);
  std::reverse(ring.rank_order.begin(), ring.rank_order.end());
  std::rotate(ring.rank_order.begin(), ring.rank_order.begin() + *genInt(0, size - 1),
              ring.rank_order.end());
  RC_ASSERT(same(first, run(c, size, ring)));
}

RC_GTEST_PROP(MergeLse, AnyOrderGivesTheSameResult, ()) {
  // Partial results of random key sets, empty ones among them, merged as a random binary tree.
  struct Part {
    double lse;
    double o;
  };
  const int count = *genInt(1, 9);
  std::vector<Part> parts;
  for (int i = 0; i < count; ++i) {
    const bool empty = *genInt(0, 4) == 0;
    parts.push_back({empty ? -std::numeric_limits<double>::infinity() : *genInt(-3000, 3000) * 0.01,
                     empty ? kNaN : *genInt(-1000, 1000) * 0.001});
  }
  const auto merge = [](Part a, Part b) {
    const auto merged = merge_lse(a.lse, b.lse);
    // An empty set has no output: its share is zero and its bits must not matter.
    return Part{merged.lse, (merged.share_a == 0 ? 0 : merged.share_a * a.o) +
                                (merged.share_b == 0 ? 0 : merged.share_b * b.o)};
  };
  const auto reduce = [&](std::vector<Part> list, bool random) {
    while (list.size() > 1) {
      const int last = static_cast<int>(list.size()) - 1;
      const auto i = static_cast<std::size_t>(random ? *genInt(0, last) : 0);
      std::swap(list[i], list.back());
      const Part a = list.back();
      list.pop_back();
      const auto j = static_cast<std::size_t>(random ? *genInt(0, last - 1) : 0);
      list[j] = merge(list[j], a);
    }
    return list[0];
  };
  const Part once = reduce(parts, false), again = reduce(parts, true);
  if (std::isinf(once.lse)) {
    RC_ASSERT(again.lse == once.lse);
  } else {
    RC_ASSERT(std::fabs(once.lse - again.lse) <= 1e-12 * (1 + std::fabs(once.lse)));
    // A single part with no keys keeps its uninitialised output.
    RC_ASSERT(std::isnan(once.o) == std::isnan(again.o));
    if (!std::isnan(once.o)) RC_ASSERT(std::fabs(once.o - again.o) <= 1e-12);
  }
}

}  // namespace
}  // namespace dyncp
