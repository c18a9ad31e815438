// Runs cases and reports on them: to a person (text), to CI systems (JUnit, exit code), to programs
// (JSON) and as one self-contained HTML page. No clock reading, date or host name enters a report, so
// that two runs of the same cases compare equal. Clock readings have a file of their own
// (timings_text).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/check.h"

namespace dyncp {

/// A case that is to run.
struct Case {
  const Driver* driver = nullptr;
  Problem problem;
  std::string command;  // repeats the case
  std::function<CaseResult()> run;
};

/// `driver` on `problem`; SKIPPED where the driver has no run function.
Case make_case(const Driver& driver, const Problem& problem);

/// The cases of print_command(problem) for every problem.
std::vector<Case> make_cases(const std::vector<Problem>& problems);

/// How the run of a case ended.
enum class Ending {
  kReturned,     // the driver returned its result
  kRefused,      // it threw InvalidInput or Infeasible: INVALID
  kUnavailable,  // it threw Unavailable: SKIPPED
  kThrew,        // it threw anything else: FAILED, finding "<driver>.exception"
  kOverran       // it ran past its deadline: FAILED, finding "<driver>.deadline"
};

/// A case that was run.
struct CaseRun {
  const Driver* driver = nullptr;
  Problem problem;
  std::string command;
  CaseResult result;
  Ending ending = Ending::kReturned;
  double seconds = 0;  // for timings_text only
};

/// What was not checked, and why.
struct LeftOut {
  std::string what;
  std::string why;
};

/// What a command did.
struct Report {
  std::string title;              // "dyncp gate --tier ci": also the command that repeats it
  std::string version;            // "0.1.0"
  bool mistrusted_fails = false;  // MISTRUSTED counts as a failure
  std::vector<CaseRun> runs;      // in the order the cases were given
  std::vector<LeftOut> left_out;
  std::vector<LengthSet> length_sets;  // those the cases were drawn from
  bool abandoned = false;  // a case overran its deadline and its thread may still be running: the
                           // caller must report and leave the process by _Exit
};

struct RunOptions {
  int threads = 1;               // cases at a time; the report does not depend on it
  double deadline_seconds = 30;  // for each case
  bool one_by_one = false;       // a case begins only after on_start returned for it
  /// Called from the calling thread, in the order of the cases; null: not called.
  std::function<void(const Case&)> on_start;
  std::function<void(const CaseRun&, std::size_t done, std::size_t total)> on_done;
};

/// Runs the cases on threads of its own. A case that overruns its deadline FAILS and another thread
/// takes over; after four of them the cases that have not begun are SKIPPED.
Report run_cases(std::vector<Case> cases, const RunOptions& options);

/// From now on a fatal signal (segmentation fault, abort, ...) inside a case prints, on stderr, the
/// command that repeats the case, before the process dies of the signal.
void tell_case_on_crash();

/// Number of cases in each status.
struct Counts {
  std::int64_t tests = 0, passed = 0, failed = 0, mistrusted = 0, skipped = 0, invalid = 0;
  void add(Status status);
  bool operator==(const Counts&) const = default;
};

Counts count_statuses(const Report& report);

/// "tests:N passed:N failed:N mistrusted:N skipped:N invalid:N"
std::string summary_line(const Report& report);

/// 1 with a case that FAILED or is INVALID, with a MISTRUSTED one where these fail, and when no case
/// was run at all (nothing checked is nothing proved); else 0.
int exit_code(const Report& report);

/// The run of one case for a person: its details, then a line for each finding or the status with
/// its reason.
std::string case_text(const CaseRun& run);

/// The failed and invalid cases, the first ten: finding and command. Empty when there is none.
std::string failed_list(const Report& report);

/// The reasons of MISTRUSTED and SKIPPED cases, how often each was met, and the first command that
/// met it. Empty when there is none.
std::string not_checked_list(const Report& report);

/// Cases that proved nothing (MISTRUSTED or SKIPPED) for one reason.
struct NotChecked {
  std::int64_t cases = 0;
  std::string command;  // the first case's
};

/// What one driver did, added up over its cases.
struct DriverSummary {
  std::string name;
  Counts counts;
  std::map<std::string, std::int64_t> checks;    // name -> cases that ran it
  std::map<std::string, std::int64_t> findings;  // name -> findings
  std::map<int, std::int64_t> cp_sizes;          // --cp -> cases; empty when it is not read
  std::map<int, std::int64_t> rank_domains;      // --ranks -> cases, likewise
  std::int64_t sequences = 0;                    // of all cases together
  std::int64_t unaligned = 0;  // of those, real length no multiple of 2*cp (where --cp is read)
  std::int64_t shortest = 0, longest = 0;         // real lengths, tokens
  std::map<std::string, NotChecked> not_checked;  // by status and reason
};

/// One entry for each driver that has a case, in the order of first use.
std::vector<DriverSummary> summarize(const Report& report);

/// A line a driver: cases by status, checks, the CP sizes or rank domains, lengths.
std::string coverage_table(const Report& report);

/// Figures of a length set, in tokens.
struct LengthFigures {
  std::int64_t count = 0, shortest = 0, median = 0, longest = 0, total = 0;
};
LengthFigures figures_of(const LengthSet& set);

/// JUnit XML: a suite for each driver, a test case for each case, named by its command.
std::string to_junit(const Report& report);

/// Everything as JSON; docs/gate.md lists the fields.
std::string to_json_text(const Report& report);

/// One page without scripts and without anything from elsewhere.
std::string to_html(const Report& report);

/// Seconds of each driver and case as JSON: the only output with clock readings.
std::string timings_text(const Report& report);

/// Text for HTML and XML, in content and in double-quoted attributes. What XML does not allow, and
/// bytes that are no UTF-8, become the replacement character.
std::string escape_markup(std::string_view text);

}  // namespace dyncp
