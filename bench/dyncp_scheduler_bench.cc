// Speed of the dyncp scheduler: nearly linear in the sequences at a fixed number of ranks, and the
// sizes that docs/scheduling.md promises.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

#include "reference/cost.h"
#include "runtime/schedulers/dyncp.h"

namespace dyncp {
namespace {

// Lognormal lengths of mean 1024 and sigma 1.5 in 128..8192, every length on its own.
ScheduleProblem lognormal_problem(int ranks, std::int64_t sequences) {
  std::mt19937_64 engine(7);
  const auto uniform = [&engine] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.max_tokens_per_rank = 2048;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    const double normal = radius * std::cos(2.0 * std::numbers::pi * uniform());
    const double length = 1024 * std::exp(-1.125 + 1.5 * normal);
    problem.lengths.push_back(static_cast<std::int64_t>(std::fmin(8192, std::fmax(128, length))));
  }
  return problem;
}

void schedule(benchmark::State& state, int ranks, Effort effort, Barrier barrier) {
  const ScheduleProblem problem = lognormal_problem(ranks, state.range(0));
  const DyncpScheduler scheduler({CostModel::flat(), barrier, effort});
  for (auto _ : state) benchmark::DoNotOptimize(scheduler.schedule(problem));
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetComplexityN(state.range(0));
}

BENCHMARK_CAPTURE(schedule, 64_ranks, 64, Effort::kDefault, Barrier::kNone)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(schedule, 64_ranks_barrier, 64, Effort::kDefault, Barrier::kMicrobatch)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(schedule, 64_ranks_best, 64, Effort::kBest, Barrier::kNone)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(schedule, 1024_ranks, 1024, Effort::kDefault, Barrier::kNone)
    ->RangeMultiplier(10)
    ->Range(1'000, 1'000'000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

void bound(benchmark::State& state) {
  const ScheduleProblem problem = lognormal_problem(64, state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(lower_bound(problem, CostModel::flat()));
}
BENCHMARK(bound)->RangeMultiplier(10)->Range(100, 100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dyncp

BENCHMARK_MAIN();
