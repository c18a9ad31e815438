// Schedulers side by side: schedulers x length sets x rank domains, over many draws, judged by the
// same checker, the same cost model and the same lower bound. Text, JSON and one HTML page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/cost.h"
#include "runtime/check.h"
#include "runtime/spread.h"
#include "runtime/tuned_scheduler.h"

namespace dyncp {

struct CompareOptions {
  std::vector<std::string> schedulers;  // names, all known
  std::vector<LengthSet> sets;
  std::vector<int> ranks;     // rank domains
  ScheduleProblem prototype;  // every field but lengths and ranks
  std::int64_t sequences_per_rank =
      8;  // a draw takes this many a rank; 0 = the whole set, one draw
  int draws = 20;
  std::uint64_t seed = 1;
  CostModel cost;                  // judges all, and is what tunable schedulers are told
  std::string cost_name = "flat";  // as the user gave it
  Effort effort = Effort::kDefault;
};

/// One scheduler on one length set and domain. Figures are over the draws it answered validly.
struct CompareRow {
  std::string set;
  int ranks = 0;
  std::string scheduler;
  int draws = 0;
  int refused = 0;  // it said that there is no schedule
  int invalid = 0;  // its schedule broke a rule
  std::string first_violation;
  Spread over_bound;             // makespan / lower bound, event-driven
  Spread over_bound_barrier;     // the same when ranks meet between microbatches; tunable
                                 // schedulers answer once more, for this objective
  double mean_makespan = 0;      // us of the cost model, event-driven
  double idle_share = 0;         // mean
  double padding_waste = 0;      // mean
  double microbatches = 0;       // mean
  double order_sensitivity = 0;  // most by which shuffling the input changed the makespan, relative
  bool deterministic = true;     // the same input twice gave the same schedule
};

struct Comparison {
  CompareOptions options;
  std::vector<CompareRow> rows;  // by set, domain, scheduler
  std::string timelines;         // HTML: a Gantt chart per scheduler, first set and domain
};

/// Runs the comparison. Lengths above what a domain holds are cut to it, and counted in no row:
/// every scheduler sees the same draws. Throws InvalidInput for unknown names or empty lists.
Comparison compare_schedulers(const CompareOptions& options);

/// A table a person can read, with what the figures mean and where dynamic CP gains nothing.
std::string format_comparison(const Comparison& comparison);

/// Options and rows.
std::string comparison_to_json(const Comparison& comparison);

/// One self-contained page: table, bar charts (when built with Chart.js), timelines.
std::string comparison_to_html(const Comparison& comparison);

}  // namespace dyncp
