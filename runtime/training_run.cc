#include "runtime/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "reference/error.h"
#include "runtime/attention_module.h"
#include "runtime/checkpoint.h"
#include "runtime/files.h"
#include "runtime/group_collection.h"
#include "runtime/line_file.h"

namespace dyncp {
namespace {

// What a run must have in common with the one that wrote a checkpoint, apart from the model (which
// the checkpoint compares itself) and the number of steps.
std::map<std::string, std::string> identity_of(const DocumentSource& source, const TrainingRun& run,
                                               int ranks) {
  const DataOptions& data = run.data;
  const AdamWOptions& adamw = run.trainer.adamw;
  return {
      {"documents", fmt::format("{:016x}", source.fingerprint())},
      {"ranks", fmt::format("{}", ranks)},
      {"layout", std::string(to_string(data.layout))},
      {"scheduler", data.scheduler != nullptr ? std::string(data.scheduler->name()) : "none"},
      {"cp", fmt::format("{}", data.cp)},
      {"max_tokens", fmt::format("{}", data.max_tokens_per_rank)},
      {"max_length", fmt::format("{}", data.longest(ranks))},
      {"global_batch", fmt::format("{}", data.global_batch)},
      {"data_seed", fmt::format("{}", data.seed)},
      {"optimizer",
       fmt::format("rate {} betas {} {} epsilon {} decay {} clip {} warm-up {}",
                   adamw.learning_rate, adamw.beta1, adamw.beta2, adamw.epsilon, adamw.weight_decay,
                   run.trainer.max_norm, run.trainer.warmup_steps)},
  };
}

template <typename T>
TrainingState<T> resumed_state(const TrainingRun& run,
                               const std::map<std::string, std::string>& identity) {
  Checkpoint<T> checkpoint = read_checkpoint<T>(run.resume, run.model);
  const auto refuse = [&run](const std::string& what, const std::string& saved,
                             const std::string& now) {
    throw InvalidInput(fmt::format("{}: is of another run: {} was {}, now {}", one_line(run.resume),
                                   what, saved, now));
  };
  for (const auto& [key, value] : identity) {
    const auto saved = checkpoint.run.find(key);
    if (saved == checkpoint.run.end()) refuse(key, "not recorded", value);
    if (saved->second != value) refuse(key, saved->second, value);
  }
  if (checkpoint.seed != run.seed) {
    refuse("seed", std::to_string(checkpoint.seed), std::to_string(run.seed));
  }
  if (checkpoint.moments.steps > run.steps) {
    throw InvalidInput(fmt::format("{}: was written after step {}, and the run has {} steps",
                                   one_line(run.resume), checkpoint.moments.steps, run.steps));
  }
  TrainingState<T> state(std::move(checkpoint.parameters));
  state.adamw = std::move(checkpoint.moments);
  return state;
}

template <typename T>
void save(const TrainingState<T>& state, const TrainingRun& run,
          const std::map<std::string, std::string>& identity) {
  Checkpoint<T> checkpoint(run.model);
  checkpoint.parameters = state.parameters;
  checkpoint.moments = state.adamw;
  checkpoint.seed = run.seed;
  checkpoint.data_position = state.adamw.steps;
  checkpoint.run = identity;
  write_checkpoint(run.checkpoint, checkpoint);
}

// The files that rank 0 keeps.
class RunFiles {
 public:
  RunFiles(const TrainingRun& run, std::int64_t steps_taken) {
    if (!run.metrics.empty()) {
      metrics_.emplace(run.metrics, steps_taken > 0 ? metrics_lines_until(run.metrics, steps_taken)
                                                    : std::string());
    }
    if (!run.timings.empty()) timings_.emplace(run.timings);
  }

  void add(const StepMetrics& metrics, double seconds) {
    if (metrics_) metrics_->append(metrics_line(metrics));
    if (timings_) {
      timings_->append(fmt::format(
          "{{\"step\":{},\"seconds\":{:.6f},\"tokens_per_second\":{:.1f}}}\n", metrics.step,
          seconds, static_cast<double>(metrics.real_tokens) / std::max(seconds, 1e-9)));
    }
  }

 private:
  std::optional<LineFile> metrics_;
  std::optional<LineFile> timings_;
};

}  // namespace

void require_valid(const TrainingRun& run, int ranks) {
  require_valid(run.data, ranks);
  require_valid(run.trainer);
  require_valid(run.model);
  if (run.steps < 0) throw InvalidInput(fmt::format("there are {} steps to take", run.steps));
  if (run.checkpoint_every < 0) {
    throw InvalidInput(
        fmt::format("a checkpoint every {} steps: expected 0 or more", run.checkpoint_every));
  }
  if (run.checkpoint_every > 0 && run.checkpoint.empty()) {
    throw InvalidInput("a checkpoint every so many steps needs a file to write it to");
  }
}

template <typename T>
void run_training(Transport& transport, const DocumentSource& source, const TrainingRun& run) {
  require_valid(run, transport.ranks());
  const bool writes = transport.rank() == 0;
  const auto identity = identity_of(source, run, transport.ranks());
  const DataIterator data(transport, source, run.data);
  const GroupPolicy policy =
      run.data.layout == Layout::kBshd ? GroupPolicy::kDivisors : run.data.group_policy;
  const GroupCollection groups(transport.ranks(), policy, transport.rank());
  AttentionModule<T> attention(transport, groups, run.data.cp);
  Trainer<T> trainer(transport, attention, data,
                     run.resume.empty() ? TrainingState<T>(initialise<T>(run.model, run.seed))
                                        : resumed_state<T>(run, identity),
                     run.trainer);
  // Nobody overwrites what another rank still reads.
  transport.barrier({.what = "start"});
  std::optional<RunFiles> files;
  if (writes) files.emplace(run, trainer.state().adamw.steps);

  while (trainer.state().adamw.steps < run.steps) {
    const auto begun = std::chrono::steady_clock::now();
    const StepMetrics metrics = trainer.step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (writes) {
      files->add(metrics, took.count());
      const bool due = run.checkpoint_every > 0 && metrics.step % run.checkpoint_every == 0;
      if (!run.checkpoint.empty() && (due || metrics.step == run.steps)) {
        save(trainer.state(), run, identity);
      }
      if (run.on_step) run.on_step(metrics);
    }
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm)) {
      throw std::runtime_error(fmt::format("step {}: the loss is {} and the gradient norm {}",
                                           metrics.step, metrics.loss, metrics.gradient_norm));
    }
  }
}

template void run_training<float>(Transport&, const DocumentSource&, const TrainingRun&);
template void run_training<double>(Transport&, const DocumentSource&, const TrainingRun&);

}  // namespace dyncp
