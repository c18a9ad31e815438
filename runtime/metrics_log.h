// What a training run wrote down: one series of numbers for each metric, by step. Readers of the
// different formats (runtime/metrics_readers/) fill a LogBuilder; everything after that sees only a
// MetricsLog. Values are in the units of the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dyncp {

/// How finely a series was written.
struct Resolution {
  double absolute =
      0;           // one unit of the last decimal, when all values have the same number of them
  int digits = 0;  // else the significant digits of the longest value; 0 = as binary numbers
  double relative = 0;  // and the relative spacing of binary numbers (float: 2^-23)

  /// One unit in the last place of `value`: what was written is off by at most half of it.
  double unit_at(double value) const;
};

/// One metric of a run.
struct Series {
  std::string name;                 // as the log has it
  std::vector<std::int64_t> steps;  // strictly increasing
  std::vector<double> values;       // one a step; NaN and infinities stay
  Resolution resolution;

  std::size_t size() const { return steps.size(); }
};

/// A line that looked like metrics and could not be taken in.
struct UnreadableLine {
  std::int64_t number = 0;  // from 1; of a binary file, the record
  std::string why;          // one line
  std::string text;         // its beginning, one line
};

/// A run as it was read.
struct MetricsLog {
  std::string path;
  std::string format;          // "Megatron-LM console log", ...
  std::vector<Series> series;  // in the order of first use
  std::int64_t lines = 0;      // of a binary file, records
  std::int64_t unreadable = 0;
  std::vector<UnreadableLine> examples;  // the first few unreadable ones
  std::int64_t restarts = 0;             // times that the step went back
  std::int64_t repeated_steps = 0;       // steps that were written again: the last one counts
  std::int64_t conflicts = 0;            // of those, with another value and no restart in between
  int ranks = 0;                         // that wrote metrics, where lines name them; else 0
  int rank = -1;                         // the one whose values these are; -1 = lines name none
  std::int64_t rank_conflicts = 0;  // values of a loss, norm or count where another rank differs

  /// The series of that name, or null.
  const Series* find(std::string_view name) const;
};

/// The digits of a number as written.
struct WrittenDigits {
  std::int8_t decimals = 0;     // after the point
  std::int8_t significant = 0;  // without leading zeros; 0 = a binary number
  bool exponent = false;        // 1.5E-05
};

/// Takes in values in the order of the file.
class LogBuilder {
 public:
  /// The number of the metric called `name`, given out on first use.
  int metric(std::string_view name);
  /// The name that metric() was given.
  const std::string& metric_name(int metric) const {
    return names_[static_cast<std::size_t>(metric)];
  }

  /// A value of a text file. `rank` is the rank that the line names, or -1.
  void add(int rank, int metric, std::int64_t step, double value, WrittenDigits digits) {
    Column& column = column_of(rank, metric);
    if (column.values.size() < kSampledDigits) column.sample(digits);
    column.steps.push_back(step);
    column.values.push_back(value);
  }
  /// A value of a binary file that is spaced `relative` (float: 2^-23).
  void add_binary(int metric, std::int64_t step, double value, double relative);

  void count_lines(std::int64_t lines) { lines_ += lines; }
  /// A line that looked like metrics; `why` is one line.
  void unreadable(std::int64_t number, std::string_view why, std::string_view text);
  /// Values taken in so far.
  std::int64_t values() const;

  /// Sorts by step; of a step written more than once the last counts. Of several ranks the one with
  /// the most values is taken (the lowest such), and the others are compared with it. Path and
  /// format are left to the caller.
  MetricsLog finish() &&;

 private:
  static constexpr std::size_t kSampledDigits = 4096;  // values whose digits are looked at

  struct Column {
    std::vector<std::int64_t> steps;
    std::vector<double> values;
    int fewest_decimals = 127, most_decimals = 0, most_significant = 0;
    bool exponent = false;
    double relative = 0;
    void sample(WrittenDigits digits);
    Resolution resolution() const;
  };
  struct Rank {
    int rank = -1;
    std::vector<Column> columns;  // by metric
  };

  Column& column_of(int rank, int metric) {
    if (last_rank_ >= ranks_.size() || ranks_[last_rank_].rank != rank) find_rank(rank);
    std::vector<Column>& columns = ranks_[last_rank_].columns;
    if (static_cast<std::size_t>(metric) >= columns.size()) columns.resize(names_.size());
    return columns[static_cast<std::size_t>(metric)];
  }
  void find_rank(int rank);
  void count_rank_conflicts(std::size_t chosen, MetricsLog& log) const;

  std::vector<std::string> names_;
  std::vector<Rank> ranks_;
  std::size_t last_rank_ = 0;
  std::int64_t lines_ = 0, unreadable_ = 0;
  std::vector<UnreadableLine> examples_;
};

}  // namespace dyncp
