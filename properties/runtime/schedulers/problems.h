// Scheduling problems for the properties of the schedulers: every family of lengths, domains that
// are powers of two and others, limits that bind, ties, and lengths whose squares need rounding.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "properties/cases.h"
#include "properties/generators.h"
#include "reference/schedule.h"
#include "runtime/schedule_format.h"

namespace dyncp {

inline void showValue(const ScheduleProblem& problem, std::ostream& out) {
  out << problem_to_json(problem).dump();
}

/// Which domains (ranks, min_cp) are drawn.
enum class Domains { kPowersOfTwo, kAny };

/// A problem on 1..max_ranks ranks with up to 4 sequences a rank. Lengths reach a little beyond
/// what the domain holds in about one case of eight. Shrinks to fewer and shorter sequences.
inline rc::Gen<ScheduleProblem> genProblem(Domains domains, int max_ranks = 32) {
  return rc::gen::exec([domains, max_ranks] {
    ScheduleProblem problem;
    const bool powers = domains == Domains::kPowersOfTwo || *genInt(0, 1) == 0;
    problem.ranks = *genInt(1, max_ranks);
    if (powers) {
      problem.ranks = static_cast<int>(std::bit_floor(static_cast<unsigned>(problem.ranks)));
    }
    problem.max_tokens_per_rank =
        *rc::gen::element<std::int64_t>(1, 3, 7, 64, 1000, 1024, std::int64_t{1} << 33);
    problem.microbatch_multiple = *rc::gen::element(1, 1, 1, 2, 3, 4);
    problem.tensor_parallel = *rc::gen::element(1, 1, 2);
    problem.padding = *rc::gen::element(Padding::kNone, Padding::kNone, Padding::kGlobal);
    if (*genInt(0, 3) == 0) {
      const int min_cp = *genInt(1, problem.ranks);
      problem.min_cp = domains == Domains::kPowersOfTwo
                           ? static_cast<int>(std::bit_floor(static_cast<unsigned>(min_cp)))
                           : min_cp;
    }
    const std::int64_t domain_tokens = problem.max_tokens_per_rank * problem.ranks;
    LengthBounds bounds;
    bounds.min_count = 0;
    bounds.max_count = *genInt(0, 1) == 0 ? 8 : 4 * problem.ranks;
    switch (*genInt(0, 7)) {
      case 0:
        bounds.max_length = domain_tokens + domain_tokens / 8 + 1;
        break;
      case 1:
      case 2:
        bounds.max_length = domain_tokens;
        break;
      default:
        bounds.max_length = std::min(domain_tokens, 4 * problem.max_tokens_per_rank);
        break;
    }
    bounds.max_length = std::min(bounds.max_length, kMaxSequenceLength);
    problem.lengths = *genLengths(bounds);
    if (*genInt(0, 3) == 0 && !problem.lengths.empty()) {  // ties: few distinct lengths
      for (std::size_t i = 3; i < problem.lengths.size(); ++i) {
        problem.lengths[i] = problem.lengths[i % 3];
      }
    }
    return problem;
  });
}

}  // namespace dyncp
