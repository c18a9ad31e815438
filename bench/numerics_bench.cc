// Measures the constants of reference/numerics.h that are calibrated rather than proved: the
// largest row statistic R and the largest relative LSE error of correct executions, over storage
// formats, accumulations, CP sizes, dimensions and input magnitudes. Prints one line per
// configuration; docs/numerics.md quotes them.
//   numerics_bench [longest sequence, default 512] [seeds, default 2]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "reference/numerics.h"
#include "reference/ring.h"
#include "runtime/attention_case.h"

namespace dyncp {
namespace {

struct Largest {
  double bound = 0, statistic = 0;
  void add(const TensorError& error) {
    bound = std::max(bound, error.bound_ratio);
    statistic = std::max(statistic, error.row_statistic);
  }
};

void measure(std::int64_t length, int seeds, Arithmetic arithmetic, Accumulation accumulation,
             int size, int dim, double magnitude) {
  Largest o, dq, dk, dv;
  double lse = 0, lse_ratio = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const Pack pack = Pack::padded_to({length, length / 3 + 1, 7, 1}, padding_multiple(size, 1));
    AttentionCase input = make_attention_case(pack, {2, 1, dim, dim}, {}, std::uint64_t(seed),
                                              storage_format(arithmetic));
    for (double& value : input.q.data) value *= magnitude;
    const RingPlan plan = make_ring_plan(pack, size, true);
    RingOptions options;
    options.arithmetic = arithmetic;
    options.accumulation = accumulation;
    const auto precision = ring_precision(plan, arithmetic, accumulation);
    const auto reference = attention_forward(pack, input.q, input.k, input.v, input.options);
    const auto gradients =
        attention_backward(pack, input.q, input.k, input.v, reference, input.d_o, input.options);
    const auto scales = attention_scales(pack, input.q, input.k, input.v, reference, input.d_o,
                                         input.options, precision);
    const auto result = ring_attention(plan, input.q, input.k, input.v, input.d_o, options);
    o.add(compare(result.output.o, reference.o, scales.o, scales.real, precision));
    dq.add(compare(result.gradients.dq, gradients.dq, scales.dq, scales.real, precision));
    dk.add(compare(result.gradients.dk, gradients.dk, scales.dk, scales.real, precision));
    dv.add(compare(result.gradients.dv, gradients.dv, scales.dv, scales.real, precision));
    const auto error = compare_lse(result.output.lse, reference.lse, scales, precision.accumulator);
    lse = std::max(lse, error.relative);
    lse_ratio = std::max(lse_ratio, error.ratio);
  }
  fmt::print(
      "{:6} {:16} cp {} dim {:3} q*{:<4} R: O {:.2f} dQ {:.2f} dK {:.2f} dV {:.2f}   bound: O "
      "{:.3f} dQ {:.3f} dK {:.3f} dV {:.3f}   LSE {:.1e} ({:.2f} of allowed)\n",
      to_string(arithmetic), to_string(accumulation), size, dim, magnitude, o.statistic,
      dq.statistic, dk.statistic, dv.statistic, o.bound, dq.bound, dk.bound, dv.bound, lse,
      lse_ratio);
}

}  // namespace
}  // namespace dyncp

int main(int argc, char** argv) {
  using namespace dyncp;
  const std::int64_t length = argc > 1 ? std::max(1, std::atoi(argv[1])) : 512;
  const int seeds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  for (Arithmetic arithmetic :
       {Arithmetic::kBf16, Arithmetic::kFp16, Arithmetic::kFloat, Arithmetic::kDouble}) {
    const bool rounded = arithmetic == Arithmetic::kBf16 || arithmetic == Arithmetic::kFp16;
    for (Accumulation accumulation :
         {Accumulation::kWide, Accumulation::kRoundedPartials, Accumulation::kRounded}) {
      if (!rounded && accumulation != Accumulation::kWide) continue;
      for (int size : {1, 2, 4, 8}) {
        for (int dim : {4, 16, 64, 128})
          measure(length, seeds, arithmetic, accumulation, size, dim, 1);
      }
      measure(length, seeds, arithmetic, accumulation, 4, 64, 0.125);
      measure(length, seeds, arithmetic, accumulation, 4, 64, 8);
    }
  }
  return 0;
}
