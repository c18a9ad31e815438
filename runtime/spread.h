// Some figure over many cases.
#pragma once

#include <cstddef>
#include <vector>

namespace dyncp {

/// All 0 without values.
struct Spread {
  std::size_t count = 0;
  double mean = 0;
  double least = 0;
  double p50 = 0;
  double p99 = 0;
  double worst = 0;  // the largest
};

/// The spread of values in any order. The q-quantile is the smallest value that a share q of the
/// values does not exceed: with fewer than 100 values p99 is the worst.
Spread spread_of(std::vector<double> values);

}  // namespace dyncp
