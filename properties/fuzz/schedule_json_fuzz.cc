// The JSON of schedules: any text is read or refused in one line; what was read survives writing
// and reading; and a schedule however broken can be judged and printed.
#include "properties/fuzz/fuzz.h"
#include "reference/schedule_check.h"
#include "runtime/schedule_format.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed =
      dyncp::attempt([&] { return dyncp::parse_json(dyncp::as_text(data, size), "input"); });
  if (!parsed) return 0;
  const nlohmann::json& json = *parsed;
  const auto schedule = dyncp::attempt([&] { return dyncp::schedule_from_json(json); });
  if (schedule) {
    const nlohmann::json written = {{"microbatches", dyncp::microbatches_to_json(*schedule)}};
    require(dyncp::schedule_from_json(written) == *schedule, "a schedule survives writing");
  }
  const auto lists = dyncp::attempt([&] { return dyncp::rank_lists_from_json(json); });
  if (lists) {
    require(dyncp::rank_lists_from_json(dyncp::rank_lists_to_json(*lists)) == *lists,
            "rank lists survive writing");
  }
  const auto problem = dyncp::attempt([&] { return dyncp::problem_from_json(json); });
  if (problem) {
    require(dyncp::problem_from_json(dyncp::problem_to_json(*problem)) == *problem,
            "a problem survives writing");
  }
  // Time and memory of judging grow with the ranks; the small domains hold all the cases.
  if (problem && problem->ranks <= 64) {
    if (schedule) {
      for (const auto& violation : dyncp::check_schedule(*problem, *schedule)) {
        dyncp::require_message(violation.sentence);
      }
      require(!dyncp::format_schedule_table(*problem, *schedule).empty(), "a table has text");
    }
    if (lists) {
      for (const auto& violation : dyncp::check_rank_lists(*problem, *lists)) {
        dyncp::require_message(violation.sentence);
      }
    }
  }
  return 0;
}
