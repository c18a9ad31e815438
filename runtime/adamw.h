// AdamW on the flat parameters of the GPT, as reference/adamw.h specifies it, in float or double.
// Every element is computed by itself in T, so the result has the same bits on every rank that sees
// the same gradients.
#pragma once

#include <cstdint>

#include "reference/adamw.h"
#include "runtime/gpt_parameters.h"

namespace dyncp {

/// The moments, all that AdamW remembers between steps.
template <typename T>
struct AdamWState {
  GptParameters<T> first, second;
  std::int64_t steps = 0;  // taken so far

  /// Before the first step. Throws InvalidInput like require_valid(config).
  explicit AdamWState(const GptConfig& config) : first(config), second(config) {}
  bool operator==(const AdamWState&) const = default;
};

/// One step with the gradients of the mean loss, already clipped. Matrices (the embedding included)
/// lose weight_decay, the weights of norms do not. Factors that are the same for all elements are
/// computed in double and rounded once. Throws InvalidInput for options out of range and
/// std::logic_error when the configurations differ; nothing has changed then.
template <typename T>
void adamw_step(GptParameters<T>& parameters, const GptParameters<T>& gradients,
                AdamWState<T>& state, const AdamWOptions& options);

}  // namespace dyncp
