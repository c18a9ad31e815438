#include "runtime/checks/slice_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>

#include "reference/error.h"

namespace dyncp {

std::vector<PackedSeqParams> params_of_group(const Problem& problem, const Pack& pack,
                                             std::string_view check, CaseResult& result) {
  const CpGroup group{problem.first_rank, problem.cp};
  const bool has_group = problem.cp > 1 || problem.contract == Contract::kV2;
  std::vector<PackedSeqParams> all;
  for (int rank = 0; rank < problem.cp; ++rank) {
    const int global_rank = problem.first_rank + rank;
    std::string error;
    try {
      all.emplace_back(pack, problem.cp, has_group ? std::optional<CpGroup>(group) : std::nullopt,
                       global_rank, problem.contract);
    } catch (const InvalidInput& refused) {
      error = refused.what();
    }
    if (!result.expect(check, Kind::kState, error.empty(), [&] {
          return fmt::format("rank {} (global rank {}) has no PackedSeqParams: {}", rank,
                             global_rank, error);
        })) {
      return {};
    }
    const CpContext& context = all.back().context();
    result.expect(check, Kind::kState, context.size() == problem.cp && context.rank() == rank, [&] {
      return fmt::format("global rank {} is rank {} of {} in its context, expected rank {} of {}",
                         global_rank, context.rank(), context.size(), rank, problem.cp);
    });
    const std::int64_t tokens = all.back().total_tokens();
    result.expect(check, Kind::kState, tokens * problem.cp == pack.padded_tokens(), [&] {
      return fmt::format("rank {} counts {} local tokens of {} over {} ranks", rank, tokens,
                         pack.padded_tokens(), problem.cp);
    });
  }
  return all;
}

void mistrust_vacuous_slices(const Problem& problem, CaseResult& result) {
  const auto is_multiple = [&problem](std::int64_t length) {
    return length % (std::int64_t{2} * problem.cp) == 0;
  };
  const Pack pack = problem.pack();
  if (pack.padded_tokens() == 0) {
    result.mistrust("the pack has no tokens");
  } else if (problem.cp == 1) {
    result.mistrust("with CP size 1 the rank holds the whole pack: nothing is sliced");
  } else if (std::all_of(problem.lengths.begin(), problem.lengths.end(), is_multiple)) {
    result.mistrust(fmt::format("all real lengths are multiples of 2*cp = {}", 2 * problem.cp));
  }
}

std::vector<Problem> window_cases(std::string_view driver, const std::vector<LengthSet>& sets,
                                  std::uint64_t seed, const WindowPlan& plan,
                                  const std::function<void(Problem&, int)>& vary) {
  std::vector<Problem> cases;
  std::mt19937_64 random(seed);
  const auto below = [&random](std::size_t bound) {
    return static_cast<std::size_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (const LengthSet& set : sets) {
    if (set.lengths.empty()) continue;
    for (int window = 0; window < plan.windows; ++window) {
      for (const int size : {2, 3, 4, 5, 8}) {
        const auto number = static_cast<int>(cases.size());
        const std::size_t count =
            std::min(set.lengths.size(), static_cast<std::size_t>(plan.sequences));
        const std::size_t start = below(set.lengths.size() - count + 1);
        Problem problem;
        problem.driver = std::string(driver);
        problem.cp = size;
        problem.seed = seed + static_cast<std::uint64_t>(number);
        problem.first_rank = number % 4 == 0 ? 0 : size * (number % 4);
        problem.contract = number % 3 == 2 ? Contract::kV2 : Contract::kV1;
        problem.tensor_parallel = number % 5 == 4 ? 2 : 1;
        problem.lengths.assign(set.lengths.begin() + static_cast<std::ptrdiff_t>(start),
                               set.lengths.begin() + static_cast<std::ptrdiff_t>(start + count));
        const std::int64_t longest =
            *std::max_element(problem.lengths.begin(), problem.lengths.end());
        if (longest > plan.longest) {
          // In double: the product of two lengths may not fit 64 bits.
          const double scale = static_cast<double>(plan.longest) / static_cast<double>(longest);
          for (std::int64_t& length : problem.lengths) {
            const auto scaled = static_cast<std::int64_t>(scale * static_cast<double>(length));
            length =
                std::clamp<std::int64_t>(scaled, std::min<std::int64_t>(length, 1), plan.longest);
          }
        }
        // One token is no multiple of 2*size: whatever the set holds, the case is not vacuous.
        for (const std::int64_t edge : {0, 1}) {
          problem.lengths.insert(problem.lengths.begin() +
                                     static_cast<std::ptrdiff_t>(below(problem.lengths.size() + 1)),
                                 edge);
        }
        if (number % 2 == 1) {
          const std::int64_t multiple = padding_multiple(size, problem.tensor_parallel);
          for (std::int64_t length : problem.lengths) {
            problem.padded.push_back(round_up(length, multiple) +
                                     static_cast<std::int64_t>(below(2)) * multiple);
          }
        }
        if (vary) vary(problem, number);
        cases.push_back(std::move(problem));
      }
    }
  }
  return cases;
}

}  // namespace dyncp
