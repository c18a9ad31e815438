#include "runtime/series_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace dyncp {
namespace {

std::vector<double> second_differences(const std::vector<double>& values, std::size_t count) {
  std::vector<double> result;
  for (std::size_t i = 2; i < count; ++i) {
    result.push_back(values[i] - 2 * values[i - 1] + values[i - 2]);
  }
  return result;
}

// Ranks, equal values sharing the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t j = i; j < end; ++j) {
      ranks[order[j]] = (static_cast<double>(i) + static_cast<double>(end - 1)) / 2;
    }
    i = end;
  }
  return ranks;
}

double root_mean_square(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i] * values[i];
  return end > begin ? std::sqrt(sum / static_cast<double>(end - begin)) : 0;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t half = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(half);
  std::nth_element(values.begin(), middle, values.end());
  const double upper = *middle;
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), middle) + upper) / 2;
}

double robust_scatter(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::fabs(value - middle));
  return 1.4826 * median(std::move(distances));
}

double pearson(const std::vector<double>& a, const std::vector<double>& b) {
  const auto count = static_cast<double>(a.size());
  if (a.empty()) return 0;
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

double fluctuation_correlation(const std::vector<double>& a, const std::vector<double>& b,
                               std::size_t most) {
  const std::size_t count = std::min({a.size(), b.size(), most});
  return pearson(ranks_of(second_differences(a, count)), ranks_of(second_differences(b, count)));
}

std::string_view to_string(Trend trend) {
  switch (trend) {
    case Trend::kNone:
      return "none";
    case Trend::kOffset:
      return "offset";
    case Trend::kDrift:
      return "drift";
    case Trend::kSpikes:
      return "spikes";
    case Trend::kScatter:
      return "scatter";
  }
  return "none";
}

Trend trend_of(const std::vector<double>& differences, const std::vector<double>& allowed) {
  const std::size_t count = differences.size();
  std::size_t beyond = 0;
  for (std::size_t i = 0; i < count; ++i) beyond += std::fabs(differences[i]) > allowed[i] ? 1 : 0;
  const double middle = median(differences);
  const double scatter = robust_scatter(differences);
  const bool steady = std::fabs(middle) > 4 * scatter && std::fabs(middle) > 0;
  if (steady && beyond > 0) return Trend::kOffset;
  if (beyond == 0) return Trend::kNone;
  if (beyond <= std::max<std::size_t>(1, count / 20) && count >= 5) {
    std::vector<double> shares;
    for (std::size_t i = 0; i < count; ++i) {
      shares.push_back(allowed[i] > 0 ? std::fabs(differences[i]) / allowed[i] : 0);
    }
    if (median(std::move(shares)) < 0.5) return Trend::kSpikes;
  }
  const std::size_t third = count / 3;
  if (third >= 2) {
    const double first = root_mean_square(differences, 0, third);
    const double last = root_mean_square(differences, count - third, count);
    if (last > 3 * first) return Trend::kDrift;
  }
  return Trend::kScatter;
}

std::string name_factor(double factor, double tolerance, const KnownSizes& sizes) {
  if (!(factor > 0) || !std::isfinite(factor)) return "";
  std::vector<std::pair<int, std::string>> known;
  if (sizes.cp > 1) known.emplace_back(sizes.cp, "CP");
  if (sizes.dp > 1) known.emplace_back(sizes.dp, "DP");
  if (sizes.cp > 1 && sizes.dp > 1) known.emplace_back(sizes.cp * sizes.dp, "DP*CP");
  for (int plain = 2; plain <= 1024; plain *= 2) known.emplace_back(plain, "");
  for (const int plain : {3, 6, 12, 24}) known.emplace_back(plain, "");
  std::string best;
  double nearest = tolerance;
  for (const auto& [size, name] : known) {
    for (const bool inverse : {false, true}) {
      const double target = inverse ? 1.0 / size : size;
      const double distance = std::fabs(std::log(factor / target));
      if (!(distance < nearest)) continue;
      nearest = distance;
      const std::string number = inverse ? fmt::format("1/{}", size) : fmt::format("{}", size);
      best = name.empty() ? number : fmt::format("{}{} ({})", inverse ? "1/" : "", name, number);
    }
  }
  return best;
}

std::string sparkline(const std::vector<double>& values, std::size_t width) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width == 0) return "";
  width = std::min(width, values.size());
  std::vector<double> cells;
  for (std::size_t cell = 0; cell < width; ++cell) {
    const std::size_t begin = cell * values.size() / width;
    const std::size_t end = (cell + 1) * values.size() / width;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    cells.push_back(sum / static_cast<double>(end - begin));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double cell : cells) {
    if (!std::isfinite(cell)) continue;
    low = std::min(low, cell);
    high = std::max(high, cell);
  }
  std::string text;
  for (const double cell : cells) {
    if (!std::isfinite(cell)) {
      text += ' ';
      continue;
    }
    const double share = high > low ? (cell - low) / (high - low) : 0;
    text += kBlocks[static_cast<std::size_t>(std::min(7.0, std::floor(share * 8)))];
  }
  return text;
}

}  // namespace dyncp
