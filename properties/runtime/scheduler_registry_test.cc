// Schedulers are found by name and alias, and treat the empty problem and bad problems alike.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "reference/error.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

TEST(SchedulerRegistry, FindsEveryNameAndTheAlias) {
  std::set<std::string> names;
  for (const Scheduler* scheduler : schedulers()) {
    EXPECT_EQ(&find_scheduler(scheduler->name()), scheduler);
    EXPECT_FALSE(scheduler->summary().empty());
    names.insert(std::string(scheduler->name()));
  }
  EXPECT_EQ(names.size(), schedulers().size());
  EXPECT_EQ(find_scheduler("dp_balanced").name(), "static-packing");
  EXPECT_EQ(find_scheduler(kDefaultScheduler).name(), kDefaultScheduler);
}

TEST(SchedulerRegistry, UnknownNameListsTheKnownOnes) {
  try {
    (void)find_scheduler("megatron");
    FAIL() << "not refused";
  } catch (const InvalidInput& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'megatron'"), std::string::npos) << text;
    for (const Scheduler* scheduler : schedulers()) {
      EXPECT_NE(text.find(scheduler->name()), std::string::npos) << text;
    }
    EXPECT_NE(text.find("dp_balanced"), std::string::npos) << text;
  }
}

TEST(SchedulerRegistry, NothingToScheduleIsNoMicrobatch) {
  ScheduleProblem problem;
  problem.ranks = 8;
  problem.microbatch_multiple = 4;
  for (const Scheduler* scheduler : schedulers()) {
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 0, 0}}) {
      problem.lengths = lengths;
      EXPECT_TRUE(scheduler->schedule(problem).microbatches.empty()) << scheduler->name();
    }
  }
}

TEST(SchedulerRegistry, BadProblemsAreRefusedByEveryScheduler) {
  ScheduleProblem problem;
  problem.ranks = 8;
  problem.max_tokens_per_rank = 16;
  problem.lengths = {10, -1};
  for (const Scheduler* scheduler : schedulers()) {
    EXPECT_THROW((void)scheduler->schedule(problem), InvalidInput) << scheduler->name();
  }
  problem.lengths = {10, 8 * 16 + 1};  // the second fits on no group of the domain
  for (const Scheduler* scheduler : schedulers()) {
    EXPECT_THROW((void)scheduler->schedule(problem), Infeasible) << scheduler->name();
  }
}

}  // namespace
}  // namespace dyncp
