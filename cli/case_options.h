// What the subcommands that run cases share: options, report files, telling a run.
#pragma once

#include <CLI/App.hpp>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/problem.h"
#include "runtime/report.h"

namespace dyncp {

/// The options of the problem grammar as options of a subcommand. Only their text is taken here;
/// reading it is left to runtime/problem.h, so that the command line and a batch file accept the
/// same and complain alike. Must live as long as the app.
class ProblemWords {
 public:
  /// Adds the options that `driver` reads, without those named in `except`. Options that are not
  /// known are collected as well, for the grammar to name.
  void add_options(CLI::App& command, const Driver& driver,
                   const std::vector<std::string_view>& except = {});
  /// "--cp=4 --sink" and so on, as given. Valid once the command line was parsed.
  std::vector<std::string> words() const;

 private:
  struct Given {
    const ProblemOption* option = nullptr;
    std::vector<std::string> values;
  };
  std::deque<Given> given_;  // addresses stay
  const CLI::App* command_ = nullptr;
};

/// --junit, --json, --html and --timings.
struct ReportFiles {
  std::string junit, json, html, timings;
  void add_options(CLI::App& command);
  /// Throws InvalidInput when one of them could not be written: before the run, not after it.
  void require_writable() const;
  /// Writes those that were asked for, each whole or not at all.
  void write(const Report& report) const;
};

/// --deadline, --jobs and --verbose.
struct RunSettings {
  double deadline_seconds = 30;
  int jobs = 0;  // 0: one for a case told in full, else one for each processor
  bool verbose = false;
  void add_options(CLI::App& command);
  /// Throws InvalidInput when a value is out of range.
  void require_valid() const;
};

/// Runs the cases and tells them: a single case, and with --verbose every case, in full and with
/// its command first; else the first ten that fail, and progress when stdout is a terminal.
Report run_and_tell(std::vector<Case> cases, const RunSettings& settings);

/// What this build and machine leave out (GPU, MPI).
std::vector<LeftOut> left_out_here();

/// smoke, ci or full. Throws InvalidInput that lists them.
Tier parse_tier(const std::string& name);

/// When a case still runs its thread cannot be ended: flushes and leaves the process at once.
void leave_if_abandoned(const Report& report, int exit_code);

}  // namespace dyncp
