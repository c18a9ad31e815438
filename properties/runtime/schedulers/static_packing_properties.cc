// Static packing keeps every rule in power-of-two domains, under every padding rule and limit; the
// packs follow the given order.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "properties/runtime/schedulers/problems.h"
#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/schedulers/static_packing.h"

namespace dyncp {
namespace {

const DefaultCases kCases(3000);

rc::Gen<ScheduleProblem> genStaticProblem() {
  return rc::gen::exec([] {
    ScheduleProblem problem = *genProblem(Domains::kPowersOfTwo);
    problem.padding = *rc::gen::element(Padding::kNone, Padding::kGlobal, Padding::kGroup);
    if (*genInt(0, 2) == 0) problem.max_sequences = *genInt(1, 4);
    return problem;
  });
}

RC_GTEST_PROP(StaticPacking, ValidInPowerOfTwoDomains, ()) {
  const ScheduleProblem problem = *genStaticProblem();
  const auto sequences = std::count_if(problem.lengths.begin(), problem.lengths.end(),
                                       [](std::int64_t length) { return length > 0; });
  const GroupTable table = problem.group_table();
  bool all_fit = true;
  for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
    all_fit = all_fit && need(problem, table, id).has_value();
  }
  Schedule schedule;
  try {
    schedule = StaticPacking().schedule(problem);
  } catch (const Infeasible& reason) {
    const std::string text = reason.what();
    if (all_fit) {
      // With as many sequences as a multiple of both, every pack can be split as far as needed.
      RC_ASSERT(text.find("not enough samples to move") != std::string::npos);
      RC_ASSERT(sequences % (problem.ranks * problem.microbatch_multiple) != 0);
    } else {
      RC_ASSERT(text.find("fits on no CP size") != std::string::npos);
    }
    return;
  }
  RC_ASSERT(all_fit);
  for (const Violation& violation : check_schedule(problem, schedule)) {
    RC_LOG() << violation.sentence << "\n";
  }
  RC_ASSERT(check_schedule(problem, schedule).empty());
  // One size everywhere, and ids ascend within a pack.
  std::optional<int> size;
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) {
      RC_ASSERT(size.value_or(assignment.group.size) == assignment.group.size);
      size = assignment.group.size;
      RC_ASSERT(std::is_sorted(assignment.sequences.begin(), assignment.sequences.end()));
    }
  }
}

// A fixed size that the longest sequence needs anyway changes nothing; one that does not divide the
// domain is refused.
RC_GTEST_PROP(StaticPacking, FixedSizeIsTheChosenSizeOrRefused, ()) {
  const ScheduleProblem problem = *genStaticProblem();
  try {
    const Schedule chosen = StaticPacking().schedule(problem);
    if (chosen.microbatches.empty()) return;
    const int size = chosen.microbatches.front().front().group.size;
    RC_ASSERT(StaticPacking(size).schedule(problem) == chosen);
    for (const int other : {0, -1, 3, problem.ranks + 1}) {
      if (other >= 1 && problem.ranks % other == 0) continue;
      RC_ASSERT_THROWS_AS((void)StaticPacking(other).schedule(problem), Infeasible);
    }
  } catch (const Infeasible&) {
    return;
  }
}

}  // namespace
}  // namespace dyncp
