// The packing-aware algorithm with indexes. What makes it fast, and why the output is the same:
//
// - Placing loads a group, and loads only grow, so that the largest load of all ranks after a
//   placement is max(largest load now, the group's new load): no loop over ranks.
// - Groups of one size are leaves of a tree in order of creation; each node holds the least tokens
//   and the least load below it. Rounding is monotone, so that `tokens + x > limit` for the least
//   value proves it for all below, and the searches return exactly the group the plain loop
//   returns.
// - Whether a sequence finds any place is monotone in its length: a shorter one needs no larger
//   groups, and fewer tokens and less work in each. So after a failure the next sequence that can
//   be placed is found by exponential and binary search in the descending list, not by trying all.
//   The exception is a min_cp that is no power of two: sequences that need more than min_cp ranks
//   use the powers of two, others min_cp times the powers of two. The list is searched in two
//   parts.
// - Sequences that are placed leave the list by path-compressed links.
#include "runtime/schedulers/megatron_packing_aware.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/schedulers/megatron.h"
#include "runtime/schedulers/megatron_alignment.h"

namespace dyncp {
namespace {

using megatron::GroupList;
using megatron::Item;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// The groups of one size in order of creation.
class SizeIndex {
 public:
  // REQUIRES: size >= 1, max_groups >= 1.
  SizeIndex(int size, int max_groups, double max_tokens)
      : size_(size),
        max_tokens_(max_tokens),
        leaves_(std::bit_ceil(static_cast<std::size_t>(max_groups))),
        nodes_(2 * leaves_) {}

  int size() const { return size_; }
  std::size_t count() const { return groups_.size(); }

  void clear() {
    if (groups_.empty()) return;
    std::size_t low = leaves_;
    std::size_t high = leaves_ + groups_.size();
    for (; low > 0; low /= 2, high = (high + 1) / 2) {
      std::fill(nodes_.begin() + static_cast<std::ptrdiff_t>(low),
                nodes_.begin() + static_cast<std::ptrdiff_t>(high), Node{});
      if (low == 1) break;
    }
    groups_.clear();
  }

  // Group number `group` of the microbatch is the next of this size.
  void append(std::size_t group, double tokens, double load) {
    groups_.push_back(group);
    set(groups_.size() - 1, tokens, load);
  }

  void set(std::size_t leaf, double tokens, double load) {
    std::size_t node = leaves_ + leaf;
    nodes_[node] = {tokens, load};
    for (node /= 2; node > 0; node /= 2) {
      const Node& left = nodes_[2 * node];
      const Node& right = nodes_[2 * node + 1];
      nodes_[node] = {std::min(left.tokens, right.tokens), std::min(left.load, right.load)};
    }
  }

  double tokens(std::size_t leaf) const { return nodes_[leaves_ + leaf].tokens; }
  double load(std::size_t leaf) const { return nodes_[leaves_ + leaf].load; }
  std::size_t group(std::size_t leaf) const { return groups_[leaf]; }

  // The first leaf with room for `tokens` more whose load, with `work` more, is at most `limit`.
  std::size_t first(double tokens, double work, double limit) const {
    return first_below(1, tokens, work, limit);
  }

  // The least load of those with room for `tokens` more; infinity when there is none.
  double least_load(double tokens) const {
    double least = kInfinity;
    lower_to_least_below(1, tokens, least);
    return least;
  }

 private:
  struct Node {
    double tokens = kInfinity;
    double load = kInfinity;
  };

  std::size_t first_below(std::size_t node, double tokens, double work, double limit) const {
    if (nodes_[node].tokens + tokens > max_tokens_ || nodes_[node].load + work > limit) {
      return kNone;
    }
    if (node >= leaves_) return node - leaves_;
    const std::size_t left = first_below(2 * node, tokens, work, limit);
    return left != kNone ? left : first_below(2 * node + 1, tokens, work, limit);
  }

  void lower_to_least_below(std::size_t node, double tokens, double& least) const {
    if (nodes_[node].tokens + tokens > max_tokens_ || nodes_[node].load >= least) return;
    if (node >= leaves_) {
      least = nodes_[node].load;
      return;
    }
    // The child with the lesser load first: it is more likely to rule the other out.
    const std::size_t left = 2 * node;
    const std::size_t lesser = nodes_[left].load <= nodes_[left + 1].load ? left : left + 1;
    lower_to_least_below(lesser, tokens, least);
    lower_to_least_below(lesser ^ 1U, tokens, least);
  }

  int size_;
  double max_tokens_;
  std::size_t leaves_;
  std::vector<Node> nodes_;  // node 1 is the root, node n has children 2n and 2n + 1
  std::vector<std::size_t> groups_;
};

// Positions 0..n-1 of which some are removed.
class AliveList {
 public:
  explicit AliveList(std::size_t n) : next_(n + 1) {
    std::iota(next_.begin(), next_.end(), std::size_t{0});
  }

  // The first position >= `from` that is not removed; n when there is none.
  std::size_t at_or_after(std::size_t from) {
    std::size_t alive = from;
    while (next_[alive] != alive) alive = next_[alive];
    while (next_[from] != alive) from = std::exchange(next_[from], alive);
    return alive;
  }

  void remove(std::size_t position) { next_[position] = position + 1; }

 private:
  std::vector<std::size_t> next_;
};

// The first position in [from, to) for which `holds`, which once true stays true; `to` when there
// is none. O(log distance) evaluations.
template <typename Predicate>
std::size_t first_where(std::size_t from, std::size_t to, const Predicate& holds) {
  std::size_t step = 1;
  std::size_t low = from;  // everything before `low` fails
  while (low < to) {
    const std::size_t probe = std::min(low + step - 1, to - 1);
    if (holds(probe)) {
      std::size_t high = probe;  // holds
      while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (holds(middle)) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      return high;
    }
    low = probe + 1;
    step *= 2;
  }
  return to;
}

class FastFormer {
 public:
  explicit FastFormer(const ScheduleProblem& problem)
      : ranks_(problem.ranks),
        max_tokens_(problem.max_tokens_per_rank),
        max_tokens_per_rank_(static_cast<double>(problem.max_tokens_per_rank)),
        min_cp_(problem.min_cp),
        items_(megatron::descending_items(problem)),
        alive_(items_.size()),
        index_of_size_(static_cast<std::size_t>(problem.ranks) + 1, kNone) {
    // All sizes that any sequence may use: need, doubled as long as the domain allows.
    const auto power = std::bit_ceil(static_cast<unsigned>(min_cp_));
    for (const int start : {min_cp_, static_cast<int>(power)}) {
      for (int size = start; size <= ranks_; size *= 2) {
        std::size_t& index = index_of_size_[static_cast<std::size_t>(size)];
        if (index != kNone) continue;
        index = indexes_.size();
        indexes_.emplace_back(size, ranks_ / size, max_tokens_per_rank_);
      }
    }
    // Descending, so that sequences above the need of min_cp come first.
    first_of_min_cp_ = first_where(
        0, items_.size(), [&](std::size_t position) { return need(items_[position]) == min_cp_; });
  }

  std::vector<GroupList> form_all() {
    std::vector<GroupList> microbatches;
    while (alive_.at_or_after(0) < items_.size()) microbatches.push_back(form());
    return microbatches;
  }

 private:
  struct Group {
    int size;
    std::size_t leaf;
    std::vector<int> sequences;
  };

  std::int64_t need(const Item& item) const {
    return megatron::need(item.length, max_tokens_, min_cp_);
  }

  SizeIndex& index(int size) { return indexes_[index_of_size_[static_cast<std::size_t>(size)]]; }
  const SizeIndex& index(int size) const {
    return indexes_[index_of_size_[static_cast<std::size_t>(size)]];
  }

  GroupList form() {
    for (SizeIndex& index : indexes_) index.clear();
    groups_.clear();
    placed_.clear();
    used_ranks_ = 0;
    busiest_ = 0;
    const std::size_t front = alive_.at_or_after(0);
    const Item& longest = items_[front];
    if (need(longest) > ranks_) megatron::throw_needs_more_ranks(longest, need(longest), ranks_);
    limit_ = megatron::work_limit(longest.length, max_tokens_);
    open_group(front, static_cast<int>(need(longest)));

    std::size_t position = alive_.at_or_after(front + 1);
    while (position < items_.size()) {
      const bool done = place(position);
      const std::size_t next = position + 1;
      position = alive_.at_or_after(done ? next : first_placeable(next));
    }
    if (!fill_empty_ranks()) return one_group_of_all_ranks(front);
    for (const std::size_t gone : placed_) alive_.remove(gone);
    GroupList result;
    result.reserve(groups_.size());
    for (Group& group : groups_) result.push_back({group.size, std::move(group.sequences)});
    return result;
  }

  void open_group(std::size_t position, int size) {
    const Item& item = items_[position];
    const double load = megatron::work(item.length, size);
    SizeIndex& same_size = index(size);
    groups_.push_back({size, same_size.count(), {item.id}});
    same_size.append(groups_.size() - 1, static_cast<double>(item.length) / size, load);
    used_ranks_ += size;
    busiest_ = std::max(busiest_, load);
    placed_.push_back(position);
  }

  void add_to(SizeIndex& same_size, std::size_t leaf, std::size_t position) {
    const Item& item = items_[position];
    const int size = same_size.size();
    const double load = same_size.load(leaf) + megatron::work(item.length, size);
    same_size.set(leaf, same_size.tokens(leaf) + static_cast<double>(item.length) / size, load);
    groups_[same_size.group(leaf)].sequences.push_back(item.id);
    busiest_ = std::max(busiest_, load);
    placed_.push_back(position);
  }

  // Puts the sequence where the largest load of all ranks ends up smallest; false when it fits
  // nowhere.
  bool place(std::size_t position) {
    const Item& item = items_[position];
    double best = kInfinity;
    int best_size = 0;
    std::size_t best_leaf = kNone;  // of best_size; none: a new group
    for (std::int64_t wide = need(item); wide <= ranks_ && best > busiest_; wide *= 2) {
      const int size = static_cast<int>(wide);
      const double work = megatron::work(item.length, size);
      const double tokens = static_cast<double>(item.length) / size;
      const SizeIndex& same_size = index(size);
      // No placement leaves less than the largest load now: the first that leaves just that wins.
      std::size_t leaf = same_size.first(tokens, work, busiest_);
      double largest = busiest_;
      if (leaf == kNone) {
        largest = same_size.least_load(tokens) + work;
        if (largest <= limit_ && largest < best) leaf = same_size.first(tokens, work, largest);
      }
      if (leaf != kNone && largest < best) {
        best = largest;
        best_size = size;
        best_leaf = leaf;
      }
      const double largest_with_new = std::max(busiest_, work);
      if (ranks_ - used_ranks_ >= size && largest_with_new <= limit_ && largest_with_new < best) {
        best = largest_with_new;
        best_size = size;
        best_leaf = kNone;
      }
    }
    if (best_size == 0) return false;
    if (best_leaf == kNone) {
      open_group(position, best_size);
    } else {
      add_to(index(best_size), best_leaf, position);
    }
    return true;
  }

  bool placeable(std::size_t position) const {
    const Item& item = items_[position];
    for (std::int64_t wide = need(item); wide <= ranks_; wide *= 2) {
      const int size = static_cast<int>(wide);
      const double work = megatron::work(item.length, size);
      if (ranks_ - used_ranks_ >= size && work <= limit_) return true;
      if (index(size).first(static_cast<double>(item.length) / size, work, limit_) != kNone) {
        return true;
      }
    }
    return false;
  }

  // The first position from `from` on, removed or not, whose sequence finds a place; the end when
  // there is none.
  std::size_t first_placeable(std::size_t from) const {
    const auto holds = [this](std::size_t position) { return placeable(position); };
    if (from < first_of_min_cp_) {
      const std::size_t found = first_where(from, first_of_min_cp_, holds);
      if (found < first_of_min_cp_) return found;
      from = first_of_min_cp_;
    }
    return first_where(from, items_.size(), holds);
  }

  // Doubles the first of the smallest groups until no rank is empty: one sweep over the groups per
  // size. Returns false when it gets stuck.
  bool fill_empty_ranks() {
    while (used_ranks_ < ranks_) {
      int smallest = ranks_;
      for (const Group& group : groups_) smallest = std::min(smallest, group.size);
      const int widened = std::min(2 * smallest, ranks_);
      const int added = widened - smallest;
      int end_rank = 0;
      for (std::size_t g = 0; g < groups_.size() && used_ranks_ < ranks_; ++g) {
        end_rank += groups_[g].size;
        if (groups_[g].size != smallest) continue;
        if (end_rank + added > ranks_) return false;
        if (used_ranks_ + added > ranks_) {
          megatron::throw_pushed_outside("megatron-packing-aware", g, widened, ranks_);
        }
        groups_[g].size = widened;
        used_ranks_ += added;
        end_rank += added;
      }
    }
    return true;
  }

  // Packs what fits on all ranks, in descending order from position `front` on.
  GroupList one_group_of_all_ranks(std::size_t front) {
    megatron::PlacedGroup all{ranks_, {}};
    double tokens = 0;
    const auto fits = [&](std::size_t position) {
      return tokens + static_cast<double>(items_[position].length) / ranks_ <= max_tokens_per_rank_;
    };
    std::size_t position = front;
    while (position < items_.size()) {
      if (fits(position)) {
        all.sequences.push_back(items_[position].id);
        tokens += static_cast<double>(items_[position].length) / ranks_;
        alive_.remove(position);
        position = alive_.at_or_after(position + 1);
      } else {
        position = alive_.at_or_after(first_where(position + 1, items_.size(), fits));
      }
    }
    return {all};
  }

  int ranks_;
  std::int64_t max_tokens_;
  double max_tokens_per_rank_;
  int min_cp_;
  std::vector<Item> items_;  // descending
  AliveList alive_;          // those that no microbatch runs yet
  std::size_t first_of_min_cp_ = 0;
  std::vector<SizeIndex> indexes_;
  std::vector<std::size_t> index_of_size_;

  // The microbatch being formed.
  std::vector<Group> groups_;  // side by side from rank 0 on
  std::vector<std::size_t> placed_;
  int used_ranks_ = 0;
  double busiest_ = 0;  // largest load of all ranks
  double limit_ = 0;
};

}  // namespace

std::string_view MegatronPackingAware::summary() const {
  return "Megatron dev's dynamic CP, packed (known defects: fails in domains and with a min_cp "
         "that "
         "are no power of two, cannot always reach microbatch_multiple, ignores max_sequences)";
}

Schedule MegatronPackingAware::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  std::vector<GroupList> microbatches = FastFormer(problem).form_all();
  megatron::align_microbatches(microbatches, problem.ranks, problem.microbatch_multiple);
  Schedule schedule;
  schedule.microbatches.reserve(microbatches.size());
  for (const GroupList& groups : microbatches) {
    schedule.microbatches.push_back(megatron::lay_out(groups));
  }
  return schedule;
}

}  // namespace dyncp
