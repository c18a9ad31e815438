// Property search for schedulers: draws scheduling problems from a stated domain, asks a scheduler,
// judges what it says against the rules, and shrinks what breaks a rule to a minimal problem that
// still breaks the same rule. The scheduler may be a class, a program or a shared library
// (AskScheduler). Everything is derived from one seed; the same search finds the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/schedule.h"
#include "runtime/scheduler.h"
#include "runtime/scheduler_answer.h"

namespace dyncp {

/// Most cases of one search.
inline constexpr std::int64_t kMaxSearchCases = 1'000'000'000;

/// The problems a scheduler is searched over: what it claims to be valid for.
struct SearchDomain {
  int min_ranks = 8;  // the rank domain is drawn from min_ranks..max_ranks
  int max_ranks = 8;
  bool power_of_two_only = false;  // only rank domains that are powers of two
  std::int64_t max_tokens_per_rank = 1024;
  int min_cp = 1;  // rank domains below it are left out
  int tensor_parallel = 1;
  int microbatch_multiple = 1;
  std::optional<int> max_sequences = {};
  Execution execution = Execution::kPack;
  GroupPolicy group_policy = GroupPolicy::kAligned;
  Padding padding = Padding::kNone;
  std::vector<std::string> families = {};  // of runtime/lengths.h; empty = all
};

/// One drawn problem.
struct SearchCase {
  ScheduleProblem problem;
  std::string_view family;  // "mixed": one half each of two families
};

/// The cases of a domain. Lengths are scaled in units of max_tokens_per_rank and no longer than
/// the whole domain holds, save in one case of 64, where they may reach twice that; numbers of
/// sequences are uniform in 1..4P, and in one case of 8 in 64..max(4P, 128); one case of 8 mixes
/// two families, and one of 8 gets an empty and a one-token sequence put in.
class CaseSource {
 public:
  /// Throws InvalidInput when the domain is malformed or empty, or names an unknown family.
  CaseSource(const SearchDomain& domain, std::uint64_t seed);

  /// Case `index`; does not depend on the cases before it.
  SearchCase draw(std::int64_t index) const;

  /// The rank domains, ascending.
  const std::vector<int>& ranks() const { return ranks_; }
  /// The names of the families that are drawn.
  std::vector<std::string_view> families() const;

 private:
  SearchDomain domain_;
  std::uint64_t seed_;
  std::vector<int> ranks_;
  std::vector<std::size_t> families_;  // indices into length_families()
};

/// Whether a problem has a valid schedule.
struct Feasibility {
  enum class Answer { kFeasible, kInfeasible, kUndecided };
  Answer answer = Answer::kUndecided;
  std::string reason;                  // one clause
  std::optional<Schedule> schedule{};  // a valid one, when feasible
};

/// Feasible: a witness is found that runs everything on the whole domain, or by exhaustive search.
/// Infeasible: some sequence fits on no group, there are fewer sequences than microbatches needed,
/// or exhaustive search (at most 8 ranks and 5 sequences) finds nothing. Otherwise undecided.
/// REQUIRES: require_valid(problem).
Feasibility judge_feasibility(const ScheduleProblem& problem);

/// A rule that an answer breaks: the name of a ScheduleRule, of a SchedulerFailure::Kind, "refusal"
/// (an instance that fits was refused) or "deterministic" (asked twice, two answers).
struct BrokenRule {
  std::string rule;
  std::string sentence;
  bool operator==(const BrokenRule&) const = default;
};

/// What came of one answer.
struct Verdict {
  std::vector<BrokenRule> broken;  // at most one a rule
  bool answered = false;           // with a schedule, right or wrong
  bool refused = false;
  bool undecided = false;  // refused, and nobody knows whether the instance fits
  int largest_group = 0;   // of the schedule
  bool mixed_sizes = false;
};

/// Judges one answer to `problem`.
Verdict judge_answer(const ScheduleProblem& problem, const ScheduleAnswer& answer);

/// Asks twice and judges; the second answer must be the same as the first.
Verdict judge_scheduler(const AskScheduler& ask, const ScheduleProblem& problem);

/// A built-in scheduler as AskScheduler: Infeasible becomes a Refusal, any other exception a crash.
/// `scheduler` must outlive the result.
AskScheduler ask_scheduler(const Scheduler& scheduler);

struct ShrinkLimits {
  std::vector<int> ranks = {};  // rank domains that may be tried, ascending
  bool max_tokens = false;      // whether max_tokens_per_rank may shrink, lengths in proportion
  std::int64_t asks = 4000;     // most problems tried
};

/// Makes `problem` smaller as long as `still_broken` holds: fewer ranks, then fewer sequences,
/// shorter lengths (towards 1 and towards multiples of max_tokens_per_rank, plus one), descending
/// order. Options are left alone. Deterministic; the result satisfies still_broken, or is
/// `problem`.
ScheduleProblem shrink_problem(ScheduleProblem problem,
                               const std::function<bool(const ScheduleProblem&)>& still_broken,
                               const ShrinkLimits& limits);

struct SearchOptions {
  std::int64_t cases = 1000;
  std::uint64_t seed = 1;
  bool shrink_max_tokens = false;
  std::int64_t shrink_asks = 4000;  // a finding
  /// Hangs, crashes and late answers cost time: shrink them less, and stop after so many.
  std::int64_t shrink_asks_of_failures = 100;
  std::int64_t failures_at_most = 50;
  /// Called after every case with the cases done and the findings (rules) so far; may be empty.
  std::function<void(std::int64_t done, std::size_t rules)> progress = {};
};

/// One broken rule over a whole search.
struct SearchFinding {
  std::string rule;
  std::int64_t cases = 0;                         // in which it was broken
  std::map<std::string, std::int64_t> by_family;  // the same, by family
  std::int64_t first_case = 0;                    // index of the first
  ScheduleProblem found;                          // the smallest as drawn
  ScheduleProblem minimal;                        // shrunk
  std::string sentence;                           // of the minimal one
};

struct SearchReport {
  std::int64_t cases = 0;                               // run
  std::map<std::string, std::int64_t> cases_by_family;  // run
  std::int64_t answered = 0;                            // with a schedule
  std::int64_t refused_rightly = 0;                     // there is no schedule
  std::int64_t refused_undecided = 0;                   // nobody knows
  std::int64_t grouped = 0;                             // schedules with a CP group above size 1
  std::int64_t mixed = 0;                               // ... and CP groups of different sizes
  std::int64_t asks = 0;                                // questions, shrinking included
  bool stopped = false;                                 // after failures_at_most
  std::vector<SearchFinding> findings;                  // by descending number of cases
  /// Why the search could not have found anything; empty when it could.
  std::string mistrusted() const;
};

/// Draws, asks, judges, shrinks. Throws InvalidInput for a malformed domain or number of cases.
SearchReport search_scheduler(const AskScheduler& ask, const SearchDomain& domain,
                              const SearchOptions& options);

/// The options of `problem` and its lengths as `dyncp schedule` reads them, non-default ones only:
/// "--ranks 8 --max-tokens 1024 --lengths 4096,512". The execution is printed when it is not
/// `default_execution`.
std::string schedule_options(const ScheduleProblem& problem, Execution default_execution);

}  // namespace dyncp
