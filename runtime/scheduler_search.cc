// Property search for schedulers (contracts: scheduler_search.h).
#include "runtime/scheduler_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

#include "reference/error.h"
#include "reference/lower_bound.h"
#include "reference/optimum.h"
#include "reference/schedule_check.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

// Exhaustive search for a schedule stays quick up to these.
constexpr int kExhaustiveRanks = 8;
constexpr int kExhaustiveSequences = 5;
static_assert(kExhaustiveRanks <= kMaxOptimumRanks);
static_assert(kExhaustiveSequences <= kMaxOptimumSequences);

// splitmix64: short, and good from any seed on.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // 0..bound-1; the bias of the remainder is below 2^-32 for the small bounds used here.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// Saturates: max_tokens_per_rank may be anything up to 2^63 - 1.
std::int64_t tokens_of_domain(const ScheduleProblem& problem) {
  const std::int64_t limit = kMaxSequenceLength;
  return problem.max_tokens_per_rank > limit / problem.ranks
             ? limit
             : problem.max_tokens_per_rank * problem.ranks;
}

// Multiple to which lengths are padded on the whole domain.
std::int64_t domain_multiple(const ScheduleProblem& problem) {
  return problem.padding == Padding::kNone
             ? 1
             : padding_multiple(problem.ranks, problem.tensor_parallel);
}

std::vector<int> ids_with_tokens(const ScheduleProblem& problem) {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    if (problem.lengths[static_cast<std::size_t>(id)] > 0) ids.push_back(id);
  }
  return ids;
}

// Packs on the whole domain, first fit in descending order: few and full. Empty when a sequence
// does not fit on the whole domain.
std::vector<std::vector<int>> pack_whole_domain(const ScheduleProblem& problem,
                                                std::vector<int> ids) {
  const auto tokens = [&](int id) { return problem.padded_length(id, problem.ranks); };
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return tokens(a) > tokens(b); });
  struct Pack {
    std::vector<int> ids;
    std::int64_t tokens = 0;
  };
  std::vector<Pack> packs;
  std::size_t first_open = 0;  // packs before it are full
  for (int id : ids) {
    if (ceil_div(tokens(id), problem.ranks) > problem.max_tokens_per_rank) return {};
    const auto has_room = [&](const Pack& pack) {
      if (problem.execution == Execution::kSerial) return true;
      if (problem.max_sequences &&
          pack.ids.size() >= static_cast<std::size_t>(*problem.max_sequences)) {
        return false;
      }
      return ceil_div(pack.tokens + tokens(id), problem.ranks) <= problem.max_tokens_per_rank;
    };
    std::size_t p = first_open;
    while (p < packs.size() && !has_room(packs[p])) ++p;
    if (p == packs.size()) packs.emplace_back();
    packs[p].ids.push_back(id);
    packs[p].tokens += tokens(id);
    // Packs at the front that have no room even for the shortest sequence need no further look.
    const auto full = [&](const Pack& pack) {
      return problem.execution == Execution::kPack &&
             ceil_div(pack.tokens + tokens(ids.back()), problem.ranks) >
                 problem.max_tokens_per_rank;
    };
    while (first_open < packs.size() && full(packs[first_open])) ++first_open;
  }
  std::vector<std::vector<int>> result;
  for (Pack& pack : packs) result.push_back(std::move(pack.ids));
  return result;
}

// A schedule that runs everything on the whole domain, if that is enough.
std::optional<Schedule> whole_domain_schedule(const ScheduleProblem& problem,
                                              const std::vector<int>& ids) {
  std::vector<std::vector<int>> packs = pack_whole_domain(problem, ids);
  if (packs.empty()) return std::nullopt;
  const std::int64_t wanted =
      round_up(static_cast<std::int64_t>(packs.size()), problem.microbatch_multiple);
  if (wanted > static_cast<std::int64_t>(ids.size())) return std::nullopt;
  for (std::size_t p = 0; static_cast<std::int64_t>(packs.size()) < wanted;) {
    if (packs[p].size() == 1) {
      ++p;
      continue;
    }
    const int moved = packs[p].back();
    packs[p].pop_back();
    packs.push_back({moved});
  }
  Schedule schedule;
  for (std::vector<int>& pack : packs) {
    schedule.microbatches.push_back({{{0, problem.ranks}, std::move(pack)}});
  }
  return schedule;
}

void note_group_sizes(const std::set<int>& sizes, Verdict& verdict) {
  if (sizes.empty()) return;
  verdict.largest_group = *sizes.rbegin();
  verdict.mixed_sizes = sizes.size() > 1;
}

std::set<int> group_sizes(const Schedule& schedule) {
  std::set<int> sizes;
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) sizes.insert(assignment.group.size);
  }
  return sizes;
}

// Runs of neighbouring ranks with the same list.
std::set<int> group_sizes(const RankLists& lists) {
  std::set<int> sizes;
  for (const auto& by_rank : lists) {
    for (std::size_t rank = 0; rank < by_rank.size();) {
      std::size_t end = rank + 1;
      while (end < by_rank.size() && by_rank[end] == by_rank[rank]) ++end;
      sizes.insert(static_cast<int>(end - rank));
      rank = end;
    }
  }
  return sizes;
}

void add_violations(const std::vector<Violation>& violations, Verdict& verdict) {
  for (const Violation& violation : violations) {
    const std::string_view rule = to_string(violation.rule);
    const bool told = std::any_of(verdict.broken.begin(), verdict.broken.end(),
                                  [&](const BrokenRule& broken) { return broken.rule == rule; });
    if (!told) verdict.broken.push_back({std::string(rule), violation.sentence});
  }
}

std::string describe_witness(const Schedule& schedule) {
  if (schedule.microbatches.empty()) return "no microbatch at all";
  const Assignment& first = schedule.microbatches.front().front();
  std::string sequences;
  for (std::size_t i = 0; i < first.sequences.size() && i < 4; ++i) {
    sequences += fmt::format("{}{}", i > 0 ? ", " : "", first.sequences[i]);
  }
  if (first.sequences.size() > 4) {
    sequences += fmt::format(" and {} more", first.sequences.size() - 4);
  }
  return fmt::format("{} microbatch{}, the first starting with {} on {}",
                     schedule.microbatches.size(), schedule.microbatches.size() == 1 ? "" : "es",
                     (first.sequences.size() == 1 ? "sequence " : "sequences ") + sequences,
                     to_string(first.group));
}

void judge_refusal(const ScheduleProblem& problem, const Refusal& refusal, Verdict& verdict) {
  verdict.refused = true;
  const Feasibility feasibility = judge_feasibility(problem);
  verdict.undecided = feasibility.answer == Feasibility::Answer::kUndecided;
  if (feasibility.answer != Feasibility::Answer::kFeasible) return;
  verdict.broken.push_back(
      {"refusal", fmt::format("refused an instance that fits ({}), for example in {}",
                              refusal.reason.empty() ? "no reason given" : refusal.reason,
                              describe_witness(*feasibility.schedule))});
}

bool is_failure(const ScheduleAnswer& answer) {
  return std::holds_alternative<SchedulerFailure>(answer);
}

// Whether `rule` is one that only costs time to look at again.
bool is_failure_rule(std::string_view rule) {
  using Kind = SchedulerFailure::Kind;
  for (Kind kind : {Kind::kHang, Kind::kLate, Kind::kCrash, Kind::kMalformed, Kind::kWrongId}) {
    if (rule == to_string(kind)) return true;
  }
  return false;
}

// Greedy shrinking of one problem.
class Shrinker {
 public:
  Shrinker(ScheduleProblem problem, const std::function<bool(const ScheduleProblem&)>& still_broken,
           const ShrinkLimits& limits)
      : best_(std::move(problem)), still_broken_(still_broken), limits_(limits) {}

  ScheduleProblem run() {
    // Each pass only ever makes the problem smaller, so that this ends.
    bool smaller = true;
    while (smaller && asks_ < limits_.asks) {
      smaller = false;
      smaller = fewer_ranks() || smaller;
      smaller = fewer_sequences() || smaller;
      smaller = smaller_max_tokens() || smaller;
      smaller = shorter_lengths() || smaller;
    }
    sort_descending();
    return best_;
  }

 private:
  bool accept(const ScheduleProblem& candidate) {
    if (asks_ >= limits_.asks) return false;
    ++asks_;
    if (!still_broken_(candidate)) return false;
    best_ = candidate;
    return true;
  }

  bool fewer_ranks() {
    for (int ranks : limits_.ranks) {
      if (ranks >= best_.ranks) break;
      if (ranks < best_.min_cp) continue;
      ScheduleProblem candidate = best_;
      candidate.ranks = ranks;
      if (accept(candidate)) return true;
      // Lengths that were right for the larger domain may not fit on the smaller one.
      for (std::int64_t& length : candidate.lengths) {
        length = length * ranks / best_.ranks;
      }
      if (accept(candidate)) return true;
    }
    return false;
  }

  // Delta debugging: leaves out halves, then quarters, ... then single sequences.
  bool fewer_sequences() {
    bool smaller = false;
    for (std::size_t chunk = std::max<std::size_t>(1, best_.lengths.size() / 2);; chunk /= 2) {
      for (std::size_t begin = 0; begin < best_.lengths.size();) {
        ScheduleProblem candidate = best_;
        const std::size_t end = std::min(begin + chunk, candidate.lengths.size());
        candidate.lengths.erase(candidate.lengths.begin() + static_cast<std::ptrdiff_t>(begin),
                                candidate.lengths.begin() + static_cast<std::ptrdiff_t>(end));
        if (accept(candidate)) {
          smaller = true;
        } else {
          begin = end;
        }
        if (asks_ >= limits_.asks) return smaller;
      }
      if (chunk <= 1) return smaller;
    }
  }

  bool smaller_max_tokens() {
    if (!limits_.max_tokens) return false;
    for (std::int64_t limit = 1; limit < best_.max_tokens_per_rank; limit *= 2) {
      ScheduleProblem candidate = best_;
      candidate.max_tokens_per_rank = limit;
      for (std::int64_t& length : candidate.lengths) {
        const double scaled = static_cast<double>(length) * static_cast<double>(limit) /
                              static_cast<double>(best_.max_tokens_per_rank);
        length = std::max<std::int64_t>(length > 0 ? 1 : 0, static_cast<std::int64_t>(scaled));
      }
      if (accept(candidate)) return true;
    }
    return false;
  }

  // Values below `length` that are worth a try, the simplest first: 1, half of m, then m, m + 1,
  // 2m, 2m + 1, 4m, ... and after these ever smaller steps down.
  std::vector<std::int64_t> simpler_lengths(std::int64_t length) const {
    const std::int64_t unit = best_.max_tokens_per_rank;
    std::vector<std::int64_t> values = {1, unit / 2};
    for (std::int64_t multiple = unit; multiple < length; multiple *= 2) {
      values.push_back(multiple);
      values.push_back(multiple + 1);
    }
    for (std::int64_t step = length / 2; step >= 1; step /= 2) values.push_back(length - step);
    std::erase_if(values, [length](std::int64_t value) { return value < 1 || value >= length; });
    return values;
  }

  // Shortens all sequences of one length at once (some defects need equal lengths), then each one.
  bool shorter_lengths() {
    bool smaller = false;
    for (std::size_t i = 0; i < best_.lengths.size(); ++i) {
      while (shorten(i, true)) smaller = true;
    }
    for (std::size_t i = 0; i < best_.lengths.size(); ++i) {
      while (shorten(i, false)) smaller = true;
    }
    return smaller;
  }

  // Shortens sequence `i`, with those of the same length when `together`.
  bool shorten(std::size_t i, bool together) {
    const std::int64_t length = best_.lengths[i];
    for (std::int64_t value : simpler_lengths(length)) {
      ScheduleProblem candidate = best_;
      if (together) {
        std::replace(candidate.lengths.begin(), candidate.lengths.end(), length, value);
      } else {
        candidate.lengths[i] = value;
      }
      if (accept(candidate)) return true;
    }
    return false;
  }

  void sort_descending() {
    ScheduleProblem candidate = best_;
    std::sort(candidate.lengths.rbegin(), candidate.lengths.rend());
    if (candidate != best_) accept(candidate);
  }

  ScheduleProblem best_;
  const std::function<bool(const ScheduleProblem&)>& still_broken_;
  const ShrinkLimits& limits_;
  std::int64_t asks_ = 0;
};

// Which of two problems that break a rule is the better start for shrinking.
bool is_smaller(const ScheduleProblem& a, const ScheduleProblem& b) {
  return std::pair(a.lengths.size(), a.ranks) < std::pair(b.lengths.size(), b.ranks);
}

}  // namespace

CaseSource::CaseSource(const SearchDomain& domain, std::uint64_t seed)
    : domain_(domain), seed_(seed) {
  if (domain.min_ranks < 1 || domain.max_ranks > kMaxRanks || domain.min_ranks > domain.max_ranks) {
    throw InvalidInput(fmt::format("ranks {}..{} are no range within 1..{}", domain.min_ranks,
                                   domain.max_ranks, kMaxRanks));
  }
  for (int ranks = std::max(domain.min_ranks, domain.min_cp); ranks <= domain.max_ranks; ++ranks) {
    if (domain.power_of_two_only && !std::has_single_bit(static_cast<unsigned>(ranks))) continue;
    ranks_.push_back(ranks);
  }
  if (ranks_.empty()) {
    throw InvalidInput(fmt::format(
        "no rank domain is left in {}..{}{}{}", domain.min_ranks, domain.max_ranks,
        domain.power_of_two_only ? " that is a power of two" : "",
        domain.min_cp > 1 ? fmt::format(" and has min_cp {} ranks", domain.min_cp) : ""));
  }
  const auto& all = length_families();
  for (const std::string& name : domain.families) {
    families_.push_back(static_cast<std::size_t>(&find_length_family(name) - all.data()));
  }
  for (std::size_t i = 0; domain.families.empty() && i < all.size(); ++i) families_.push_back(i);

  for (int ranks : ranks_) {
    ScheduleProblem problem;
    problem.ranks = ranks;
    problem.max_tokens_per_rank = domain_.max_tokens_per_rank;
    problem.min_cp = domain_.min_cp;
    problem.tensor_parallel = domain_.tensor_parallel;
    problem.microbatch_multiple = domain_.microbatch_multiple;
    problem.max_sequences = domain_.max_sequences;
    problem.padding = domain_.padding;
    require_valid(problem);
    if (domain_multiple(problem) > tokens_of_domain(problem)) {
      throw InvalidInput(
          fmt::format("with padding {} a sequence of 1 token is padded to {} tokens on {} ranks, "
                      "more than {} a rank",
                      to_string(problem.padding), domain_multiple(problem), ranks,
                      problem.max_tokens_per_rank));
    }
  }
}

std::vector<std::string_view> CaseSource::families() const {
  std::vector<std::string_view> names;
  for (std::size_t family : families_) names.push_back(length_families()[family].name);
  return names;
}

SearchCase CaseSource::draw(std::int64_t index) const {
  Random start(seed_);
  Random random(start.next() ^ (static_cast<std::uint64_t>(index) * 0xd1342543de82ef95));
  SearchCase drawn;
  ScheduleProblem& problem = drawn.problem;
  problem.ranks =
      ranks_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(ranks_.size())))];
  problem.max_tokens_per_rank = domain_.max_tokens_per_rank;
  problem.min_cp = domain_.min_cp;
  problem.tensor_parallel = domain_.tensor_parallel;
  problem.microbatch_multiple = domain_.microbatch_multiple;
  problem.max_sequences = domain_.max_sequences;
  problem.execution = domain_.execution;
  problem.group_policy = domain_.group_policy;
  problem.padding = domain_.padding;

  const std::int64_t most = std::int64_t{4} * problem.ranks;
  const std::int64_t count = random.one_in(8)
                                 ? 64 + random.below(std::max<std::int64_t>(most, 128) - 63)
                                 : 1 + random.below(most);
  const std::int64_t unit = std::min(problem.max_tokens_per_rank, kMaxSequenceLength);
  // The longest sequence that fits on the whole domain, padding included.
  const std::int64_t multiple = domain_multiple(problem);
  std::int64_t limit = tokens_of_domain(problem) / multiple * multiple;
  if (random.one_in(64)) limit = std::min(2 * limit, kMaxSequenceLength);

  const auto pick = [&]() -> const LengthFamily& {
    const auto i = random.below(static_cast<std::int64_t>(families_.size()));
    return length_families()[families_[static_cast<std::size_t>(i)]];
  };
  const LengthFamily& family = pick();
  if (families_.size() > 1 && random.one_in(8)) {
    drawn.family = "mixed";
    problem.lengths = family.draw(count / 2, unit, limit, random.next());
    const auto other = pick().draw(count - count / 2, unit, limit, random.next());
    problem.lengths.insert(problem.lengths.end(), other.begin(), other.end());
  } else {
    drawn.family = family.name;
    problem.lengths = family.draw(count, unit, limit, random.next());
  }
  if (random.one_in(8)) {
    for (std::int64_t length : {0, 1}) {
      problem.lengths[static_cast<std::size_t>(random.below(count))] = length;
    }
  }
  return drawn;
}

Feasibility judge_feasibility(const ScheduleProblem& problem) {
  using Answer = Feasibility::Answer;
  const std::vector<int> ids = ids_with_tokens(problem);
  if (ids.empty()) return {Answer::kFeasible, "there is nothing to run", Schedule{}};
  const GroupTable table = problem.group_table();
  for (int id : ids) {
    if (need(problem, table, id)) continue;
    return {Answer::kInfeasible,
            fmt::format("sequence {} of {} tokens fits on no CP group", id,
                        problem.lengths[static_cast<std::size_t>(id)]),
            {}};
  }
  if (std::optional<Schedule> schedule = whole_domain_schedule(problem, ids)) {
    return {Answer::kFeasible, "everything fits on the whole domain", std::move(schedule)};
  }
  const std::int64_t fewest = fewest_microbatches(problem);
  if (fewest > static_cast<std::int64_t>(ids.size())) {
    return {Answer::kInfeasible,
            fmt::format("{} microbatches are needed but there are {} sequences to run", fewest,
                        ids.size()),
            {}};
  }
  if (problem.ranks > kExhaustiveRanks || ids.size() > kExhaustiveSequences) return {};
  std::optional<Optimum> optimum = find_optimum(problem, CostModel::flat(), Barrier::kNone);
  if (!optimum) return {Answer::kInfeasible, "exhaustive search finds no schedule", {}};
  return {Answer::kFeasible, "exhaustive search finds a schedule", std::move(optimum->schedule)};
}

Verdict judge_answer(const ScheduleProblem& problem, const ScheduleAnswer& answer) {
  Verdict verdict;
  if (const auto* schedule = std::get_if<Schedule>(&answer)) {
    verdict.answered = true;
    add_violations(check_schedule(problem, *schedule), verdict);
    note_group_sizes(group_sizes(*schedule), verdict);
  } else if (const auto* lists = std::get_if<RankLists>(&answer)) {
    verdict.answered = true;
    add_violations(check_rank_lists(problem, *lists), verdict);
    note_group_sizes(group_sizes(*lists), verdict);
  } else if (const auto* refusal = std::get_if<Refusal>(&answer)) {
    judge_refusal(problem, *refusal, verdict);
  } else {
    const auto& failure = std::get<SchedulerFailure>(answer);
    verdict.broken.push_back({std::string(to_string(failure.kind)), failure.sentence});
  }
  return verdict;
}

Verdict judge_scheduler(const AskScheduler& ask, const ScheduleProblem& problem) {
  const ScheduleAnswer first = ask(problem);
  Verdict verdict = judge_answer(problem, first);
  if (is_failure(first)) return verdict;
  const ScheduleAnswer second = ask(problem);
  if (first == second) return verdict;
  if (is_failure(second)) {
    const Verdict again = judge_answer(problem, second);
    verdict.broken.insert(verdict.broken.end(), again.broken.begin(), again.broken.end());
    return verdict;
  }
  const bool refuses = std::holds_alternative<Refusal>(first);
  const bool refuses_again = std::holds_alternative<Refusal>(second);
  if (refuses && refuses_again) return verdict;  // for another reason
  verdict.broken.push_back(
      {"deterministic", refuses         ? "asked twice, it refuses and then gives a schedule"
                        : refuses_again ? "asked twice, it gives a schedule and then refuses"
                                        : "asked twice, it gives two different schedules"});
  return verdict;
}

AskScheduler ask_scheduler(const Scheduler& scheduler) {
  return [&scheduler](const ScheduleProblem& problem) -> ScheduleAnswer {
    try {
      return scheduler.schedule(problem);
    } catch (const Infeasible& refusal) {
      return Refusal{refusal.what()};
    } catch (const std::exception& error) {
      return SchedulerFailure{
          SchedulerFailure::Kind::kCrash,
          fmt::format("scheduler {} threw an exception: {}", scheduler.name(), error.what())};
    }
  };
}

ScheduleProblem shrink_problem(ScheduleProblem problem,
                               const std::function<bool(const ScheduleProblem&)>& still_broken,
                               const ShrinkLimits& limits) {
  return Shrinker(std::move(problem), still_broken, limits).run();
}

std::string SearchReport::mistrusted() const {
  if (cases == 0) return "no case was run";
  if (answered == 0) return "no case was answered with a schedule";
  if (grouped == 0) return "no schedule had a CP group larger than 1";
  return "";
}

SearchReport search_scheduler(const AskScheduler& ask, const SearchDomain& domain,
                              const SearchOptions& options) {
  if (options.cases < 1 || options.cases > kMaxSearchCases) {
    throw InvalidInput(
        fmt::format("the number of cases is {}: expected 1..{}", options.cases, kMaxSearchCases));
  }
  const CaseSource source(domain, options.seed);
  SearchReport report;
  const AskScheduler counted = [&](const ScheduleProblem& problem) {
    ++report.asks;
    return ask(problem);
  };
  std::map<std::string, SearchFinding> findings;
  std::int64_t failures = 0;
  for (std::int64_t index = 0; index < options.cases && !report.stopped; ++index) {
    const SearchCase drawn = source.draw(index);
    const Verdict verdict = judge_scheduler(counted, drawn.problem);
    ++report.cases;
    ++report.cases_by_family[std::string(drawn.family)];
    report.answered += verdict.answered ? 1 : 0;
    report.grouped += verdict.largest_group > 1 ? 1 : 0;
    report.mixed += verdict.mixed_sizes ? 1 : 0;
    report.refused_undecided += verdict.undecided ? 1 : 0;
    report.refused_rightly +=
        verdict.refused && !verdict.undecided && verdict.broken.empty() ? 1 : 0;
    for (const BrokenRule& broken : verdict.broken) {
      SearchFinding& finding = findings[broken.rule];
      if (finding.cases == 0) {
        finding.rule = broken.rule;
        finding.first_case = index;
      }
      if (finding.cases == 0 || is_smaller(drawn.problem, finding.found)) {
        finding.found = drawn.problem;
        finding.sentence = broken.sentence;
      }
      ++finding.cases;
      ++finding.by_family[std::string(drawn.family)];
      if (is_failure_rule(broken.rule)) report.stopped = ++failures >= options.failures_at_most;
    }
    if (options.progress) options.progress(report.cases, findings.size());
  }

  for (auto& entry : findings) {
    const auto& rule = entry.first;
    auto& finding = entry.second;
    const auto sentence_of = [&](const ScheduleProblem& problem) -> std::optional<std::string> {
      for (const BrokenRule& broken : judge_scheduler(counted, problem).broken) {
        if (broken.rule == rule) return broken.sentence;
      }
      return std::nullopt;
    };
    ShrinkLimits limits;
    limits.ranks = source.ranks();
    limits.max_tokens = options.shrink_max_tokens;
    limits.asks = is_failure_rule(rule) ? options.shrink_asks_of_failures : options.shrink_asks;
    finding.minimal = shrink_problem(
        finding.found,
        [&](const ScheduleProblem& problem) {
          std::optional<std::string> sentence = sentence_of(problem);
          if (sentence) finding.sentence = std::move(*sentence);
          return sentence.has_value();
        },
        limits);
    report.findings.push_back(std::move(finding));
  }
  std::stable_sort(
      report.findings.begin(), report.findings.end(),
      [](const SearchFinding& a, const SearchFinding& b) { return a.cases > b.cases; });
  return report;
}

std::string schedule_options(const ScheduleProblem& problem, Execution default_execution) {
  std::string text =
      fmt::format("--ranks {} --max-tokens {}", problem.ranks, problem.max_tokens_per_rank);
  if (problem.min_cp != 1) text += fmt::format(" --min-cp {}", problem.min_cp);
  if (problem.tensor_parallel != 1) text += fmt::format(" --tp {}", problem.tensor_parallel);
  if (problem.microbatch_multiple != 1) {
    text += fmt::format(" --microbatch-multiple {}", problem.microbatch_multiple);
  }
  if (problem.max_sequences) text += fmt::format(" --max-sequences {}", *problem.max_sequences);
  if (problem.execution != default_execution) {
    text += fmt::format(" --execution {}", to_string(problem.execution));
  }
  if (problem.group_policy != GroupPolicy::kAligned) {
    text += fmt::format(" --group-policy {}", to_string(problem.group_policy));
  }
  if (problem.padding != Padding::kNone) {
    text += fmt::format(" --padding {}", to_string(problem.padding));
  }
  text += " --lengths ";
  for (std::size_t i = 0; i < problem.lengths.size(); ++i) {
    text += fmt::format("{}{}", i > 0 ? "," : "", problem.lengths[i]);
  }
  return text;
}

}  // namespace dyncp
