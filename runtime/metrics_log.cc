#include "runtime/metrics_log.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/files.h"
#include "runtime/metric_names.h"

namespace dyncp {
namespace {

constexpr std::size_t kExamples = 5;       // unreadable lines that are kept
constexpr std::size_t kExampleText = 120;  // bytes of each

bool same_bits(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Of each step the last value; steps strictly increasing.
void sort_by_step(std::vector<std::int64_t>& steps, std::vector<double>& values) {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return steps[a] < steps[b]; });
  std::vector<std::int64_t> sorted_steps;
  std::vector<double> sorted_values;
  for (const std::size_t i : order) {
    if (!sorted_steps.empty() && sorted_steps.back() == steps[i]) {
      sorted_values.back() = values[i];
      continue;
    }
    sorted_steps.push_back(steps[i]);
    sorted_values.push_back(values[i]);
  }
  steps = std::move(sorted_steps);
  values = std::move(sorted_values);
}

}  // namespace

double Resolution::unit_at(double value) const {
  const double magnitude = std::fabs(value);
  if (!std::isfinite(magnitude)) return 0;
  double unit = std::max(absolute, relative * magnitude);
  if (digits > 0 && magnitude > 0) {
    unit = std::max(unit, std::pow(10.0, std::floor(std::log10(magnitude)) + 1 - digits));
  }
  return unit;
}

const Series* MetricsLog::find(std::string_view name) const {
  for (const Series& one : series) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

int LogBuilder::metric(std::string_view name) {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return static_cast<int>(i);
  }
  names_.emplace_back(name);
  return static_cast<int>(names_.size()) - 1;
}

void LogBuilder::find_rank(int rank) {
  for (last_rank_ = 0; last_rank_ < ranks_.size(); ++last_rank_) {
    if (ranks_[last_rank_].rank == rank) return;
  }
  ranks_.push_back({rank, {}});
}

void LogBuilder::add_binary(int metric, std::int64_t step, double value, double relative) {
  Column& column = column_of(-1, metric);
  column.relative = std::max(column.relative, relative);
  column.steps.push_back(step);
  column.values.push_back(value);
}

void LogBuilder::unreadable(std::int64_t number, std::string_view why, std::string_view text) {
  ++unreadable_;
  if (examples_.size() < kExamples) {
    examples_.push_back({number, std::string(why), one_line(text, kExampleText)});
  }
}

std::int64_t LogBuilder::values() const {
  std::size_t count = 0;
  for (const Rank& rank : ranks_) {
    for (const Column& column : rank.columns) count += column.values.size();
  }
  return static_cast<std::int64_t>(count);
}

void LogBuilder::Column::sample(WrittenDigits digits) {
  if (digits.significant == 0) return;  // nan, inf and 0 say nothing
  fewest_decimals = std::min(fewest_decimals, int{digits.decimals});
  most_decimals = std::max(most_decimals, int{digits.decimals});
  most_significant = std::max(most_significant, int{digits.significant});
  exponent = exponent || digits.exponent;
}

Resolution LogBuilder::Column::resolution() const {
  Resolution result;
  result.relative = relative;
  if (most_significant == 0) return result;
  // With an exponent, or with trailing zeros left away, it is the significant digits that count.
  if (!exponent && fewest_decimals == most_decimals) {
    result.absolute = std::pow(10.0, -most_decimals);
  } else {
    result.digits = most_significant;
  }
  return result;
}

void LogBuilder::count_rank_conflicts(std::size_t chosen, MetricsLog& log) const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (r == chosen) continue;
    for (std::size_t m = 0; m < ranks_[r].columns.size(); ++m) {
      const Series* kept = log.find(names_[m]);
      const MetricRole role = metric_role(names_[m]);
      if (kept == nullptr || role == MetricRole::kTiming || role == MetricRole::kOther) continue;
      std::vector<std::int64_t> steps = ranks_[r].columns[m].steps;
      std::vector<double> values = ranks_[r].columns[m].values;
      sort_by_step(steps, values);
      std::size_t at = 0;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        while (at < kept->size() && kept->steps[at] < steps[i]) ++at;
        if (at == kept->size()) break;
        if (kept->steps[at] == steps[i] && !same_bits(kept->values[at], values[i])) {
          ++log.rank_conflicts;
        }
      }
    }
  }
}

MetricsLog LogBuilder::finish() && {
  MetricsLog log;
  log.lines = lines_;
  log.unreadable = unreadable_;
  log.examples = std::move(examples_);
  if (ranks_.empty()) return log;
  const auto count = [](const Rank& rank) {
    std::size_t values = 0;
    for (const Column& column : rank.columns) values += column.values.size();
    return values;
  };
  std::size_t chosen = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].rank >= 0) ++log.ranks;
    const std::size_t here = count(ranks_[r]), best = count(ranks_[chosen]);
    if (here > best || (here == best && ranks_[r].rank < ranks_[chosen].rank)) chosen = r;
  }
  log.rank = ranks_[chosen].rank;
  for (std::size_t m = 0; m < ranks_[chosen].columns.size(); ++m) {
    Column& column = ranks_[chosen].columns[m];
    if (column.values.empty()) continue;
    std::int64_t restarts = 0, conflicts = 0;
    bool sorted = true;
    for (std::size_t i = 1; i < column.steps.size(); ++i) {
      if (column.steps[i] > column.steps[i - 1]) continue;
      sorted = false;
      if (column.steps[i] < column.steps[i - 1]) {
        ++restarts;
      } else if (!same_bits(column.values[i], column.values[i - 1])) {
        ++conflicts;
      }
    }
    const std::size_t written = column.steps.size();
    const Resolution resolution = column.resolution();
    if (!sorted) sort_by_step(column.steps, column.values);
    // Every metric of a line tells the same story; the fullest one is told.
    log.restarts = std::max(log.restarts, restarts);
    log.conflicts = std::max(log.conflicts, conflicts);
    log.repeated_steps =
        std::max(log.repeated_steps, static_cast<std::int64_t>(written - column.steps.size()));
    log.series.push_back(
        {names_[m], std::move(column.steps), std::move(column.values), resolution});
  }
  count_rank_conflicts(chosen, log);
  return log;
}

}  // namespace dyncp
