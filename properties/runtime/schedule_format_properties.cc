// JSON of problems, schedules and rank lists reads back as what was written.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "properties/runtime/schedulers/problems.h"
#include "reference/error.h"
#include "runtime/schedule_format.h"

namespace dyncp {
namespace {

// Any schedule of the right form, mostly a bad one.
rc::Gen<Schedule> genAnySchedule() {
  return rc::gen::exec([] {
    Schedule schedule;
    schedule.microbatches.resize(static_cast<std::size_t>(*genInt(0, 3)));
    for (Microbatch& microbatch : schedule.microbatches) {
      const int groups = *genInt(0, 4);
      for (int g = 0; g < groups; ++g) {
        microbatch.push_back({{*genInt(-4, 40), *genInt(0, 40)},
                              *rc::gen::container<std::vector<int>>(rc::gen::arbitrary<int>())});
      }
    }
    return schedule;
  });
}

RC_GTEST_PROP(ScheduleJson, ReadsBackWhatItWrote, ()) {
  ScheduleProblem problem = *genProblem(Domains::kAny);
  problem.execution = *rc::gen::element(Execution::kPack, Execution::kSerial);
  problem.group_policy = *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                           GroupPolicy::kDivisors, GroupPolicy::kInterval);
  problem.padding = *rc::gen::element(Padding::kNone, Padding::kGlobal, Padding::kGroup);
  if (*genInt(0, 1) == 0) problem.max_sequences = *genInt(1, 9);
  const Schedule schedule = *genAnySchedule();
  const auto json = schedule_to_json(problem, schedule);
  RC_ASSERT(problem_from_json(json) == problem);
  RC_ASSERT(schedule_from_json(json) == schedule);
  RC_ASSERT(parse_json(json.dump(), "text") == json);
  RC_ASSERT(!format_schedule_table(problem, schedule).empty());
}

RC_GTEST_PROP(ScheduleJson, RankListsReadBack, ()) {
  const RankLists lists = to_rank_lists(*genAnySchedule(), *genInt(1, 20));
  RC_ASSERT(rank_lists_from_json(rank_lists_to_json(lists)) == lists);
}

// Any other JSON is refused in one line or read; nothing else is thrown.
RC_GTEST_PROP(ScheduleJson, SurvivesAnyChange, ()) {
  const ScheduleProblem problem = *genProblem(Domains::kAny, 8);
  nlohmann::json json = schedule_to_json(problem, *genAnySchedule());
  json["sample_id_groups"] = to_rank_lists(*genAnySchedule(), 3);
  const auto flat = json.flatten();
  RC_PRE(!flat.empty());
  auto place = flat.begin();
  std::advance(place, *genInt(0, static_cast<int>(flat.size()) - 1));
  const nlohmann::json values[] = {nullptr, -1, 1.5,  std::uint64_t{1} << 63,  "x",
                                   true,    {}, 1000, nlohmann::json::object()};
  json[nlohmann::json::json_pointer(place.key())] = values[*genInt(0, 8)];
  const auto refused_in_one_line = [&](const auto& read) {
    try {
      (void)read(json);
    } catch (const InvalidInput& error) {
      RC_ASSERT(std::string(error.what()).find('\n') == std::string::npos);
    }
  };
  refused_in_one_line([](const auto& j) { return problem_from_json(j); });
  refused_in_one_line([](const auto& j) { return schedule_from_json(j); });
  refused_in_one_line([](const auto& j) { return rank_lists_from_json(j); });
}

}  // namespace
}  // namespace dyncp
