#include "reference/optimum.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A set of sequences: bit i = the i-th sequence of non-zero length.
using Set = unsigned;

// The instance with everything tabulated by set and size.
class Tables {
 public:
  Tables(const ScheduleProblem& problem, const CostModel& cost)
      : groups(problem.group_table()), ranks(problem.ranks) {
    for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
      if (problem.lengths[id] > 0) ids.push_back(int(id));
    }
    all = (Set{1} << ids.size()) - 1;
    time.assign(std::size_t(ranks) + 1, std::vector<double>(all + 1, kInfinity));
    least_area.assign(all + 1, 0);
    for (int size : groups.sizes()) {
      for (Set set = 1; set <= all; ++set) time[size][set] = pack_time(problem, cost, set, size);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      double least = kInfinity;
      for (int size : groups.sizes()) {
        // A sequence adds at least its work to its pack; a pack's launch may be another's to pay.
        const double tokens = double(problem.padded_length(ids[i], size));
        const double launch = problem.execution == Execution::kSerial ? cost.d * size : 0;
        least = std::min(least, cost.a * tokens * tokens + cost.b * tokens + launch);
      }
      for (Set set = 1; set <= all; ++set) {
        if (set >> i & 1) least_area[set] += least;
      }
    }
  }

  std::vector<int> sequences(Set set) const {
    std::vector<int> members;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (set >> i & 1) members.push_back(ids[i]);
    }
    return members;
  }

  GroupTable groups;
  int ranks;
  std::vector<int> ids;
  Set all = 0;
  std::vector<std::vector<double>> time;  // [size][set]; infinity: not a valid pack
  std::vector<double> least_area;         // [set]: rank time that the set takes at least

 private:
  double pack_time(const ScheduleProblem& problem, const CostModel& cost, Set set, int size) const {
    const bool serial = problem.execution == Execution::kSerial;
    std::int64_t sum = 0;
    int count = 0;
    double squares = 0;
    double serial_time = 0;
    for (int id : sequences(set)) {
      const std::int64_t tokens = problem.padded_length(id, size);
      if (ceil_div(tokens, size) > problem.max_tokens_per_rank) return kInfinity;
      const double length = double(tokens);
      ++count;
      sum += tokens;
      squares += length * length;
      serial_time += cost.pack_time(length, length * length, size);
    }
    if (serial) return serial_time;
    if (ceil_div(sum, size) > problem.max_tokens_per_rank) return kInfinity;
    if (problem.max_sequences && count > *problem.max_sequences) return kInfinity;
    return cost.pack_time(double(sum), squares, size);
  }
};

// One CP group of a microbatch with its set.
struct Choice {
  CpGroup group;
  Set set = 0;
};
using Row = std::vector<Choice>;  // one microbatch

Schedule to_schedule(const Tables& tables, const std::vector<Row>& rows) {
  Schedule schedule;
  for (const Row& row : rows) {
    Microbatch microbatch;
    for (const Choice& choice : row) {
      microbatch.push_back({choice.group, tables.sequences(choice.set)});
    }
    schedule.microbatches.push_back(std::move(microbatch));
  }
  return schedule;
}

// With a barrier the microbatches are independent: the cost of a set run as one microbatch is the
// least slowest pack over all partitions, and the sets of the microbatches partition all sequences.
class BarrierSearch {
 public:
  explicit BarrierSearch(const Tables& tables) : t_(tables) {
    const std::size_t sets = t_.all + 1;
    // row_[r][set]: ranks r.. run exactly `set` in one microbatch.
    row_.assign(std::size_t(t_.ranks) + 1, std::vector<double>(sets, kInfinity));
    row_choice_.assign(std::size_t(t_.ranks), std::vector<Choice>(sets));
    row_[std::size_t(t_.ranks)][0] = 0;
    for (int first = t_.ranks - 1; first >= 0; --first) {
      for (int size : t_.groups.sizes()) {
        if (!t_.groups.exists({first, size})) continue;
        for (Set set = 1; set < sets; ++set) {
          for (Set pack = set; pack > 0; pack = (pack - 1) & set) {
            const double slowest = std::max(
                t_.time[size][pack], row_[std::size_t(first) + std::size_t(size)][set ^ pack]);
            if (slowest < row_[std::size_t(first)][set]) {
              row_[std::size_t(first)][set] = slowest;
              row_choice_[std::size_t(first)][set] = {{first, size}, pack};
            }
          }
        }
      }
    }
  }

  // Least total over microbatch counts that are multiples of `multiple`; infinity when none exists.
  double run(int multiple, std::vector<Row>& rows) const {
    const std::size_t sets = t_.all + 1;
    const std::size_t most = t_.ids.size();
    std::vector<std::vector<double>> total(most + 1, std::vector<double>(sets, kInfinity));
    std::vector<std::vector<Set>> last(most + 1, std::vector<Set>(sets, 0));
    total[0][0] = 0;
    double best = kInfinity;
    std::size_t best_count = 0;
    for (std::size_t count = 1; count <= most; ++count) {
      for (Set set = 1; set < sets; ++set) {
        for (Set microbatch = set; microbatch > 0; microbatch = (microbatch - 1) & set) {
          const double sum = total[count - 1][set ^ microbatch] + row_[0][microbatch];
          if (sum < total[count][set]) {
            total[count][set] = sum;
            last[count][set] = microbatch;
          }
        }
      }
      if (count % std::size_t(multiple) == 0 && total[count][t_.all] < best) {
        best = total[count][t_.all];
        best_count = count;
      }
    }
    rows.clear();
    Set left = t_.all;
    for (std::size_t count = best_count; count > 0; --count) {
      rows.push_back(best_row(last[count][left]));
      left ^= last[count][left];
    }
    return best;
  }

 private:
  Row best_row(Set set) const {
    Row row;
    for (int first = 0; first < t_.ranks; first = row.back().group.end_rank()) {
      row.push_back(row_choice_[std::size_t(first)][set]);
      set ^= row.back().set;
    }
    return row;
  }

  const Tables& t_;
  std::vector<std::vector<double>> row_;
  std::vector<std::vector<Choice>> row_choice_;
};

// Without a barrier a partial schedule is known by the sequences it has run and by when each rank
// is free. Level by level (microbatch by microbatch) all partial schedules are extended by every
// microbatch; one whose ranks are all free no earlier than another's of the same set is dropped.
class EventSearch {
 public:
  // Finds schedules of makespan below `below` only.
  EventSearch(const Tables& tables, int multiple, double below)
      : t_(tables), multiple_(multiple), best_(below) {}

  // The least makespan below the limit, or the limit itself when there is none.
  double run(std::vector<Row>& rows) {
    levels_.emplace_back(t_.all + 1);
    levels_[0][0].push_back({});
    for (std::size_t level = 0; level < t_.ids.size(); ++level) {
      levels_.emplace_back(t_.all + 1);
      for (Set set = 0; set < t_.all; ++set) {
        for (std::size_t i = 0; i < levels_[level][set].size(); ++i) {
          from_ = {level, set, i};
          const Free free = levels_[level][set][i].free;
          row_.clear();
          extend(0, t_.all ^ set, free, free);
        }
      }
    }
    if (!best_rows_.empty()) rows = best_rows_;
    return best_;
  }

 private:
  using Free = std::array<double, kMaxOptimumRanks>;
  struct Origin {
    std::size_t level = 0;
    Set set = 0;
    std::size_t index = 0;
  };
  struct Partial {
    Free free{};    // when each rank is free
    Origin origin;  // the partial schedule it extends,
    Row row;        // by this microbatch
  };

  void extend(int first, Set left, const Free& before, const Free& after_so_far) {
    if (first == t_.ranks) {
      add(left, after_so_far);
      return;
    }
    for (int size : t_.groups.sizes()) {
      if (!t_.groups.exists({first, size})) continue;
      double start = 0;
      for (int rank = first; rank < first + size; ++rank) {
        start = std::max(start, before[std::size_t(rank)]);
      }
      for (Set pack = left; pack > 0; pack = (pack - 1) & left) {
        const double end = start + t_.time[size][pack];
        if (end >= best_) continue;
        Free after = after_so_far;
        for (int rank = first; rank < first + size; ++rank) after[std::size_t(rank)] = end;
        row_.push_back({{first, size}, pack});
        extend(first + size, left ^ pack, before, after);
        row_.pop_back();
      }
    }
  }

  void add(Set left, const Free& free) {
    const std::size_t level = from_.level + 1;
    double latest = 0;
    double sum = 0;
    for (int rank = 0; rank < t_.ranks; ++rank) {
      latest = std::max(latest, free[std::size_t(rank)]);
      sum += free[std::size_t(rank)];
    }
    if (left == 0) {
      if (latest < best_ && level % std::size_t(multiple_) == 0) {
        best_ = latest;
        best_rows_ = history();
      }
      return;
    }
    if ((sum + t_.least_area[left]) / t_.ranks >= best_) return;
    std::vector<Partial>& peers = levels_[level][t_.all ^ left];
    const auto no_later = [this](const Free& a, const Free& b) {
      return std::equal(a.begin(), a.begin() + t_.ranks, b.begin(), std::less_equal<>());
    };
    for (const Partial& peer : peers) {
      if (no_later(peer.free, free)) return;
    }
    std::erase_if(peers, [&](const Partial& peer) { return no_later(free, peer.free); });
    peers.push_back({free, from_, row_});
  }

  std::vector<Row> history() const {
    std::vector<Row> rows{row_};
    for (Origin at = from_; at.level > 0;) {
      const Partial& partial = levels_[at.level][at.set][at.index];
      rows.push_back(partial.row);
      at = partial.origin;
    }
    std::reverse(rows.begin(), rows.end());
    return rows;
  }

  const Tables& t_;
  int multiple_;
  double best_;
  std::vector<Row> best_rows_;
  std::vector<std::vector<std::vector<Partial>>> levels_;  // [microbatches][set run]
  Origin from_;
  Row row_;
};

}  // namespace

std::optional<Optimum> find_optimum(const ScheduleProblem& problem, const CostModel& cost,
                                    Barrier barrier) {
  require_valid(problem);
  const auto sequences = std::count_if(problem.lengths.begin(), problem.lengths.end(),
                                       [](std::int64_t length) { return length > 0; });
  if (problem.ranks > kMaxOptimumRanks || sequences > kMaxOptimumSequences) {
    throw InvalidInput("the optimum is searched for at most " + std::to_string(kMaxOptimumRanks) +
                       " ranks and " + std::to_string(kMaxOptimumSequences) + " sequences, not " +
                       std::to_string(problem.ranks) + " and " + std::to_string(sequences));
  }
  if (sequences == 0) return Optimum{};
  const Tables tables(problem, cost);
  std::vector<Row> rows;
  // Feasibility does not depend on the barrier, and waiting at barriers only makes a schedule
  // longer.
  double makespan = BarrierSearch(tables).run(problem.microbatch_multiple, rows);
  if (makespan == kInfinity) return std::nullopt;
  if (barrier == Barrier::kNone) {
    makespan = EventSearch(tables, problem.microbatch_multiple, makespan).run(rows);
  }
  return Optimum{makespan, to_schedule(tables, rows)};
}

}  // namespace dyncp
