// Names the kind of difference between two runs from the judged metrics. Used by run_compare.
#pragma once

#include <vector>

#include "runtime/run_compare.h"

namespace dyncp {

/// The training loss among the metrics that count, or null.
const MetricComparison* training_loss(const std::vector<MetricComparison>& metrics);
/// The gradient norm among the metrics that count, before clipping where there is one; or null.
const MetricComparison* gradient_norm(const std::vector<MetricComparison>& metrics);
/// The token count of the steps, or null.
const MetricComparison* token_count(const std::vector<MetricComparison>& metrics);

/// Whether the losses rise and fall together from step to step, as they do on the same batches.
struct Fluctuations {
  bool visible = false;  // enough steps, and fluctuations well above the noise of equal parameters
  double correlation = 0;  // of second differences, by rank
};
Fluctuations fluctuations(const MetricComparison& loss);

/// Fills in verdict, difference and sentence, and adds to `first` what concerns token counts and
/// normalisation.
void name_difference(const MetricsLog& a, const MetricsLog& b, const RunCompareOptions& options,
                     RunComparison& result);

}  // namespace dyncp
