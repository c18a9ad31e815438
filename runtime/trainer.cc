#include "runtime/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "runtime/gradients.h"

namespace dyncp {

void require_valid(const TrainerOptions& options) {
  require_valid(options.adamw);
  if (!std::isfinite(options.max_norm) || options.max_norm < 0) {
    throw InvalidInput(
        fmt::format("the gradient norm to clip to is {}, expected 0 or more", options.max_norm));
  }
  if (options.warmup_steps < 0) {
    throw InvalidInput(
        fmt::format("there are {} warm-up steps, expected 0 or more", options.warmup_steps));
  }
}

double learning_rate(const TrainerOptions& options, std::int64_t steps_taken) {
  if (steps_taken >= options.warmup_steps) return options.adamw.learning_rate;
  return options.adamw.learning_rate * static_cast<double>(steps_taken + 1) /
         static_cast<double>(options.warmup_steps);
}

template <typename T>
void apply_gradients(TrainingState<T>& state, const MeanGradients& gradients,
                     const TrainerOptions& options) {
  GptParameters<double> clipped = gradients.gradients;
  clip_gradients(clipped, gradients.norm, options.max_norm);
  AdamWOptions adamw = options.adamw;
  adamw.learning_rate = learning_rate(options, state.adamw.steps);
  adamw_step(state.parameters, converted<T>(clipped), state.adamw, adamw);
}

template <typename T>
Trainer<T>::Trainer(Transport& transport, AttentionModule<T>& attention, const DataIterator& data,
                    TrainingState<T> state, const TrainerOptions& options)
    : transport_(transport),
      attention_(attention),
      data_(data),
      state_(std::move(state)),
      options_(options) {
  require_valid(options_);
}

template <typename T>
StepMetrics Trainer<T>::step() {
  const RankBatch batch = data_.batch(state_.adamw.steps);
  GradientSum sum = sum_gradients(state_.parameters, batch, attention_, &attention_);
  add_over_ranks(transport_, sum);
  const MeanGradients mean = mean_of(std::move(sum));
  StepMetrics metrics{.step = state_.adamw.steps + 1,
                      .loss = mean.loss,
                      .tokens = mean.tokens,
                      .gradient_norm = mean.norm,
                      .learning_rate = learning_rate(options_, state_.adamw.steps),
                      .real_tokens = batch.real_tokens,
                      .padded_tokens = batch.padded_tokens,
                      .cp_sizes = batch.cp_sizes};
  apply_gradients(state_, mean, options_);
  const std::vector<double> norms = tensor_norms(state_.parameters);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    metrics.parameter_norms.emplace_back(state_.parameters.tensors()[i].name, norms[i]);
  }
  return metrics;
}

template void apply_gradients<float>(TrainingState<float>&, const MeanGradients&,
                                     const TrainerOptions&);
template void apply_gradients<double>(TrainingState<double>&, const MeanGradients&,
                                      const TrainerOptions&);
template class Trainer<float>;
template class Trainer<double>;

}  // namespace dyncp
