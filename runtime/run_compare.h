// Do two training runs agree? Judges two logs metric by metric and names the kind of difference. Pure
// functions on what the logs say; docs/compare.md explains every rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/metric_names.h"
#include "runtime/metrics_log.h"
#include "runtime/run_noise.h"
#include "runtime/series_shape.h"

namespace dyncp {

struct RunCompareOptions {
  NoiseOptions noise;
  KnownSizes
      sizes;  // to name factors after; 0 = taken from cp_sizes/* of the logs where they have it
  std::vector<std::string> require;      // metrics that both logs must have; they always count
  std::optional<double> max_difference;  // largest |b - a| of every loss that counts
};

/// One metric of both runs. Differences are b - a.
struct MetricComparison {
  std::string name;            // canonical
  std::string name_a, name_b;  // as the logs have it
  MetricRole role = MetricRole::kOther;
  bool counts = false;          // takes part in the verdict
  std::string not_counted;      // why not; empty when it counts
  AlignedSeries pair;           // every shared step
  std::vector<double> allowed;  // by step; empty when there is no noise floor for this metric
  bool from_control = false;    // where the floor comes from
  std::int64_t missing_a = 0;   // steps that only b has, although a has a record there
  std::int64_t missing_b = 0;   // and the reverse
  std::int64_t first_missing = -1;
  std::int64_t not_finite_a = 0, not_finite_b = 0;
  std::int64_t first_not_finite = -1;  // step, of either
  std::size_t compared = 0;            // shared steps with two finite values
  std::int64_t beyond = 0;             // of those, with a difference above the floor
  std::int64_t first_beyond = -1;      // step; -1 = none
  double difference_there = 0, allowed_there = 0;
  double max_difference = 0, mean_difference = 0;  // of |b - a|
  std::int64_t max_step = -1;
  double pearson = 0;
  double ratio = 1;             // alpha: the middle of b / a
  double ratio_scatter = 0;     // robust
  double first_ratio = 1;       // at the first shared step
  bool constant_ratio = false;  // one factor explains all of it, and it is not 1
  std::string factor;           // its name, see name_factor; empty = none fits
  Trend trend = Trend::kNone;
  bool differs = false;
  std::string sentence;  // what is wrong, or that nothing is
};

enum class RunVerdict { kAgree, kDiffer, kDifferentData };

/// "AGREE", "DIFFER", "DIFFERENT DATA".
std::string_view to_string(RunVerdict verdict);

/// What kind of difference it is, as far as the logs tell.
enum class RunDifference {
  kNone,
  kNotFinite,      // NaN or infinity
  kDifferentData,  // the batches are not the same
  kShifted,        // the same run, steps counted from another number
  kTokensScaled,   // one run counts a multiple of the other's tokens
  kScale,          // loss and gradient by one factor
  kLossScale,      // the reported loss only
  kGradientScale,  // the gradient only (loss-times-cp, gradients averaged)
  kNormAfterClip,  // a gradient norm that was taken after clipping, or clipped twice
  kDroppedShard,   // part of the tokens is missing
  kLocalMean,      // the same tokens, weighted otherwise
  kGradient,       // the loss begins equal, the gradient does not, by no one factor
  kDeparture,      // both begin equal and move apart
  kOther
};

/// "gradient scale", "local mean", ...
std::string_view to_string(RunDifference difference);

struct RunComparison {
  std::string path_a, path_b, format_a, format_b;
  RunVerdict verdict = RunVerdict::kAgree;
  RunDifference difference = RunDifference::kNone;
  std::string sentence;               // the verdict in one sentence
  std::vector<std::string> first;     // token counts, normalisation: to be read before the rest
  std::vector<std::string> notes;     // about the logs: restarts, unreadable lines, ...
  std::vector<std::string> mistrust;  // why AGREE would prove less than it seems
  std::string gradient_norm;          // which gradient norm was compared, before or after clipping
  std::string floor;                  // where the noise floor comes from
  std::vector<std::int64_t> steps;    // first and last shared step
  std::int64_t shared_steps = 0;
  std::vector<MetricComparison> metrics;  // those that count first, worst first
};

/// Judges run b against run a, with repeated runs of a's kind as controls. Throws InvalidInput, one
/// line: no metric that both have, no step in common, a required metric that nobody has.
RunComparison compare_runs(const MetricsLog& a, const MetricsLog& b,
                           const std::vector<MetricsLog>& controls,
                           const RunCompareOptions& options);

}  // namespace dyncp
