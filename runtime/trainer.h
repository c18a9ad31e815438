// One rank's training loop: batch, gradients over all ranks, clipping, AdamW. Everything it works
// with is given to it; there is no global state, and no clock.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/adamw.h"
#include "runtime/attention_module.h"
#include "runtime/data_iterator.h"
#include "runtime/global_gradients.h"
#include "runtime/metrics.h"
#include "runtime/transport.h"

namespace dyncp {

struct TrainerOptions {
  AdamWOptions adamw;             // its learning rate is that after the warm-up
  double max_norm = 1.0;          // of all gradients together; 0 = no clipping
  std::int64_t warmup_steps = 0;  // the learning rate rises linearly over the first ones
  bool operator==(const TrainerOptions&) const = default;
};

/// Throws InvalidInput naming the option out of range.
void require_valid(const TrainerOptions& options);

/// All that a step changes.
template <typename T>
struct TrainingState {
  GptParameters<T> parameters;
  AdamWState<T> adamw;  // adamw.steps counts the steps taken

  explicit TrainingState(GptParameters<T> initial)
      : parameters(std::move(initial)), adamw(parameters.config()) {}
  bool operator==(const TrainingState&) const = default;
};

/// Learning rate of the step after `steps_taken` steps.
double learning_rate(const TrainerOptions& options, std::int64_t steps_taken);

/// Clips (in double), rounds to T once and takes an AdamW step. The same bits on every rank that
/// has the same gradients.
template <typename T>
void apply_gradients(TrainingState<T>& state, const MeanGradients& gradients,
                     const TrainerOptions& options);

template <typename T>
class Trainer {
 public:
  /// All references must outlive it; every rank must be given an equal state. Step k (from 1) runs
  /// global batch k - 1, also after a restart from a saved state. Throws InvalidInput for options
  /// out of range.
  Trainer(Transport& transport, AttentionModule<T>& attention, const DataIterator& data,
          TrainingState<T> state, const TrainerOptions& options);

  /// Collective. Throws what the data iterator, the attention and the transport throw; the state is
  /// then that of before the step.
  StepMetrics step();

  const TrainingState<T>& state() const { return state_; }

 private:
  Transport& transport_;
  AttentionModule<T>& attention_;
  const DataIterator& data_;
  TrainingState<T> state_;
  TrainerOptions options_;
};

}  // namespace dyncp
