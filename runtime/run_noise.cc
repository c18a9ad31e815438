#include "runtime/run_noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dyncp {
namespace {

constexpr double kAmplification = 4;      // k
constexpr double kGrowthOfALayer = 1.03;  // C
constexpr double kDeviations = 3;         // standard deviations of an average that are allowed
constexpr double kControlFactor = 4;      // of the largest difference seen between controls

// Writing units, with the power of ten kept while values stay in one decade.
class Units {
 public:
  explicit Units(const Resolution& resolution) : resolution_(resolution) {}
  double at(double value) {
    if (resolution_.digits == 0) return resolution_.unit_at(value);
    const double magnitude = std::fabs(value);
    if (!(magnitude >= low_ && magnitude < high_)) {
      unit_ = resolution_.unit_at(value);
      low_ = std::pow(10.0, std::floor(std::log10(magnitude)));
      high_ = 10 * low_;
      if (!std::isfinite(low_)) low_ = high_ = 0;
    }
    return unit_;
  }

 private:
  Resolution resolution_;
  double low_ = 0, high_ = 0, unit_ = 0;
};

double spacing(Format format) { return 2 * format_limits(format).unit_roundoff(); }

// Unit roundoff of what sums are kept in and numbers are reported in.
double accumulator_unit(Format precision) {
  return format_limits(precision == Format::kDouble ? Format::kDouble : Format::kFloat)
      .unit_roundoff();
}

// Relative error of a sum over the tokens of a step whose roundings are independent.
double summation(const NoiseOptions& options, double tokens) {
  return std::sqrt(std::max(1.0, tokens > 0 ? tokens : options.tokens)) *
         accumulator_unit(options.precision);
}

// Relative error of a whole gradient.
double step_error(const NoiseOptions& options, double tokens) {
  return gradient_error_bound(options.precision, options.layers, 0) + summation(options, tokens);
}

double median_magnitude(const std::vector<double>& values) {
  std::vector<double> finite;
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(std::fabs(value));
  }
  if (finite.empty()) return 0;
  const auto middle = finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2);
  std::nth_element(finite.begin(), middle, finite.end());
  return *middle;
}

}  // namespace

double gradient_error_bound(Format precision, int layers, int layer) {
  return kAmplification * std::pow(kGrowthOfALayer, layers + 1 - layer) * spacing(precision);
}

double static_noise(const NoiseOptions& options, MetricRole role, double tokens) {
  const double count = std::max(1.0, tokens > 0 ? tokens : options.tokens);
  const double reported = 8 * accumulator_unit(options.precision);
  if (role == MetricRole::kLoss) {
    // It leaves the last layer, as a mean of token losses that are added up one by one.
    const double error = gradient_error_bound(options.precision, options.layers, options.layers);
    const double mean = kDeviations * std::sqrt(2.0) * error / std::sqrt(count);
    return std::min(error, mean) + kDeviations * summation(options, tokens) + reported;
  }
  // It has passed every layer, and is the root of a sum of squares over the parameters.
  const double error = step_error(options, tokens);
  const double mean = kDeviations * std::sqrt(2.0 / std::max(1.0, options.parameters)) * error;
  return std::min(error, mean) + reported;
}

AlignedSeries align(const Series& a, const Series& b) {
  AlignedSeries pair;
  pair.resolution_a = a.resolution;
  pair.resolution_b = b.resolution;
  const std::size_t most = std::min(a.size(), b.size());
  pair.steps.reserve(most);
  pair.a.reserve(most);
  pair.b.reserve(most);
  std::size_t j = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    while (j < b.size() && b.steps[j] < a.steps[i]) ++j;
    if (j == b.size()) break;
    if (b.steps[j] != a.steps[i]) continue;
    pair.steps.push_back(a.steps[i]);
    pair.a.push_back(a.values[i]);
    pair.b.push_back(b.values[j]);
  }
  return pair;
}

std::vector<double> written_noise(const AlignedSeries& pair) {
  Units of_a(pair.resolution_a), of_b(pair.resolution_b);
  std::vector<double> noise(pair.steps.size());
  for (std::size_t i = 0; i < noise.size(); ++i) {
    // 1e-15: the decimal numbers themselves were rounded to double.
    const double reading = 1e-15 * (std::fabs(pair.a[i]) + std::fabs(pair.b[i]));
    noise[i] =
        (of_a.at(pair.a[i]) + of_b.at(pair.b[i])) / 2 + (std::isfinite(reading) ? reading : 0);
  }
  return noise;
}

std::vector<double> model_noise(const AlignedSeries& pair, const NoiseOptions& options,
                                MetricRole role, double tokens) {
  std::vector<double> noise = written_noise(pair);
  const double relative = static_noise(options, role, tokens);
  const double error = step_error(options, tokens);
  const double typical = median_magnitude(pair.a);
  double last = std::nan("");
  double path = 0;  // summed squares
  for (std::size_t i = 0; i < noise.size(); ++i) {
    const double value = pair.a[i];
    if (std::isfinite(value)) {
      if (std::isfinite(last)) {
        const auto gap = static_cast<double>(pair.steps[i] - pair.steps[i - 1]);
        path += gap * (value - last) * (value - last);
      } else if (i == 0 && pair.steps.size() > 1 && pair.steps[0] > 1) {
        const auto gap = static_cast<double>(pair.steps[1] - pair.steps[0]);
        const double change = pair.a[1] - value;
        if (gap > 1 && std::isfinite(change)) path += gap * change * change;
      }
      last = value;
    }
    const double size = std::isfinite(value) ? std::max(std::fabs(value), typical) : typical;
    noise[i] += relative * size + error * std::sqrt(path);
  }
  return noise;
}

std::vector<double> control_noise(const AlignedSeries& pair, const Series& a,
                                  const std::vector<const Series*>& controls) {
  std::vector<double> largest(pair.steps.size(), 0);
  bool differs = false;
  std::size_t shared = 0;
  const auto take = [&](const Series& x, const Series& y) {
    const AlignedSeries both = align(x, y);
    shared = std::max(shared, both.steps.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < both.steps.size(); ++i) {
      const double difference = std::fabs(both.a[i] - both.b[i]);
      if (!(difference > 0) || !std::isfinite(difference)) continue;
      differs = true;
      // The record of the pair at or after this step.
      while (at < pair.steps.size() && pair.steps[at] < both.steps[i]) ++at;
      if (at == pair.steps.size()) break;
      largest[at] = std::max(largest[at], difference);
    }
  };
  for (std::size_t i = 0; i < controls.size(); ++i) {
    take(a, *controls[i]);
    for (std::size_t j = 0; j < i; ++j) take(*controls[i], *controls[j]);
  }
  if (!differs || shared < 2) return {};
  constexpr std::size_t kAhead = 3;
  std::vector<double> noise = written_noise(pair);
  double running = 0;
  for (std::size_t i = 0; i < std::min(kAhead, largest.size()); ++i) {
    running = std::max(running, largest[i]);
  }
  for (std::size_t i = 0; i < noise.size(); ++i) {
    if (i + kAhead < largest.size()) running = std::max(running, largest[i + kAhead]);
    noise[i] += kControlFactor * running;
  }
  return noise;
}

}  // namespace dyncp
