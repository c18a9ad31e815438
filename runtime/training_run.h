// One rank's part of `dyncp train`: builds the collaborators, takes the steps, and on rank 0 keeps
// metrics, timings and checkpoints. An interrupted run that goes on from any of its checkpoints
// leaves the same metrics file, byte for byte, as one that was not interrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/data_iterator.h"
#include "runtime/gpt_parameters.h"
#include "runtime/trainer.h"
#include "runtime/transport.h"

namespace dyncp {

struct TrainingRun {
  DataOptions data;
  TrainerOptions trainer;
  GptConfig model;
  std::int64_t steps = 20;  // in all, those before a checkpoint included
  std::uint64_t seed = 1;   // of the initial weights
  std::string metrics;      // files; empty = none
  std::string timings;      // {"step":1,"seconds":0.5,"tokens_per_second":2000} a line and step
  std::string checkpoint;   // written after every checkpoint_every steps and after the last
  std::int64_t checkpoint_every = 0;  // 0 = after the last step alone
  std::string resume;                 // a checkpoint to go on from
  /// Called on rank 0 after each step; null: not called.
  std::function<void(const StepMetrics&)> on_step;
};

/// Throws InvalidInput or Infeasible naming the option that is out of range or does not go with the
/// others.
void require_valid(const TrainingRun& run, int ranks);

/// Takes the steps of one rank. T is float or double. Collective. The CP size a module is built
/// with is data.cp; groups are those of data.group_policy (bshd: of every divisor of the ranks).
/// Throws InvalidInput for a checkpoint of another run (other data, seed, model, options or ranks:
/// the message names what differs) or when metrics lack the lines before it, std::runtime_error on
/// every rank when a loss is not finite, and what Trainer::step throws. Metrics of a step are in
/// their file before the checkpoint of that step is.
template <typename T>
void run_training(Transport& transport, const DocumentSource& source, const TrainingRun& run);

}  // namespace dyncp
