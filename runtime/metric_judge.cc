#include "runtime/metric_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace dyncp {
namespace {

constexpr std::size_t kFewestForARatio = 5;  // shared steps

// Finite pairs of a metric, with what is allowed there.
struct Finite {
  std::vector<std::int64_t> steps;
  std::vector<double> a, b, difference, allowed;
};

Finite finite_pairs(const MetricComparison& metric) {
  Finite finite;
  const AlignedSeries& pair = metric.pair;
  for (std::size_t i = 0; i < pair.steps.size(); ++i) {
    if (!std::isfinite(pair.a[i]) || !std::isfinite(pair.b[i])) continue;
    finite.steps.push_back(pair.steps[i]);
    finite.a.push_back(pair.a[i]);
    finite.b.push_back(pair.b[i]);
    finite.difference.push_back(pair.b[i] - pair.a[i]);
    if (!metric.allowed.empty()) finite.allowed.push_back(metric.allowed[i]);
  }
  return finite;
}

void count_not_finite(MetricComparison& metric) {
  const AlignedSeries& pair = metric.pair;
  for (std::size_t i = 0; i < pair.steps.size(); ++i) {
    const bool bad_a = !std::isfinite(pair.a[i]), bad_b = !std::isfinite(pair.b[i]);
    metric.not_finite_a += bad_a ? 1 : 0;
    metric.not_finite_b += bad_b ? 1 : 0;
    if ((bad_a || bad_b) && metric.first_not_finite < 0) metric.first_not_finite = pair.steps[i];
  }
}

// Steps that `from` has and `other` lacks, although the other log has a record there. Only where the
// other writes the metric at most of its records (validation losses come now and then), and not at its
// last record, which may be cut.
std::int64_t count_missing(const Series& from, const Series& other,
                           const std::vector<std::int64_t>& other_records, std::int64_t& first) {
  if (other.size() * 2 < other_records.size()) return 0;
  std::int64_t count = 0;
  std::size_t i = 0, j = 0;
  for (const std::int64_t step : from.steps) {
    while (i < other.size() && other.steps[i] < step) ++i;
    if (i < other.size() && other.steps[i] == step) continue;
    while (j < other_records.size() && other_records[j] < step) ++j;
    if (j + 1 >= other_records.size()) break;
    if (other_records[j] != step) continue;
    if (count++ == 0 && (first < 0 || step < first)) first = step;
  }
  return count;
}

void measure(const Finite& finite, MetricComparison& metric) {
  metric.compared = finite.steps.size();
  double sum = 0;
  for (std::size_t i = 0; i < finite.steps.size(); ++i) {
    const double difference = std::fabs(finite.difference[i]);
    sum += difference;
    if (metric.max_step < 0 || difference > metric.max_difference) {
      metric.max_difference = difference;
      metric.max_step = finite.steps[i];
    }
    if (finite.allowed.empty() || difference <= finite.allowed[i]) continue;
    if (metric.beyond++ > 0) continue;
    metric.first_beyond = finite.steps[i];
    metric.difference_there = finite.difference[i];
    metric.allowed_there = finite.allowed[i];
  }
  if (metric.compared > 0) metric.mean_difference = sum / static_cast<double>(metric.compared);
  metric.pearson = pearson(finite.a, finite.b);
}

// Fits b = alpha a, and decides whether one factor other than 1 explains all of the difference. Noise
// that has grown since the first step cannot make a constant ratio, so that the ratio is held against
// the part of the floor that does not grow: `relative`, and the writing.
void fit_ratio(const Finite& finite, double relative, const std::vector<double>& written,
               const KnownSizes& sizes, MetricComparison& metric) {
  std::vector<double> ratios, coarse;
  for (std::size_t i = 0; i < finite.steps.size(); ++i) {
    const double size = std::fabs(finite.a[i]);
    if (!(size > 0) || size < 4 * written[i]) continue;
    ratios.push_back(finite.b[i] / finite.a[i]);
    coarse.push_back(written[i] / size);
  }
  if (ratios.empty()) return;
  metric.ratio = median(ratios);
  metric.ratio_scatter = robust_scatter(ratios);
  metric.first_ratio = ratios.front();
  if (ratios.size() < kFewestForARatio || ratios.size() * 2 < finite.steps.size()) return;
  const double away = std::fabs(metric.ratio - 1);
  const double writing = median(std::move(coarse));
  const double noise = relative + writing;
  if (!(metric.ratio > 0) || away <= 2 * noise) return;
  // An exact factor scatters as rounding does; that of a gradient also as far as the runs have parted
  // because of it.
  const double parted = metric.role == MetricRole::kLoss ? 0 : away / 50;
  const double steady = std::min(std::max(3 * noise * metric.ratio, parted), away / 4);
  const auto half = static_cast<std::ptrdiff_t>(ratios.size() / 2);
  const double early = median({ratios.begin(), ratios.begin() + half});
  const double late = median({ratios.begin() + half, ratios.end()});
  metric.constant_ratio = metric.ratio_scatter <= steady && std::fabs(early - late) <= 2 * steady;
  if (metric.constant_ratio) {
    metric.factor = name_factor(metric.ratio, std::max(0.01, 3 * noise), sizes);
  }
}

std::string sentence_of(const MetricComparison& metric, const Finite& finite) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (metric.not_finite_a + metric.not_finite_b > 0) {
    add(fmt::format("not finite at {} step(s) of A and {} of B, first at step {}",
                    metric.not_finite_a, metric.not_finite_b, metric.first_not_finite));
  }
  if (metric.missing_a + metric.missing_b > 0) {
    add(fmt::format("not written at {} step(s) of A and {} of B, first at step {}",
                    metric.missing_a, metric.missing_b, metric.first_missing));
  }
  if (metric.constant_ratio) {
    add(fmt::format("B is {:.6g} times A{} at {} shared steps", metric.ratio,
                    metric.factor.empty() ? "" : ", that is " + metric.factor + ",",
                    finite.steps.size()));
  } else if (metric.first_beyond >= 0) {
    add(fmt::format("beyond noise from step {}: B {} A by {:.3g}, allowed {:.3g}; {} of {} steps",
                    metric.first_beyond, metric.difference_there > 0 ? "above" : "below",
                    std::fabs(metric.difference_there), metric.allowed_there, metric.beyond,
                    finite.steps.size()));
    if (metric.trend != Trend::kNone) add(std::string(to_string(metric.trend)));
  }
  if (text.empty()) {
    text = metric.allowed.empty() ? "no noise floor for this metric without control runs"
                                  : "within noise at every shared step";
  }
  return text;
}

}  // namespace

MetricComparison judge_metric(const MetricContext& context, MetricRole role) {
  const Series &a = *context.a, &b = *context.b;
  const RunCompareOptions& options = *context.options;
  MetricComparison metric;
  metric.name_a = a.name;
  metric.name_b = b.name;
  metric.role = role;
  metric.pair = align(a, b);
  metric.missing_b = count_missing(a, b, context.records_b, metric.first_missing);
  metric.missing_a = count_missing(b, a, context.records_a, metric.first_missing);
  count_not_finite(metric);

  const bool modelled = role == MetricRole::kLoss || role == MetricRole::kGradientNorm ||
                        role == MetricRole::kClippedNorm || role == MetricRole::kParameterNorm;
  metric.allowed = control_noise(metric.pair, a, context.controls);
  metric.from_control = !metric.allowed.empty();
  if (!metric.from_control && modelled) {
    metric.allowed = model_noise(metric.pair, options.noise, role, context.tokens);
  }
  // Counts of tokens are exact.
  if (role == MetricRole::kTokens) {
    metric.allowed = written_noise(metric.pair);
    metric.from_control = false;
  }

  const Finite finite = finite_pairs(metric);
  measure(finite, metric);
  if (metric.allowed.empty()) {
    metric.sentence = sentence_of(metric, finite);
    return metric;
  }
  std::vector<double> written;
  {
    const std::vector<double> all = written_noise(metric.pair);
    for (std::size_t i = 0; i < metric.pair.steps.size(); ++i) {
      if (std::isfinite(metric.pair.a[i]) && std::isfinite(metric.pair.b[i])) {
        written.push_back(all[i]);
      }
    }
  }
  const double relative =
      role == MetricRole::kTokens ? 0 : static_noise(options.noise, role, context.tokens);
  fit_ratio(finite, relative, written, options.sizes, metric);
  metric.trend = metric.constant_ratio ? Trend::kNone : trend_of(finite.difference, finite.allowed);
  if (metric.constant_ratio && metric.first_beyond < 0) {
    metric.first_beyond = finite.steps.front();
    metric.difference_there = finite.difference.front();
    metric.allowed_there = finite.allowed.front();
  }
  // A run that writes nothing where the other has a value hides it: Megatron-LM leaves out a NaN loss.
  metric.differs = metric.first_beyond >= 0 || metric.not_finite_a + metric.not_finite_b > 0 ||
                   metric.missing_a + metric.missing_b > 0;
  metric.sentence = sentence_of(metric, finite);
  return metric;
}

double clip_value(const std::vector<double>& free, const std::vector<double>& clipped) {
  if (clipped.size() < kFewestForARatio) return 0;
  const double top = *std::max_element(clipped.begin(), clipped.end());
  if (!(top > 0)) return 0;
  constexpr double kSame = 2e-3;   // of the clip value: norms are written with few digits
  constexpr double kAbove = 1.02;  // times the clip value: clearly clipped
  std::size_t clipped_steps = 0, wrong = 0;
  double lowest = 0, highest = 0;  // of what was clipped
  for (std::size_t i = 0; i < clipped.size(); ++i) {
    const bool at_top = clipped[i] >= top * (1 - kSame);
    if (at_top && free[i] > kAbove * top) {
      lowest = clipped_steps == 0 ? free[i] : std::min(lowest, free[i]);
      highest = clipped_steps == 0 ? free[i] : std::max(highest, free[i]);
      ++clipped_steps;
    } else if (at_top ? free[i] < top / kAbove : free[i] > 1.5 * top) {
      ++wrong;  // below the value and yet at it, or far above and yet not
    }
  }
  const bool often = clipped_steps >= 3 && clipped_steps * 5 >= clipped.size();
  const bool varies = highest > lowest * 1.01;
  return often && varies && wrong * 10 <= clipped.size() ? top : 0;
}

}  // namespace dyncp
