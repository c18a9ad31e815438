// dyncp list: what it names exists, and what exists is named.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "properties/cli/run_command.h"
#include "reference/schedule_check.h"
#include "runtime/check.h"
#include "runtime/lengths.h"
#include "runtime/problem.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

// The first words of the lines; every line must have more words than its name.
std::set<std::string> names(const std::string& arguments) {
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::set<std::string> result;
  std::istringstream text(outcome.out);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name, summary;
    words >> name >> summary;
    EXPECT_NE(summary, "") << line;
    result.insert(name);
  }
  return result;
}

TEST(ListCommand, NamesDriversSchedulersAndDistributions) {
  std::set<std::string> expected;
  for (const Driver* driver : drivers()) expected.emplace(driver->name);
  EXPECT_EQ(names("list drivers"), expected);
  expected.clear();
  for (const Scheduler* scheduler : schedulers()) expected.emplace(scheduler->name());
  EXPECT_EQ(names("list schedulers"), expected);
  expected.clear();
  for (const LengthFamily& family : length_families()) expected.emplace(family.name);
  EXPECT_EQ(names("list distributions"), expected);
}

TEST(ListCommand, NamesOneSchedulerAsTheDefault) {
  const std::string out = run_command("list schedulers").out;
  const std::size_t first = out.find("(the default)");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(out.find("(the default)", first + 1), std::string::npos);
}

TEST(ListCommand, NamesEveryRuleAndChecksOfEveryDriver) {
  const std::set<std::string> listed = names("list properties");
  for (const ScheduleRule rule : all_schedule_rules()) {
    EXPECT_EQ(listed.count(std::string(to_string(rule))), 1U) << to_string(rule);
  }
  for (const Driver* driver : drivers()) {
    const std::string prefix = std::string(driver->name) + ".";
    const auto found = listed.lower_bound(prefix);
    EXPECT_TRUE(found != listed.end() && found->rfind(prefix, 0) == 0) << driver->name;
  }
}

TEST(ListCommand, CasesAreCommandsThatParse) {
  const Outcome outcome = run_command("list cases --tier ci");
  EXPECT_EQ(outcome.exit_code, 0);
  std::istringstream text(outcome.out);
  int cases = 0;
  for (std::string line; std::getline(text, line); ++cases) {
    EXPECT_EQ(print_command(parse_command(line)), line);
  }
  EXPECT_GT(cases, 100);
}

TEST(ListCommand, BadInputGetsOneLineAndExits2) {
  for (const char* arguments :
       {"list", "list nosuch", "list cases --tier nightly", "list drivers x"}) {
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(is_one_line(outcome.err)) << arguments << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace dyncp
