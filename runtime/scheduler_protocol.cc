#include "runtime/scheduler_protocol.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/schedule_format.h"

namespace dyncp {
namespace {

using nlohmann::json;

// The beginning of somebody's line, for an error message.
std::string beginning(std::string_view line) {
  constexpr std::size_t kMost = 120;
  return "'" + one_line(line, kMost) + (line.size() > kMost ? "...'" : "'");
}

json parse_object(std::string_view line) {
  json value = json::parse(line, nullptr, false);
  if (value.is_discarded()) throw InvalidInput("it is no JSON");
  if (!value.is_object()) throw InvalidInput("it is no JSON object");
  return value;
}

bool is_id(const json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() <=
              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
}

ScheduleAnswer read_answer(const json& object, std::int64_t id) {
  if (const auto found = object.find("id"); found != object.end()) {
    if (!is_id(*found) || found->get<std::int64_t>() != id) {
      return SchedulerFailure{SchedulerFailure::Kind::kWrongId,
                              "the answer is to request " + beginning(found->dump().substr(0, 40)) +
                                  " where request " + std::to_string(id) + " was asked"};
    }
  }
  int forms = 0;
  for (const char* form : {"microbatches", "sample_id_groups", "error"}) {
    forms += object.contains(form) ? 1 : 0;
  }
  if (forms != 1) {
    throw InvalidInput("expected exactly one of \"microbatches\", \"sample_id_groups\", \"error\"");
  }
  if (object.contains("microbatches")) return schedule_from_json(object);
  if (object.contains("sample_id_groups")) return rank_lists_from_json(object);
  if (!object["error"].is_string()) throw InvalidInput("\"error\" is no string");
  return Refusal{object["error"].get<std::string>()};
}

}  // namespace

std::string_view to_string(SchedulerFailure::Kind kind) {
  switch (kind) {
    case SchedulerFailure::Kind::kHang:
      return "hang";
    case SchedulerFailure::Kind::kLate:
      return "late";
    case SchedulerFailure::Kind::kCrash:
      return "crash";
    case SchedulerFailure::Kind::kMalformed:
      return "malformed-answer";
    case SchedulerFailure::Kind::kWrongId:
      return "wrong-id";
  }
  return "?";
}

std::string request_line(const ScheduleProblem& problem, std::int64_t id) {
  json request = problem_to_json(problem);
  request["version"] = 1;
  request["id"] = id;
  return request.dump();
}

ScheduleRequest parse_request(std::string_view line) {
  try {
    const json object = parse_object(line);
    if (object.value("version", json()) != 1) throw InvalidInput("\"version\" is not 1");
    const json id = object.value("id", json());
    if (!is_id(id)) throw InvalidInput("\"id\" is no integer");
    return {id.get<std::int64_t>(), problem_from_json(object)};
  } catch (const InvalidInput& error) {
    throw InvalidInput("the request is malformed: " + std::string(error.what()) + "; it begins " +
                       beginning(line));
  }
}

std::string answer_line(const ScheduleAnswer& answer, std::int64_t id) {
  json object;
  if (const auto* schedule = std::get_if<Schedule>(&answer)) {
    object["microbatches"] = microbatches_to_json(*schedule);
  } else if (const auto* lists = std::get_if<RankLists>(&answer)) {
    object = rank_lists_to_json(*lists);
  } else {
    object["error"] = std::get<Refusal>(answer).reason;
  }
  object["id"] = id;
  return object.dump(-1, ' ', true, json::error_handler_t::replace);
}

ScheduleAnswer parse_answer(std::string_view line, std::int64_t id) {
  try {
    return read_answer(parse_object(line), id);
  } catch (const InvalidInput& error) {
    return SchedulerFailure{
        SchedulerFailure::Kind::kMalformed,
        "the answer is malformed: " + std::string(error.what()) + "; it begins " + beginning(line)};
  }
}

}  // namespace dyncp
