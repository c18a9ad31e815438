// The search for broken schedulers: what it draws, how it judges and shrinks, and that it finds
// planted defects and Megatron's known ones by name.
#include "runtime/scheduler_search.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

ScheduleProblem problem_of(std::vector<std::int64_t> lengths, int ranks, std::int64_t limit) {
  ScheduleProblem problem;
  problem.lengths = std::move(lengths);
  problem.ranks = ranks;
  problem.max_tokens_per_rank = limit;
  return problem;
}

// A right scheduler for any domain: one sequence after the other on all ranks.
Schedule one_by_one(const ScheduleProblem& problem) {
  Schedule schedule;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    if (problem.lengths[static_cast<std::size_t>(id)] == 0) continue;
    schedule.microbatches.push_back({{{0, problem.ranks}, {id}}});
  }
  return schedule;
}

bool fits(const ScheduleProblem& problem) {
  return judge_feasibility(problem).answer == Feasibility::Answer::kFeasible;
}

// Behaves like one_by_one and refuses what does not fit.
ScheduleAnswer ask_one_by_one(const ScheduleProblem& problem) {
  if (!fits(problem)) return Refusal{"does not fit"};
  return one_by_one(problem);
}

std::set<std::string> rules_of(const SearchReport& report) {
  std::set<std::string> rules;
  for (const SearchFinding& finding : report.findings) rules.insert(finding.rule);
  return rules;
}

std::set<std::string> rules_of(const Verdict& verdict) {
  std::set<std::string> rules;
  for (const BrokenRule& broken : verdict.broken) rules.insert(broken.rule);
  return rules;
}

SearchOptions cases(std::int64_t count, std::uint64_t seed = 1) {
  SearchOptions options;
  options.cases = count;
  options.seed = seed;
  return options;
}

// --- What is drawn. ---

TEST(CaseSource, KeepsToItsDomain) {
  SearchDomain domain;
  domain.min_ranks = 3;
  domain.max_ranks = 40;
  domain.power_of_two_only = true;
  domain.min_cp = 5;
  domain.tensor_parallel = 2;
  domain.microbatch_multiple = 3;
  domain.max_sequences = 7;
  domain.execution = Execution::kSerial;
  domain.group_policy = GroupPolicy::kInterval;
  domain.padding = Padding::kGlobal;
  const CaseSource source(domain, 3);
  EXPECT_EQ(source.ranks(), (std::vector<int>{8, 16, 32}));
  std::set<int> ranks;
  for (int index = 0; index < 200; ++index) {
    const ScheduleProblem problem = source.draw(index).problem;
    require_valid(problem);
    ranks.insert(problem.ranks);
    EXPECT_EQ(problem.max_tokens_per_rank, 1024);
    EXPECT_EQ(problem.min_cp, 5);
    EXPECT_EQ(problem.tensor_parallel, 2);
    EXPECT_EQ(problem.microbatch_multiple, 3);
    EXPECT_EQ(problem.max_sequences, 7);
    EXPECT_EQ(problem.execution, Execution::kSerial);
    EXPECT_EQ(problem.group_policy, GroupPolicy::kInterval);
    EXPECT_EQ(problem.padding, Padding::kGlobal);
  }
  EXPECT_EQ(ranks, (std::set<int>{8, 16, 32}));
}

TEST(CaseSource, DrawsWhatTheDesignAsksFor) {
  SearchDomain domain;
  domain.min_ranks = 1;
  domain.max_ranks = 12;
  const CaseSource source(domain, 1);
  const int total = 4000;
  int many = 0, infeasible = 0, zeros = 0, above_four_units = 0;
  std::set<std::string_view> families;
  std::set<std::size_t> small_counts;
  std::set<std::int64_t> residues;
  for (int index = 0; index < total; ++index) {
    const SearchCase drawn = source.draw(index);
    families.insert(drawn.family);
    const auto& lengths = drawn.problem.lengths;
    ASSERT_GE(lengths.size(), 1u);
    ASSERT_LE(lengths.size(), 128u);
    many += lengths.size() >= 64 ? 1 : 0;
    if (drawn.problem.ranks == 5 && lengths.size() < 64) small_counts.insert(lengths.size());
    bool fitting = true, zero = false, long_one = false;
    for (std::int64_t length : lengths) {
      fitting = fitting && length <= 1024 * drawn.problem.ranks;
      zero = zero || length == 0;
      long_one = long_one || length > 4 * 1024;
      if (drawn.problem.ranks == 8) residues.insert(length % 16);
    }
    infeasible += fitting ? 0 : 1;
    zeros += zero ? 1 : 0;
    above_four_units += long_one ? 1 : 0;
  }
  EXPECT_EQ(families.size(), length_families().size() + 1);  // and "mixed"
  EXPECT_GE(many, total / 10);
  EXPECT_LE(many, total / 6);
  EXPECT_GE(infeasible, 1);
  EXPECT_LE(infeasible, total / 50);
  EXPECT_GE(zeros, total / 10);
  EXPECT_GE(above_four_units, total / 20);
  EXPECT_EQ(small_counts.size(), 20u);  // 1..4P
  EXPECT_EQ(residues.size(), 16u);
}

TEST(CaseSource, EachCaseStandsAlone) {
  SearchDomain domain;
  domain.max_ranks = 16;
  const CaseSource a(domain, 7), b(domain, 7), c(domain, 8);
  const ScheduleProblem problem = a.draw(123).problem;
  for (int index = 0; index < 50; ++index) (void)b.draw(index);
  EXPECT_EQ(b.draw(123).problem, problem);
  EXPECT_NE(c.draw(123).problem, problem);
  EXPECT_NE(a.draw(124).problem, problem);
}

TEST(CaseSource, DrawsOnlyTheNamedFamilies) {
  SearchDomain domain;
  domain.families = {"uniform"};
  const CaseSource one(domain, 1);
  for (int index = 0; index < 50; ++index) EXPECT_EQ(one.draw(index).family, "uniform");
  domain.families = {"uniform", "constant"};
  const CaseSource two(domain, 1);
  std::set<std::string_view> families;
  for (int index = 0; index < 200; ++index) families.insert(two.draw(index).family);
  EXPECT_EQ(families, (std::set<std::string_view>{"constant", "mixed", "uniform"}));
}

std::string refusal_of(const SearchDomain& domain) {
  try {
    CaseSource(domain, 1);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CaseSource, RefusesDomainsThatAreNone) {
  SearchDomain domain;
  domain.min_ranks = 0;
  EXPECT_EQ(refusal_of(domain), "ranks 0..8 are no range within 1..65536");
  domain.min_ranks = 9;
  EXPECT_EQ(refusal_of(domain), "ranks 9..8 are no range within 1..65536");
  domain.max_ranks = 15;
  domain.power_of_two_only = true;
  EXPECT_EQ(refusal_of(domain), "no rank domain is left in 9..15 that is a power of two");
  domain.power_of_two_only = false;
  domain.min_cp = 16;
  EXPECT_EQ(refusal_of(domain), "no rank domain is left in 9..15 and has min_cp 16 ranks");
  domain.min_cp = 1;
  domain.max_tokens_per_rank = 0;
  EXPECT_EQ(refusal_of(domain), "max_tokens_per_rank 0 must be at least 1");
  domain.max_tokens_per_rank = 1;
  domain.padding = Padding::kGroup;
  EXPECT_EQ(refusal_of(domain),
            "with padding group a sequence of 1 token is padded to 18 tokens on 9 ranks, more than "
            "1 a rank");
  domain.padding = Padding::kNone;
  domain.families = {"no-such"};
  EXPECT_EQ(refusal_of(domain).rfind("unknown family of lengths 'no-such'", 0), 0u);
}

// --- How it judges. ---

TEST(JudgeFeasibility, DecidesByHand) {
  using Answer = Feasibility::Answer;
  const auto answer = [](const ScheduleProblem& problem) {
    const Feasibility feasibility = judge_feasibility(problem);
    EXPECT_EQ(feasibility.schedule.has_value(), feasibility.answer == Answer::kFeasible);
    if (feasibility.schedule) {
      EXPECT_TRUE(check_schedule(problem, *feasibility.schedule).empty());
    }
    return feasibility.answer;
  };
  EXPECT_EQ(answer(problem_of({}, 4, 8)), Answer::kFeasible);
  EXPECT_EQ(answer(problem_of({0, 0}, 4, 8)), Answer::kFeasible);
  EXPECT_EQ(answer(problem_of({32}, 4, 8)), Answer::kFeasible);
  EXPECT_EQ(answer(problem_of({33}, 4, 8)), Answer::kInfeasible);

  // Three sequences that each need all ranks, in a multiple of two microbatches.
  ScheduleProblem three = problem_of({32, 32, 32}, 4, 8);
  EXPECT_EQ(answer(three), Answer::kFeasible);
  three.microbatch_multiple = 2;
  EXPECT_EQ(answer(three), Answer::kInfeasible);
  three.lengths.push_back(1);
  EXPECT_EQ(answer(three), Answer::kFeasible);

  ScheduleProblem few = problem_of({5}, 4, 8);
  few.microbatch_multiple = 2;
  EXPECT_EQ(answer(few), Answer::kInfeasible);
  few.execution = Execution::kSerial;
  EXPECT_EQ(answer(few), Answer::kInfeasible);
  few.lengths.push_back(5);
  EXPECT_EQ(answer(few), Answer::kFeasible);

  ScheduleProblem limited = problem_of({1, 1, 1, 1, 1}, 2, 8);
  limited.max_sequences = 2;
  EXPECT_EQ(answer(limited), Answer::kFeasible);
  limited.microbatch_multiple = 6;
  EXPECT_EQ(answer(limited), Answer::kInfeasible);

  // 17 tokens padded to 24 on 3 ranks do not fit there, nor on 1 or 2 ranks.
  ScheduleProblem padded = problem_of({17}, 3, 7);
  padded.padding = Padding::kGroup;
  padded.tensor_parallel = 2;
  EXPECT_EQ(answer(padded), Answer::kInfeasible);
  padded.max_tokens_per_rank = 8;
  EXPECT_EQ(answer(padded), Answer::kFeasible);
}

// Feasible only with two groups side by side: on all ranks a pack holds 8 tokens and two sequences
// of 3 + 3 fit, but three microbatches are not allowed.
TEST(JudgeFeasibility, SearchesWhereTheWholeDomainIsNotEnough) {
  ScheduleProblem problem = problem_of({8, 8, 4}, 4, 2);
  problem.microbatch_multiple = 2;
  // 8 and 8 fill a microbatch each; 4 has no room: three packs on the whole domain.
  EXPECT_EQ(judge_feasibility(problem).answer, Feasibility::Answer::kInfeasible);
  // Padding to the group: 2 tokens are 8 on four ranks but 4 on two.
  ScheduleProblem groups = problem_of({2, 2, 2, 2}, 4, 2);
  groups.padding = Padding::kGroup;
  groups.microbatch_multiple = 4;
  EXPECT_EQ(judge_feasibility(groups).answer, Feasibility::Answer::kFeasible);
  groups.lengths.pop_back();
  groups.microbatch_multiple = 2;
  const Feasibility feasibility = judge_feasibility(groups);
  EXPECT_EQ(feasibility.answer, Feasibility::Answer::kFeasible);
  EXPECT_EQ(feasibility.reason, "exhaustive search finds a schedule");
  ASSERT_TRUE(feasibility.schedule.has_value());
  EXPECT_TRUE(check_schedule(groups, *feasibility.schedule).empty());
}

TEST(JudgeAnswer, RefusalsAreJudged) {
  const ScheduleProblem fitting = problem_of({32, 5}, 4, 8);
  const Verdict wrong = judge_answer(fitting, Refusal{"too long"});
  EXPECT_TRUE(wrong.refused);
  ASSERT_EQ(wrong.broken.size(), 1u);
  EXPECT_EQ(wrong.broken[0].rule, "refusal");
  EXPECT_EQ(wrong.broken[0].sentence,
            "refused an instance that fits (too long), for example in 2 microbatches, the first "
            "starting with sequence 0 on ranks 0..3 (size 4)");
  const Verdict right = judge_answer(problem_of({33, 5}, 4, 8), Refusal{"too long"});
  EXPECT_TRUE(right.refused);
  EXPECT_FALSE(right.undecided);
  EXPECT_TRUE(right.broken.empty());
}

TEST(JudgeAnswer, RefusingNothingToDoIsWrong) {
  EXPECT_EQ(rules_of(judge_answer(problem_of({0}, 2, 8), Refusal{""})),
            (std::set<std::string>{"refusal"}));
}

TEST(JudgeAnswer, BothFormsAndFailures) {
  const ScheduleProblem problem = problem_of({32, 5}, 4, 8);
  const Verdict right = judge_answer(problem, one_by_one(problem));
  EXPECT_TRUE(right.answered);
  EXPECT_TRUE(right.broken.empty());
  EXPECT_EQ(right.largest_group, 4);
  EXPECT_FALSE(right.mixed_sizes);
  EXPECT_EQ(rules_of(judge_answer(problem, RankLists{{{0}, {0}, {0}, {0}}, {{1}, {1}, {}, {}}})),
            (std::set<std::string>{"rank-has-work"}));
  for (const auto kind : {SchedulerFailure::Kind::kHang, SchedulerFailure::Kind::kLate,
                          SchedulerFailure::Kind::kCrash, SchedulerFailure::Kind::kMalformed,
                          SchedulerFailure::Kind::kWrongId}) {
    const Verdict failed = judge_answer(problem, SchedulerFailure{kind, "it is so"});
    ASSERT_EQ(failed.broken.size(), 1u);
    EXPECT_EQ(failed.broken[0], (BrokenRule{std::string(to_string(kind)), "it is so"}));
  }
}

// --- Planted defects. ---

TEST(SearchScheduler, TrustsARightScheduler) {
  SearchDomain domain;
  domain.min_ranks = 1;
  domain.max_ranks = 12;
  const SearchReport report = search_scheduler(ask_one_by_one, domain, cases(500));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.cases, 500);
  EXPECT_EQ(report.asks, 1000);
  EXPECT_EQ(report.mistrusted(), "");
  EXPECT_GT(report.refused_rightly, 0);
  EXPECT_EQ(report.answered + report.refused_rightly, 500);
}

TEST(SearchScheduler, SaysWhenItCouldNotHaveFoundAnything) {
  SearchDomain domain;
  domain.min_ranks = domain.max_ranks = 1;
  EXPECT_EQ(search_scheduler(ask_one_by_one, domain, cases(20)).mistrusted(),
            "no schedule had a CP group larger than 1");
  EXPECT_EQ(SearchReport{}.mistrusted(), "no case was run");
}

// Loses the last of three or more sequences longer than 2m.
TEST(SearchScheduler, ShrinksALostSequenceToTheLeast) {
  const AskScheduler ask = [](const ScheduleProblem& problem) -> ScheduleAnswer {
    if (!fits(problem)) return Refusal{"does not fit"};
    Schedule schedule = one_by_one(problem);
    int longs = 0;
    for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
      const int id = schedule.microbatches[m][0].sequences[0];
      if (problem.lengths[static_cast<std::size_t>(id)] > 2 * problem.max_tokens_per_rank &&
          ++longs == 3) {
        schedule.microbatches.erase(schedule.microbatches.begin() + static_cast<std::ptrdiff_t>(m));
        break;
      }
    }
    return schedule;
  };
  SearchDomain domain;
  domain.min_ranks = 1;
  domain.max_ranks = 16;
  const SearchReport report = search_scheduler(ask, domain, cases(300));
  ASSERT_EQ(rules_of(report), (std::set<std::string>{"exactly-once"}));
  EXPECT_EQ(report.findings[0].minimal.lengths, (std::vector<std::int64_t>{2049, 2049, 2049}));
  EXPECT_EQ(report.findings[0].minimal.ranks, 3);
  EXPECT_EQ(report.findings[0].sentence, "sequence 2 (2049 tokens) is never run");
  std::int64_t by_family = 0;
  for (const auto& [family, count] : report.findings[0].by_family) by_family += count;
  EXPECT_EQ(by_family, report.findings[0].cases);
  EXPECT_GT(report.findings[0].cases, 10);

  SearchOptions with_limit = cases(300);
  with_limit.shrink_max_tokens = true;
  const SearchReport smaller = search_scheduler(ask, domain, with_limit);
  EXPECT_EQ(smaller.findings[0].minimal, problem_of({3, 3, 3}, 3, 1));
}

// Two defects at once: each is shrunk on its own and neither hides the other.
TEST(SearchScheduler, KeepsTheRuleWhileShrinking) {
  const AskScheduler ask = [](const ScheduleProblem& problem) -> ScheduleAnswer {
    if (!fits(problem)) return Refusal{"does not fit"};
    Schedule schedule = one_by_one(problem);
    if (problem.lengths.size() >= 5) schedule.microbatches.push_back({});
    if (problem.lengths.size() >= 2 && problem.lengths[0] == problem.lengths[1]) {
      schedule.microbatches[0].push_back(schedule.microbatches[0][0]);
    }
    return schedule;
  };
  const SearchReport report = search_scheduler(ask, {}, cases(300));
  ASSERT_EQ(rules_of(report),
            (std::set<std::string>{"exactly-once", "one-group-per-rank", "rank-has-work"}));
  for (const SearchFinding& finding : report.findings) {
    EXPECT_EQ(rules_of(judge_scheduler(ask, finding.minimal)).count(finding.rule), 1u);
    const std::vector<std::int64_t> least(finding.rule == "rank-has-work" ? 5 : 2, 1);
    EXPECT_EQ(finding.minimal.lengths, least) << finding.rule;
  }
}

TEST(SearchScheduler, FindsAnswersThatChange) {
  int asked = 0;
  const AskScheduler ask = [&asked](const ScheduleProblem& problem) -> ScheduleAnswer {
    if (!fits(problem)) return Refusal{"does not fit"};
    Schedule schedule = one_by_one(problem);
    if (++asked % 2 == 0) {
      std::reverse(schedule.microbatches.begin(), schedule.microbatches.end());
    }
    return schedule;
  };
  const SearchReport report = search_scheduler(ask, {}, cases(50));
  ASSERT_EQ(rules_of(report), (std::set<std::string>{"deterministic"}));
  EXPECT_EQ(report.findings[0].minimal.lengths, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(report.findings[0].sentence, "asked twice, it gives two different schedules");
}

TEST(SearchScheduler, FindsRefusalsOfWhatFits) {
  const AskScheduler ask = [](const ScheduleProblem& problem) -> ScheduleAnswer {
    if (problem.lengths.size() > 3) return Refusal{"too many"};
    return ask_one_by_one(problem);
  };
  const SearchReport report = search_scheduler(ask, {}, cases(100));
  ASSERT_EQ(rules_of(report), (std::set<std::string>{"refusal"}));
  EXPECT_EQ(report.findings[0].minimal.lengths, (std::vector<std::int64_t>{1, 1, 1, 1}));
}

TEST(SearchScheduler, StopsAfterManyFailures) {
  const AskScheduler ask = [](const ScheduleProblem& problem) -> ScheduleAnswer {
    if (problem.lengths.size() > 3) {
      return SchedulerFailure{SchedulerFailure::Kind::kCrash, "ended with exit code 3"};
    }
    return ask_one_by_one(problem);
  };
  SearchOptions options = cases(10'000);
  options.failures_at_most = 5;
  const SearchReport report = search_scheduler(ask, {}, options);
  EXPECT_TRUE(report.stopped);
  EXPECT_LT(report.cases, 30);
  ASSERT_EQ(rules_of(report), (std::set<std::string>{"crash"}));
  EXPECT_EQ(report.findings[0].cases, 5);
  EXPECT_LE(report.asks, 2 * report.cases + options.shrink_asks_of_failures * 2);
}

class Throwing : public Scheduler {
 public:
  std::string_view name() const override { return "throwing"; }
  std::string_view summary() const override { return ""; }
  Execution execution() const override { return Execution::kPack; }
  Schedule schedule(const ScheduleProblem& problem) const override {
    if (problem.lengths.size() == 1) throw Infeasible("one is none");
    throw std::out_of_range("vector::at");
  }
};

TEST(AskScheduler, TurnsExceptionsIntoAnswers) {
  const Throwing scheduler;
  const AskScheduler ask = ask_scheduler(scheduler);
  EXPECT_EQ(ask(problem_of({1}, 1, 1)), ScheduleAnswer(Refusal{"one is none"}));
  EXPECT_EQ(ask(problem_of({1, 1}, 1, 1)),
            ScheduleAnswer(SchedulerFailure{SchedulerFailure::Kind::kCrash,
                                            "scheduler throwing threw an exception: vector::at"}));
}

TEST(SearchScheduler, RefusesBadNumbersOfCases) {
  EXPECT_THROW(search_scheduler(ask_one_by_one, {}, cases(0)), InvalidInput);
  EXPECT_THROW(search_scheduler(ask_one_by_one, {}, cases(kMaxSearchCases + 1)), InvalidInput);
}

// --- Megatron's schedulers. ---

SearchReport search_named(std::string_view name, SearchDomain domain, std::int64_t count) {
  const Scheduler& scheduler = find_scheduler(name);
  domain.execution = scheduler.execution();
  return search_scheduler(ask_scheduler(scheduler), domain, cases(count));
}

TEST(SearchScheduler, FindsTheMisalignedGroupOfMegatronBalanced) {
  const SearchReport report = search_named("megatron-balanced", {}, 5000);
  ASSERT_EQ(rules_of(report), (std::set<std::string>{"group-aligned"}));
  const SearchFinding& finding = report.findings[0];
  EXPECT_LE(finding.minimal.lengths.size(), 10u);
  EXPECT_NE(finding.sentence.find("ranks 2..5 (size 4)"), std::string::npos) << finding.sentence;
  EXPECT_NE(finding.sentence.find("no such CP group exists"), std::string::npos);
  const auto violations = check_schedule(
      finding.minimal, find_scheduler("megatron-balanced").schedule(finding.minimal));
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations.front().sentence, finding.sentence);
}

TEST(SearchScheduler, MegatronPackingAwareHoldsInPowerOfTwoDomains) {
  SearchDomain domain;
  domain.min_ranks = 1;
  domain.max_ranks = 64;
  domain.power_of_two_only = true;
  const SearchReport report = search_named("megatron-packing-aware", domain, 5000);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.mistrusted(), "");
  EXPECT_GT(report.mixed, 1000);
}

TEST(SearchScheduler, MegatronPackingAwareFailsInOtherDomains) {
  for (int ranks : {6, 12}) {
    SearchDomain domain;
    domain.min_ranks = domain.max_ranks = ranks;
    const SearchReport report = search_named("megatron-packing-aware", domain, 500);
    EXPECT_EQ(rules_of(report), (std::set<std::string>{"refusal", "size-allowed"}));
    for (const SearchFinding& finding : report.findings) {
      EXPECT_LE(finding.minimal.lengths.size(), 2u);
    }
  }
}

TEST(SearchScheduler, TheSameSearchFindsTheSame) {
  SearchDomain domain;
  domain.min_ranks = 3;
  domain.max_ranks = 17;
  const SearchReport a = search_named("megatron-balanced", domain, 300);
  const SearchReport b = search_named("megatron-balanced", domain, 300);
  EXPECT_EQ(a.asks, b.asks);
  ASSERT_EQ(a.findings.size(), b.findings.size());
  ASSERT_FALSE(a.findings.empty());
  for (std::size_t i = 0; i < a.findings.size(); ++i) {
    EXPECT_EQ(a.findings[i].rule, b.findings[i].rule);
    EXPECT_EQ(a.findings[i].cases, b.findings[i].cases);
    EXPECT_EQ(a.findings[i].minimal, b.findings[i].minimal);
    EXPECT_EQ(a.findings[i].sentence, b.findings[i].sentence);
  }
}

TEST(ScheduleOptions, PrintsWhatIsNotTheDefault) {
  ScheduleProblem problem = problem_of({3, 0, 5}, 6, 7);
  EXPECT_EQ(schedule_options(problem, Execution::kPack),
            "--ranks 6 --max-tokens 7 --lengths 3,0,5");
  problem.min_cp = 2;
  problem.tensor_parallel = 3;
  problem.microbatch_multiple = 4;
  problem.max_sequences = 5;
  problem.execution = Execution::kSerial;
  problem.group_policy = GroupPolicy::kDivisors;
  problem.padding = Padding::kGroup;
  EXPECT_EQ(schedule_options(problem, Execution::kPack),
            "--ranks 6 --max-tokens 7 --min-cp 2 --tp 3 --microbatch-multiple 4 --max-sequences 5 "
            "--execution serial --group-policy divisors --padding group --lengths 3,0,5");
  EXPECT_EQ(schedule_options(problem, Execution::kSerial).find("--execution"), std::string::npos);
}

}  // namespace
}  // namespace dyncp
