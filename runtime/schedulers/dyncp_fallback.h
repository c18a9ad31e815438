// Valid plans when the constructive pass finds none, and the reason when there is none.
#pragma once

#include <string>

#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

/// `microbatches` packs on the whole domain, each sequence in the fullest that has room. False when
/// they do not hold all. On a single tree or a forest of `microbatches` trees.
/// REQUIRES: 1 <= microbatches <= number of sequences.
bool fill_whole_domain(Plan& plan, int microbatches);

/// Some valid plan, quality aside: packs of least total size by the fill lemma where it applies,
/// else all packs on the whole domain. False when neither way finds one. `plan`: on a single tree.
bool place_somehow(Plan& plan);

/// One sentence: why the instance has no valid schedule, as far as it is known. `searched`: all
/// possibilities were tried.
std::string why_infeasible(const Instance& instance, bool searched);

}  // namespace dyncp::nested
