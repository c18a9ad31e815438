#include "runtime/mock_sft.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "reference/error.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

// The normal variates of numpy's legacy RandomState: a 32-bit Mersenne Twister (std::mt19937 seeds
// itself the same way), 53-bit doubles of two draws each, and the polar method, which makes values
// in pairs and hands out the second one first.
class LegacyNormal {
 public:
  explicit LegacyNormal(std::uint32_t seed) : engine_(seed) {}

  double operator()() {
    if (has_stored_) {
      has_stored_ = false;
      return stored_;
    }
    double x1 = 0, x2 = 0, square = 0;
    do {
      x1 = 2.0 * uniform() - 1.0;
      x2 = 2.0 * uniform() - 1.0;
      square = x1 * x1 + x2 * x2;
    } while (square >= 1.0 || square == 0.0);
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    stored_ = factor * x1;
    has_stored_ = true;
    return factor * x2;
  }

 private:
  // In [0, 1).
  double uniform() {
    const auto high = static_cast<double>(engine_() >> 5);
    const auto low = static_cast<double>(engine_() >> 6);
    return (high * 0x1p26 + low) / 0x1p53;
  }

  std::mt19937 engine_;
  double stored_ = 0;
  bool has_stored_ = false;
};

}  // namespace

std::vector<std::int64_t> draw_mock_sft(const MockSftDistribution& distribution, std::int64_t count,
                                        std::uint64_t seed) {
  if (count < 0 || count > kMaxLengths) {
    throw InvalidInput("the number of lengths to draw is " + std::to_string(count) +
                       ": expected 0.." + std::to_string(kMaxLengths));
  }
  if (seed >> 32 != 0) {
    throw InvalidInput("the seed of a mock SFT distribution is " + std::to_string(seed) +
                       ": expected 0..4294967295, the seeds numpy takes");
  }
  const double sigma = distribution.lognormal_sigma;
  const double mu = std::log(distribution.mean_seq_len) - sigma * sigma / 2;
  LegacyNormal normal(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const double sample = std::exp(mu + sigma * normal());
    lengths.push_back(
        static_cast<std::int64_t>(std::clamp(sample, static_cast<double>(distribution.min_seq_len),
                                             static_cast<double>(distribution.max_seq_len))));
  }
  return lengths;
}

}  // namespace dyncp
