// Valid plans when the constructive pass finds none, and the reason when there is none.
#pragma once

#include <string>

#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

/// Some valid plan, quality aside: packs of least total size by the fill lemma where it applies,
/// else all packs on the whole domain. False when neither way finds one. `plan`: on a single tree.
bool place_somehow(Plan& plan);

/// One sentence: why the instance has no valid schedule, as far as it is known. `searched`: all
/// possibilities were tried.
std::string why_infeasible(const Instance& instance, bool searched);

}  // namespace dyncp::nested
