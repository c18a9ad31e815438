// Iterated local search: descend, disturb a little, descend again, keep what is no worse.
#pragma once

#include "runtime/schedulers/dyncp_repartition.h"

namespace dyncp::nested {

struct ImproveOptions {
  double good_enough = 0;  // stop at this makespan
  int patience = 0;        // repartitions in a row that may fail before a descent ends
  int kicks = 0;           // disturbances
};

/// Improves a uniform plan until the options or the budget end it; never makes it worse.
void improve(Plan& plan, const ImproveOptions& options, Random& random, Budget& budget);

}  // namespace dyncp::nested
