#include "reference/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the bounds need to know of one group size.
struct SizeTerms {
  int size = 1;
  double ring_steps = 0;      // size - 1
  double step_latency = 0;    // c0 of this size
  double step_per_token = 0;  // c1 of this size
  double capacity = 0;        // tokens of a pack
};

// How much of a pack a sequence takes when the pack's fixed part is shared out: any function whose
// sum over the sequences of a feasible pack is at most 1.
struct Share {
  bool by_time = false;  // of the pack's deadline; else of its token capacity
  double threshold = 0;  // dual feasible function: below it nothing, above 1 - threshold everything

  double of(double fraction) const {
    constexpr double kMargin = 1e-9;  // so that rounding cannot count a pack twice
    if (threshold == 0) return std::min(fraction, 1.0);
    if (fraction > 1 - threshold + kMargin) return 1;
    return fraction < threshold ? 0 : fraction;
  }
};

// How the packs of one size are priced.
struct Pricing {
  double communication = 1;  // in [0, 1]: t0 >= work + this * (ring - hidden) for each pack
  Share share;
};

// With more sizes (`interval`) the refinement would cost more than it brings.
constexpr std::size_t kMostRefinedSizes = 24;

struct Multipliers {
  double slot = 0;  // price of a rank slot: > 0 pays for filling it, < 0 charges for using it
  std::vector<Pricing> by_size;
};

// Sequences of one length, or of nearly one length, on each size. One row of every table a class.
class ClassTable {
 public:
  ClassTable(const ScheduleProblem& problem, const CostModel& cost,
             std::size_t most_classes = kMostLengthClasses)
      : serial_(problem.execution == Execution::kSerial),
        ranks_(problem.ranks),
        launch_(cost.d),
        multiple_(problem.microbatch_multiple) {
    const GroupTable table = problem.group_table();
    for (int size : table.sizes()) {
      const bool slow = size > cost.fast_domain;
      sizes_.push_back({size, double(size - 1), slow ? cost.slow_c0 : cost.c0,
                        slow ? cost.slow_c1 : cost.c1, double(problem.max_tokens_per_rank) * size});
    }
    std::vector<std::pair<std::int64_t, int>> lengths;  // (real length, an id of it), ascending
    for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
      if (problem.lengths[id] > 0) lengths.emplace_back(problem.lengths[id], int(id));
    }
    std::sort(lengths.begin(), lengths.end());
    sequences_ = std::int64_t(lengths.size());
    if (lengths.empty()) return;

    std::size_t distinct = 1;
    for (std::size_t i = 1; i < lengths.size(); ++i) {
      distinct += lengths[i].first != lengths[i - 1].first;
    }
    // A class spans lengths of a ratio up to `spread`; 1 = one length.
    const double range = double(lengths.back().first) / double(lengths.front().first);
    const double spread =
        distinct <= most_classes ? 1.0 : std::pow(range, 1.0 / double(most_classes));
    for (std::size_t begin = 0; begin < lengths.size();) {
      std::size_t end = begin;
      const double longest = double(lengths[begin].first) * spread;
      double total_work = 0;
      while (end < lengths.size() && double(lengths[end].first) <= longest) {
        total_work += work(cost, double(problem.padded_length(lengths[end].second, 1)));
        ++end;
      }
      add_class(problem, cost, lengths[begin].second, lengths[end - 1].second, total_work,
                double(end - begin));
      begin = end;
    }
    fewest_ = dyncp::fewest_microbatches(problem);
  }

  std::int64_t sequences() const { return sequences_; }
  std::int64_t fewest_microbatches() const { return fewest_; }
  bool serial() const { return serial_; }
  std::int64_t multiple() const { return multiple_; }
  double launches(std::int64_t microbatches) const {
    return serial_ ? 0 : launch_ * double(microbatches);
  }
  double step_latency_scale() const {
    double latency = 0;
    for (const SizeTerms& size : sizes_) latency = std::max(latency, size.step_latency);
    return latency;
  }

  // Least work of all sequences, over the ranks.
  double work_per_rank() const {
    double total = 0;
    for (std::size_t c = 0; c < count_.size(); ++c) {
      double least = kInfinity;
      for (std::size_t s = 0; s < sizes_.size(); ++s) {
        if (alone_[at(c, s)] == kInfinity) continue;
        least = std::min(least, work_[at(c, s)] + (serial_ ? launch_ * sizes_[s].size : 0));
      }
      total += count_[c] * least + extra_work_[c];
    }
    return total / ranks_;
  }

  // Time of the sequence that is slowest on its best size.
  double longest_alone() const {
    double longest = 0;
    for (std::size_t c = 0; c < count_.size(); ++c) {
      double best = kInfinity;
      for (std::size_t s = 0; s < sizes_.size(); ++s) best = std::min(best, alone_[at(c, s)]);
      longest = std::max(longest, best);
    }
    return longest;
  }

  std::size_t classes() const { return count_.size(); }
  std::size_t sizes() const { return sizes_.size(); }
  double ranks() const { return ranks_; }
  double count(std::size_t c) const { return count_[c]; }

  Multipliers multipliers(double slot, const Pricing& pricing) const {
    return {slot, std::vector<Pricing>(sizes_.size(), pricing)};
  }

  // What a sequence of class c pays at least when it runs on size s; infinity: it must not.
  double price(std::size_t c, std::size_t s, double deadline, double slot,
               const Pricing& pricing) const {
    const SizeTerms& terms = sizes_[s];
    const double alone = alone_[at(c, s)];
    if (alone > deadline * (1 + 1e-12)) return kInfinity;
    if (serial_) return (alone - slot) * terms.size;
    const double linear = work_[at(c, s)] + pricing.communication * ring_[at(c, s)];
    const double latency = pricing.communication * terms.ring_steps * terms.step_latency;
    const double fixed = (latency - slot) * terms.size;
    if (fixed <= 0) return linear + fixed;  // it leads its pack; one that joins pays `linear`
    if (!pricing.share.by_time) {
      return linear + fixed * pricing.share.of(tokens_[at(c, s)] / terms.capacity);
    }
    const double room = (deadline - latency) * terms.size;
    if (room <= 0) return kInfinity;  // no pack of this size meets the deadline
    return linear + fixed * pricing.share.of(std::max(0.0, linear) / room);
  }

  // What all sequences may pay in a schedule of `microbatches` microbatches and makespan `time`.
  double limit(double time, std::int64_t microbatches, double slot) const {
    const double deadline = time - launches(microbatches);
    return ranks_ * (deadline - slot * double(microbatches)) * (1 + 1e-12) + 1e-9;
  }

  // Whether (1) to (3) with these multipliers rule out every schedule of `microbatches`
  // microbatches and makespan at most `time`.
  bool excludes(double time, std::int64_t microbatches, const Multipliers& multipliers) const {
    const double deadline = time - launches(microbatches);
    double total = all_extra_work_;
    for (std::size_t c = 0; c < classes(); ++c) {
      double least = kInfinity;
      for (std::size_t s = 0; s < sizes(); ++s) {
        least = std::min(least, price(c, s, deadline, multipliers.slot, multipliers.by_size[s]));
      }
      total += count_[c] * least;
    }
    return total > limit(time, microbatches, multipliers.slot);
  }

  // The smallest time, at least `from`, that the multipliers do not rule out.
  double least_time(double from, std::int64_t microbatches, const Multipliers& multipliers) const {
    if (!excludes(from, microbatches, multipliers)) return from;
    double low = from;
    double step = 0.01 * (from > 0 ? from : 1.0);
    double high = low + step;
    while (excludes(high, microbatches, multipliers)) {
      low = high;
      step *= 2;
      high += step;
      if (!std::isfinite(high)) return low;
    }
    for (int i = 0; i < 40 && high - low > 1e-7 * high; ++i) {
      const double middle = 0.5 * (low + high);
      (excludes(middle, microbatches, multipliers) ? low : high) = middle;
    }
    return low;
  }

  double all_extra_work() const { return all_extra_work_; }

 private:
  std::size_t at(std::size_t row, std::size_t size) const { return row * sizes_.size() + size; }

  static double work(const CostModel& cost, double tokens) {
    return cost.a * tokens * tokens + cost.b * tokens;
  }

  // `shortest` and `longest` are ids of the shortest and longest sequence of the class,
  // `total_work` its work when padded for one rank, which no larger size undercuts. A class of one
  // length has its work per size; one of several keeps the exact total instead, at that least
  // padding.
  void add_class(const ScheduleProblem& problem, const CostModel& cost, int shortest, int longest,
                 double total_work, double count) {
    const bool one_length =
        problem.lengths[std::size_t(shortest)] == problem.lengths[std::size_t(longest)];
    const double least_work = work(cost, double(problem.padded_length(shortest, 1)));
    bool fits = false;
    for (const SizeTerms& terms : sizes_) {
      const double low = double(problem.padded_length(shortest, terms.size));
      const double high = double(problem.padded_length(longest, terms.size));
      const double work_here = one_length ? work(cost, low) : least_work;
      double ring = 0;
      double exposed = 0;
      if (terms.size > 1) {
        ring = terms.ring_steps * terms.step_per_token * low - cost.hidden * cost.a * high * high;
        exposed = std::max(0.0, ring + terms.ring_steps * terms.step_latency * terms.size);
      }
      const bool fits_here = low <= terms.capacity;
      fits = fits || fits_here;
      tokens_.push_back(low);
      work_.push_back(work_here);
      ring_.push_back(ring);
      alone_.push_back(fits_here ? (work_here + exposed) / terms.size + (serial_ ? cost.d : 0)
                                 : kInfinity);
    }
    if (!fits) {
      throw Infeasible("sequence " + std::to_string(shortest) + " of " +
                       std::to_string(problem.lengths[std::size_t(shortest)]) +
                       " tokens does not fit on " + std::to_string(problem.ranks) + " ranks of " +
                       std::to_string(problem.max_tokens_per_rank) + " tokens");
    }
    count_.push_back(count);
    extra_work_.push_back(one_length ? 0 : total_work - count * least_work);
    all_extra_work_ += extra_work_.back();
  }

  bool serial_;
  double ranks_;
  double launch_;
  std::int64_t multiple_;
  std::int64_t sequences_ = 0;
  std::int64_t fewest_ = 0;
  double all_extra_work_ = 0;
  std::vector<SizeTerms> sizes_;
  std::vector<double> count_;       // sequences of the class
  std::vector<double> extra_work_;  // work of the class beyond count * work of its shortest
  std::vector<double> tokens_;      // of the shortest, padded for the size
  std::vector<double> work_;        // a L^2 + b L of the shortest
  std::vector<double> ring_;        // (size - 1) c1 L - hidden a L^2, never more than any member's
  std::vector<double> alone_;       // time of a pack of the shortest alone; infinity: does not fit
};

// Ways to price a size.
std::vector<Pricing> all_pricings(std::initializer_list<double> communications) {
  std::vector<Pricing> all;
  for (double threshold : {0.0, 0.25, 1.0 / 3, 0.5}) {
    for (bool by_time : {false, true}) {
      for (double communication : communications) {
        all.push_back({communication, {by_time, threshold}});
      }
    }
  }
  return all;
}

// Slot prices worth trying: 0, times and fractions of the latency of a ring step (fill), and
// negative ones of the order of what a slot takes (capacity).
std::vector<double> slot_prices(const ClassTable& table, double time, std::int64_t microbatches,
                                bool capacity) {
  std::vector<double> prices{0};
  const double latency = table.step_latency_scale();
  for (double factor : {0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0}) {
    prices.push_back(factor * latency);
  }
  if (!capacity) return prices;
  const double slot_time =
      std::max(0.0, time - table.launches(microbatches)) / double(microbatches);
  for (double factor : {0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4}) {
    prices.push_back(-factor * slot_time);
  }
  return prices;
}

// The largest time ruled out for exactly `microbatches` microbatches, all sizes priced alike.
double bound_at(const ClassTable& table, double from, std::int64_t microbatches, bool capacity) {
  double best = from;
  const auto raise = [&](double slot, const Pricing& pricing) {
    best = table.least_time(best, microbatches, table.multipliers(slot, pricing));
  };
  for (double communication : {1.0, 0.5}) {
    for (bool by_time : {false, true}) {
      for (double threshold : {0.0, 0.5}) raise(0, {communication, {by_time, threshold}});
    }
  }
  for (double slot : slot_prices(table, best, microbatches, capacity)) {
    for (double communication : {1.0, 0.5}) raise(slot, {communication, {true, 0}});
  }
  return best;
}

// The same with a pricing of its own for every size, improved size by size for each slot price.
class Refinement {
 public:
  Refinement(const ClassTable& table, std::int64_t microbatches, double from)
      : table_(table),
        microbatches_(microbatches),
        best_(from),
        prices_(table.classes() * table.sizes()),
        least_other_(table.classes()) {}

  double run(bool capacity) {
    const std::vector<Pricing> pricings = all_pricings({1.0, 0.5, 0.0});
    for (double slot : slot_prices(table_, best_, microbatches_, capacity)) {
      multipliers_ = table_.multipliers(slot, {1.0, {true, 0}});
      double paid_before = 0;
      for (int pass = 0; pass < 2; ++pass) {
        price_all();
        double paid = 0;
        for (std::size_t s = 0; s < table_.sizes(); ++s) paid = improve(s, pricings);
        const double limit = table_.limit(best_, microbatches_, slot);
        if (paid > limit) {
          best_ = table_.least_time(best_, microbatches_, multipliers_);
        } else if (paid < limit - kHopeless * best_ * table_.ranks() ||
                   paid <= paid_before * (1 + 1e-6)) {
          break;
        }
        paid_before = paid;
      }
    }
    return best_;
  }

 private:
  // A slot price so far (in shares of all rank time) from ruling anything out is given up.
  static constexpr double kHopeless = 0.02;

  double& price(std::size_t c, std::size_t s) { return prices_[c * table_.sizes() + s]; }
  double deadline() const { return best_ - table_.launches(microbatches_); }

  void price_all() {
    for (std::size_t c = 0; c < table_.classes(); ++c) {
      for (std::size_t s = 0; s < table_.sizes(); ++s) {
        price(c, s) = table_.price(c, s, deadline(), multipliers_.slot, multipliers_.by_size[s]);
      }
    }
  }

  // Picks the pricing of one size under which all sequences pay most; returns what they pay.
  double improve(std::size_t s, const std::vector<Pricing>& pricings) {
    for (std::size_t c = 0; c < table_.classes(); ++c) {
      double least = kInfinity;
      for (std::size_t other = 0; other < table_.sizes(); ++other) {
        if (other != s) least = std::min(least, price(c, other));
      }
      least_other_[c] = least;
    }
    double most = total(s, multipliers_.by_size[s]);
    for (const Pricing& pricing : pricings) {
      const double paid = total(s, pricing);
      if (paid > most * (1 + 1e-12)) {
        most = paid;
        multipliers_.by_size[s] = pricing;
      }
    }
    for (std::size_t c = 0; c < table_.classes(); ++c) {
      price(c, s) = table_.price(c, s, deadline(), multipliers_.slot, multipliers_.by_size[s]);
    }
    return most;
  }

  double total(std::size_t s, const Pricing& pricing) const {
    double total = 0;
    for (std::size_t c = 0; c < table_.classes(); ++c) {
      total +=
          table_.count(c) *
          std::min(least_other_[c], table_.price(c, s, deadline(), multipliers_.slot, pricing));
    }
    return total;
  }

  const ClassTable& table_;
  std::int64_t microbatches_;
  double best_;
  Multipliers multipliers_;
  std::vector<double> prices_;  // [class][size]
  std::vector<double> least_other_;
};

// Bisection stops just below the threshold; the last rounding is given away.
double rounded_down(double bound) { return bound * (1 - 1e-9); }

double area(const ClassTable& table) {
  return table.work_per_rank() + table.launches(table.fewest_microbatches());
}

double longest(const ClassTable& table) {
  return table.longest_alone() + table.launches(table.fewest_microbatches());
}

double fill(const ClassTable& table, bool refined) {
  double best = kInfinity;
  std::int64_t microbatches = table.fewest_microbatches();
  for (int step = 0;; ++step, microbatches += table.multiple()) {
    // More microbatches launch more packs and fill more slots: what follows is no better than
    // `from`.
    const double from =
        std::max(table.work_per_rank(), table.longest_alone()) + table.launches(microbatches);
    if (from >= best) return best;
    // The last round drops the one argument that weakens with more microbatches, and so stands for
    // all that follow.
    const bool last = step == 7 || microbatches + table.multiple() > table.sequences();
    const bool capacity = !table.serial() && step < 7;
    double bound = bound_at(table, from, microbatches, capacity);
    if (refined && bound < best && table.sizes() <= kMostRefinedSizes)
      bound = Refinement(table, microbatches, bound).run(capacity);
    best = std::min(best, bound);
    if (last) return best;
  }
}

}  // namespace

std::int64_t fewest_microbatches(const ScheduleProblem& problem) {
  const GroupTable table = problem.group_table();
  const std::int64_t smallest = table.sizes().front();
  std::int64_t sequences = 0;
  double tokens = 0;
  for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
    if (problem.lengths[id] == 0) continue;
    ++sequences;
    tokens += double(problem.padded_length(int(id), 1));
  }
  if (sequences == 0) return 0;
  std::int64_t fewest = 1;
  if (problem.execution == Execution::kPack) {
    const double capacity = double(problem.max_tokens_per_rank) * problem.ranks;
    fewest = std::max(fewest, std::int64_t(std::ceil(tokens / capacity * (1 - 1e-12))));
    if (problem.max_sequences) {
      const std::int64_t packs = problem.ranks / smallest;
      fewest = std::max(fewest, ceil_div(ceil_div(sequences, packs), *problem.max_sequences));
    }
  }
  return round_up(fewest, problem.microbatch_multiple);
}

double area_bound(const ScheduleProblem& problem, const CostModel& cost) {
  const ClassTable table(problem, cost);
  return table.sequences() == 0 ? 0 : rounded_down(area(table));
}

double longest_bound(const ScheduleProblem& problem, const CostModel& cost) {
  const ClassTable table(problem, cost);
  return table.sequences() == 0 ? 0 : rounded_down(longest(table));
}

double dual_bound(const ScheduleProblem& problem, const CostModel& cost) {
  const ClassTable table(problem, cost);
  if (table.sequences() == 0) return 0;
  double best = std::max(area(table), longest(table));
  for (const Pricing& pricing : all_pricings({1.0, 0.75, 0.5, 0.25, 0.0})) {
    best = table.least_time(best, table.fewest_microbatches(), table.multipliers(0, pricing));
  }
  return rounded_down(best);
}

double fill_bound(const ScheduleProblem& problem, const CostModel& cost, std::size_t most_classes) {
  const ClassTable table(problem, cost, most_classes);
  return table.sequences() == 0 ? 0 : rounded_down(fill(table, false));
}

double lower_bound(const ScheduleProblem& problem, const CostModel& cost) {
  const ClassTable table(problem, cost);
  return table.sequences() == 0 ? 0 : rounded_down(fill(table, true));
}

}  // namespace dyncp
