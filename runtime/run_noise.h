// How far two healthy runs may lie apart: in a metric, at a step. Either measured, from control runs,
// or stated, from a model of rounding (docs/compare.md derives it). Never a bare percentage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/rounding.h"
#include "runtime/metric_names.h"
#include "runtime/metrics_log.h"

namespace dyncp {

/// What the model has to be told about a run.
struct NoiseOptions {
  Format precision = Format::kBf16;  // the narrowest format that activations are rounded to
  int layers = 32;                   // depth of the model
  double parameters = 1e6;           // whose errors average in a gradient norm
  double tokens = 1e4;               // whose errors average in a loss, where the log has no count
};

/// Published bound on the relative error of the gradient of layer `layer` (1..layers; 0: the
/// embedding): k C^(layers + 1 - layer) eps with k = 4, C = 1.03 and eps the spacing of the format
/// (bf16: 2^-7). Source: TTrace, arXiv 2506.09280, theorem 5.3, with the constants of Megatron-LM's
/// functional tests.
double gradient_error_bound(Format precision, int layers, int layer);

/// Largest relative difference between two healthy runs with equal parameters, for `tokens` tokens a
/// step (0: options.tokens): what is left of independent errors in the metric's mean, at 3 standard
/// deviations; for a loss also that of adding up the tokens; and 8 roundings of the reported number.
double static_noise(const NoiseOptions& options, MetricRole role, double tokens);

/// One metric of both runs at the steps they share.
struct AlignedSeries {
  std::vector<std::int64_t> steps;
  std::vector<double> a, b;
  Resolution resolution_a, resolution_b;
};

/// The values at the steps that both series have.
AlignedSeries align(const Series& a, const Series& b);

/// By how much the two numbers of each step may differ because they were written with few digits:
/// half a unit of each.
std::vector<double> written_noise(const AlignedSeries& pair);

/// Allowed |b - a| at each step by the model: written_noise, static_noise of the larger of |a| and
/// the size typical of the series, and what the parameters have moved apart: the relative error of a
/// gradient (gradient_error_bound of layer 0, and that of adding up the tokens) times the root of the
/// summed squares of the changes of a up to the step, each taken once for every step since the last
/// record. Equal parameters are assumed at the first shared step (one
/// record earlier where records are several steps apart and the first is later than step 1).
std::vector<double> model_noise(const AlignedSeries& pair, const NoiseOptions& options,
                                MetricRole role, double tokens);

/// Allowed |b - a| at each step from control runs: written_noise and 4 times the largest difference
/// between run a and a control, or two controls, seen up to the step (and three records on: noise
/// grows smoothly). Empty when no control has the metric at two shared steps, or when controls
/// differ nowhere: then they measure nothing.
std::vector<double> control_noise(const AlignedSeries& pair, const Series& a,
                                  const std::vector<const Series*>& controls);

}  // namespace dyncp
