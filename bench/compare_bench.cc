// How fast logs are read and judged: two Megatron logs of 10^6 lines, both read and compared, as
// `dyncp compare` does it. Figures are of this machine.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "runtime/metrics_readers/read_metrics.h"

namespace dyncp {
namespace {

// `lines` iterations of a falling loss; `offset` moves the last digit written.
std::string megatron_log(std::int64_t lines, double offset) {
  std::string text;
  text.reserve(static_cast<std::size_t>(lines) * 340);
  for (std::int64_t i = 1; i <= lines; ++i) {
    const double wave = std::sin(static_cast<double>(i) * 0.7);
    fmt::format_to(
        std::back_inserter(text),
        " [2031-02-03 04:05:06] iteration {:8d}/{:8d} | consumed samples: {:12d} | elapsed "
        "time per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): {:.1f} | "
        "learning rate: {:.6E} | global batch size: {:5d} | lm loss: {:.6E} | loss scale: "
        "{:.1f} | grad norm: {:.3f} | num zeros: {} | number of skipped iterations: {:3d} | "
        "number of nan iterations: {:3d} |\n",
        i, lines, i * 256, 401.5 + wave, 312.5 - wave, 1e-4, 256,
        2 + 8 / std::sqrt(static_cast<double>(i)) + 0.05 * wave + offset, 1.0,
        1.5 + 0.3 * wave + offset, 12, 0, 0);
  }
  return text;
}

void read_one_log(benchmark::State& state) {
  const std::string text = megatron_log(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(parse_metrics(text, "log"));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(text.size()));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(read_one_log)->Arg(1000000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dyncp

BENCHMARK_MAIN();
