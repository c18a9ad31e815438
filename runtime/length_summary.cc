// Figures of a list of lengths: what a person wants to know before giving it to a scheduler.
#include <algorithm>
#include <bit>
#include <string>

#include "reference/error.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

// 0 for length 0, else 1 + floor(log2(length)).
std::size_t bin_of(std::int64_t length) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
}

// The smallest value that at least `percent` percent of the sorted values do not exceed.
std::int64_t percentile(const std::vector<std::int64_t>& sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;  // from 1
  return sorted[std::max<std::size_t>(1, rank) - 1];
}

}  // namespace

LengthSummary summarize_lengths(const std::vector<std::int64_t>& lengths, std::int64_t max_tokens) {
  if (lengths.empty()) throw InvalidInput("there are no lengths to summarize");
  if (max_tokens < 1) {
    throw InvalidInput("max tokens per rank is " + std::to_string(max_tokens) +
                       ": expected at least 1");
  }
  std::vector<std::int64_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  LengthSummary summary;
  summary.count = static_cast<std::int64_t>(sorted.size());
  summary.min = sorted.front();
  summary.p50 = percentile(sorted, 50);
  summary.p90 = percentile(sorted, 90);
  summary.p99 = percentile(sorted, 99);
  summary.max = sorted.back();
  const std::size_t first_bin = bin_of(summary.min);
  for (std::size_t bin = first_bin; bin <= bin_of(summary.max); ++bin) {
    const std::int64_t low = bin == 0 ? 0 : std::int64_t{1} << (bin - 1);
    summary.histogram.push_back({low, bin == 0 ? 0 : 2 * low - 1});
  }
  std::int64_t count_above = 0, tokens_above = 0;
  for (std::int64_t length : sorted) {
    LengthSummary::Bin& bin = summary.histogram[bin_of(length) - first_bin];
    bin.count += 1;
    bin.tokens += length;
    summary.total += length;
    if (length > max_tokens) {
      count_above += 1;
      tokens_above += length;
    }
  }
  summary.share_above = static_cast<double>(count_above) / static_cast<double>(summary.count);
  if (summary.total > 0) {
    summary.token_share_above =
        static_cast<double>(tokens_above) / static_cast<double>(summary.total);
  }
  return summary;
}

}  // namespace dyncp
