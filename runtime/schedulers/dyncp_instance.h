// One instance as the dyncp scheduler works on it: sequences by descending length ("items"), group
// sizes ascending ("levels"), and what a set of items costs on a level.
// Everything the scheduler decides depends on items, never on ids, so that the order in which the
// sequences were given decides ties between equal lengths only.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "reference/cost.h"
#include "reference/schedule.h"

namespace dyncp::nested {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What a set of sequences adds up to on one level; sums of the loads of its members.
struct Load {
  double tokens = 0;   // padded for the level; whole numbers, exact below 2^53
  double squares = 0;  // of the padded lengths
  double serial = 0;   // sum of single times, under serial execution only

  Load& operator+=(const Load& other) {
    tokens += other.tokens;
    squares += other.squares;
    serial += other.serial;
    return *this;
  }
  Load& operator-=(const Load& other) {
    tokens -= other.tokens;
    squares -= other.squares;
    serial -= other.serial;
    return *this;
  }
  friend Load operator+(Load a, const Load& b) { return a += b; }
  friend Load operator-(Load a, const Load& b) { return a -= b; }
};

class Instance {
 public:
  /// REQUIRES: require_valid(problem); cost parameters >= 0, hidden <= 1. Throws Infeasible naming
  /// the sequence that fits on no group. Keeps references to both arguments.
  Instance(const ScheduleProblem& problem, const CostModel& cost);

  const ScheduleProblem& problem() const { return problem_; }
  const CostModel& cost() const { return cost_; }
  const GroupTable& table() const { return table_; }
  int ranks() const { return problem_.ranks; }
  int multiple() const { return problem_.microbatch_multiple; }
  bool serial() const { return serial_; }

  /// Number of sequences of non-zero length; items are 0..items()-1, longest first, equal lengths
  /// by ascending id.
  int items() const { return static_cast<int>(ids_.size()); }
  int id(int item) const { return ids_[static_cast<std::size_t>(item)]; }
  double real_length(int item) const { return lengths_[static_cast<std::size_t>(item)]; }

  /// Levels are indices into the group sizes of the table, ascending.
  int levels() const { return static_cast<int>(terms_.size()); }
  int size(int level) const { return terms_[static_cast<std::size_t>(level)].size; }
  double capacity(int level) const { return terms_[static_cast<std::size_t>(level)].capacity; }
  /// Most sequences of a pack.
  int max_count() const { return max_count_; }

  /// The item alone on a level.
  Load load(int item, int level) const {
    const Terms& terms = terms_[static_cast<std::size_t>(level)];
    double tokens = lengths_[static_cast<std::size_t>(item)];
    if (terms.padding > 0) {
      tokens = static_cast<double>(round_up(static_cast<std::int64_t>(tokens), terms.padding));
    }
    Load load{tokens, tokens * tokens, 0};
    if (serial_) load.serial = pack_time(load, terms) + cost_.d;
    return load;
  }

  /// Time of a non-empty pack without its launch (serial: of its sequences, launches included).
  double time(const Load& load, int level) const {
    return serial_ ? load.serial : pack_time(load, terms_[static_cast<std::size_t>(level)]);
  }

  /// Launch time of one microbatch that time() leaves out.
  double launch() const { return serial_ ? 0 : cost_.d; }

  /// Whether a pack of `count` sequences may run on a level. Single sequences of a serial pack are
  /// held to first_level instead.
  bool fits(const Load& load, int count, int level) const {
    return serial_ || (load.tokens <= capacity(level) && count <= max_count_);
  }

  /// The lowest level on which the item fits alone; it fits on all above.
  int first_level(int item) const { return first_level_[static_cast<std::size_t>(item)]; }

  /// Smallest microbatch counts worth trying start here (reference/lower_bound.h).
  int fewest_microbatches() const { return fewest_microbatches_; }
  /// The largest multiple of microbatch_multiple that the sequences can fill.
  int most_microbatches() const { return items() / multiple() * multiple(); }

 private:
  struct Terms {
    int size = 1;
    std::int64_t padding = 0;  // multiple that lengths are padded to on this level; 0: as they are
    double capacity = 0;       // tokens
    double per_square = 0;     // a / size
    double per_token = 0;      // b / size
    double ring = 0;           // (size - 1) c0
    double ring_token = 0;     // (size - 1) c1 / size
    double hidden = 0;         // hidden a / size
  };

  static double pack_time(const Load& load, const Terms& terms) {
    const double work = terms.per_square * load.squares + terms.per_token * load.tokens;
    const double exposed =
        terms.ring + terms.ring_token * load.tokens - terms.hidden * load.squares;
    return terms.size > 1 ? work + std::max(0.0, exposed) : work;
  }

  const ScheduleProblem& problem_;
  const CostModel& cost_;
  GroupTable table_;
  bool serial_;
  int max_count_;
  std::vector<int> ids_;
  std::vector<double> lengths_;  // padded already unless the padding depends on the size
  std::vector<int> first_level_;
  std::vector<Terms> terms_;
  int fewest_microbatches_ = 0;
};

}  // namespace dyncp::nested
