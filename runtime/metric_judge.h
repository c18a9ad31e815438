// One metric of two runs: measures and what they say. Used by run_compare.
#pragma once

#include <vector>

#include "runtime/run_compare.h"

namespace dyncp {

/// What judging one metric needs beside the two series.
struct MetricContext {
  const Series* a = nullptr;
  const Series* b = nullptr;
  std::vector<const Series*> controls;             // the same metric in the control runs
  std::vector<std::int64_t> records_a, records_b;  // steps at which a log has anything
  double tokens = 0;                               // of a step, where the log counts them; else 0
  const RunCompareOptions* options = nullptr;
};

/// Measures and judges; `counts` and `not_counted` are left to the caller.
MetricComparison judge_metric(const MetricContext& context, MetricRole role);

/// The value that a norm is clipped at, when `clipped` looks like min(`free`, value): at many steps it
/// has one and the same largest value while the other lies above and varies. 0 = it does not.
double clip_value(const std::vector<double>& free, const std::vector<double>& clipped);

}  // namespace dyncp
