// What a series of differences looks like: robust middles and scatters, correlation, trend, and names
// for constant factors. Pure functions; NaN never enters (callers keep finite pairs only).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dyncp {

/// The middle value (of an even number, the mean of the two); 0 of nothing.
double median(std::vector<double> values);

/// 1.4826 times the median distance from the median: the standard deviation of a normal sample,
/// whatever a few outliers do. 0 of nothing.
double robust_scatter(const std::vector<double>& values);

/// Pearson's correlation; 0 where one side does not vary.
double pearson(const std::vector<double>& a, const std::vector<double>& b);

/// Rank correlation of the second differences of two curves: how far their step-to-step fluctuations
/// are the same, whatever curve both follow. At most the first `most` values are looked at.
double fluctuation_correlation(const std::vector<double>& a, const std::vector<double>& b,
                               std::size_t most = 4096);

enum class Trend {
  kNone,     // nothing that stands out
  kOffset,   // a constant difference
  kDrift,    // grows
  kSpikes,   // a few records only
  kScatter,  // fluctuates
};

/// "none", "offset", "drift", "spikes", "scatter".
std::string_view to_string(Trend trend);

/// What the differences b - a look like, given what is allowed at each step.
Trend trend_of(const std::vector<double>& differences, const std::vector<double>& allowed);

/// Sizes that factors are named after; 0 = not known.
struct KnownSizes {
  int cp = 0, dp = 0;
};

/// "CP (4)", "1/CP (1/4)", "DP (2)", "2", "1/8"; empty when `factor` lies farther than `tolerance`
/// (relative) from all of them.
std::string name_factor(double factor, double tolerance, const KnownSizes& sizes);

/// Eight block characters for low to high, `width` of them; each shows the mean of its values. A gap
/// where a value is not finite.
std::string sparkline(const std::vector<double>& values, std::size_t width);

}  // namespace dyncp
