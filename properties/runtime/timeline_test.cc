// The pictures of a schedule hold what the simulation says: one bar a CP group, one slice a rank of
// it.
#include "runtime/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/scheduler.h"

namespace dyncp {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Timeline, OneBarAGroupAndOneSliceARank) {
  ScheduleProblem problem;
  problem.lengths = {4096, 1024, 1024, 512, 512, 512, 256, 256, 9000};
  problem.ranks = 16;
  problem.max_tokens_per_rank = 1024;
  const Schedule schedule = find_scheduler("megatron-packing-aware").schedule(problem);
  std::size_t groups = 0, slices = 0;
  for (const Microbatch& microbatch : schedule.microbatches) {
    groups += microbatch.size();
    for (const Assignment& assignment : microbatch) {
      slices += static_cast<std::size_t>(assignment.group.size);
    }
  }
  ASSERT_GT(groups, 2U);
  for (const Barrier barrier : {Barrier::kNone, Barrier::kMicrobatch}) {
    EXPECT_EQ(count(gantt_svg(problem, schedule, CostModel::flat(), barrier), "<rect "), groups);
    const auto trace =
        nlohmann::json::parse(chrome_trace(problem, schedule, CostModel::flat(), barrier));
    std::size_t complete = 0;
    for (const auto& event : trace["traceEvents"]) complete += event["ph"] == "X" ? 1 : 0;
    EXPECT_EQ(complete, slices);
  }
}

TEST(Timeline, AnEmptyScheduleIsAnEmptyPicture) {
  ScheduleProblem problem;
  problem.ranks = 2;
  EXPECT_EQ(count(gantt_svg(problem, {}, CostModel::flat(), Barrier::kNone), "<rect "), 0U);
}

}  // namespace
}  // namespace dyncp
