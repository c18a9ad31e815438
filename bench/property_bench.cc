// Throughput of the checks: cases per second of every driver on the smoke cases of the gate, and of the
// scheduler search. Figures are of this machine; compare them within one run.
#include <benchmark/benchmark.h>

#include <string>

#include "runtime/check.h"
#include "runtime/fixtures.h"
#include "runtime/scheduler.h"
#include "runtime/scheduler_search.h"

namespace dyncp {
namespace {

void run_driver(benchmark::State& state, const Driver& driver) {
  const std::vector<Problem> cases = driver.gate_cases(Tier::kSmoke, fixture_length_sets(), 1);
  std::size_t next = 0, failed = 0;
  while (state.KeepRunning()) {
    const CaseResult result = driver.run(cases[next++ % cases.size()]);
    failed += result.status() != Status::kPassed ? 1 : 0;
  }
  if (failed > 0) state.SkipWithError("a case did not pass");
  state.SetItemsProcessed(state.iterations());
}

void run_search(benchmark::State& state, const Scheduler& scheduler) {
  SearchDomain domain;
  domain.execution = scheduler.execution();
  const AskScheduler ask = ask_scheduler(scheduler);
  const CaseSource source(domain, 1);
  std::int64_t next = 0;
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(judge_scheduler(ask, source.draw(next++).problem));
  }
  state.SetItemsProcessed(state.iterations());
}

}  // namespace
}  // namespace dyncp

int main(int argc, char** argv) {
  for (const dyncp::Driver* driver : dyncp::drivers()) {
    if (driver->gate_cases == nullptr) continue;
    benchmark::RegisterBenchmark(("check/" + std::string(driver->name)).c_str(),
                                 [driver](benchmark::State& s) { dyncp::run_driver(s, *driver); });
  }
  for (const dyncp::Scheduler* scheduler : dyncp::schedulers()) {
    benchmark::RegisterBenchmark(
        ("search/" + std::string(scheduler->name())).c_str(),
        [scheduler](benchmark::State& s) { dyncp::run_search(s, *scheduler); });
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
