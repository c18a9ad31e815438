// The proved bounds hold for every shape, mask, magnitude, size, format and accumulation.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "properties/cases.h"
#include "properties/generators.h"
#include "reference/numerics.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

const DefaultCases kCases(150);

RC_GTEST_PROP(Numerics, ProvedBoundsHold, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {90, 1, 4});
  const int kv_heads = *genInt(1, 2);
  const AttentionShape shape{kv_heads * *genInt(1, 2), kv_heads, *genInt(1, 24), *genInt(1, 24)};
  AttentionOptions options;
  options.causal = *genInt(0, 2) > 0;
  options.window = *genInt(0, 2) == 0 ? *genInt(0, 20) : -1;
  if (*genInt(0, 2) == 0) options.sink = make_sink(shape.heads, 3);
  const auto arithmetic = std::array{Arithmetic::kDouble, Arithmetic::kFloat, Arithmetic::kBf16,
                                     Arithmetic::kFp16}[std::size_t(*genInt(0, 3))];
  const auto accumulation = std::array{Accumulation::kWide, Accumulation::kRoundedPartials,
                                       Accumulation::kRounded}[std::size_t(*genInt(0, 2))];
  AttentionCase c =
      make_attention_case(pack, shape, options, static_cast<std::uint64_t>(*genInt(0, 1000)),
                          storage_format(arithmetic));
  // Powers of two keep the inputs exact in every format. Large ones make peaked rows.
  const double q_factor = std::ldexp(1.0, *genInt(-4, 5));
  const double v_factor = std::ldexp(1.0, *genInt(-8, 8));
  for (double& value : c.q.data) value *= q_factor;
  for (double& value : c.v.data) value *= v_factor;
  for (Tensor<double>* tensor : {&c.q, &c.v}) {
    *tensor = round_to(storage_format(arithmetic), *tensor);  // fp16 subnormals
  }
  const RingPlan plan = make_ring_plan(pack, size, options.causal, options.window);
  RingOptions ring;
  ring.sink = options.sink;
  // A sink must be a number of the accumulator format on both sides.
  for (double& sink : c.options.sink) sink = round_to(Format::kFloat, sink);
  ring.sink = c.options.sink;
  ring.arithmetic = arithmetic;
  ring.accumulation = accumulation;
  const RingResult result = ring_attention(plan, c.q, c.k, c.v, c.d_o, ring);
  const auto forward = attention_forward(pack, c.q, c.k, c.v, c.options);
  const auto backward = attention_backward(pack, c.q, c.k, c.v, forward, c.d_o, c.options);
  const auto precision = ring_precision(plan, arithmetic, accumulation);
  const auto scales = attention_scales(pack, c.q, c.k, c.v, forward, c.d_o, c.options, precision);
  const auto hold = [&](const char* name, const Tensor<double>& got, const Tensor<double>& expected,
                        const ErrorScale& scale) {
    const TensorError error = compare(got, expected, scale, scales.real, precision);
    RC_LOG() << name << " ratio " << error.bound_ratio << " at row " << error.worst.row
             << " expected " << error.expected << " got " << error.got << "\n";
    RC_ASSERT(error.holds());
  };
  hold("o", result.output.o, forward.o, scales.o);
  hold("dq", result.gradients.dq, backward.dq, scales.dq);
  hold("dk", result.gradients.dk, backward.dk, scales.dk);
  hold("dv", result.gradients.dv, backward.dv, scales.dv);
  const double u = format_limits(precision.accumulator).unit_roundoff();
  for (int h = 0; h < shape.heads; ++h) {
    for (std::int64_t row = 0; row < pack.padded_tokens(); ++row) {
      if (!scales.real[std::size_t(row)]) continue;
      RC_ASSERT(std::fabs(result.output.lse.at(h, row) - forward.lse.at(h, row)) <=
                1.1 * (u + 0x1p-53) * scales.lse.at(h, row));
    }
  }
}

RC_GTEST_PROP(Numerics, ScalesIgnorePadding, ()) {
  const Pack pack = *genPack(*genCpSize(), {40, 1, 4});
  const AttentionShape shape{2, 1, 4, 3};
  const auto scales = [&](double padding) {
    const AttentionCase c = make_attention_case(pack, shape, {}, 1, Format::kDouble, padding);
    return attention_scales(pack, c.q, c.k, c.v, attention_forward(pack, c.q, c.k, c.v, {}), c.d_o,
                            {}, {});
  };
  const auto nan = scales(std::numeric_limits<double>::quiet_NaN());
  const auto zero = scales(0.0);
  const auto same = [](const ErrorScale& a, const ErrorScale& b) {
    return a.storage == b.storage && a.accumulator == b.accumulator && a.underflow == b.underflow &&
           a.walk == b.walk;
  };
  RC_ASSERT(same(nan.o, zero.o));
  RC_ASSERT(same(nan.dq, zero.dq));
  RC_ASSERT(same(nan.dk, zero.dk));
  RC_ASSERT(same(nan.dv, zero.dv));
  RC_ASSERT(nan.lse == zero.lse);
}

}  // namespace
}  // namespace dyncp
