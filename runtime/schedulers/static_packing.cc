#include "runtime/schedulers/static_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "reference/error.h"

namespace dyncp {
namespace {

// Tokens that `size` ranks hold; limited to 2^62, so that adding a sequence cannot overflow.
std::int64_t pack_capacity(const ScheduleProblem& problem, int size) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  return problem.max_tokens_per_rank > kLimit / size ? kLimit : problem.max_tokens_per_rank * size;
}

// The smallest power of two, at least min_cp, on which sequence `longest` fits, padding included.
int smallest_fitting_size(const ScheduleProblem& problem, int longest) {
  auto size = static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem.min_cp)));
  for (; size <= problem.ranks; size *= 2) {
    if (problem.padded_length(longest, size) <= pack_capacity(problem, size)) return size;
  }
  throw Infeasible(fmt::format(
      "static-packing: sequence {} of {} tokens fits on no CP size that is a power of two "
      "in {}..{}, at {} tokens a rank",
      longest, problem.lengths[static_cast<std::size_t>(longest)], problem.min_cp, problem.ranks,
      problem.max_tokens_per_rank));
}

}  // namespace

std::string_view StaticPacking::summary() const {
  return "one static CP size, packed in the given order (Megatron's dp_balanced; known defects: "
         "unbalanced, gives up with fewer sequences than packs, no check of over-long sequences)";
}

Schedule StaticPacking::schedule(const ScheduleProblem& problem) const {
  require_valid(problem);
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    if (problem.lengths[static_cast<std::size_t>(id)] > 0) ids.push_back(id);
  }
  if (ids.empty()) return {};

  const auto longest = std::max_element(ids.begin(), ids.end(), [&](int a, int b) {
    return problem.lengths[static_cast<std::size_t>(a)] <
           problem.lengths[static_cast<std::size_t>(b)];
  });
  const int cp_size = cp_size_ ? *cp_size_ : smallest_fitting_size(problem, *longest);
  if (cp_size < 1 || problem.ranks % cp_size != 0) {
    throw Infeasible(
        fmt::format("static-packing: static CP size {} does not divide the rank domain of {} ranks",
                    cp_size, problem.ranks));
  }

  // Fill packs in the given order. As upstream, a sequence that does not fit closes the current
  // pack without asking whether it is empty, and opens the next without asking whether it fits.
  const std::int64_t capacity = pack_capacity(problem, cp_size);  // tokens
  std::vector<std::vector<int>> packs(1);
  std::int64_t tokens = 0;
  for (const int id : ids) {
    const std::int64_t length = problem.padded_length(id, cp_size);
    const bool has_room =
        !problem.max_sequences || static_cast<int>(packs.back().size()) < *problem.max_sequences;
    if (tokens + length > capacity || !has_room) {
      packs.emplace_back();
      tokens = 0;
    }
    packs.back().push_back(id);
    tokens += length;
  }

  // Every replica needs as many packs as the others, and the pipeline its multiple of microbatches.
  const int replicas = problem.ranks / cp_size;
  const auto multiple =
      static_cast<std::size_t>(static_cast<std::int64_t>(replicas) * problem.microbatch_multiple);
  std::size_t missing = (multiple - packs.size() % multiple) % multiple;
  const std::size_t total = packs.size() + missing;
  std::size_t splittable = packs.size();  // one past the pack to split next
  for (; missing > 0; --missing) {
    while (splittable > 0 && packs[splittable - 1].size() <= 1) --splittable;
    if (splittable == 0) {
      throw Infeasible(
          fmt::format("static-packing: not enough samples to move: {} sequences cannot fill {} "
                      "packs ({} replicas of CP size {}, microbatch multiple {})",
                      ids.size(), total, replicas, cp_size, problem.microbatch_multiple));
    }
    const int moved = packs[splittable - 1].back();
    packs[splittable - 1].pop_back();
    packs.push_back({moved});
  }

  Schedule schedule;
  for (std::size_t first = 0; first < packs.size(); first += static_cast<std::size_t>(replicas)) {
    Microbatch microbatch;
    for (int replica = 0; replica < replicas; ++replica) {
      microbatch.push_back({{replica * cp_size, cp_size},
                            std::move(packs[first + static_cast<std::size_t>(replica)])});
    }
    schedule.microbatches.push_back(std::move(microbatch));
  }
  return schedule;
}

}  // namespace dyncp
