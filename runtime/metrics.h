// The metrics file of a training run: one JSON object a line and step. No clock reading, date or
// path enters it, so that two runs of the same command compare byte for byte.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dyncp {

/// What one step did; the same on every rank.
struct StepMetrics {
  std::int64_t step = 0;                      // 1 for the first
  double loss = 0;                            // nats a token, before the step
  std::int64_t tokens = 0;                    // that count
  double gradient_norm = 0;                   // before clipping
  double learning_rate = 0;                   // of this step
  std::int64_t real_tokens = 0;               // of the batch
  std::int64_t padded_tokens = 0;             // rows that were run for them
  std::map<int, std::int64_t> cp_sizes = {};  // CP size -> groups that ran
  std::vector<std::pair<std::string, double>> parameter_norms =
      {};  // 2-norms after the step, in order
};

/// {"step":1,"loss":5.5,"tokens":900,"grad_norm":1.2,"learning_rate":0.001,"real_tokens":910,
///  "padded_tokens":928,"cp_sizes":{"1":3,"4":2},"parameter_norms":{"embedding.weight":128.1,...}}
/// and a line end. Doubles are printed so that reading them gives the same bits; what is not finite
/// becomes null.
std::string metrics_line(const StepMetrics& metrics);

/// The lines of steps 1..steps of the metrics file at `path`, whatever follows them (a step that is
/// done again, half a line) left out. Throws InvalidInput naming the path when it cannot be read or
/// does not begin with these lines.
std::string metrics_lines_until(const std::string& path, std::int64_t steps);

}  // namespace dyncp
