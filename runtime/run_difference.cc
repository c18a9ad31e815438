#include "runtime/run_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "runtime/metric_judge.h"

namespace dyncp {
namespace {

constexpr std::size_t kFewestForFluctuations = 12;  // steps
constexpr double kSameBatches = 0.5;                // correlation of fluctuations

struct Pairs {
  std::vector<double> a, b;
};

Pairs finite_values(const MetricComparison& metric) {
  Pairs pairs;
  for (std::size_t i = 0; i < metric.pair.steps.size(); ++i) {
    if (!std::isfinite(metric.pair.a[i]) || !std::isfinite(metric.pair.b[i])) continue;
    pairs.a.push_back(metric.pair.a[i]);
    pairs.b.push_back(metric.pair.b[i]);
  }
  return pairs;
}

double typical_second_difference(const std::vector<double>& values) {
  std::vector<double> sizes;
  for (std::size_t i = 2; i < values.size(); ++i) {
    sizes.push_back(std::fabs(values[i] - 2 * values[i - 1] + values[i - 2]));
  }
  return median(std::move(sizes));
}

// How the token counts of the two runs compare.
struct TokenCounts {
  bool known = false;
  std::size_t steps = 0, more = 0, fewer = 0;  // steps at which B has more, or fewer
  bool vary = false;                           // from step to step, in A
  bool equal() const { return known && more + fewer == 0; }
  /// Equal and varying counts come from equal batches.
  bool same_batches() const { return equal() && vary; }
};

TokenCounts compare_counts(const MetricComparison* tokens) {
  TokenCounts counts;
  if (tokens == nullptr) return counts;
  const Pairs pairs = finite_values(*tokens);
  counts.known = !pairs.a.empty();
  counts.steps = pairs.a.size();
  for (std::size_t i = 0; i < pairs.a.size(); ++i) {
    counts.more += pairs.b[i] > pairs.a[i] ? 1 : 0;
    counts.fewer += pairs.b[i] < pairs.a[i] ? 1 : 0;
    counts.vary = counts.vary || pairs.a[i] != pairs.a[0];
  }
  return counts;
}

// Whether both runs begin equal in this metric: the first shared step, when it is finite, is within
// the floor there.
bool begins_equal(const MetricComparison& metric) {
  if (metric.pair.steps.empty() || metric.allowed.empty()) return false;
  return std::fabs(metric.pair.b[0] - metric.pair.a[0]) <= metric.allowed[0];
}

// b / a at the first shared step; 0 where they have no positive ratio.
double first_ratio(const MetricComparison& metric) {
  const double a = metric.pair.a[0], b = metric.pair.b[0];
  return a > 0 && b > 0 && std::isfinite(a) && std::isfinite(b) ? b / a : 0;
}

// The floor at the first shared step, relative to a.
double first_floor(const MetricComparison& metric) {
  const double size = std::fabs(metric.pair.a[0]);
  return size > 0 && !metric.allowed.empty() ? metric.allowed[0] / size : 0;
}

// Whether the mean difference is no more than what independent fluctuations leave of it.
bool same_level(const Pairs& pairs) {
  const auto count = static_cast<double>(pairs.a.size());
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < pairs.a.size(); ++i) {
    const double difference = pairs.b[i] - pairs.a[i];
    sum += difference;
    squares += difference * difference;
  }
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  return std::fabs(mean) <= 5 * deviation / std::sqrt(count);
}

// Steps by which B is shifted against A when that makes the losses agree; 0 = it does not.
int find_shift(const MetricsLog& a, const MetricsLog& b, const MetricComparison& loss,
               const RunCompareOptions& options) {
  const Series *one = a.find(loss.name_a), *other = b.find(loss.name_b);
  if (one == nullptr || other == nullptr) return 0;
  for (const int shift : {-1, 1}) {
    Series moved = *other;
    for (std::int64_t& step : moved.steps) step += shift;
    const AlignedSeries pair = align(*one, moved);
    if (pair.steps.size() < kFewestForFluctuations) continue;
    const std::vector<double> allowed = model_noise(pair, options.noise, loss.role, 0);
    bool within = true;
    for (std::size_t i = 0; within && i < pair.steps.size(); ++i) {
      within = std::fabs(pair.b[i] - pair.a[i]) <= allowed[i];
    }
    if (within) return -shift;
  }
  return 0;
}

std::string factor_text(double ratio, const std::string& name) {
  return name.empty() ? fmt::format("{:.6g}", ratio) : fmt::format("{:.6g} = {}", ratio, name);
}

// The earliest step at which a metric that counts differs.
std::int64_t first_step(const RunComparison& result) {
  std::int64_t first = -1;
  const auto take = [&](std::int64_t step) {
    if (step >= 0 && (first < 0 || step < first)) first = step;
  };
  for (const MetricComparison& metric : result.metrics) {
    if (!metric.counts || !metric.differs) continue;
    take(metric.first_beyond);
    take(metric.first_not_finite);
    take(metric.first_missing);
  }
  return first;
}

void settle(RunComparison& result, RunVerdict verdict, RunDifference difference,
            std::string sentence) {
  result.verdict = verdict;
  result.difference = difference;
  result.sentence = std::move(sentence);
}

// What the token counts say, which everything else depends on.
void say_token_counts(const TokenCounts& counts, const MetricComparison* tokens,
                      RunComparison& result) {
  if (!counts.known) {
    result.notes.emplace_back(
        "neither run's token counts can be compared: that both normalise by the same number is not "
        "shown");
    return;
  }
  if (counts.equal()) return;
  if (tokens->constant_ratio) {
    result.first.push_back(fmt::format("B counts {} times the tokens of A at every step",
                                       factor_text(tokens->ratio, tokens->factor)));
  } else if (counts.more == 0) {
    result.first.push_back(fmt::format("B counts fewer tokens than A at {} of {} steps, never more",
                                       counts.fewer, counts.steps));
  } else if (counts.fewer == 0) {
    result.first.push_back(fmt::format("B counts more tokens than A at {} of {} steps, never fewer",
                                       counts.more, counts.steps));
  } else {
    result.first.push_back(fmt::format(
        "token counts differ without order: B has more at {} and fewer at {} of {} steps",
        counts.more, counts.fewer, counts.steps));
  }
}

// The clip value when one of the norms is the other one clipped, and which; 0 = neither.
double find_clip(const MetricComparison& norm, char& which) {
  const Pairs pairs = finite_values(norm);
  which = 'B';
  double value = clip_value(pairs.a, pairs.b);
  if (value > 0) return value;
  which = 'A';
  return clip_value(pairs.b, pairs.a);
}

// Scale faults: one factor at every step, or, where the parameters follow the gradient's scale and
// the runs part, at the first one. True when the difference is such a fault.
bool name_scale(const MetricComparison* loss, const MetricComparison* norm,
                const RunCompareOptions& options, RunComparison& result) {
  const bool loss_scaled = loss != nullptr && loss->constant_ratio;
  const bool norm_scaled = norm != nullptr && norm->constant_ratio;
  // Equal parameters show a factor exactly; later the runs may have parted because of it.
  std::string norm_factor;
  if (norm_scaled) {
    const double first = first_ratio(*norm);
    const std::string name =
        name_factor(first, std::max(2 * first_floor(*norm), 1e-5), options.sizes);
    norm_factor = name.empty() ? factor_text(norm->ratio, norm->factor) : factor_text(first, name);
  }
  if (loss_scaled && norm_scaled && std::fabs(std::log(loss->ratio / norm->ratio)) < 0.01) {
    result.first.push_back(
        fmt::format("loss and gradient norm of B are both {} times A's: the runs "
                    "normalise differently",
                    factor_text(loss->ratio, loss->factor)));
    settle(result, RunVerdict::kDiffer, RunDifference::kScale,
           fmt::format("loss and gradient carry one factor, {}",
                       factor_text(loss->ratio, loss->factor)));
    return true;
  }
  if (loss_scaled && (norm == nullptr || !norm->differs)) {
    result.first.push_back(
        fmt::format("the reported loss of B is {} times A's: it is normalised "
                    "differently",
                    factor_text(loss->ratio, loss->factor)));
    settle(
        result, RunVerdict::kDiffer, RunDifference::kLossScale,
        fmt::format("the reported loss is {} times A's{}", factor_text(loss->ratio, loss->factor),
                    norm == nullptr ? "" : ", the gradient is the same"));
    return true;
  }
  if (norm_scaled && (loss == nullptr || begins_equal(*loss))) {
    settle(result, RunVerdict::kDiffer, RunDifference::kGradientScale,
           fmt::format("the gradient norm of B is {} times A's at every step{}", norm_factor,
                       loss == nullptr ? "" : ", the loss begins equal"));
    return true;
  }
  // The first step has equal parameters whatever the optimiser makes of the gradient later.
  if (norm == nullptr || !norm->differs || loss == nullptr || norm->pair.steps.empty() ||
      loss->pair.steps.empty() || norm->pair.steps[0] != loss->pair.steps[0]) {
    return false;
  }
  const double ratio = first_ratio(*norm);
  const std::string name =
      name_factor(ratio, std::max(2 * first_floor(*norm), 1e-5), options.sizes);
  if (name.empty()) return false;
  if (begins_equal(*loss)) {
    settle(
        result, RunVerdict::kDiffer, RunDifference::kGradientScale,
        fmt::format("at step {}, with equal loss, the gradient norm of B is {} times A's; the runs "
                    "part after it",
                    norm->pair.steps[0], factor_text(ratio, name)));
    return true;
  }
  if (std::fabs(std::log(first_ratio(*loss) / ratio)) <
      2 * (first_floor(*loss) + first_floor(*norm))) {
    settle(
        result, RunVerdict::kDiffer, RunDifference::kScale,
        fmt::format("at step {} loss and gradient norm of B are both {} times A's; the runs part "
                    "after it",
                    norm->pair.steps[0], factor_text(ratio, name)));
    return true;
  }
  return false;
}

// The loss is wrong at equal parameters on the same batches: which part of it is missing, or weighs
// otherwise? True when named.
bool name_weighting(const MetricComparison* loss, const MetricComparison* norm,
                    const TokenCounts& counts, const Fluctuations& moving, RunComparison& result) {
  if (loss == nullptr || !loss->differs || loss->pair.steps.empty()) return false;
  const Pairs pairs = finite_values(*loss);
  // The first step may have equal shares by chance; then the difference is there in full soon after,
  // and does not grow.
  if (begins_equal(*loss)) {
    const bool gradient_too = norm == nullptr || begins_equal(*norm);
    if (!gradient_too || !moving.visible || loss->trend != Trend::kScatter) return false;
    std::vector<double> sizes;
    for (std::size_t i = 0; i < pairs.a.size(); ++i)
      sizes.push_back(std::fabs(pairs.b[i] - pairs.a[i]));
    if (median(std::move(sizes)) < 0.01 * typical_second_difference(pairs.a)) return false;
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < pairs.a.size(); ++i) {
    if (pairs.a[i] != 0) ratios.push_back(pairs.b[i] / pairs.a[i]);
  }
  if (ratios.empty()) return false;
  const double middle = median(ratios), scatter = robust_scatter(ratios);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  const auto above = static_cast<std::size_t>(
      std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio > 1; }));
  if (above * 20 <= ratios.size() && middle > 0 && middle + scatter < 1) {
    settle(
        result, RunVerdict::kDiffer, RunDifference::kDroppedShard,
        fmt::format("the loss of B is {:.2f} to {:.2f} of A's from the first step on: part of the "
                    "tokens is left out of the sum, but not of the divisor",
                    *low, *high));
    return true;
  }
  if (moving.visible && moving.correlation < kSameBatches && !counts.same_batches()) return false;
  if (above * 10 >= ratios.size() && (ratios.size() - above) * 10 >= ratios.size()) {
    settle(
        result, RunVerdict::kDiffer, RunDifference::kLocalMean,
        fmt::format("the loss differs at equal parameters, up and down, while both follow the same "
                    "batches: tokens are weighted otherwise (mean of each rank's own mean){}",
                    counts.known ? "" : ", or a shard is dropped: log token counts to tell"));
    return true;
  }
  if (middle > 1 && scatter > 0) {
    settle(
        result, RunVerdict::kDiffer, RunDifference::kLocalMean,
        fmt::format("the loss of B is {:.3g} to {:.3g} times A's from the first step on: each rank "
                    "divides by its own token count, and the quotients are added",
                    *low, *high));
    return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(RunDifference difference) {
  switch (difference) {
    case RunDifference::kNone:
      return "none";
    case RunDifference::kNotFinite:
      return "not finite";
    case RunDifference::kDifferentData:
      return "different data";
    case RunDifference::kShifted:
      return "shifted steps";
    case RunDifference::kTokensScaled:
      return "token count scale";
    case RunDifference::kScale:
      return "scale of loss and gradient";
    case RunDifference::kLossScale:
      return "scale of the reported loss";
    case RunDifference::kGradientScale:
      return "gradient scale";
    case RunDifference::kNormAfterClip:
      return "norm after clipping";
    case RunDifference::kDroppedShard:
      return "dropped shard";
    case RunDifference::kLocalMean:
      return "local mean";
    case RunDifference::kGradient:
      return "gradient";
    case RunDifference::kDeparture:
      return "departure";
    case RunDifference::kOther:
      return "other";
  }
  return "other";
}

const MetricComparison* training_loss(const std::vector<MetricComparison>& metrics) {
  const MetricComparison* best = nullptr;
  for (const MetricComparison& metric : metrics) {
    if (metric.role != MetricRole::kLoss || !metric.counts) continue;
    if (metric.name == "loss") return &metric;
    const bool validation = metric.name.find("val") != std::string::npos;
    if (best == nullptr && !validation) best = &metric;
  }
  return best;
}

const MetricComparison* gradient_norm(const std::vector<MetricComparison>& metrics) {
  const MetricComparison* best = nullptr;
  const auto rank = [](const MetricComparison& metric) {
    if (metric.role == MetricRole::kClippedNorm) return 0;
    if (names_pre_clip(metric.name_a) || metric.name == "grad_norm") return 2;
    return 1;
  };
  for (const MetricComparison& metric : metrics) {
    const bool norm =
        metric.role == MetricRole::kGradientNorm || metric.role == MetricRole::kClippedNorm;
    if (!norm || !metric.counts) continue;
    if (best == nullptr || rank(metric) > rank(*best)) best = &metric;
  }
  return best;
}

const MetricComparison* token_count(const std::vector<MetricComparison>& metrics) {
  for (const MetricComparison& metric : metrics) {
    if (metric.role == MetricRole::kTokens && metric.counts &&
        metric.name.find("val") == std::string::npos) {
      return &metric;
    }
  }
  return nullptr;
}

Fluctuations fluctuations(const MetricComparison& loss) {
  Fluctuations result;
  const Pairs pairs = finite_values(loss);
  if (pairs.a.size() < kFewestForFluctuations || loss.allowed.empty()) return result;
  // What equal parameters allow: the smallest floor of any step.
  const double noise = *std::min_element(loss.allowed.begin(), loss.allowed.end());
  result.visible = typical_second_difference(pairs.a) > 4 * noise &&
                   typical_second_difference(pairs.b) > 4 * noise;
  result.correlation = fluctuation_correlation(pairs.a, pairs.b);
  return result;
}

void name_difference(const MetricsLog& a, const MetricsLog& b, const RunCompareOptions& options,
                     RunComparison& result) {
  const MetricComparison* loss = training_loss(result.metrics);
  const MetricComparison* norm = gradient_norm(result.metrics);
  const MetricComparison* tokens = token_count(result.metrics);
  const TokenCounts counts = compare_counts(tokens);
  say_token_counts(counts, tokens, result);
  const Fluctuations moving = loss != nullptr ? fluctuations(*loss) : Fluctuations{};
  const bool any = std::any_of(result.metrics.begin(), result.metrics.end(),
                               [](const auto& metric) { return metric.counts && metric.differs; });
  const std::int64_t from = first_step(result);
  const std::string where = from >= 0 ? fmt::format("from step {}: ", from) : "";
  const auto named = [&] { result.sentence = where + result.sentence; };

  const bool unrelated =
      moving.visible && moving.correlation < kSameBatches && !counts.same_batches();
  if (!any && !unrelated) {
    settle(result, RunVerdict::kAgree, RunDifference::kNone,
           fmt::format("within noise at all {} shared steps", result.shared_steps));
    return;
  }
  for (const MetricComparison& metric : result.metrics) {
    if (!metric.counts ||
        metric.not_finite_a + metric.not_finite_b + metric.missing_a + metric.missing_b == 0) {
      continue;
    }
    settle(result, RunVerdict::kDiffer, RunDifference::kNotFinite,
           fmt::format("{} is {}", metric.name, metric.sentence));
    named();
    return;
  }
  if (loss != nullptr && loss->differs && !loss->constant_ratio && moving.visible) {
    if (const int shift = find_shift(a, b, *loss, options); shift != 0) {
      settle(result, RunVerdict::kDiffer, RunDifference::kShifted,
             fmt::format("the losses agree when the steps of B are {} by one",
                         shift > 0 ? "lowered" : "raised"));
      return;
    }
  }
  const bool exact_tokens = tokens != nullptr && tokens->constant_ratio;
  if (counts.known && counts.more > 0 && counts.fewer > 0) {
    settle(result, RunVerdict::kDifferentData, RunDifference::kDifferentData,
           "the runs did not see the same batches: their token counts differ without order");
    named();
    return;
  }
  char which = 'B';
  if (norm != nullptr && norm->differs && (loss == nullptr || begins_equal(*loss))) {
    if (const double clip = find_clip(*norm, which); clip > 0) {
      settle(result, RunVerdict::kDiffer, RunDifference::kNormAfterClip,
             fmt::format(
                 "the gradient norm of {} never exceeds {:.4g} while the other's does: it is taken "
                 "after clipping, or the gradient is clipped twice",
                 which, clip));
      named();
      return;
    }
  }
  if (name_scale(loss, norm, options, result)) {
    named();
    return;
  }
  if (exact_tokens && (loss == nullptr || loss->differs)) {
    settle(result, RunVerdict::kDiffer, RunDifference::kTokensScaled,
           fmt::format("B counts {} times A's tokens", factor_text(tokens->ratio, tokens->factor)));
    named();
    return;
  }
  if (counts.known && !counts.equal() && !exact_tokens) {
    settle(result, RunVerdict::kDiffer, RunDifference::kDroppedShard,
           fmt::format("part of the tokens is missing in {}: a shard is dropped",
                       counts.more == 0 ? 'B' : 'A'));
    named();
    return;
  }
  if (unrelated && same_level(finite_values(*loss))) {
    settle(result, RunVerdict::kDifferentData, RunDifference::kDifferentData,
           fmt::format(
               "the runs did not see the same batches (or not in the same order): their losses "
               "fluctuate independently (rank correlation {:.2f})",
               moving.correlation));
    named();
    return;
  }
  if (name_weighting(loss, norm, counts, moving, result)) {
    named();
    return;
  }
  if (exact_tokens) {
    settle(result, RunVerdict::kDiffer, RunDifference::kTokensScaled,
           fmt::format("B counts {} times A's tokens", factor_text(tokens->ratio, tokens->factor)));
  } else if (norm != nullptr && norm->differs && !begins_equal(*norm) &&
             (loss == nullptr || begins_equal(*loss))) {
    settle(result, RunVerdict::kDiffer, RunDifference::kGradient,
           fmt::format(
               "{}the gradient norm of B is {:.4g} times A's at the first step, by no factor that "
               "has a name",
               loss == nullptr ? "" : "the loss begins equal; ",
               norm->pair.a[0] != 0 ? norm->pair.b[0] / norm->pair.a[0] : 0));
  } else if (loss != nullptr && loss->differs && begins_equal(*loss)) {
    settle(result, RunVerdict::kDiffer, RunDifference::kDeparture,
           fmt::format("both begin equal and move apart faster than rounding allows ({})",
                       to_string(loss->trend)));
  } else {
    const auto worst =
        std::find_if(result.metrics.begin(), result.metrics.end(),
                     [](const auto& metric) { return metric.counts && metric.differs; });
    settle(result, RunVerdict::kDiffer, RunDifference::kOther,
           worst == result.metrics.end()
               ? "the losses lie within the floor but do not follow the same batches"
               : fmt::format("{}: {}", worst->name, worst->sentence));
    return;
  }
  named();
}

}  // namespace dyncp
