#include "runtime/metric_names.h"

#include <array>
#include <cctype>
#include <utility>

namespace dyncp {
namespace {

// Canonical names of whole names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kAliases = {{
    {"lm_loss", "loss"},
    {"train_loss", "loss"},
    {"reduced_train_loss", "loss"},
    {"training_loss", "loss"},
    {"grad_norm_pre_clip", "grad_norm"},
    {"gradient_norm", "grad_norm"},
    {"global_grad_norm", "grad_norm"},
    {"lr", "learning_rate"},
    {"num_label_tokens", "tokens"},
    {"num_tokens", "tokens"},
    {"total_num_tokens", "tokens"},
    {"global_num_tokens", "tokens"},
    {"params_norm", "parameter_norm"},
    {"param_norm", "parameter_norm"},
    {"global_batch_size", "batch_size"},
    {"consumed_train_samples", "consumed_samples"},
    {"elapsed_time_per_iteration_(ms)", "iteration_time"},
    {"num_zeros_in_grad", "num_zeros"},
    {"loss_scaler", "loss_scale"},
    {"validation_loss", "val_loss"},
}};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool starts(std::string_view text, std::string_view part) {
  return text.substr(0, part.size()) == part;
}

bool ends(std::string_view text, std::string_view part) {
  return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
}

std::string lowered(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(byte));
  }
  return text;
}

}  // namespace

std::string_view to_string(MetricRole role) {
  switch (role) {
    case MetricRole::kLoss:
      return "loss";
    case MetricRole::kGradientNorm:
      return "gradient norm";
    case MetricRole::kClippedNorm:
      return "clipped gradient norm";
    case MetricRole::kParameterNorm:
      return "parameter norm";
    case MetricRole::kTokens:
      return "tokens";
    case MetricRole::kSetting:
      return "setting";
    case MetricRole::kTiming:
      return "timing";
    case MetricRole::kOther:
      return "other";
  }
  return "other";
}

std::string canonical_metric(std::string_view name) {
  std::string text = lowered(name);
  if (starts(text, "train/")) text = text.substr(6);
  for (const auto& [alias, canonical] : kAliases) {
    if (text == alias) return std::string(canonical);
  }
  return text;
}

MetricRole metric_role(std::string_view name) {
  const std::string text = canonical_metric(name);
  const auto slash = text.rfind('/');
  const std::string_view last = slash == std::string::npos
                                    ? std::string_view(text)
                                    : std::string_view(text).substr(slash + 1);
  const std::string_view whole = text;
  for (const std::string_view part :
       {"time", "throughput", "tflop", "mfu", "mem_", "memory", "per_second", "per_sec", "_per_gpu",
        "timestamp", "runtime"}) {
    if (has(whole, part)) return MetricRole::kTiming;
  }
  if (last == "mem" || last == "tps" || ends(whole, "_vs_samples") || ends(whole, "ppl")) {
    return MetricRole::kTiming;
  }
  if (has(last, "grad_norm") || has(last, "gradient_norm") || last == "gradnorm") {
    const bool clipped = (has(last, "clip") && !names_pre_clip(last));
    return clipped ? MetricRole::kClippedNorm : MetricRole::kGradientNorm;
  }
  if (has(whole, "parameter_norm") || has(last, "param_norm") || has(last, "params_norm")) {
    return MetricRole::kParameterNorm;
  }
  if (has(last, "loss_scale") || has(last, "learning_rate") || last == "lr" || ends(last, "_lr") ||
      has(last, "batch_size") || has(last, "consumed") || last == "epoch" ||
      last == "global_step" || starts(whole, "cp_sizes") || has(last, "cp_size") ||
      has(last, "weight_decay") || has(last, "skipped_iterations") || has(last, "nan_iterations") ||
      has(last, "seqlen")) {
    return MetricRole::kSetting;
  }
  if (last == "tokens" || last == "num_tokens" || ends(last, "_tokens")) return MetricRole::kTokens;
  if (last == "loss" || ends(last, "_loss") || starts(last, "loss_") || has(whole, "lm_loss") ||
      has(last, "loss/")) {
    return MetricRole::kLoss;
  }
  return MetricRole::kOther;
}

bool names_pre_clip(std::string_view name) {
  const std::string text = lowered(name);
  return has(text, "pre_clip") || has(text, "preclip") || has(text, "unclipped") ||
         has(text, "before_clip");
}

}  // namespace dyncp
