#include "runtime/run_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/metric_judge.h"
#include "runtime/run_difference.h"

namespace dyncp {
namespace {

bool is_finite_role(MetricRole role) {
  return role == MetricRole::kLoss || role == MetricRole::kGradientNorm ||
         role == MetricRole::kParameterNorm || role == MetricRole::kTokens;
}

// The steps at which a log has anything.
std::vector<std::int64_t> records_of(const MetricsLog& log) {
  std::vector<std::int64_t> steps;
  for (const Series& series : log.series) {
    if (metric_role(series.name) == MetricRole::kTiming) continue;
    if (series.steps == steps) continue;
    std::vector<std::int64_t> merged;
    std::set_union(steps.begin(), steps.end(), series.steps.begin(), series.steps.end(),
                   std::back_inserter(merged));
    steps = std::move(merged);
  }
  return steps;
}

struct PairOfSeries {
  const Series* a;
  const Series* b;
  std::string name;  // canonical, or as in the log where two metrics share a canonical name
};

const Series* find_canonical(const MetricsLog& log, const std::string& canonical) {
  for (const Series& series : log.series) {
    if (canonical_metric(series.name) == canonical) return &series;
  }
  return nullptr;
}

// The same name first, then the same meaning.
std::vector<PairOfSeries> pair_up(const MetricsLog& a, const MetricsLog& b) {
  std::vector<PairOfSeries> pairs;
  for (const Series& one : a.series) {
    if (metric_role(one.name) == MetricRole::kTiming) continue;
    const Series* other = b.find(one.name);
    const std::string canonical = canonical_metric(one.name);
    if (other == nullptr) {
      other = find_canonical(b, canonical);
      // One that has its own partner is not given away.
      if (other != nullptr && a.find(other->name) != nullptr) other = nullptr;
    }
    if (other == nullptr) continue;
    const bool taken = std::any_of(pairs.begin(), pairs.end(), [&](const PairOfSeries& pair) {
      return pair.name == canonical || pair.b == other;
    });
    if (taken && std::any_of(pairs.begin(), pairs.end(),
                             [&](const PairOfSeries& pair) { return pair.b == other; })) {
      continue;
    }
    pairs.push_back({&one, other, taken ? one.name : canonical});
  }
  return pairs;
}

std::string range_text(const MetricsLog& log) {
  const std::vector<std::int64_t> steps = records_of(log);
  return steps.empty() ? "no steps" : fmt::format("steps {}..{}", steps.front(), steps.back());
}

// The largest CP size that the logs tell of (cp_sizes/N), where the caller does not know it.
int logged_cp(const MetricsLog& log) {
  int largest = 0;
  for (const Series& series : log.series) {
    constexpr std::string_view kPrefix = "cp_sizes/";
    if (series.name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    largest = std::max(largest, std::atoi(series.name.c_str() + kPrefix.size()));
  }
  return largest;
}

double typical_tokens(const MetricsLog& log) {
  for (const Series& series : log.series) {
    if (canonical_metric(series.name) == "tokens") return median(series.values);
  }
  return 0;
}

void note_log(const MetricsLog& log, char letter, std::vector<std::string>& notes) {
  const auto note = [&](const std::string& text) {
    notes.push_back(fmt::format("{}: {}", letter, text));
  };
  if (log.unreadable > 0) {
    note(fmt::format("{} unreadable line(s); the first, line {} ({}): {}", log.unreadable,
                     log.examples.front().number, log.examples.front().why,
                     one_line(log.examples.front().text, 60)));
  }
  if (log.restarts > 0) {
    note(fmt::format("{} restart(s), {} step(s) written again; the last run of a step counts",
                     log.restarts, log.repeated_steps));
  }
  if (log.conflicts > 0) {
    note(fmt::format(
        "{} step(s) written twice in a row with different values (several ranks without "
        "a prefix?); the last counts",
        log.conflicts));
  }
  if (log.ranks > 1) {
    note(fmt::format("{} ranks write to this log; rank {} is compared", log.ranks, log.rank));
  }
  if (log.rank_conflicts > 0) {
    note(fmt::format(
        "{} value(s) of a loss, norm or count differ between ranks: they are not reduced",
        log.rank_conflicts));
  }
}

void note_settings(const MetricComparison& metric, std::vector<std::string>& first) {
  if (metric.role != MetricRole::kSetting || metric.name.compare(0, 8, "cp_sizes") == 0) return;
  const AlignedSeries& pair = metric.pair;
  const std::vector<double> written = written_noise(pair);
  std::size_t different = 0, at = 0;
  for (std::size_t i = 0; i < pair.steps.size(); ++i) {
    if (!(std::fabs(pair.a[i] - pair.b[i]) > written[i] + 1e-6 * std::fabs(pair.a[i]))) continue;
    if (different++ == 0) at = i;
  }
  if (different == 0) return;
  first.push_back(fmt::format(
      "setting {} differs at {} of {} steps, first at step {}: {:.6g} in A, "
      "{:.6g} in B",
      metric.name, different, pair.steps.size(), pair.steps[at], pair.a[at], pair.b[at]));
}

std::string describe_gradient_norm(const RunComparison& result, const MetricsLog& a) {
  for (const MetricComparison& metric : result.metrics) {
    if (metric.role != MetricRole::kGradientNorm && metric.role != MetricRole::kClippedNorm)
      continue;
    if (metric.role == MetricRole::kClippedNorm) {
      return fmt::format(
          "{}: after clipping, by its name; every scale above the clip value is hidden",
          metric.name);
    }
    if (names_pre_clip(metric.name_a)) return metric.name_a + ": before clipping, by its name";
    if (a.format == "CSV table" || a.format == "text, by --map") {
      return metric.name + ": the log does not say whether before or after clipping";
    }
    return fmt::format("{}: before clipping, as {} writes it", metric.name,
                       a.format == "JSON lines"           ? "dyncp train (and verl, Automodel)"
                       : a.format == "TensorBoard events" ? "Megatron-LM"
                                                          : "this framework");
  }
  return "none in both logs";
}

// Which metrics take part in the verdict, and why others do not.
void decide_what_counts(const RunCompareOptions& options, std::vector<MetricComparison>& metrics) {
  const bool has_unclipped = std::any_of(metrics.begin(), metrics.end(), [](const auto& metric) {
    return metric.role == MetricRole::kGradientNorm;
  });
  for (MetricComparison& metric : metrics) {
    const bool required = std::find(options.require.begin(), options.require.end(), metric.name) !=
                          options.require.end();
    const bool clipped = metric.role == MetricRole::kClippedNorm;
    if (metric.pair.steps.empty()) {
      metric.not_counted = "no shared step";
    } else if (required && !metric.allowed.empty()) {
      metric.counts = true;
    } else if (clipped && has_unclipped) {
      metric.not_counted = "the norm before clipping is there";
    } else if (is_finite_role(metric.role) || clipped || metric.from_control) {
      metric.counts = metric.role != MetricRole::kSetting;
      if (!metric.counts) metric.not_counted = "a setting";
    } else {
      metric.not_counted =
          metric.role == MetricRole::kSetting ? "a setting" : "no noise floor without control runs";
    }
  }
}

void apply_gates(const RunCompareOptions& options, RunComparison& result) {
  if (!options.max_difference) return;
  for (MetricComparison& metric : result.metrics) {
    if (metric.role != MetricRole::kLoss || !metric.counts) continue;
    if (metric.max_difference <= *options.max_difference) continue;
    metric.differs = true;
    metric.sentence = fmt::format(
        "largest difference {:.3g} at step {} is above --max-diff {:.3g}; {}",
        metric.max_difference, metric.max_step, *options.max_difference, metric.sentence);
  }
}

void note_mistrust(const std::vector<MetricsLog>& controls, RunComparison& result) {
  const MetricComparison* loss = training_loss(result.metrics);
  const MetricComparison* norm = gradient_norm(result.metrics);
  if (norm == nullptr) {
    result.mistrust.emplace_back(
        "no gradient norm in both logs: Adam hides a gradient scale from the loss");
  } else if (norm->role == MetricRole::kClippedNorm) {
    result.mistrust.emplace_back("only a clipped gradient norm: clipping hides a gradient scale");
  }
  if (result.shared_steps < 10) {
    result.mistrust.push_back(fmt::format("only {} shared step(s)", result.shared_steps));
  }
  for (const MetricComparison* metric : {loss, norm}) {
    if (metric == nullptr || metric->from_control || metric->allowed.empty()) continue;
    const double size = std::fabs(median(metric->pair.a));
    const double floor = metric->allowed.back();
    if (size > 0 && floor > 0.05 * size) {
      result.mistrust.push_back(fmt::format(
          "by step {} the model's noise floor of {} has grown to {:.2g} ({:.0f} % of its size): "
          "control runs would be sharper",
          metric->pair.steps.back(), metric->name, floor, 100 * floor / size));
    }
  }
  if (loss != nullptr && !fluctuations(*loss).visible) {
    result.mistrust.emplace_back(
        "the loss hardly fluctuates from step to step: other data could not be told from these");
  }
  if (!controls.empty() && loss != nullptr && !loss->from_control) {
    result.mistrust.emplace_back(
        "the control runs do not differ from A, or not in the loss: they measure no noise; the "
        "model is "
        "used");
  }
}

}  // namespace

std::string_view to_string(RunVerdict verdict) {
  switch (verdict) {
    case RunVerdict::kAgree:
      return "AGREE";
    case RunVerdict::kDiffer:
      return "DIFFER";
    case RunVerdict::kDifferentData:
      return "DIFFERENT DATA";
  }
  return "DIFFER";
}

RunComparison compare_runs(const MetricsLog& a, const MetricsLog& b,
                           const std::vector<MetricsLog>& controls,
                           const RunCompareOptions& options) {
  RunCompareOptions used = options;
  if (used.sizes.cp == 0) used.sizes.cp = std::max(logged_cp(a), logged_cp(b));
  for (std::string& name : used.require) name = canonical_metric(name);

  RunComparison result;
  result.path_a = a.path;
  result.path_b = b.path;
  result.format_a = a.format;
  result.format_b = b.format;
  const std::vector<PairOfSeries> pairs = pair_up(a, b);
  if (pairs.empty()) {
    throw InvalidInput(
        fmt::format("{} and {} have no metric in common", one_line(a.path), one_line(b.path)));
  }
  for (const std::string& name : used.require) {
    if (find_canonical(a, name) == nullptr && find_canonical(b, name) == nullptr) {
      throw InvalidInput(fmt::format("--require {}: neither log has it", quote(name)));
    }
  }

  const std::vector<std::int64_t> records_a = records_of(a), records_b = records_of(b);
  const double tokens = std::max(typical_tokens(a), typical_tokens(b));
  for (const PairOfSeries& pair : pairs) {
    MetricContext context;
    context.a = pair.a;
    context.b = pair.b;
    context.records_a = records_a;
    context.records_b = records_b;
    context.options = &used;
    const bool training = pair.name.find("val") == std::string::npos;
    context.tokens = training ? tokens : 0;
    for (const MetricsLog& control : controls) {
      const Series* series = control.find(pair.a->name);
      if (series == nullptr) series = find_canonical(control, canonical_metric(pair.a->name));
      if (series != nullptr) context.controls.push_back(series);
    }
    MetricRole role = metric_role(pair.a->name);
    if (role == MetricRole::kOther) role = metric_role(pair.b->name);
    MetricComparison metric = judge_metric(context, role);
    metric.name = pair.name;
    result.metrics.push_back(std::move(metric));
  }
  decide_what_counts(used, result.metrics);
  for (const MetricComparison& metric : result.metrics) {
    const AlignedSeries& pair = metric.pair;
    if (pair.steps.empty()) continue;
    result.shared_steps =
        std::max(result.shared_steps, static_cast<std::int64_t>(pair.steps.size()));
    if (result.steps.empty()) result.steps = {pair.steps.front(), pair.steps.back()};
    result.steps[0] = std::min(result.steps[0], pair.steps.front());
    result.steps[1] = std::max(result.steps[1], pair.steps.back());
  }
  if (result.shared_steps == 0) {
    throw InvalidInput(fmt::format("{} has {}, {} has {}: no step in common", one_line(a.path),
                                   range_text(a), one_line(b.path), range_text(b)));
  }
  if (std::none_of(result.metrics.begin(), result.metrics.end(),
                   [](const MetricComparison& metric) { return metric.counts; })) {
    throw InvalidInput(
        fmt::format("{} and {} share no loss, norm or token count, which is what can be "
                    "judged without control runs",
                    one_line(a.path), one_line(b.path)));
  }

  note_log(a, 'A', result.notes);
  note_log(b, 'B', result.notes);
  for (const MetricComparison& metric : result.metrics) note_settings(metric, result.first);
  apply_gates(used, result);
  result.gradient_norm = describe_gradient_norm(result, a);
  const bool measured = std::any_of(result.metrics.begin(), result.metrics.end(),
                                    [](const auto& metric) { return metric.from_control; });
  result.floor = measured
                     ? fmt::format("measured from {} control run(s)", controls.size())
                     : fmt::format("model: {} arithmetic, {} layers, equal parameters at step {}",
                                   format_limits(used.noise.precision).name, used.noise.layers,
                                   result.steps[0]);
  for (const std::string& name : used.require) {
    const bool there =
        std::any_of(result.metrics.begin(), result.metrics.end(),
                    [&](const auto& metric) { return metric.name == name && metric.counts; });
    if (there) continue;
    result.verdict = RunVerdict::kDiffer;
    result.difference = RunDifference::kOther;
    result.sentence = fmt::format(
        "the required metric {} cannot be compared: one log lacks it, or no "
        "noise floor is known for it",
        quote(name));
  }
  if (result.sentence.empty()) name_difference(a, b, used, result);
  note_mistrust(controls, result);
  std::stable_sort(result.metrics.begin(), result.metrics.end(),
                   [](const MetricComparison& x, const MetricComparison& y) {
                     const auto key = [](const MetricComparison& metric) {
                       return std::make_pair(!metric.counts, !metric.differs);
                     };
                     return key(x) < key(y);
                   });
  return result;
}

}  // namespace dyncp
