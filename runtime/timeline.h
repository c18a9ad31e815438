// Pictures of a schedule in time: who runs what when, by rank, under a cost model. A simulation,
// never a measurement; the pictures say so.
#pragma once

#include <string>

#include "reference/cost.h"

namespace dyncp {

/// An inline SVG Gantt chart: one row a rank, one bar a CP group (spanning its ranks), coloured by
/// CP size, with a text description and a tooltip per bar. At most 128 ranks are drawn; with more,
/// the first 128 and a line that says so. REQUIRES: the schedule is valid.
std::string gantt_svg(const ScheduleProblem& problem, const Schedule& schedule,
                      const CostModel& cost, Barrier barrier);

/// A Chrome trace (JSON) that opens in Perfetto: one track a rank, one slice a CP group and rank,
/// with CP size, sequences and tokens as arguments. Times in microseconds of the cost model.
std::string chrome_trace(const ScheduleProblem& problem, const Schedule& schedule,
                         const CostModel& cost, Barrier barrier);

}  // namespace dyncp
