// Options that several subcommands share.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/problem.h"
#include "runtime/report.h"

namespace dyncp {

/// Adds the options of the problem grammar that `names` lists to a subcommand; they are set in
/// `problem`, which must live as long as the app.
void add_problem_options(CLI::App& command, const std::vector<std::string_view>& names,
                         Problem& problem);

/// --junit, --json and --html.
struct ReportFiles {
  std::string junit, json, html;
  void add_options(CLI::App& command);
  /// Writes those that were asked for, each whole or not at all.
  void write(const Report& report) const;
};

/// Lines on what this build and machine leave out (GPU, CUDA, MPI).
std::vector<std::string> left_out_here();

/// When a case hangs its thread cannot be ended: flushes and leaves the process at once.
void leave_if_abandoned(const Report& report, int exit_code);

}  // namespace dyncp
