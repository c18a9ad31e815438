// The lengths of Megatron's mock SFT dataset, number for number: the configuration that a Megatron
// user already has gives dyncp the same sequences as the training run.
#pragma once

#include <cstdint>
#include <vector>

namespace dyncp {

/// Megatron's {"mode":"distribution","type":"lognormal",...}. Lengths in tokens. The realised mean
/// is below mean_seq_len because of the cut at max_seq_len.
/// REQUIRES: 0 <= min_seq_len <= max_seq_len <= 2^40, mean_seq_len > 0, 0 <= lognormal_sigma <= 20.
struct MockSftDistribution {
  std::int64_t min_seq_len = 0;
  std::int64_t max_seq_len = 0;
  double mean_seq_len = 0;
  double lognormal_sigma = 0;
};

/// The first `count` lengths: numpy.random.RandomState(seed).lognormal(mu, sigma) with
/// mu = ln(mean) - sigma^2 / 2, cut off at both ends, truncated to integers. Megatron's seed is 0;
/// it draws 1,000,000 and wraps around, here `count` may be any.
/// Throws InvalidInput unless 0 <= count <= kMaxLengths and seed < 2^32 (numpy's limit).
std::vector<std::int64_t> draw_mock_sft(const MockSftDistribution& distribution, std::int64_t count,
                                        std::uint64_t seed);

}  // namespace dyncp
