// Packs that use few rank slots, and packs on the whole domain.
#include "runtime/schedulers/dyncp_fallback.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/schedulers/dyncp_repair.h"

namespace dyncp::nested {
namespace {

// The lowest level on which items fit together, or levels() when on none.
int fitting_level(const Instance& instance, const std::vector<int>& items) {
  int level = 0;
  for (int item : items) level = std::max(level, instance.first_level(item));
  for (; level < instance.levels(); ++level) {
    Load load;
    for (int item : items) load += instance.load(item, level);
    if (instance.fits(load, static_cast<int>(items.size()), level)) break;
  }
  return level;
}

// Single sequences, then merged - what saves most slots first, the shortest of each size - until
// they fit into `microbatches` microbatches. The result may use too many slots still.
std::vector<LoosePack> small_packs(const Instance& instance, int microbatches) {
  std::map<int, std::vector<std::vector<int>>> by_level;  // packs of a level, shortest at the back
  std::int64_t slots = 0;
  for (int item = 0; item < instance.items(); ++item) {
    by_level[instance.first_level(item)].push_back({item});
    slots += instance.size(instance.first_level(item));
  }
  const std::int64_t limit = std::int64_t{instance.ranks()} * microbatches;
  for (int packs = instance.items(); slots > limit && packs > microbatches; --packs) {
    int best_saved = 0;
    int best_level = 0;
    std::map<int, std::vector<std::vector<int>>>::iterator best_a;
    std::map<int, std::vector<std::vector<int>>>::iterator best_b;
    for (auto a = by_level.begin(); a != by_level.end(); ++a) {
      for (auto b = a; b != by_level.end(); ++b) {
        const std::size_t second = b == a ? 2 : 1;  // the shortest but one of the same level
        if (a->second.empty() || b->second.size() < second) continue;
        std::vector<int> merged = a->second.back();
        const std::vector<int>& other = b->second[b->second.size() - second];
        merged.insert(merged.end(), other.begin(), other.end());
        const int level = fitting_level(instance, merged);
        if (level == instance.levels()) continue;
        const int saved = instance.size(a->first) + instance.size(b->first) - instance.size(level);
        if (saved > best_saved) {
          best_saved = saved;
          best_level = level;
          best_a = a;
          best_b = b;
        }
      }
    }
    if (best_saved == 0) break;
    std::vector<int> merged = std::move(best_a->second.back());
    best_a->second.pop_back();
    merged.insert(merged.end(), best_b->second.back().begin(), best_b->second.back().end());
    best_b->second.pop_back();
    std::sort(merged.begin(), merged.end());
    // Merged packs are the longer ones of their level: they are merged again last.
    std::vector<std::vector<int>>& peers = by_level[best_level];
    peers.insert(peers.begin(), std::move(merged));
    slots -= best_saved;
  }
  std::vector<LoosePack> packs;
  for (auto& [level, of_level] : by_level) {
    for (std::vector<int>& items : of_level) packs.push_back({std::move(items), level});
  }
  return packs;
}

}  // namespace

bool fill_whole_domain(Plan& plan, int microbatches) {
  const Instance& instance = plan.instance();
  const int top = instance.levels() - 1;
  std::vector<std::vector<int>> packs(static_cast<std::size_t>(microbatches));
  std::vector<Load> loads(packs.size());
  std::set<std::pair<double, std::size_t>> by_room;  // (room in tokens, pack) of packs not full
  for (int item = 0; item < instance.items(); ++item) {
    const Load load = instance.load(item, top);
    std::size_t pack = packs.size();
    if (item < microbatches) {
      pack = static_cast<std::size_t>(item);  // the longest take a pack each
    } else {
      auto found = by_room.lower_bound({load.tokens, 0});
      if (found == by_room.end()) return false;
      pack = found->second;
      by_room.erase(found);
    }
    packs[pack].push_back(item);
    loads[pack] += load;
    if (static_cast<int>(packs[pack].size()) < instance.max_count()) {
      const double room =
          instance.serial() ? kInfinity : instance.capacity(top) - loads[pack].tokens;
      by_room.emplace(room, pack);
    }
  }
  plan.clear();
  const std::vector<int>& roots = plan.tree().roots();
  for (std::size_t p = 0; p < packs.size(); ++p) {
    plan.add_pack(roots[p % roots.size()], std::move(packs[p]));
  }
  return true;
}

bool place_somehow(Plan& plan) {
  const Instance& instance = plan.instance();
  const int most = instance.most_microbatches();
  if (most < 1) return false;
  if (plan.tree().is_binary() && place_by_size(plan, small_packs(instance, most), most)) {
    return true;
  }
  constexpr int kMostTries = 8;  // feasibility rarely needs fewer microbatches than can be filled
  int microbatches = most;
  for (int tries = 0;
       tries < kMostTries && microbatches >= instance.fewest_microbatches() && microbatches > 0;
       ++tries, microbatches -= instance.multiple()) {
    if (fill_whole_domain(plan, microbatches)) return true;
  }
  return false;
}

std::string why_infeasible(const Instance& instance, bool searched) {
  const std::string multiple =
      instance.multiple() > 1 ? ", a multiple of " + std::to_string(instance.multiple()) : "";
  const std::string sequences = std::to_string(instance.items()) +
                                (instance.items() == 1 ? " sequence fills" : " sequences fill");
  const int most = instance.most_microbatches();
  if (most == 0) {
    return "no valid schedule: the number of microbatches must be a multiple of " +
           std::to_string(instance.multiple()) + ", each with a sequence of its own, and there " +
           (instance.items() == 1 ? "is 1 sequence"
                                  : "are " + std::to_string(instance.items()) + " sequences");
  }
  const std::string at_most =
      sequences + " at most " + std::to_string(most) + " microbatches" + multiple;
  if (instance.fewest_microbatches() > most) {
    return "no valid schedule: the tokens or max_sequences need at least " +
           std::to_string(instance.fewest_microbatches()) + " microbatches" + multiple + ", and " +
           at_most;
  }
  std::int64_t whole = 0;
  for (int item = 0; item < instance.items(); ++item) {
    whole += instance.first_level(item) == instance.levels() - 1;
  }
  std::string reason = searched ? "no valid schedule (every possibility was tried): "
                                : "no valid schedule was found: ";
  reason += at_most;
  if (whole > most) {
    reason += ", and " + std::to_string(whole) + " sequences that each need all " +
              std::to_string(instance.ranks()) + " ranks do not fit together in so few";
  } else {
    reason += ", and no way was found to give every rank work in each within the limits";
  }
  return reason;
}

}  // namespace dyncp::nested
