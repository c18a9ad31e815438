// What the zigzag and rope drivers share: the parameters of every rank of the case's CP group, when
// such a case cannot fail, and the gate's cases as windows of real lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/context.h"
#include "runtime/check.h"

namespace dyncp {

/// PackedSeqParams of every rank of the group, in rank order, as a framework would bind them;
/// expects (as `check`) that each can be built and gives the rank its place in the group and its
/// share of the tokens. Empty when any cannot be built.
std::vector<PackedSeqParams> params_of_group(const Problem& problem, const Pack& pack,
                                             std::string_view check, CaseResult& result);

/// Mistrusts a case without tokens, with CP size 1, or whose real lengths are all multiples of
/// 2*size (no padding row, and counts that round no way).
void mistrust_vacuous_slices(const Problem& problem, CaseResult& result);

/// How gate cases are cut out of the length sets.
struct WindowPlan {
  int windows = 1;              // per length set and CP size
  int sequences = 8;            // per window
  std::int64_t longest = 1000;  // tokens; a window with longer ones is scaled down as a whole
};

/// Cases of `driver` with CP sizes 2, 3, 4, 5 and 8: windows of consecutive lengths of every set,
/// at places drawn from `seed`, an empty and a one-token sequence put in, groups that mostly do not
/// start at rank 0, both contracts, tensor parallelism, and padded lengths longer than needed.
/// `vary` sets the driver's own options from the number of the case.
std::vector<Problem> window_cases(std::string_view driver, const std::vector<LengthSet>& sets,
                                  std::uint64_t seed, const WindowPlan& plan,
                                  const std::function<void(Problem&, int)>& vary = nullptr);

}  // namespace dyncp
