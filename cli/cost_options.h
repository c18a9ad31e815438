// --cost, --barrier and --effort: what schedules are judged by, and what schedulers that search for
// the least makespan are told.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "runtime/schedulers/dyncp.h"

namespace dyncp {

struct CostOptions {
  std::string cost = "flat";       // flat, two-tier, quadratic or a file (runtime/cost_file.h)
  std::string barrier = "none";    // none or microbatch
  std::string effort = "default";  // fast, default or best

  void add_options(CLI::App& command);
  /// Throws InvalidInput naming the option.
  DyncpOptions parse() const;
  /// Those that are not the default, as words of a command line: "--cost two-tier".
  std::string words() const;
};

}  // namespace dyncp
