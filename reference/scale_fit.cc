#include "reference/scale_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

// Largest magnitude, or NaN when a value is not finite.
double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

}  // namespace

ScaleFit fit_scale(const std::vector<double>& reference, const std::vector<double>& candidate) {
  if (reference.size() != candidate.size()) {
    throw InvalidInput("a vector of " + std::to_string(candidate.size()) +
                       " values is compared with one of " + std::to_string(reference.size()));
  }
  const double r = largest_magnitude(reference);
  const double c = largest_magnitude(candidate);
  if (std::isnan(r) || std::isnan(c)) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  if (r == 0 && c == 0) return {1, 1};
  if (r == 0 || c == 0) return {0, 0};
  double rr = 0, cc = 0, rc = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double x = reference[i] / r;
    const double y = candidate[i] / c;
    rr += x * x;
    cc += y * y;
    rc += x * y;
  }
  return {rc / rr * (c / r), rc / std::sqrt(rr * cc)};
}

}  // namespace dyncp
