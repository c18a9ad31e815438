// The schedule checker against hand-broken schedules: for each rule at least one schedule that
// breaks exactly this rule, in both forms, and the sentence that tells it.
#include "reference/schedule_check.h"

#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <numeric>
#include <set>

namespace dyncp {
namespace {

// P = 8, m = 1024; sequence 7 is empty. Microbatch 0: 0..3, 4..5, 6, 7; microbatch 1: 0..7.
ScheduleProblem base_problem() {
  ScheduleProblem problem;
  problem.lengths = {4001, 1500, 333, 1000, 24, 8000, 191, 0};
  problem.ranks = 8;
  problem.max_tokens_per_rank = 1024;
  return problem;
}

Schedule base_schedule() {
  return {{{{{0, 4}, {0}}, {{4, 2}, {1, 2}}, {{6, 1}, {3, 4}}, {{7, 1}, {6}}}, {{{0, 8}, {5}}}}};
}

std::set<ScheduleRule> rules_of(const std::vector<Violation>& violations) {
  std::set<ScheduleRule> rules;
  for (const Violation& violation : violations) rules.insert(violation.rule);
  return rules;
}

struct Mutation {
  const char* name;
  ScheduleRule rule;
  std::function<void(ScheduleProblem&, Schedule&)> apply;
  const char* sentence;  // of the first violation
};

std::vector<Mutation> mutations() {
  using P = ScheduleProblem;
  using S = Schedule;
  using Rule = ScheduleRule;
  return {
      {"lost", Rule::kExactlyOnce, [](P&, S& s) { s.microbatches[0][2].sequences = {3}; },
       "sequence 4 (24 tokens) is never run"},
      {"twice in a pack", Rule::kExactlyOnce,
       [](P& p, S& s) {
         p.lengths[3] = 976;
         s.microbatches[0][2].sequences = {3, 4, 4};
       },
       "sequence 4 runs 2 times: in microbatch 0 on rank 6 (size 1), then in microbatch 0 on rank "
       "6 (size 1)"},
      {"thrice over microbatches", Rule::kExactlyOnce,
       [](P&, S& s) {
         s.microbatches.push_back({{{0, 4}, {6}}, {{4, 4}, {6}}});
       },
       "sequence 6 runs 3 times: in microbatch 0 on rank 7 (size 1), then in microbatch 2 on ranks "
       "0..3 (size 4), ..."},
      {"empty sequence run", Rule::kExactlyOnce,
       [](P&, S& s) { s.microbatches[0][3].sequences.push_back(7); },
       "sequence 7 has no tokens and must not be scheduled, but microbatch 0 runs it on rank 7 "
       "(size 1)"},
      {"id too large", Rule::kUnknownSequence,
       [](P&, S& s) { s.microbatches[0][3].sequences.push_back(8); },
       "microbatch 0: rank 7 (size 1) runs sequence 8 but the problem has sequences 0..7"},
      {"id negative", Rule::kUnknownSequence,
       [](P&, S& s) { s.microbatches[1][0].sequences.push_back(-1); },
       "microbatch 1: ranks 0..7 (size 8) run sequence -1 but the problem has sequences 0..7"},
      {"rank idle", Rule::kRankHasWork,
       [](P& p, S& s) {
         s.microbatches[0].pop_back();
         p.lengths[6] = 0;
       },
       "microbatch 0: rank 7 runs no sequence"},
      {"ranks idle in the middle", Rule::kRankHasWork,
       [](P& p, S& s) {
         s.microbatches[0].erase(s.microbatches[0].begin() + 1);
         p.lengths[1] = p.lengths[2] = 0;
       },
       "microbatch 0: ranks 4..5 run no sequence"},
      {"empty microbatch", Rule::kRankHasWork, [](P&, S& s) { s.microbatches.push_back({}); },
       "microbatch 2: ranks 0..7 run no sequence"},
      {"overlap", Rule::kOneGroupPerRank,
       [](P&, S& s) {
         s.microbatches[0][1].group = {4, 4};
       },
       "microbatch 0: rank 6 is in two CP groups: ranks 4..7 (size 4) and rank 6 (size 1)"},
      {"a group inside another one", Rule::kOneGroupPerRank,
       [](P&, S& s) {
         s.microbatches[0][3].sequences.clear();
         s.microbatches[0].pop_back();
         s.microbatches[0][2].group = {6, 2};
         s.microbatches[0][2].sequences = {3, 4};
         s.microbatches[1].push_back({{2, 1}, {6}});
       },
       "microbatch 1: rank 2 is in two CP groups: ranks 0..7 (size 8) and rank 2 (size 1)"},
      {"same group twice", Rule::kOneGroupPerRank,
       [](P&, S& s) {
         s.microbatches[0][1].sequences = {1};
         s.microbatches[0].push_back({{4, 2}, {2}});
       },
       "microbatch 0: ranks 4..5 are in two CP groups: ranks 4..5 (size 2) and ranks 4..5 (size "
       "2)"},
      {"size not in the table", Rule::kSizeAllowed,
       [](P&, S& s) {
         s.microbatches[0] = {{{0, 3}, {2, 1}}, {{3, 1}, {6}}, {{4, 4}, {0}}};
         s.microbatches.push_back({{{0, 8}, {3, 4}}});
       },
       "microbatch 0: ranks 0..2 (size 3) run sequences 2 and 1 but no CP group of size 3 exists: "
       "sizes in a domain of 8 ranks are 1, 2, 4 and 8"},
      {"size below min_cp", Rule::kSizeAllowed, [](P& p, S&) { p.min_cp = 2; },
       "microbatch 0: rank 6 (size 1) runs sequences 3 and 4 but no CP group of size 1 exists: "
       "sizes in a domain of 8 ranks are 2, 4 and 8 (min_cp 2)"},
      {"misaligned", Rule::kGroupAligned,
       [](P&, S& s) {
         s.microbatches[0] = {{{0, 2}, {1, 2}}, {{2, 4}, {0}}, {{6, 1}, {3, 4}}, {{7, 1}, {6}}};
       },
       "microbatch 0: ranks 2..5 (size 4) run sequence 0 but no such CP group exists: size-4 "
       "groups start at multiples of 4 (0..3, 4..7)"},
      {"outside the domain", Rule::kGroupExists,
       [](P& p, S& s) {
         p.lengths[6] = 0;
         s.microbatches[0].back() = {{7, 2}, {4}};
         s.microbatches[0][2].sequences = {3};
       },
       "microbatch 0: ranks 7..8 (size 2) run sequence 4 but the rank domain is ranks 0..7"},
      {"empty pack", Rule::kEmptyPack,
       [](P& p, S& s) {
         p.lengths[6] = 0;
         s.microbatches[0].back().sequences.clear();
       },
       "microbatch 0: rank 7 (size 1) forms a group that runs no sequence"},
      {"over capacity", Rule::kCapacity, [](P& p, S&) { p.lengths[4] = 25; },
       "microbatch 0: rank 6 (size 1) runs sequences 3 and 4 of 1025 tokens, 1025 a rank, above "
       "max_tokens_per_rank 1024"},
      {"over capacity by one in a group", Rule::kCapacity, [](P& p, S&) { p.lengths[0] = 4097; },
       "microbatch 0: ranks 0..3 (size 4) run sequence 0 of 4097 tokens, 1025 a rank, above "
       "max_tokens_per_rank 1024"},
      {"capacity before padding", Rule::kCapacity,
       [](P& p, S&) {
         p.padding = Padding::kGroup;
         p.tensor_parallel = 4;
         p.max_tokens_per_rank = 1023;
         p.lengths = {4000, 1500, 540, 999, 15, 7900, 191, 0};  // 1500 + 540 <= 2 * 1023
       },
       "microbatch 0: ranks 4..5 (size 2) run sequences 1 and 2 of 2048 tokens after padding, 1024 "
       "a rank, above max_tokens_per_rank 1023"},
      {"serial over capacity", Rule::kCapacity,
       [](P& p, S&) {
         p.execution = Execution::kSerial;
         p.lengths[1] = p.lengths[2] = 2048;  // one at a time: fits
         p.lengths[3] = 1025;
       },
       "microbatch 0: rank 6 (size 1) runs sequence 3 of 1025 tokens, 1025 a rank, above "
       "max_tokens_per_rank 1024"},
      {"too many sequences", Rule::kMaxSequences,
       [](P& p, S& s) {
         p.max_sequences = 2;
         p.lengths[2] = 20;
         s.microbatches[0][1].sequences = {1};
         s.microbatches[0][2].sequences = {3, 4, 2};
         p.max_tokens_per_rank = 1044;
       },
       "microbatch 0: rank 6 (size 1) runs 3 sequences in one pack, above max_sequences 2"},
      {"number of microbatches", Rule::kMicrobatchMultiple,
       [](P& p, S&) { p.microbatch_multiple = 3; },
       "the schedule has 2 microbatches, not a multiple of microbatch_multiple 3"},
  };
}

TEST(ScheduleCheck, AcceptsTheUnbrokenSchedule) {
  EXPECT_TRUE(check_schedule(base_problem(), base_schedule()).empty());
  EXPECT_TRUE(check_rank_lists(base_problem(), to_rank_lists(base_schedule(), 8)).empty());
}

TEST(ScheduleCheck, EachMutationBreaksExactlyItsRule) {
  for (const Mutation& mutation : mutations()) {
    SCOPED_TRACE(mutation.name);
    ScheduleProblem problem = base_problem();
    Schedule schedule = base_schedule();
    mutation.apply(problem, schedule);
    const std::vector<Violation> violations = check_schedule(problem, schedule);
    EXPECT_EQ(rules_of(violations), std::set<ScheduleRule>{mutation.rule});
    ASSERT_FALSE(violations.empty());
    EXPECT_EQ(violations.front().sentence, mutation.sentence);
  }
}

TEST(ScheduleCheck, EveryRuleOfSchedulesHasAMutation) {
  std::set<ScheduleRule> covered;
  for (const Mutation& mutation : mutations()) covered.insert(mutation.rule);
  for (ScheduleRule rule : all_schedule_rules()) {
    const bool rank_lists_only =
        rule == ScheduleRule::kIdenticalLists || rule == ScheduleRule::kConsecutiveRanks;
    EXPECT_EQ(covered.count(rule), rank_lists_only ? 0u : 1u) << to_string(rule);
  }
}

TEST(ScheduleCheck, NamesAreDifferentAndComplete) {
  std::set<std::string_view> names;
  for (ScheduleRule rule : all_schedule_rules()) names.insert(to_string(rule));
  EXPECT_EQ(names.size(), all_schedule_rules().size());
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ScheduleRule::kMicrobatchMultiple) + 1);
  EXPECT_EQ(names.count("?"), 0u);
}

struct ListMutation {
  const char* name;
  ScheduleRule rule;
  std::function<void(ScheduleProblem&, RankLists&)> apply;
  const char* sentence;
};

std::vector<ListMutation> list_mutations() {
  using P = ScheduleProblem;
  using L = RankLists;
  using Rule = ScheduleRule;
  return {
      {"another order on one member", Rule::kIdenticalLists,
       [](P&, L& l) {
         l[0][5] = {2, 1};
       },
       "microbatch 0: ranks 4 and 5 form a group but their lists differ: rank 4 runs [1, 2], rank "
       "5 runs [2, 1]"},
      {"a repetition on one member", Rule::kIdenticalLists,
       [](P&, L& l) {
         l[0][3] = {0, 0};
       },
       "microbatch 0: ranks 0 and 3 form a group but their lists differ: rank 0 runs [0], rank 3 "
       "runs [0, 0]"},
      {"a member that misses a sequence", Rule::kOneGroupPerRank, [](P&, L& l) { l[0][5] = {1}; },
       "microbatch 0: ranks 4 and 5 share sequence 1 but not all of their sequences, so one of "
       "them is in two CP groups: rank 4 runs [1, 2], rank 5 runs [1]"},
      {"a rank between two groups", Rule::kOneGroupPerRank,
       [](P&, L& l) {
         l[0][6] = {6, 3, 4};
       },
       "microbatch 0: ranks 6 and 7 share sequence 6 but not all of their sequences, so one of "
       "them is in two CP groups: rank 6 runs [6, 3, 4], rank 7 runs [6]"},
      {"ranks apart", Rule::kConsecutiveRanks, [](P&, L& l) { std::swap(l[0][5], l[0][7]); },
       "microbatch 0: sequences 1 and 2 run on 2 ranks between 4 and 7 that are not consecutive"},
      {"misaligned", Rule::kGroupAligned,
       [](P&, L& l) { std::rotate(l[0].begin(), l[0].begin() + 6, l[0].end()); },
       "microbatch 0: ranks 2..5 (size 4) run sequence 0 but no such CP group exists: size-4 "
       "groups start at multiples of 4 (0..3, 4..7)"},
      {"size not in the table", Rule::kSizeAllowed,
       [](P& p, L& l) {
         p.lengths[6] = 0;
         l[0][7] = l[0][6] = l[0][5];
         l[0][3] = {3, 4};
         p.lengths[0] = 3000;
       },
       "microbatch 0: ranks 0..2 (size 3) run sequence 0 but no CP group of size 3 exists: sizes "
       "in a domain of 8 ranks are 1, 2, 4 and 8"},
      {"too many ranks", Rule::kGroupExists, [](P&, L& l) { l[1].push_back({}); },
       "microbatch 1: there are lists for 9 ranks but the rank domain is ranks 0..7"},
      {"idle ranks at the end", Rule::kRankHasWork,
       [](P& p, L& l) {
         p.lengths[6] = p.lengths[3] = p.lengths[4] = 0;
         l[0].resize(6);
       },
       "microbatch 0: ranks 6..7 run no sequence"},
      {"an empty list", Rule::kRankHasWork,
       [](P& p, L& l) {
         p.lengths[6] = 0;
         l[0][7].clear();
       },
       "microbatch 0: rank 7 runs no sequence"},
      {"lost", Rule::kExactlyOnce, [](P&, L& l) { l[0][4] = l[0][5] = {1}; },
       "sequence 2 (333 tokens) is never run"},
      {"twice", Rule::kExactlyOnce,
       [](P& p, L& l) {
         p.lengths[2] = 274;
         l[0][4] = l[0][5] = {1, 2, 2};
       },
       "sequence 2 runs 2 times: in microbatch 0 on ranks 4..5 (size 2), then in microbatch 0 on "
       "ranks 4..5 (size 2)"},
      {"unknown", Rule::kUnknownSequence,
       [](P&, L& l) {
         l[0][4] = l[0][5] = {1, 2, 99};
       },
       "microbatch 0: ranks 4..5 (size 2) run sequence 99 but the problem has sequences 0..7"},
      {"over capacity", Rule::kCapacity, [](P& p, L&) { p.lengths[2] = 549; },
       "microbatch 0: ranks 4..5 (size 2) run sequences 1 and 2 of 2049 tokens, 1025 a rank, above "
       "max_tokens_per_rank 1024"},
      {"too many sequences", Rule::kMaxSequences,
       [](P& p, L& l) {
         p.max_sequences = 2;
         p.lengths[6] = 0;
         p.lengths[7] = 5;
         l[0][4] = l[0][5] = {1, 2, 7};
         l[0][7] = {3};
         l[0][6] = {4};
       },
       "microbatch 0: ranks 4..5 (size 2) run 3 sequences in one pack, above max_sequences 2"},
      {"number of microbatches", Rule::kMicrobatchMultiple,
       [](P& p, L&) { p.microbatch_multiple = 4; },
       "the schedule has 2 microbatches, not a multiple of microbatch_multiple 4"},
  };
}

TEST(ScheduleCheck, EachMutationOfRankListsBreaksExactlyItsRule) {
  for (const ListMutation& mutation : list_mutations()) {
    SCOPED_TRACE(mutation.name);
    ScheduleProblem problem = base_problem();
    RankLists lists = to_rank_lists(base_schedule(), problem.ranks);
    mutation.apply(problem, lists);
    const std::vector<Violation> violations = check_rank_lists(problem, lists);
    EXPECT_EQ(rules_of(violations), std::set<ScheduleRule>{mutation.rule});
    ASSERT_FALSE(violations.empty());
    EXPECT_EQ(violations.front().sentence, mutation.sentence);
  }
}

TEST(ScheduleCheck, SaysEveryFieldOfAViolation) {
  ScheduleProblem problem = base_problem();
  Schedule schedule = base_schedule();
  schedule.microbatches[0] = {{{0, 2}, {1, 2}}, {{2, 4}, {0}}, {{6, 1}, {3, 4}}, {{7, 1}, {6}}};
  const std::vector<Violation> violations = check_schedule(problem, schedule);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, ScheduleRule::kGroupAligned);
  EXPECT_EQ(violations[0].microbatch, 0);
  EXPECT_EQ(violations[0].ranks, (CpGroup{2, 4}));
  EXPECT_EQ(violations[0].sequence, 0);
}

TEST(ScheduleCheck, OrdersByMicrobatchThenRankAndTheWholeScheduleLast) {
  ScheduleProblem problem = base_problem();
  problem.microbatch_multiple = 5;
  const Schedule schedule{{{{{6, 2}, {}}, {{2, 4}, {0}}, {{0, 1}, {1}}}, {{{1, 2}, {5}}}}};
  const std::vector<Violation> violations = check_schedule(problem, schedule);
  std::vector<std::pair<int, int>> places;
  for (const Violation& violation : violations) {
    if (violation.rule == ScheduleRule::kExactlyOnce ||
        violation.rule == ScheduleRule::kMicrobatchMultiple) {
      continue;
    }
    EXPECT_EQ(places.size(), static_cast<std::size_t>(&violation - violations.data()));
    places.emplace_back(violation.microbatch, violation.ranks.first_rank);
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  EXPECT_EQ(violations.back().rule, ScheduleRule::kMicrobatchMultiple);
}

// The misaligned group that megatron-balanced forms (the reason why this checker exists).
TEST(ScheduleCheck, TellsTheUpstreamDefect) {
  ScheduleProblem problem;
  problem.lengths = {3424, 2672, 1584, 2560, 4048, 1344, 1904, 1648, 112, 1920};
  problem.ranks = 8;
  problem.max_tokens_per_rank = 1024;
  problem.execution = Execution::kSerial;
  const Schedule schedule{{{{{0, 4}, {4}}, {{4, 4}, {0, 1}}},
                           {{{0, 2}, {9}}, {{2, 2}, {6}}, {{4, 2}, {7}}, {{6, 2}, {2}}},
                           {{{0, 2}, {8}}, {{2, 4}, {3}}, {{6, 2}, {5}}}}};
  for (const std::vector<Violation>& violations :
       {check_schedule(problem, schedule), check_rank_lists(problem, to_rank_lists(schedule, 8))}) {
    ASSERT_EQ(violations.size(), 1u);
    EXPECT_EQ(
        violations[0].sentence,
        "microbatch 2: ranks 2..5 (size 4) run sequence 3 but no such CP group exists: size-4 "
        "groups start at multiples of 4 (0..3, 4..7)");
  }
  problem.group_policy = GroupPolicy::kInterval;
  EXPECT_TRUE(check_schedule(problem, schedule).empty());
}

TEST(ScheduleCheck, KnowsTheGroupsOfADomainOfSix) {
  ScheduleProblem problem;
  problem.lengths = {828, 480};
  problem.ranks = 6;
  problem.max_tokens_per_rank = 256;
  const Schedule schedule{{{{{0, 4}, {0}}, {{4, 2}, {1}}}}};
  const std::vector<Violation> violations = check_schedule(problem, schedule);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].sentence,
            "microbatch 0: ranks 0..3 (size 4) run sequence 0 but no CP group of size 4 exists: "
            "sizes in a domain of 6 ranks are 1, 2 and 6");
  problem.group_policy = GroupPolicy::kPow2AnySlice;
  EXPECT_TRUE(check_schedule(problem, schedule).empty());
}

TEST(ScheduleCheck, NothingToDoIsAValidSchedule) {
  ScheduleProblem problem;
  problem.ranks = 3;
  problem.microbatch_multiple = 4;
  EXPECT_TRUE(check_schedule(problem, {}).empty());
  EXPECT_TRUE(check_rank_lists(problem, {}).empty());
  problem.lengths = {0, 0};
  EXPECT_TRUE(check_schedule(problem, {}).empty());
}

TEST(ScheduleCheck, DescribesAnyNonsenseWithoutAnError) {
  ScheduleProblem problem = base_problem();
  problem.max_tokens_per_rank = INT64_MAX;
  problem.padding = Padding::kGroup;
  problem.tensor_parallel = kMaxRanks;
  const std::vector<int> numbers = {INT_MIN, INT_MIN + 1, -1, 0, 1, 7, 8, INT_MAX - 1, INT_MAX};
  for (int first : numbers) {
    for (int size : numbers) {
      const Schedule schedule{{{{{first, size}, {INT_MIN, INT_MAX, 0, 0}}, {{0, 8}, {}}}}};
      EXPECT_FALSE(check_schedule(problem, schedule).empty());
    }
  }
  EXPECT_FALSE(check_rank_lists(problem, {{{INT_MIN, INT_MIN}, {INT_MAX, INT_MIN}}}).empty());
}

TEST(ScheduleCheck, SumsThatLeave63BitsAreOverCapacity) {
  ScheduleProblem problem;
  problem.lengths = {kMaxSequenceLength};
  problem.max_tokens_per_rank = INT64_MAX - 1;
  const Schedule schedule{{{{{0, 1}, std::vector<int>(std::size_t{1} << 23, 0)}}}};
  EXPECT_EQ(rules_of(check_schedule(problem, schedule)),
            (std::set<ScheduleRule>{ScheduleRule::kCapacity, ScheduleRule::kExactlyOnce}));
}

// 100 000 sequences on 1 024 ranks, as bad as can be; with any quadratic step these would run for
// minutes.
TEST(ScheduleCheck, StaysLinearOnLargeBrokenSchedules) {
  ScheduleProblem problem;
  problem.lengths.assign(100'000, 700);
  problem.ranks = 1024;
  problem.max_tokens_per_rank = 1024;
  std::vector<int> everything(problem.lengths.size());
  std::iota(everything.begin(), everything.end(), 0);

  Schedule overlapping{{{}}};
  for (int id : everything) overlapping.microbatches[0].push_back({{id % 1024, 1024}, {id}});
  EXPECT_EQ(rules_of(check_schedule(problem, overlapping)),
            (std::set<ScheduleRule>{ScheduleRule::kGroupExists, ScheduleRule::kOneGroupPerRank}));

  RankLists lists(1, std::vector<std::vector<int>>(1024));
  for (int rank = 0; rank < 1024; ++rank) lists[0][static_cast<std::size_t>(rank)] = {rank};
  lists[0][0] = everything;  // every other rank shares one sequence with it
  EXPECT_EQ(rules_of(check_rank_lists(problem, lists)),
            (std::set<ScheduleRule>{ScheduleRule::kOneGroupPerRank}));

  EXPECT_EQ(check_schedule(problem, {}).size(), everything.size());
}

}  // namespace
}  // namespace dyncp
