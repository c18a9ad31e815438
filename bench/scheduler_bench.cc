// Time of the schedulers over 10^3..10^5 sequences on 64, 256 and 1,024 ranks.
// plain_over_fast runs the fast and the plain packing-aware scheduler on the same lengths in the
// same iteration and reports their ratio: that is the claim, absolute times depend on the machine.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/lengths.h"
#include "runtime/schedulers/megatron_balanced.h"
#include "runtime/schedulers/megatron_packing_aware.h"
#include "runtime/schedulers/static_packing.h"

namespace dyncp {
namespace {

constexpr std::int64_t kMaxTokens = 2048;  // per rank
constexpr std::uint64_t kSeed = 1;

ScheduleProblem make_problem(const std::string& family, const benchmark::State& state) {
  ScheduleProblem problem;
  problem.ranks = static_cast<int>(state.range(1));
  problem.max_tokens_per_rank = kMaxTokens;
  problem.lengths =
      find_length_family(family).draw(state.range(0), kMaxTokens, 8 * kMaxTokens, kSeed);
  return problem;
}

void report(benchmark::State& state, std::size_t microbatches) {
  state.counters["microbatches"] = static_cast<double>(microbatches);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void time_scheduler(benchmark::State& state, const Scheduler& scheduler,
                    const std::string& family) {
  const ScheduleProblem problem = make_problem(family, state);
  std::size_t microbatches = 0;
  while (state.KeepRunning()) {
    const Schedule schedule = scheduler.schedule(problem);
    microbatches = schedule.microbatches.size();
    benchmark::DoNotOptimize(microbatches);
  }
  report(state, microbatches);
}

void time_plain_over_fast(benchmark::State& state, const std::string& family) {
  using Clock = std::chrono::steady_clock;
  const ScheduleProblem problem = make_problem(family, state);
  const MegatronPackingAware fast;
  std::chrono::duration<double> fast_time{0};
  std::chrono::duration<double> plain_time{0};
  std::size_t microbatches = 0;
  while (state.KeepRunning()) {
    const auto start = Clock::now();
    const Schedule by_fast = fast.schedule(problem);
    const auto between = Clock::now();
    const Schedule by_plain = plain_packing_aware(problem);
    const auto end = Clock::now();
    if (by_fast != by_plain) {
      state.SkipWithError("the schedules differ");
      return;
    }
    fast_time += between - start;
    plain_time += end - between;
    microbatches = by_fast.microbatches.size();
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["fast_ms"] = 1e3 * fast_time.count() / rounds;
  state.counters["plain_ms"] = 1e3 * plain_time.count() / rounds;
  state.counters["plain/fast"] = plain_time / fast_time;
  report(state, microbatches);
}

const std::vector<std::string> kFamilies = {"lognormal", "bimodal", "uniform", "constant"};

// sequences x ranks
const std::vector<std::vector<std::int64_t>> kGrid = {{1000, 10000, 100000}, {64, 256, 1024}};

void register_benchmarks() {
  static const MegatronPackingAware packing_aware;
  static const MegatronBalanced balanced;
  static const StaticPacking static_packing;
  for (const Scheduler* scheduler :
       {static_cast<const Scheduler*>(&packing_aware), static_cast<const Scheduler*>(&balanced),
        static_cast<const Scheduler*>(&static_packing)}) {
    for (const std::string& family : kFamilies) {
      const std::string name = std::string(scheduler->name()) + "/" + family;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [scheduler, family](benchmark::State& state) {
                                     time_scheduler(state, *scheduler, family);
                                   })
          ->ArgsProduct(kGrid)
          ->ArgNames({"sequences", "ranks"})
          ->MinTime(0.05)
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (const std::string& family : kFamilies) {
    auto* ratio = benchmark::RegisterBenchmark(
        ("plain_over_fast/" + family).c_str(),
        [family](benchmark::State& state) { time_plain_over_fast(state, family); });
    ratio->ArgsProduct({{1000, 10000}, {64, 256, 1024}});
    if (family == "lognormal") ratio->Args({100000, 1024});  // half a minute of the plain one
    ratio->ArgNames({"sequences", "ranks"})->Iterations(1)->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace dyncp

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  dyncp::register_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
