// Metamorphic relations of attention that hold bit for bit: packing, order, padding, isolation.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "properties/cases.h"
#include "properties/generators.h"
#include "reference/attention.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

const DefaultCases kCases(300);

struct Run {
  AttentionForward forward;
  AttentionBackward backward;
  bool operator==(const Run&) const = default;
};

Run run(const AttentionCase& c) {
  Run result;
  result.forward = attention_forward(c.pack, c.q, c.k, c.v, c.options);
  result.backward = attention_backward(c.pack, c.q, c.k, c.v, result.forward, c.d_o, c.options);
  return result;
}

AttentionShape any_shape() {
  const int kv_heads = *genInt(1, 2);
  return {kv_heads * *genInt(1, 3), kv_heads, *genInt(1, 5), *genInt(1, 5)};
}

AttentionOptions any_options(int heads) {
  AttentionOptions options;
  options.causal = *genInt(0, 2) > 0;
  options.window = *genInt(0, 2) == 0 ? *genInt(0, 9) : -1;
  if (*genInt(0, 2) == 0) options.sink = make_sink(heads, 3);
  return options;
}

/// Every row of a sequence's results, in one list.
std::vector<double> rows_of(const Run& result, const Pack& pack, int sequence, bool padded) {
  std::vector<double> values;
  const std::int64_t count = padded ? pack.padded_length(sequence) : pack.real_length(sequence);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = pack.first_row(sequence) + i;
    const auto take = [&](const Tensor<double>& tensor) {
      for (int h = 0; h < tensor.heads; ++h) {
        for (int d = 0; d < tensor.dim; ++d) values.push_back(tensor.at(row, h, d));
      }
    };
    take(result.forward.o);
    take(result.backward.dq);
    take(result.backward.dk);
    take(result.backward.dv);
    for (int h = 0; h < result.forward.lse.heads; ++h) {
      values.push_back(result.forward.lse.at(h, row));
    }
  }
  return values;
}

RC_GTEST_PROP(Attention, APackEqualsItsSequencesAlone, ()) {
  const Pack pack = *genPack(*genCpSize(), {40, 1, 5});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  const Run whole = run(make_attention_case(pack, shape, options, 1));
  for (int s = 0; s < pack.sequences(); ++s) {
    const Pack alone({pack.sequence(s)});
    const Run one = run(make_attention_case(alone, shape, options, 1, Format::kDouble, 0.0, {s}));
    RC_ASSERT(rows_of(one, alone, 0, true) == rows_of(whole, pack, s, true));
  }
}

RC_GTEST_PROP(Attention, PermutedSequencesGivePermutedResults, ()) {
  const Pack pack = *genPack(*genCpSize(), {40, 2, 5});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  const Run before = run(make_attention_case(pack, shape, options, 1));
  std::vector<int> order(static_cast<std::size_t>(pack.sequences()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + *genInt(1, pack.sequences() - 1), order.end());
  std::swap(order.front(), order.back());
  std::vector<Sequence> sequences;
  for (int s : order) sequences.push_back(pack.sequence(s));
  const Pack permuted(sequences);
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const Run after =
      run(make_attention_case(permuted, shape, options, 1, Format::kDouble, nan, order));
  for (int s = 0; s < pack.sequences(); ++s) {
    RC_ASSERT(rows_of(after, permuted, s, true) ==
              rows_of(before, pack, order[static_cast<std::size_t>(s)], true));
  }
}

RC_GTEST_PROP(Attention, PaddingIsInertAndItsAmountToo, ()) {
  const Pack pack = *genPack(*genCpSize(), {40, 1, 5});
  std::vector<Sequence> sequences;
  for (int s = 0; s < pack.sequences(); ++s) {
    sequences.push_back({pack.real_length(s), pack.padded_length(s) + *genInt(0, 9)});
  }
  const Pack more(sequences);
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  const Run zeros = run(make_attention_case(pack, shape, options, 1, Format::kDouble, 0.0));
  const Run nans = run(make_attention_case(pack, shape, options, 1));
  RC_ASSERT(zeros == nans);
  const Run longer = run(make_attention_case(more, shape, options, 1));
  for (int s = 0; s < pack.sequences(); ++s) {
    RC_ASSERT(rows_of(zeros, pack, s, false) == rows_of(longer, more, s, false));
  }
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = pack.real_length(s); i < pack.padded_length(s); ++i) {
      const std::int64_t row = pack.first_row(s) + i;
      for (int h = 0; h < shape.heads; ++h) {
        RC_ASSERT(std::isinf(nans.forward.lse.at(h, row)));
        RC_ASSERT(nans.forward.lse.at(h, row) < 0);
        for (int d = 0; d < shape.dim; ++d) RC_ASSERT(nans.backward.dq.at(row, h, d) == 0);
        for (int d = 0; d < shape.value_dim; ++d) RC_ASSERT(nans.forward.o.at(row, h, d) == 0);
      }
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int d = 0; d < shape.dim; ++d) RC_ASSERT(nans.backward.dk.at(row, h, d) == 0);
        for (int d = 0; d < shape.value_dim; ++d) RC_ASSERT(nans.backward.dv.at(row, h, d) == 0);
      }
    }
  }
}

RC_GTEST_PROP(Attention, SequencesAreIsolated, ()) {
  const Pack pack = *genPack(*genCpSize(), {40, 2, 5});
  const AttentionShape shape = any_shape();
  const AttentionOptions options = any_options(shape.heads);
  const int changed = *genInt(0, pack.sequences() - 1);
  std::vector<int> contents(static_cast<std::size_t>(pack.sequences()));
  std::iota(contents.begin(), contents.end(), 0);
  const Run before = run(make_attention_case(pack, shape, options, 1));
  contents[static_cast<std::size_t>(changed)] = 1000;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const Run after =
      run(make_attention_case(pack, shape, options, 1, Format::kDouble, nan, contents));
  for (int s = 0; s < pack.sequences(); ++s) {
    const bool same = rows_of(before, pack, s, true) == rows_of(after, pack, s, true);
    RC_ASSERT(same == (s != changed || pack.real_length(s) == 0));
  }
}

RC_GTEST_PROP(Attention, OneHotRoutingReturnsExactlyOneValueRow, ()) {
  // Query i asks for key target(i) with a logit so large that every other probability is zero.
  const Pack pack = *genPack(*genCpSize(), {30, 1, 4});
  const int dim = 30;
  AttentionCase c = make_attention_case(pack, {2, 1, dim, 4}, {*genInt(0, 1) == 1, -1, 1, {}}, 1);
  const int stride = *genInt(1, 7);
  const auto target = [&](std::int64_t i, std::int64_t real) {
    return (i * stride + 3) % (c.options.causal ? i + 1 : real);
  };
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      for (int d = 0; d < dim; ++d) {
        c.k.at(pack.first_row(s) + i, 0, d) = d == i ? 1 : 0;
        for (int h = 0; h < 2; ++h) {
          c.q.at(pack.first_row(s) + i, h, d) = d == target(i, pack.real_length(s)) ? 1e4 : 0;
        }
      }
    }
  }
  const AttentionForward output = attention_forward(pack, c.q, c.k, c.v, c.options);
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const std::int64_t key = pack.first_row(s) + target(i, pack.real_length(s));
      for (int d = 0; d < 4; ++d) {
        RC_ASSERT(output.o.at(pack.first_row(s) + i, 1, d) == c.v.at(key, 0, d));
      }
    }
  }
}

}  // namespace
}  // namespace dyncp
