#include "runtime/spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dyncp {

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double count = static_cast<double>(values.size());
  const auto quantile = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * count));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {values.size(), sum / count, values.front(), quantile(0.5), quantile(0.99), values.back()};
}

}  // namespace dyncp
