// Measures the dyncp scheduler against lower bounds and rivals, and prints the tables of
// docs/scheduling.md: makespan over the lower bound (mean, p99, worst), the makespan of each rival
// over ours (mean, least), processor time a case. Every draw is checked for validity; a rival's
// invalid answers and refusals are left out and counted. Draws derive from --seed alone.
//   build/host/bench/schedule_quality --set lognormal --draws 60 --effort best
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "reference/cost.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/dyncp.h"
#include "runtime/schedulers/megatron_packing_aware.h"
#include "runtime/schedulers/static_best.h"
#include "runtime/schedulers/static_packing.h"
#include "runtime/spread.h"

namespace dyncp {
namespace {

// Random values derived by hand: the standard's distributions differ between libraries.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

enum class Family { kLognormal, kPareto, kBimodal };

// One length, before padding to the domain.
double draw_length(Family family, Draws& draws) {
  switch (family) {
    case Family::kLognormal:  // mean 1024, sigma 1.5, 128..8192
      return std::clamp(1024 * std::exp(-1.125 + 1.5 * draws.normal()), 128.0, 8192.0);
    case Family::kPareto: {  // alpha 0.8, 1k..256k
      const double alpha = 0.8;
      const double mass = 1 - std::pow(1024.0 / 262144.0, alpha);
      return std::min(262144.0, 1024 * std::pow(1 - draws.uniform() * mass, -1 / alpha));
    }
    case Family::kBimodal:  // 95 % chat of mean 700 up to 8192, 5 % documents of 32k..128k
      if (draws.uniform() < 0.95) {
        return std::clamp(700 * std::exp(-0.5 + draws.normal()), 64.0, 8192.0);
      }
      return 32768 + draws.uniform() * 98304;
  }
  return 0;
}

struct Cell {
  Family family = Family::kLognormal;
  int ranks = 8;
  int sequences = 16;
  std::int64_t max_tokens = 2048;
  int multiple = 1;
  CostModel cost = CostModel::flat();
};

const char* name_of(Family family) {
  switch (family) {
    case Family::kLognormal:
      return "lognormal";
    case Family::kPareto:
      return "pareto";
    case Family::kBimodal:
      return "bimodal";
  }
  return "?";
}

ScheduleProblem draw(const Cell& cell, Draws& draws) {
  ScheduleProblem problem;
  problem.ranks = cell.ranks;
  problem.max_tokens_per_rank = cell.max_tokens;
  problem.microbatch_multiple = cell.multiple;
  for (int i = 0; i < cell.sequences; ++i) {
    const auto length = static_cast<std::int64_t>(std::ceil(draw_length(cell.family, draws)));
    problem.lengths.push_back(round_up(length, padding_multiple(cell.ranks, 1)));
  }
  return problem;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Adds the rival's makespan over ours; nothing when the rival has no valid schedule.
void add_ratio(std::vector<double>& ratios, const Scheduler& rival, const ScheduleProblem& problem,
               const CostModel& cost, Barrier barrier, double ours) {
  try {
    const Schedule schedule = rival.schedule(problem);
    if (!check_schedule(problem, schedule).empty()) return;
    ratios.push_back(simulated_makespan(problem, schedule, cost, barrier) / ours);
  } catch (const Infeasible&) {
    // It has no answer here.
  }
}

// Returns false when one of our schedules was invalid.
bool measure(const Cell& cell, int draws, std::uint64_t seed, const DyncpOptions& base) {
  Draws source(seed + static_cast<std::uint64_t>(cell.ranks) * 1000 +
               static_cast<std::uint64_t>(cell.sequences));
  std::vector<double> over_bound, megatron, need, best_static, milliseconds;
  int refused = 0;
  bool valid = true;
  for (int i = 0; i < draws; ++i) {
    const ScheduleProblem problem = draw(cell, source);
    DyncpOptions options = base;
    options.cost = cell.cost;
    Schedule schedule;
    const double start = processor_seconds();
    try {
      schedule = DyncpScheduler(options).schedule(problem);
    } catch (const Infeasible&) {
      ++refused;
      continue;
    }
    milliseconds.push_back((processor_seconds() - start) * 1e3);
    for (const Violation& violation : check_schedule(problem, schedule)) {
      fmt::print(stderr, "invalid: {}\n", violation.sentence);
      valid = false;
    }
    const double makespan = simulated_makespan(problem, schedule, cell.cost, base.barrier);
    over_bound.push_back(makespan / lower_bound(problem, cell.cost));
    add_ratio(megatron, MegatronPackingAware(), problem, cell.cost, base.barrier, makespan);
    add_ratio(need, StaticPacking(), problem, cell.cost, base.barrier, makespan);
    add_ratio(best_static, StaticBest(cell.cost, base.barrier), problem, cell.cost, base.barrier,
              makespan);
  }
  const Spread ours = spread_of(over_bound);
  const Spread time = spread_of(milliseconds);
  const auto rival = [&](const std::vector<double>& ratios) {
    const Spread spread = spread_of(ratios);
    const std::size_t missing = ours.count - spread.count;
    return fmt::format("{:.3f} (least {:.3f}{})", spread.mean, spread.least,
                       missing > 0 ? fmt::format(", {} without", missing) : "");
  };
  fmt::print("| {} {},{} | {:.4f} | {:.4f} | {:.4f} | {} | {} | {} | {:.0f} ({:.0f}) |{}\n",
             name_of(cell.family), cell.ranks, cell.sequences, ours.mean, ours.p99, ours.worst,
             rival(megatron), rival(need), rival(best_static), time.mean, time.worst,
             refused > 0 ? fmt::format(" {} refused", refused) : "");
  std::fflush(stdout);
  return valid;
}

std::vector<Cell> cells_of(const std::string& set) {
  std::vector<Cell> cells;
  if (set == "lognormal" || set == "multiple") {
    for (int ranks : {8, 16, 32, 64}) {
      for (int per_rank : {2, 8}) {
        Cell cell;
        cell.ranks = ranks;
        cell.sequences = ranks * per_rank;
        cell.multiple = set == "multiple" ? 4 : 1;
        cells.push_back(cell);
      }
    }
    return cells;
  }
  for (Family family : {Family::kPareto, Family::kBimodal}) {
    for (int ranks : {32, 64}) {
      for (int sequences : {256, 1024}) {
        Cell cell{family, ranks, sequences, 16384, 1, CostModel::flat()};
        if (set == "long-two-tier") cell.cost = CostModel::two_tier();
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

int run(int argc, char** argv) {
  CLI::App app{"Quality of the dyncp scheduler on drawn length sets, as a table"};
  std::string set = "lognormal";
  std::string effort = "default";
  int draws = 20;
  std::uint64_t seed = 1;
  bool barrier = false;
  app.add_option("--set", set, "lognormal, multiple, long or long-two-tier")
      ->check(CLI::IsMember({"lognormal", "multiple", "long", "long-two-tier"}));
  app.add_option("--effort", effort, "fast, default or best")
      ->check(CLI::IsMember({"fast", "default", "best"}));
  app.add_option("--draws", draws, "draws per cell")->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", seed, "of the draws");
  app.add_flag("--barrier", barrier, "all ranks wait for each other after every microbatch");
  CLI11_PARSE(app, argc, argv);

  DyncpOptions options;
  options.effort = parse_effort(effort);
  options.barrier = barrier ? Barrier::kMicrobatch : Barrier::kNone;
  fmt::print("{}, effort {}, {} draws a cell, seed {}{}\n\n", set, effort, draws, seed,
             barrier ? ", barrier after every microbatch" : "");
  fmt::print(
      "| ranks,sequences | dyncp / bound, mean | p99 | worst | megatron-packing-aware / dyncp | "
      "static-packing / dyncp | static-best / dyncp | ms, mean (most) |\n"
      "|---|---|---|---|---|---|---|---|\n");
  bool valid = true;
  for (const Cell& cell : cells_of(set)) valid = measure(cell, draws, seed, options) && valid;
  return valid ? 0 : 1;
}

}  // namespace
}  // namespace dyncp

int main(int argc, char** argv) { return dyncp::run(argc, argv); }
