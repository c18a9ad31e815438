// Reads the log of a run, whatever its format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics_log.h"

namespace dyncp {

/// A pattern for logs of no known format: `--map loss='loss=(\S+)'`, `--map step,loss='(\d+): (\S+)'`.
struct MetricPattern {
  std::vector<std::string> names;  // one a group; "step" sets the step of what follows
  std::string pattern;             // ECMAScript regular expression
};

/// Takes NAME[,NAME...]=PATTERN apart. Throws InvalidInput, one line: no '=', an empty name, no
/// regular expression, another number of groups than of names.
MetricPattern parse_metric_pattern(std::string_view text);

/// The metrics of a file held in memory. Patterns come first: where one of them matches, they alone
/// read the file. Else the format is recognised by content. Throws InvalidInput naming `path` when
/// nothing in it is a metric.
MetricsLog parse_metrics(std::string_view bytes, const std::string& path,
                         const std::vector<MetricPattern>& patterns = {});

/// parse_metrics of a file; or, of a folder, of all TensorBoard event files in it, in the order of
/// their names. Throws InvalidInput naming the path when it cannot be read.
MetricsLog read_metrics(const std::string& path, const std::vector<MetricPattern>& patterns = {});

}  // namespace dyncp
