// Schedules for people and for programs: a text table, and JSON both ways.
//
// JSON of a schedule, next to the fields of its problem (tokens, ranks):
//   {"ranks":8, "max_tokens_per_rank":1024, "min_cp":1, "tensor_parallel":1,
//    "microbatch_multiple":1, "max_sequences":null, "execution":"pack", "group_policy":"aligned",
//    "padding":"none", "real":[4096,1024], "padded":[4096,1024],
//    "microbatches":[[{"first_rank":0,"size":4,"sequences":[0]}, ...], ...]}
// "padded" is left out with padding "group", where it depends on the group.
// Megatron's own form of a schedule has, for each microbatch and rank, the ids that rank runs:
//   {"sample_id_groups":[[[0],[0],[0],[0],[1],...], ...]}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "reference/schedule.h"

namespace dyncp {

/// A table with one line per CP group (more when its sequences need them): microbatch, ranks, CP
/// size, padded tokens per rank, load per rank (sum of padded length^2 / size, in squared tokens)
/// and the sequences as id:real length. Tokens per rank of serial execution are those of the
/// group's longest sequence. Prints broken schedules too, "?" where an id is unknown. REQUIRES:
/// require_valid(problem) holds.
std::string format_schedule_table(const ScheduleProblem& problem, const Schedule& schedule);

/// The problem's fields, as above.
nlohmann::json problem_to_json(const ScheduleProblem& problem);

/// Inverse of problem_to_json. "real", "ranks" and "max_tokens_per_rank" must be there, the others
/// have the defaults of ScheduleProblem. The forms of a schedule, "version", "id" and "certificate"
/// may stand beside them. Throws InvalidInput naming the field: missing, unknown, of another type, out of
/// range (require_valid), or "padded" that disagrees with the padding rule.
ScheduleProblem problem_from_json(const nlohmann::json& json);

/// The array that stands under "microbatches".
nlohmann::json microbatches_to_json(const Schedule& schedule);

/// The problem's fields and "microbatches".
nlohmann::json schedule_to_json(const ScheduleProblem& problem, const Schedule& schedule);

/// Reads "microbatches"; other fields are not looked at. The schedule may be a bad one: only its
/// form is checked here. Throws InvalidInput naming the place, what stands there and what was
/// expected.
Schedule schedule_from_json(const nlohmann::json& json);

/// {"sample_id_groups": ...}
nlohmann::json rank_lists_to_json(const RankLists& lists);

/// Reads "sample_id_groups"; else as schedule_from_json.
RankLists rank_lists_from_json(const nlohmann::json& json);

/// Parses JSON text. Throws InvalidInput with `what` (a file name, for example) and the byte at
/// which the text stops being JSON.
nlohmann::json parse_json(std::string_view text, std::string_view what);

}  // namespace dyncp
