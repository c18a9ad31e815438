// What the name of a logged metric means. Frameworks write the same thing under different names
// ("lm loss", "reduced_train_loss"; "grad norm", "grad-norm", "actor/grad_norm"); two runs are
// compared by the canonical name.
#pragma once

#include <string>
#include <string_view>

namespace dyncp {

enum class MetricRole {
  kLoss,           // a loss, training or validation
  kGradientNorm,   // global gradient norm; before clipping unless the name says otherwise
  kClippedNorm,    // gradient norm that its name calls clipped
  kParameterNorm,  // norm of parameters
  kTokens,         // tokens (or labels) of the step
  kSetting,        // what a run is told: learning rate, batch size, CP sizes, loss scale
  kTiming,         // clocks, throughput, memory: never compared
  kOther
};

/// "loss", "gradient norm", ...
std::string_view to_string(MetricRole role);

/// Lower case, with '_' for ' ' and '-', and one spelling for what has several: loss, grad_norm,
/// learning_rate, tokens, parameter_norm, batch_size, consumed_samples, loss_scale. A leading
/// "train/" is dropped.
std::string canonical_metric(std::string_view name);

/// The role that a name (canonical or not) stands for.
MetricRole metric_role(std::string_view name);

/// Whether the name says that the norm was taken before clipping.
bool names_pre_clip(std::string_view name);

}  // namespace dyncp
