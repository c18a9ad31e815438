// The line protocol between dyncp and a scheduler in any language: one JSON object a line, request
// in, answer out, in order. docs/check-scheduler.md describes it for its users.
//   request
//   {"version":1,"id":7,"ranks":8,"max_tokens_per_rank":1024,"min_cp":1,"tensor_parallel":1,
//             "microbatch_multiple":1,"max_sequences":null,"execution":"pack",
//             "group_policy":"aligned","padding":"none","real":[..],"padded":[..]}
//             ("padded" is left out when padding is "group": it then depends on the CP size)
//   answer   {"id":7,"microbatches":[[{"first_rank":0,"size":4,"sequences":[0]},..],..]}
//        or  {"id":7,"sample_id_groups":[[[ids of rank 0],[ids of rank 1],..],..]}
//        or  {"id":7,"error":"why there is no schedule"}
//   "id" may be left out of an answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/scheduler_answer.h"

namespace dyncp {

/// The request line, without the line end.
std::string request_line(const ScheduleProblem& problem, std::int64_t id);

/// Parses a request line. Throws InvalidInput naming the field.
struct ScheduleRequest {
  std::int64_t id = 0;
  ScheduleProblem problem;
};
ScheduleRequest parse_request(std::string_view line);

/// The answer line, without the line end. REQUIRES: answer is no SchedulerFailure.
std::string answer_line(const ScheduleAnswer& answer, std::int64_t id);

/// Parses an answer to request `id`. Malformed answers and other ids become SchedulerFailure.
ScheduleAnswer parse_answer(std::string_view line, std::int64_t id);

}  // namespace dyncp
