// The schedulers against the golden schedules of fixtures/schedules/, group by group and id by id.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/schedule_format.h"
#include "runtime/scheduler.h"
#include "runtime/schedulers/megatron_packing_aware.h"
#include "runtime/schedulers/static_packing.h"

namespace dyncp {
namespace {

using nlohmann::json;

json read_cases(const std::string& file) {
  const std::string path = std::string(DYNCP_SOURCE_DIR) + "/fixtures/schedules/" + file;
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return parse_json(std::string(std::istreambuf_iterator<char>(in), {}), path);
}

void expect_known_fields(const json& golden) {
  static const std::set<std::string> known = {"name",         "scheduler",  "cp_size",   "problem",
                                              "microbatches", "violations", "infeasible"};
  for (const auto& [key, unused] : golden.items()) EXPECT_TRUE(known.count(key)) << key;
}

// Equal to the golden schedule, or refused with the golden phrase.
template <typename MakeSchedule>
void expect_golden(const json& golden, const ScheduleProblem& problem, const MakeSchedule& make) {
  if (golden.contains("infeasible")) {
    try {
      make();
      ADD_FAILURE() << "not refused";
    } catch (const Infeasible& reason) {
      EXPECT_NE(std::string(reason.what()).find(golden["infeasible"].get<std::string>()),
                std::string::npos)
          << reason.what();
    }
    return;
  }
  const Schedule expected = schedule_from_json(golden);
  std::set<std::string> broken;
  for (const Violation& violation : check_schedule(problem, expected)) {
    broken.insert(std::string(to_string(violation.rule)));
  }
  EXPECT_EQ(broken, golden.at("violations").get<std::set<std::string>>());
  const Schedule got = make();
  EXPECT_EQ(got, expected) << "got\n"
                           << format_schedule_table(problem, got) << "expected\n"
                           << format_schedule_table(problem, expected);
}

// Returns how many cases there were.
std::size_t check_file(const std::string& file) {
  const json cases = read_cases(file);
  for (const json& golden : cases) {
    SCOPED_TRACE(file + ": " + golden.at("name").get<std::string>());
    expect_known_fields(golden);
    const ScheduleProblem problem = problem_from_json(golden.at("problem"));
    const auto name = golden.at("scheduler").get<std::string>();
    if (golden.contains("cp_size")) {
      const StaticPacking scheduler(golden["cp_size"].get<int>());
      EXPECT_EQ(name, scheduler.name());
      expect_golden(golden, problem, [&] { return scheduler.schedule(problem); });
    } else {
      const Scheduler& scheduler = find_scheduler(name);
      EXPECT_EQ(problem.execution, scheduler.execution());
      expect_golden(golden, problem, [&] { return scheduler.schedule(problem); });
    }
    if (name == "megatron-packing-aware") {
      SCOPED_TRACE("plain_packing_aware");
      expect_golden(golden, problem, [&] { return plain_packing_aware(problem); });
    }
  }
  return cases.size();
}

TEST(GoldenSchedules, MegatronPackingAware) { EXPECT_GE(check_file("packing_aware.json"), 21U); }

TEST(GoldenSchedules, MegatronBalanced) { EXPECT_GE(check_file("balanced.json"), 14U); }

TEST(GoldenSchedules, StaticPacking) { EXPECT_GE(check_file("static_packing.json"), 6U); }

}  // namespace
}  // namespace dyncp
