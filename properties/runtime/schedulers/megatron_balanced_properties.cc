// Megatron main's scheduler keeps all rules but the one it is known to break: in power-of-two
// domains its only fault is a group on ranks where no group of its size exists.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "properties/runtime/schedulers/problems.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/megatron_balanced.h"

namespace dyncp {
namespace {

const DefaultCases kCases(3000);

RC_GTEST_PROP(MegatronBalanced, BreaksOnlyAlignmentInPowerOfTwoDomains, ()) {
  ScheduleProblem problem = *genProblem(Domains::kPowersOfTwo);
  problem.execution = Execution::kSerial;
  problem.min_cp = 1;               // ignored by this scheduler
  problem.microbatch_multiple = 1;  // as well
  const GroupTable table = problem.group_table();
  bool all_fit = true;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    all_fit = all_fit && need(problem, table, id).has_value();
  }
  Schedule schedule;
  try {
    schedule = MegatronBalanced().schedule(problem);
  } catch (const Infeasible& reason) {
    RC_LOG() << reason.what();
    RC_ASSERT(!all_fit);
    return;
  }
  RC_ASSERT(all_fit);
  for (const Violation& violation : check_schedule(problem, schedule)) {
    RC_LOG() << violation.sentence << "\n";
    RC_ASSERT(violation.rule == ScheduleRule::kGroupAligned);
  }
}

// The defect is not rare: uniform lengths of up to 4 capacities on 8 ranks meet it in 6 of these
// 2,000 cases, and Megatron's own code, run on the same lengths, in the same 6.
TEST(MegatronBalanced, UniformLengthsFindTheMisalignedGroup) {
  int misaligned = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    ScheduleProblem problem;
    problem.ranks = 8;
    problem.max_tokens_per_rank = 1024;
    problem.execution = Execution::kSerial;
    const std::uint64_t count = 1 + random() % 32;
    for (std::uint64_t i = 0; i < count; ++i) {
      problem.lengths.push_back(static_cast<std::int64_t>(1 + random() % 4096));
    }
    const auto violations = check_schedule(problem, MegatronBalanced().schedule(problem));
    misaligned += violations.empty() ? 0 : 1;
  }
  EXPECT_EQ(misaligned, 6);
}

}  // namespace
}  // namespace dyncp
