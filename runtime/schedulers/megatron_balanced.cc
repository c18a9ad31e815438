#include "runtime/schedulers/megatron_balanced.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "reference/error.h"
#include "runtime/schedulers/megatron.h"

namespace dyncp {
namespace {

using megatron::Item;

constexpr double kBalanceSlack = 0.05;  // loads within 5 % of the largest count as balanced
constexpr double kBucketSlack = 1.1;    // a bucket may hold 10 % more than its share of the work

// A CP group while its microbatch is being formed. Ranks are given out from 0 upwards and never
// taken back, so that groups in order of creation lie side by side.
struct Group {
  int size = 1;
  double load = 0;  // time of each member
  std::vector<Item> items;
};

struct Extremes {
  double least = 0;
  double most = 0;
  bool balanced() const { return most - least <= kBalanceSlack * most; }
};

// Forms one microbatch after the other from what is left.
class MicrobatchFormer {
 public:
  MicrobatchFormer(int ranks, std::int64_t max_tokens_per_rank)
      : ranks_(ranks), max_tokens_per_rank_(max_tokens_per_rank) {}

  // Takes a microbatch out of `items`, which is not empty; what stays behind is in upstream's
  // order.
  Microbatch form(std::vector<Item>& items) {
    groups_.clear();
    used_ranks_ = 0;
    const Item first = items.front();
    items = place(buckets_of_equal_work(items));
    trim_overload(items);
    if (groups_.empty()) {
      throw Infeasible(
          fmt::format("megatron-balanced: there should be at least one group existing: sequence {} "
                      "of {} tokens needs CP size {}, but the domain has {} ranks",
                      first.id, first.length, need(first), ranks_));
    }
    fill_empty_ranks();
    std::vector<megatron::PlacedGroup> placed;
    for (const Group& group : groups_) {
      placed.push_back({group.size, {}});
      for (const Item& item : group.items) placed.back().sequences.push_back(item.id);
    }
    return megatron::lay_out(placed);
  }

 private:
  // A CP size that may be larger than the domain.
  std::int64_t need(const Item& item) const {
    return megatron::need(item.length, max_tokens_per_rank_, 1);
  }

  // Time of one rank on the CP size the item needs.
  double cost(const Item& item) const {
    return static_cast<double>(item.length) * static_cast<double>(item.length) /
           static_cast<double>(need(item));
  }

  int free_ranks() const { return ranks_ - used_ranks_; }

  // Runs of the input with about equal work, at most as many as there are distinct CP sizes.
  std::vector<std::deque<Item>> buckets_of_equal_work(const std::vector<Item>& items) const {
    std::set<std::int64_t> sizes;
    double total = 0;
    for (const Item& item : items) {
      sizes.insert(need(item));
      total += cost(item);
    }
    const double target = total / static_cast<double>(sizes.size());

    std::vector<std::deque<Item>> closed;
    std::deque<Item> open;
    double open_work = 0;
    auto to_close = static_cast<std::ptrdiff_t>(sizes.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const double work = cost(items[i]);
      const auto rest = static_cast<std::ptrdiff_t>(items.size() - i);
      // Upstream counts closed buckets twice here: in `to_close` and by subtracting them.
      const bool few_left = rest <= to_close - static_cast<std::ptrdiff_t>(closed.size());
      if (!open.empty() && (open_work + work > target * kBucketSlack || few_left)) {
        closed.push_back(std::move(open));
        open.clear();
        open_work = 0;
        --to_close;
      }
      open.push_back(items[i]);
      open_work += work;
    }
    closed.push_back(std::move(open));
    return closed;
  }

  // The group of exactly this size with the least load, the first one on ties.
  Group* least_loaded(std::int64_t size) {
    Group* best = nullptr;
    for (Group& group : groups_) {
      if (group.size == size && (best == nullptr || group.load < best->load)) best = &group;
    }
    return best;
  }

  Extremes loads() const {
    Extremes extremes{free_ranks() > 0 ? 0.0 : groups_.front().load, 0.0};
    for (const Group& group : groups_) {
      extremes.least = std::min(extremes.least, group.load);
      extremes.most = std::max(extremes.most, group.load);
    }
    return extremes;
  }

  // Places items until none can be placed or the loads are balanced; returns the others in order.
  std::vector<Item> place(std::vector<std::deque<Item>> buckets) {
    std::size_t front = 0;  // buckets before it are empty; later ones may be as well
    std::optional<std::int64_t> first_need;
    bool check_balance = false;
    while (front < buckets.size()) {
      std::deque<Item>* source = nullptr;
      for (std::size_t b = front; b < buckets.size() && source == nullptr; ++b) {
        if (buckets[b].empty()) continue;
        const std::int64_t size = need(buckets[b].front());
        if (free_ranks() >= size || least_loaded(size) != nullptr) source = &buckets[b];
      }
      if (source == nullptr) break;
      const Item item = source->front();
      const std::int64_t size = need(item);
      if (!first_need) first_need = size;

      // Free ranks have load 0, so that they win against every group while there are enough.
      Group* group = least_loaded(size);
      if (free_ranks() >= size && (group == nullptr || group->load > 0)) {
        groups_.push_back({static_cast<int>(size), 0.0, {}});
        used_ranks_ += static_cast<int>(size);
        group = &groups_.back();
      }
      group->items.push_back(item);
      group->load += cost(item);
      source->pop_front();
      while (front < buckets.size() && buckets[front].empty()) ++front;

      if (size < *first_need) check_balance = true;
      if (check_balance && front < buckets.size() && loads().balanced()) break;
    }
    std::vector<Item> leftovers;
    for (std::size_t b = front; b < buckets.size(); ++b) {
      leftovers.insert(leftovers.end(), buckets[b].begin(), buckets[b].end());
    }
    return leftovers;
  }

  // Takes last items off the most loaded group as long as that narrows the gap between the loads.
  // They go to the end of the leftovers: the origin of groups that do not exist.
  void trim_overload(std::vector<Item>& leftovers) {
    while (!groups_.empty() && free_ranks() == 0) {
      const Extremes before = loads();
      if (before.balanced()) return;
      const auto heaviest = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
        return group.load == before.most;
      });
      if (heaviest->items.size() <= 1) return;
      const double load = heaviest->load;
      heaviest->load -= cost(heaviest->items.back());
      const Extremes after = loads();
      if (after.most - after.least >= before.most - before.least) {
        heaviest->load = load;
        return;
      }
      leftovers.push_back(heaviest->items.back());
      heaviest->items.pop_back();
    }
  }

  // Doubles the first of the smallest groups until no rank is empty; later groups move right.
  void fill_empty_ranks() {
    while (free_ranks() > 0) {
      const auto smallest =
          std::min_element(groups_.begin(), groups_.end(),
                           [](const Group& a, const Group& b) { return a.size < b.size; });
      const int size = std::min(2 * smallest->size, ranks_);
      const int added = size - smallest->size;
      if (added > free_ranks()) {
        megatron::throw_pushed_outside("megatron-balanced",
                                       static_cast<std::size_t>(smallest - groups_.begin()), size,
                                       ranks_);
      }
      smallest->size = size;
      used_ranks_ += added;
    }
  }

  int ranks_;
  std::int64_t max_tokens_per_rank_;
  std::vector<Group> groups_;
  int used_ranks_ = 0;
};

}  // namespace

std::string_view MegatronBalanced::summary() const {
  return "Megatron main's hybrid CP, serial execution (known defects: forms groups that do not "
         "exist because trimmed sequences are not sorted again, fails in domains that are no power "
         "of two, ignores min_cp, microbatch_multiple and max_sequences)";
}

Schedule MegatronBalanced::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  std::vector<Item> items = megatron::descending_items(problem);
  MicrobatchFormer former(problem.ranks, problem.max_tokens_per_rank);
  Schedule schedule;
  while (!items.empty()) schedule.microbatches.push_back(former.form(items));
  return schedule;
}

}  // namespace dyncp
