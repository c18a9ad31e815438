// The packing-aware algorithm as it is described in megatron_packing_aware.h, without indexes: the
// oracle of the fast one. Keep it plain.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/schedulers/megatron.h"
#include "runtime/schedulers/megatron_alignment.h"
#include "runtime/schedulers/megatron_packing_aware.h"

namespace dyncp {
namespace {

using megatron::GroupList;
using megatron::Item;

// A CP group while its microbatch is being formed. Groups in order of creation lie side by side.
struct Group {
  int size = 1;
  double tokens = 0;  // of each member: sum of length / size
  double load = 0;    // of each member: sum of length^2 / size
  std::vector<int> sequences;
};

// Where a sequence may go: an existing group, or a new one of `size` ranks.
struct Placement {
  double largest_load = std::numeric_limits<double>::infinity();  // of all ranks, afterwards
  int size = 0;
  std::optional<std::size_t> group;
};

class PlainFormer {
 public:
  explicit PlainFormer(const ScheduleProblem& problem)
      : ranks_(problem.ranks),
        max_tokens_(problem.max_tokens_per_rank),
        max_tokens_per_rank_(static_cast<double>(problem.max_tokens_per_rank)),
        min_cp_(problem.min_cp) {}

  // Takes one microbatch out of `items`, which is not empty and in descending order.
  GroupList form(std::vector<Item>& items) {
    groups_.clear();
    used_ranks_ = 0;
    const Item& longest = items.front();
    if (need(longest) > ranks_) megatron::throw_needs_more_ranks(longest, need(longest), ranks_);
    limit_ = megatron::work_limit(longest.length, max_tokens_);
    apply(longest, {0, static_cast<int>(need(longest)), std::nullopt});

    std::vector<Item> leftovers;
    for (std::size_t i = 1; i < items.size(); ++i) {
      const std::optional<Placement> placement = best_placement(items[i]);
      if (placement) {
        apply(items[i], *placement);
      } else {
        leftovers.push_back(items[i]);
      }
    }
    while (used_ranks_ < ranks_) {
      if (!widen_once()) return one_group_of_all_ranks(items);
    }
    items = std::move(leftovers);
    GroupList placed;
    for (Group& group : groups_) placed.push_back({group.size, std::move(group.sequences)});
    return placed;
  }

 private:
  std::int64_t need(const Item& item) const {
    return megatron::need(item.length, max_tokens_, min_cp_);
  }

  std::optional<Placement> best_placement(const Item& item) const {
    double busiest = 0;
    for (const Group& group : groups_) busiest = std::max(busiest, group.load);

    Placement best;
    const auto consider = [&](double member_load, int size, std::optional<std::size_t> group) {
      const double largest = std::max(busiest, member_load);
      if (largest <= limit_ && largest < best.largest_load) best = {largest, size, group};
    };
    for (std::int64_t wide = need(item); wide <= ranks_; wide *= 2) {
      const int size = static_cast<int>(wide);
      const double work = megatron::work(item.length, size);
      const double tokens = static_cast<double>(item.length) / size;
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].size != size) continue;
        if (groups_[g].tokens + tokens > max_tokens_per_rank_) continue;
        consider(groups_[g].load + work, size, g);
      }
      if (ranks_ - used_ranks_ >= size) consider(work, size, std::nullopt);
    }
    if (best.size == 0) return std::nullopt;
    return best;
  }

  void apply(const Item& item, const Placement& placement) {
    if (!placement.group) {
      groups_.push_back({placement.size, 0, 0, {}});
      used_ranks_ += placement.size;
    }
    Group& group = placement.group ? groups_[*placement.group] : groups_.back();
    group.tokens += static_cast<double>(item.length) / group.size;
    group.load += megatron::work(item.length, group.size);
    group.sequences.push_back(item.id);
  }

  // Doubles the first of the smallest groups that ends early enough; the groups behind it move
  // right. Returns false when there is none.
  bool widen_once() {
    int smallest = ranks_;
    for (const Group& group : groups_) smallest = std::min(smallest, group.size);
    const int widened = std::min(2 * smallest, ranks_);
    const int added = widened - smallest;
    int end_rank = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      end_rank += groups_[g].size;
      if (groups_[g].size != smallest || end_rank + added > ranks_) continue;
      if (used_ranks_ + added > ranks_) {
        megatron::throw_pushed_outside("megatron-packing-aware", g, widened, ranks_);
      }
      groups_[g].size = widened;
      used_ranks_ += added;
      return true;
    }
    return false;
  }

  // Packs what fits on all ranks, in descending order; the rest stays in `items`. The longest
  // always fits, because it needs at most all ranks.
  GroupList one_group_of_all_ranks(std::vector<Item>& items) const {
    megatron::PlacedGroup all{ranks_, {}};
    std::vector<Item> rest;
    double tokens = 0;
    for (const Item& item : items) {
      const double more = static_cast<double>(item.length) / ranks_;
      if (tokens + more <= max_tokens_per_rank_) {
        all.sequences.push_back(item.id);
        tokens += more;
      } else {
        rest.push_back(item);
      }
    }
    items = std::move(rest);
    return {all};
  }

  int ranks_;
  std::int64_t max_tokens_;
  double max_tokens_per_rank_;
  int min_cp_;
  double limit_ = 0;
  std::vector<Group> groups_;
  int used_ranks_ = 0;
};

}  // namespace

Schedule plain_packing_aware(const ScheduleProblem& problem) {
  require_valid(problem);
  std::vector<Item> items = megatron::descending_items(problem);
  PlainFormer former(problem);
  std::vector<GroupList> microbatches;
  while (!items.empty()) microbatches.push_back(former.form(items));
  megatron::align_microbatches(microbatches, problem.ranks, problem.microbatch_multiple);
  Schedule schedule;
  for (const GroupList& groups : microbatches) {
    schedule.microbatches.push_back(megatron::lay_out(groups));
  }
  return schedule;
}

}  // namespace dyncp
