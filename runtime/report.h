// Runs cases and reports on them: to a person (text), to CI systems (JUnit, exit code), to programs
// (JSON) and as one self-contained HTML page. Clock readings appear in none of them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/check.h"

namespace dyncp {

/// One case that was run.
struct CaseRun {
  Problem problem;
  CaseResult result;
};

/// What a command did.
struct Report {
  std::string title;                  // "dyncp gate --tier ci"
  std::vector<CaseRun> runs;          // in the order the cases were given
  std::vector<std::string> left_out;  // what was not checked and why, a line each
  std::vector<std::string> notes;     // what was checked, a line each
  bool abandoned = false;             // a case ran past its deadline; threads may still be running
};

struct RunOptions {
  int threads = 1;
  std::chrono::milliseconds deadline{30000};  // for each case
  /// Called from the calling thread before (with one thread) and after each case, in the order of
  /// the cases.
  std::function<void(const Problem&)> on_start;
  std::function<void(const CaseRun&, std::size_t done, std::size_t total)> on_done;
};

/// Runs one case in this thread. A driver that throws InvalidInput gives INVALID; any other
/// exception is a finding of the check "<driver>.exception".
CaseResult run_case(const Problem& problem);

/// Runs the cases. A case that runs past its deadline is FAILED ("<driver>.deadline") and the cases
/// not yet begun are SKIPPED; the caller must then report and leave the process by _Exit.
Report run_cases(const std::vector<Problem>& problems, const RunOptions& options);

/// Number of runs of each status, every status present.
std::map<Status, int> count_statuses(const Report& report);

/// "tests:N passed:N failed:N mistrusted:N skipped:N invalid:N"
std::string summary_line(const Report& report);

/// 1 when a case failed or was invalid, or (unless allowed) mistrusted, or when nothing was run;
/// else 0.
int exit_code(const Report& report, bool allow_mistrusted);

/// The failed and invalid cases, the first ten: finding and reproducer. Empty when there is none.
std::string failed_list(const Report& report);

/// A line a driver: cases, checks, CP sizes formed.
std::string coverage_table(const Report& report);

std::string to_junit(const Report& report);
std::string to_json_text(const Report& report);
std::string to_html(const Report& report);

/// Text for HTML and XML.
std::string escape_markup(std::string_view text);

}  // namespace dyncp
