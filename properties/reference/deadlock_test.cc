// The communication check against lists that hang or mismatch for a known reason.
#include "reference/deadlock.h"

#include <gtest/gtest.h>

#include <set>

#include "reference/schedule_check.h"

namespace dyncp {
namespace {

using Kind = Operation::Kind;
using Rule = CommunicationRule;

Operation send(int peer, std::int64_t bytes = 8, int exchange = -1) {
  return {Kind::kSend, peer, 0, bytes, exchange, -1, -1, ""};
}
Operation receive(int peer, std::int64_t bytes = 8, int exchange = -1) {
  return {Kind::kReceive, peer, 0, bytes, exchange, -1, -1, ""};
}
Operation collective(int communicator, std::string what, std::int64_t bytes = 8) {
  return {Kind::kCollective, -1, communicator, bytes, -1, -1, -1, std::move(what)};
}

// Lists over the world communicator.
OperationLists world(std::vector<std::vector<Operation>> operations) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < operations.size(); ++rank) members.push_back(int(rank));
  return {{members}, std::move(operations)};
}

std::set<Rule> rules_of(const std::vector<CommunicationViolation>& violations) {
  std::set<Rule> rules;
  for (const CommunicationViolation& violation : violations) rules.insert(violation.rule);
  return rules;
}

constexpr SendMode kModes[] = {SendMode::kRendezvous, SendMode::kBuffered};

TEST(Deadlock, NothingToDoIsDone) {
  for (SendMode mode : kModes) {
    EXPECT_TRUE(check_operations({}, mode).empty());
    EXPECT_TRUE(check_operations(world({{}, {}}), mode).empty());
  }
}

TEST(Deadlock, OneSendsTheOtherReceives) {
  for (SendMode mode : kModes) {
    EXPECT_TRUE(
        check_operations(world({{send(1), receive(1)}, {receive(0), send(0)}}), mode).empty());
  }
}

TEST(Deadlock, BothSendFirst) {
  const OperationLists lists = world({{send(1), receive(1)}, {send(0), receive(0)}});
  EXPECT_TRUE(check_operations(lists, SendMode::kBuffered).empty());
  const auto violations = check_operations(lists, SendMode::kRendezvous);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kNoWaitCycle);
  EXPECT_EQ(violations[0].rank, 0);
  EXPECT_EQ(violations[0].operation, 0);
  EXPECT_EQ(violations[0].peer, 1);
  EXPECT_EQ(violations[0].sentence,
            "deadlock of 2 ranks: rank 0 operation 0 (send to rank 1) waits for rank 1; rank 1 "
            "operation 0 (send to rank 0) waits for rank 0");
}

TEST(Deadlock, BothReceiveFirstHangsInAnyMode) {
  const OperationLists lists = world({{receive(1), send(1)}, {receive(0), send(0)}});
  for (SendMode mode : kModes) {
    EXPECT_EQ(rules_of(check_operations(lists, mode)), std::set<Rule>{Rule::kNoWaitCycle});
  }
}

TEST(Deadlock, OperationsOfOneExchangeProceedTogether) {
  const OperationLists lists =
      world({{receive(1, 8, 0), send(1, 8, 0)}, {receive(0, 8, 5), send(0, 8, 5)}});
  for (SendMode mode : kModes) EXPECT_TRUE(check_operations(lists, mode).empty());
  // Two exchanges do not.
  const OperationLists apart =
      world({{receive(1, 8, 0), send(1, 8, 1)}, {receive(0, 8, 0), send(0, 8, 1)}});
  for (SendMode mode : kModes) {
    EXPECT_EQ(rules_of(check_operations(apart, mode)), std::set<Rule>{Rule::kNoWaitCycle});
  }
}

// The classic: in a ring of blocking calls even ranks send first and odd ones receive first; with
// an odd number of ranks that still works, all sending first never does.
TEST(Deadlock, RingsOfBlockingCalls) {
  for (int ranks : {2, 3, 4, 5, 7}) {
    std::vector<std::vector<Operation>> alternate, all_send;
    for (int rank = 0; rank < ranks; ++rank) {
      const Operation to = send((rank + 1) % ranks), from = receive((rank + ranks - 1) % ranks);
      alternate.push_back(rank % 2 == 0 ? std::vector{to, from} : std::vector{from, to});
      all_send.push_back({to, from});
    }
    EXPECT_TRUE(check_operations(world(alternate)).empty()) << ranks;
    const auto violations = check_operations(world(all_send));
    ASSERT_EQ(violations.size(), 1u) << ranks;
    EXPECT_EQ(violations[0].rule, Rule::kNoWaitCycle);
    EXPECT_EQ(violations[0].sentence.rfind("deadlock of " + std::to_string(ranks) + " ranks", 0),
              0u);
    EXPECT_TRUE(check_operations(world(all_send), SendMode::kBuffered).empty());
  }
}

TEST(Deadlock, UnpairedSend) {
  const auto violations = check_operations(world({{send(1), send(1)}, {receive(0)}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kPaired);
  EXPECT_EQ(violations[0].rank, 0);
  EXPECT_EQ(violations[0].operation, 1);
  EXPECT_EQ(violations[0].sentence,
            "rank 0 operation 1 (send to rank 1) is never received: rank 0 sends 2 times to rank "
            "1, which receives 1 times from it");
}

TEST(Deadlock, UnpairedReceive) {
  const auto violations = check_operations(world({{send(1)}, {receive(0), receive(0)}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kPaired);
  EXPECT_EQ(violations[0].rank, 1);
  EXPECT_EQ(violations[0].operation, 1);
}

TEST(Deadlock, MismatchedBytes) {
  const auto violations =
      check_operations(world({{send(1, 8), send(1, 16)}, {receive(0, 8), receive(0, 24)}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kBytesMatch);
  EXPECT_EQ(violations[0].sentence,
            "rank 0 operation 1 (send to rank 1) sends 16 bytes but rank 1 operation 1 (receive "
            "from rank 0) expects 24");
}

// Messages of different communicators never meet.
TEST(Deadlock, CommunicatorsAreApart) {
  OperationLists lists = world({{send(1)}, {receive(0)}});
  lists.communicators.push_back({0, 1});
  lists.operations[1][0].communicator = 1;
  EXPECT_EQ(rules_of(check_operations(lists)), (std::set<Rule>{Rule::kPaired, Rule::kNoWaitCycle}));
  lists.operations[0][0].communicator = 1;
  EXPECT_TRUE(check_operations(lists).empty());
}

TEST(Deadlock, CollectivesInAnotherOrder) {
  const auto violations =
      check_operations(world({{collective(0, "all-reduce"), collective(0, "barrier")},
                              {collective(0, "all-reduce"), collective(0, "barrier")},
                              {collective(0, "barrier"), collective(0, "all-reduce")}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kCollectiveOrder);
  EXPECT_EQ(violations[0].rank, 2);
  EXPECT_EQ(violations[0].sentence,
            "communicator 0 (ranks 0..2): collective 0 is all-reduce of 8 bytes on rank 0 "
            "(operation 0) but barrier of 8 bytes on rank 2 (operation 0)");
}

TEST(Deadlock, CollectiveOfAnotherSize) {
  EXPECT_EQ(rules_of(check_operations(
                world({{collective(0, "all-reduce", 8)}, {collective(0, "all-reduce", 16)}}))),
            std::set<Rule>{Rule::kCollectiveOrder});
}

TEST(Deadlock, DifferentNumbersOfCollectives) {
  const auto violations = check_operations(
      world({{collective(0, "barrier"), collective(0, "barrier")}, {collective(0, "barrier")}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kCollectiveCount);
  EXPECT_EQ(violations[0].sentence,
            "communicator 0 (ranks 0..1): rank 0 runs 2 collectives, rank 1 runs 1");
}

// Overlapping communicators 1 = {0, 1}, 2 = {1, 2}, 3 = {0, 2}, each rank starting with another
// one: every pair agrees on everything but nobody gets anywhere.
TEST(Deadlock, OverlappingGroupsInCyclicOrder) {
  OperationLists lists = world({{collective(1, "sum"), collective(3, "sum")},
                                {collective(2, "sum"), collective(1, "sum")},
                                {collective(3, "sum"), collective(2, "sum")}});
  lists.communicators.push_back({0, 1});
  lists.communicators.push_back({1, 2});
  lists.communicators.push_back({0, 2});
  const auto violations = check_operations(lists);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::kNoWaitCycle);
  EXPECT_EQ(violations[0].sentence,
            "deadlock of 3 ranks: rank 0 operation 0 (sum, collective on communicator 1) waits for "
            "rank 1; rank 1 operation 0 (sum, collective on communicator 2) waits for rank 2; rank "
            "2 operation 0 (sum, collective on communicator 3) waits for rank 0");
  std::swap(lists.operations[2][0], lists.operations[2][1]);
  EXPECT_TRUE(check_operations(lists).empty());
}

TEST(Deadlock, CommunicatorsThatDoNotExist) {
  OperationLists lists = world({{collective(4, "sum")}, {send(1)}, {send(9)}, {receive(0)}});
  lists.communicators.push_back({0, 1});
  lists.operations[3][0].communicator = 1;
  const auto violations = check_operations(lists);
  ASSERT_EQ(violations.size(), 4u);
  EXPECT_EQ(rules_of(violations), std::set<Rule>{Rule::kCommunicatorExists});
  EXPECT_EQ(violations[1].sentence, "rank 1 operation 0 (send to rank 1) names itself as the peer");
  EXPECT_EQ(violations[2].sentence,
            "rank 2 operation 0 (send to rank 9) names a peer outside communicator 0, ranks 0..3");
  EXPECT_EQ(violations[3].sentence,
            "rank 3 operation 0 (receive from rank 0) uses communicator 1, ranks 0..1, without "
            "being in it");
}

TEST(Deadlock, TwoSeparateCyclesAreBothTold) {
  const auto violations = check_operations(world({{receive(1), send(1)},
                                                  {receive(0), send(0)},
                                                  {receive(3), send(3)},
                                                  {receive(2), send(2)}}));
  EXPECT_EQ(violations.size(), 2u);
}

TEST(Deadlock, LongCyclesAreCutShort) {
  std::vector<std::vector<Operation>> lists;
  for (int rank = 0; rank < 1000; ++rank) {
    lists.push_back({receive((rank + 999) % 1000), send((rank + 1) % 1000)});
  }
  const auto violations = check_operations(world(lists));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_LT(violations[0].sentence.size(), 1000u);
  EXPECT_NE(violations[0].sentence.find("994 more"), std::string::npos);
}

// --- Operations of schedules. ---

ScheduleProblem problem_of(std::vector<std::int64_t> lengths, int ranks, std::int64_t limit) {
  ScheduleProblem problem;
  problem.lengths = std::move(lengths);
  problem.ranks = ranks;
  problem.max_tokens_per_rank = limit;
  return problem;
}

TEST(OperationsOf, WritesTheRingOfAGroup) {
  const ScheduleProblem problem = problem_of({10, 5, 7}, 4, 7);
  const Schedule schedule{{{{{0, 3}, {0, 1}}, {{3, 1}, {2}}}}};
  OperationOptions options;
  options.bytes_per_token = 4;
  options.barrier = true;
  const OperationLists lists = operations_of(problem, schedule, options);
  ASSERT_EQ(lists.operations.size(), 4u);
  EXPECT_EQ(lists.communicators, (std::vector<std::vector<int>>{{0, 1, 2, 3}}));
  // 15 tokens on 3 ranks: 5 a rank, 20 bytes of K and V.
  const std::vector<Operation>& ops = lists.operations[2];
  ASSERT_EQ(ops.size(), 2u * 2 + 3u * 2 + 1);
  EXPECT_EQ(ops[0], (Operation{Kind::kSend, 0, 0, 20, 0, 0, 0, "ring forward"}));
  EXPECT_EQ(ops[1], (Operation{Kind::kReceive, 1, 0, 20, 0, 0, 0, "ring forward"}));
  EXPECT_EQ(ops[2], (Operation{Kind::kSend, 0, 0, 20, 1, 0, 1, "ring forward"}));
  EXPECT_EQ(ops[4], (Operation{Kind::kSend, 1, 0, 20, 2, 0, 0, "ring backward"}));
  EXPECT_EQ(ops[5], (Operation{Kind::kReceive, 0, 0, 20, 2, 0, 0, "ring backward"}));
  EXPECT_EQ(ops[6].bytes, 40);
  EXPECT_EQ(ops[8].bytes, 20);
  EXPECT_EQ(ops[10].what, "barrier");
  ASSERT_EQ(lists.operations[3].size(), 1u);
  for (SendMode mode : kModes) EXPECT_TRUE(check_operations(lists, mode).empty());
}

TEST(OperationsOf, SerialExecutionRunsARingForEachSequence) {
  ScheduleProblem problem = problem_of({10, 6}, 2, 7);
  problem.execution = Execution::kSerial;
  const Schedule schedule{{{{{0, 2}, {0, 1}}}}};
  const OperationLists lists = operations_of(problem, schedule);
  ASSERT_EQ(lists.operations[0].size(), 2u * (2 + 2 * 2));
  EXPECT_EQ(lists.operations[0][0].bytes, 5);
  EXPECT_EQ(lists.operations[0][6].bytes, 3);
}

TEST(OperationsOf, GroupCommunicatorsAreMadeOnce) {
  const ScheduleProblem problem = problem_of({4, 4, 4, 4}, 4, 2);
  const Schedule schedule{{{{{0, 2}, {0}}, {{2, 2}, {1}}}, {{{0, 2}, {2}}, {{2, 2}, {3}}}}};
  OperationOptions options;
  options.group_communicators = true;
  const OperationLists lists = operations_of(problem, schedule, options);
  EXPECT_EQ(lists.communicators, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 1}, {2, 3}}));
  EXPECT_TRUE(check_operations(lists).empty());
}

TEST(OperationsOf, AllSendingFirstNeedsBuffers) {
  const ScheduleProblem problem = problem_of({9}, 3, 3);
  const Schedule schedule{{{{{0, 3}, {0}}}}};
  OperationOptions options;
  options.grouped = false;
  const OperationLists lists = operations_of(problem, schedule, options);
  EXPECT_TRUE(check_operations(lists, SendMode::kBuffered).empty());
  const auto violations = check_operations(lists, SendMode::kRendezvous);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].sentence,
            "deadlock of 3 ranks: rank 0 operation 0 (microbatch 0, ring forward step 0, send to "
            "rank 1) waits for rank 1; rank 1 operation 0 (microbatch 0, ring forward step 0, send "
            "to rank 2) waits for rank 2; rank 2 operation 0 (microbatch 0, ring forward step 0, "
            "send to rank 0) waits for rank 0");
}

// What happens to megatron-balanced's misaligned group in a framework, which looks the group up by
// its size: ranks 2 and 3 ring with 0 and 1, ranks 4 and 5 with 6 and 7.
TEST(OperationsOf, MisalignedGroupHangsInAFramework) {
  ScheduleProblem problem =
      problem_of({3424, 2672, 1584, 2560, 4048, 1344, 1904, 1648, 112, 1920}, 8, 1024);
  problem.execution = Execution::kSerial;
  const Schedule schedule{{{{{0, 4}, {4}}, {{4, 4}, {0, 1}}},
                           {{{0, 2}, {9}}, {{2, 2}, {6}}, {{4, 2}, {7}}, {{6, 2}, {2}}},
                           {{{0, 2}, {8}}, {{2, 4}, {3}}, {{6, 2}, {5}}}}};
  EXPECT_TRUE(check_operations(operations_of(problem, schedule)).empty());
  OperationOptions framework;
  framework.lookup = GroupLookup::kFramework;
  for (bool group_communicators : {false, true}) {
    framework.group_communicators = group_communicators;
    const auto violations = check_operations(operations_of(problem, schedule, framework));
    ASSERT_FALSE(violations.empty());
    EXPECT_EQ(violations.front().rule, Rule::kPaired);
    EXPECT_NE(violations.front().sentence.find("microbatch 2"), std::string::npos)
        << violations.front().sentence;
  }
  // The same schedule without the misaligned microbatch runs.
  Schedule aligned = schedule;
  aligned.microbatches.pop_back();
  EXPECT_TRUE(check_operations(operations_of(problem, aligned, framework)).empty());
}

TEST(OperationsOf, LookupOfASizeThatDoesNotExist) {
  const ScheduleProblem problem = problem_of({828, 480}, 6, 256);
  const Schedule schedule{{{{{0, 4}, {0}}, {{4, 2}, {1}}}}};
  OperationOptions framework;
  framework.lookup = GroupLookup::kFramework;
  const auto violations = check_operations(operations_of(problem, schedule, framework));
  EXPECT_EQ(rules_of(violations), std::set<Rule>{Rule::kCommunicatorExists});
  EXPECT_EQ(violations.size(), 4u);
  EXPECT_EQ(violations.front().sentence,
            "rank 0 operation 0 (microbatch 0, lookup of a CP group of size 4, collective on "
            "communicator -1) uses a communicator that does not exist");
}

// Serial execution with expert parallelism: ranks run different numbers of forward passes, and
// each one meets everybody.
TEST(OperationsOf, LateBarrier) {
  ScheduleProblem problem = problem_of({8, 3, 4}, 2, 8);
  problem.execution = Execution::kSerial;
  const Schedule schedule{{{{{0, 1}, {0}}, {{1, 1}, {1, 2}}}}};
  EXPECT_TRUE(check_schedule(problem, schedule).empty());
  OperationOptions options;
  options.barrier = true;
  EXPECT_TRUE(check_operations(operations_of(problem, schedule, options)).empty());
  options.collective_each_forward = true;
  const auto violations = check_operations(operations_of(problem, schedule, options));
  EXPECT_EQ(rules_of(violations), (std::set<Rule>{Rule::kCollectiveCount, Rule::kCollectiveOrder}));
  problem.execution = Execution::kPack;
  EXPECT_TRUE(check_operations(operations_of(problem, schedule, options)).empty());
}

TEST(OperationsOf, RingsCanBeCutOff) {
  const ScheduleProblem problem = problem_of({1000}, 100, 10);
  const Schedule schedule{{{{{0, 100}, {0}}}}};
  OperationOptions options;
  options.most_ring_steps = 2;
  const OperationLists lists = operations_of(problem, schedule, options);
  EXPECT_EQ(lists.operations[0].size(), 2u * (2 + 2));
  EXPECT_TRUE(check_operations(lists).empty());
}

TEST(OperationsOf, GroupsOutsideTheDomainAreTold) {
  const ScheduleProblem problem = problem_of({4, 4}, 3, 4);
  const Schedule schedule{{{{{0, 2}, {0}}, {{2, 2}, {1}}, {{7, 2}, {1}}, {{-1, 2}, {0}}}}};
  EXPECT_EQ(rules_of(check_operations(operations_of(problem, schedule))),
            std::set<Rule>{Rule::kCommunicatorExists});
}

}  // namespace
}  // namespace dyncp
