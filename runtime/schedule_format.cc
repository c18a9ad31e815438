#include "runtime/schedule_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/error.h"

namespace dyncp {
namespace {

using nlohmann::json;

// ---- reading

constexpr std::size_t kMostShown = 40;  // characters of a wrong value in a message

// "expected an integer, got \"four\""
std::string expected(std::string_view what, const json& got) {
  std::string shown = got.dump(-1, ' ', true, json::error_handler_t::replace);
  if (shown.size() > kMostShown) shown = shown.substr(0, kMostShown) + "...";
  return fmt::format("expected {}, got {}", what, shown);
}

std::int64_t read_integer(const json& value, std::int64_t min, std::int64_t max,
                          const std::string& place) {
  const std::string what = fmt::format("an integer in {}..{}", min, max);
  if (!value.is_number_integer()) throw InvalidInput(place + ": " + expected(what, value));
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::max<std::int64_t>(0, max));
  if (too_large || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max) {
    throw InvalidInput(place + ": " + expected(what, value));
  }
  return value.get<std::int64_t>();
}

int read_int(const json& value, int min, int max, const std::string& place) {
  return static_cast<int>(read_integer(value, min, max, place));
}

const json& read_array(const json& value, std::string_view of_what, const std::string& place) {
  if (!value.is_array()) {
    throw InvalidInput(place + ": " + expected(fmt::format("an array of {}", of_what), value));
  }
  return value;
}

std::string read_string(const json& value, const std::string& place) {
  if (!value.is_string()) throw InvalidInput(place + ": " + expected("a string", value));
  return value.get<std::string>();
}

const json& read_field(const json& object, const char* key, const std::string& place) {
  if (!object.is_object()) {
    throw InvalidInput(place + ": " + expected(fmt::format("an object with \"{}\"", key), object));
  }
  const auto found = object.find(key);
  if (found == object.end()) throw InvalidInput(fmt::format("{}: \"{}\" is missing", place, key));
  return *found;
}

std::vector<int> read_ids(const json& value, const std::string& place) {
  std::vector<int> ids;
  for (const json& id : read_array(value, "sequence ids", place)) {
    ids.push_back(read_int(id, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(),
                           fmt::format("{}[{}]", place, ids.size())));
  }
  return ids;
}

Assignment read_assignment(const json& value, const std::string& place) {
  Assignment assignment;
  for (const char* key : {"first_rank", "size", "sequences"}) (void)read_field(value, key, place);
  for (const auto& [key, unused] : value.items()) {
    if (key != "first_rank" && key != "size" && key != "sequences") {
      throw InvalidInput(fmt::format(
          "{}: unknown field \"{}\": expected first_rank, size and sequences", place, key));
    }
  }
  // Ranks outside the domain are for the checker to judge; the bound keeps their sums in an int.
  assignment.group.first_rank =
      read_int(value["first_rank"], -kMaxRanks, kMaxRanks, place + ".first_rank");
  assignment.group.size = read_int(value["size"], 0, kMaxRanks, place + ".size");
  assignment.sequences = read_ids(value["sequences"], place + ".sequences");
  return assignment;
}

// ---- the table

constexpr std::size_t kTableWidth = 100;  // columns

// An integer where it is one, else two decimals.
std::string quotient(std::int64_t numerator, int denominator) {
  if (numerator % denominator == 0) return fmt::format("{}", numerator / denominator);
  return fmt::format("{:.2f}", static_cast<double>(numerator) / denominator);
}

std::string ranks_text(const CpGroup& group) {
  if (group.size <= 1) return fmt::format("{}", group.first_rank);
  return fmt::format("{}..{}", group.first_rank, group.end_rank() - 1);
}

using Row = std::array<std::string, 6>;

Row table_row(const ScheduleProblem& problem, const Assignment& assignment) {
  const int size = assignment.group.size;
  const auto known = [&](int id) {
    return id >= 0 && static_cast<std::size_t>(id) < problem.lengths.size();
  };
  std::int64_t sum = 0;
  std::int64_t longest = 0;
  double squares = 0;
  std::string sequences;
  for (const int id : assignment.sequences) {
    const std::int64_t padded = known(id) ? problem.padded_length(id, std::max(1, size)) : 0;
    sum += padded;
    longest = std::max(longest, padded);
    squares += static_cast<double>(padded) * static_cast<double>(padded);
    if (!sequences.empty()) sequences += ' ';
    sequences += known(id) ? fmt::format("{}:{}", id, problem.lengths[static_cast<std::size_t>(id)])
                           : fmt::format("{}:?", id);
  }
  Row row = {"", ranks_text(assignment.group), fmt::format("{}", size), "-", "-", sequences};
  if (size >= 1) {
    row[3] = quotient(problem.execution == Execution::kPack ? sum : longest, size);
    row[4] = fmt::format("{:.0f}", squares / size);
  }
  return row;
}

// The columns but the last, padded to their widths; numbers to the right.
std::string leading_columns(const Row& row, const std::array<std::size_t, 6>& widths) {
  std::string line;
  for (std::size_t column = 0; column + 1 < row.size(); ++column) {
    const std::string& cell = row[column];
    const bool to_the_left = column < 2;
    line += to_the_left ? fmt::format("{:<{}}  ", cell, widths[column])
                        : fmt::format("{:>{}}  ", cell, widths[column]);
  }
  return line;
}

void append_row(std::string& out, const Row& row, const std::array<std::size_t, 6>& widths) {
  std::string line = leading_columns(row, widths);
  const std::size_t indent = line.size();
  const std::string& text = row.back();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (line.size() + 1 + (end - at) > kTableWidth && line.size() > indent) {
      out += line + '\n';
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line.append(text, at, end - at);
    at = end + 1;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

std::string format_schedule_table(const ScheduleProblem& problem, const Schedule& schedule) {
  std::vector<Row> rows = {
      {"microbatch", "ranks", "cp", "tokens/rank", "load/rank", "sequences (id:length)"}};
  for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
    bool first = true;
    for (const Assignment& assignment : schedule.microbatches[m]) {
      rows.push_back(table_row(problem, assignment));
      if (first) rows.back()[0] = fmt::format("{}", m);
      first = false;
    }
  }
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out = fmt::format(
      "{} microbatch{} on {} ranks, {} tokens a rank at most, {} execution, padding {}\n",
      schedule.microbatches.size(), schedule.microbatches.size() == 1 ? "" : "es", problem.ranks,
      problem.max_tokens_per_rank, to_string(problem.execution), to_string(problem.padding));
  for (const Row& row : rows) append_row(out, row, widths);
  return out;
}

json problem_to_json(const ScheduleProblem& problem) {
  json result = {
      {"ranks", problem.ranks},
      {"max_tokens_per_rank", problem.max_tokens_per_rank},
      {"min_cp", problem.min_cp},
      {"tensor_parallel", problem.tensor_parallel},
      {"microbatch_multiple", problem.microbatch_multiple},
      {"max_sequences", nullptr},
      {"execution", std::string(to_string(problem.execution))},
      {"group_policy", std::string(to_string(problem.group_policy))},
      {"padding", std::string(to_string(problem.padding))},
      {"real", problem.lengths},
  };
  if (problem.max_sequences) result["max_sequences"] = *problem.max_sequences;
  if (problem.padding != Padding::kGroup) {
    json padded = json::array();
    for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
      padded.push_back(problem.padded_length(id, 1));
    }
    result["padded"] = std::move(padded);
  }
  return result;
}

ScheduleProblem problem_from_json(const json& object) {
  constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();
  constexpr int kAnyInt = std::numeric_limits<int>::max();
  const std::string place = "problem";
  for (const char* key : {"real", "ranks", "max_tokens_per_rank"}) {
    (void)read_field(object, key, place);
  }
  ScheduleProblem problem;
  const json* padded = nullptr;
  for (const auto& [key, value] : object.items()) {
    if (key == "real") {
      for (const json& length : read_array(value, "lengths", key)) {
        problem.lengths.push_back(read_integer(length, 0, kMaxSequenceLength,
                                               fmt::format("real[{}]", problem.lengths.size())));
      }
    } else if (key == "ranks") {
      problem.ranks = read_int(value, 1, kMaxRanks, key);
    } else if (key == "max_tokens_per_rank") {
      problem.max_tokens_per_rank = read_integer(value, 1, kAnyLength, key);
    } else if (key == "min_cp") {
      problem.min_cp = read_int(value, 1, kMaxRanks, key);
    } else if (key == "tensor_parallel") {
      problem.tensor_parallel = read_int(value, 1, kMaxRanks, key);
    } else if (key == "microbatch_multiple") {
      problem.microbatch_multiple = read_int(value, 1, kAnyInt, key);
    } else if (key == "max_sequences") {
      if (!value.is_null()) problem.max_sequences = read_int(value, 1, kAnyInt, key);
    } else if (key == "execution") {
      problem.execution = parse_execution(read_string(value, key));
    } else if (key == "group_policy") {
      problem.group_policy = parse_group_policy(read_string(value, key));
    } else if (key == "padding") {
      problem.padding = parse_padding(read_string(value, key));
    } else if (key == "padded") {
      padded = &read_array(value, "lengths", key);
    } else if (key != "microbatches" && key != "sample_id_groups" && key != "version" &&
               key != "id" && key != "certificate") {
      throw InvalidInput(fmt::format("problem: unknown field \"{}\"", key));
    }
  }
  require_valid(problem);
  if (padded != nullptr) {
    const json computed = problem_to_json(problem);
    if (!computed.contains("padded") || computed["padded"] != *padded) {
      throw InvalidInput(
          fmt::format("padded: does not agree with \"real\" under padding \"{}\" on {} ranks",
                      to_string(problem.padding), problem.ranks));
    }
  }
  return problem;
}

json microbatches_to_json(const Schedule& schedule) {
  json microbatches = json::array();
  for (const Microbatch& microbatch : schedule.microbatches) {
    json groups = json::array();
    for (const Assignment& assignment : microbatch) {
      groups.push_back({{"first_rank", assignment.group.first_rank},
                        {"size", assignment.group.size},
                        {"sequences", assignment.sequences}});
    }
    microbatches.push_back(std::move(groups));
  }
  return microbatches;
}

json schedule_to_json(const ScheduleProblem& problem, const Schedule& schedule) {
  json result = problem_to_json(problem);
  result["microbatches"] = microbatches_to_json(schedule);
  return result;
}

Schedule schedule_from_json(const json& object) {
  Schedule schedule;
  const json& microbatches = read_field(object, "microbatches", "schedule");
  for (const json& groups : read_array(microbatches, "microbatches", "microbatches")) {
    const std::string place = fmt::format("microbatches[{}]", schedule.microbatches.size());
    Microbatch microbatch;
    for (const json& group : read_array(groups, "CP groups", place)) {
      microbatch.push_back(read_assignment(group, fmt::format("{}[{}]", place, microbatch.size())));
    }
    schedule.microbatches.push_back(std::move(microbatch));
  }
  return schedule;
}

json rank_lists_to_json(const RankLists& lists) { return {{"sample_id_groups", lists}}; }

RankLists rank_lists_from_json(const json& object) {
  RankLists lists;
  const json& microbatches = read_field(object, "sample_id_groups", "schedule");
  for (const json& ranks : read_array(microbatches, "microbatches", "sample_id_groups")) {
    const std::string place = fmt::format("sample_id_groups[{}]", lists.size());
    std::vector<std::vector<int>> per_rank;
    for (const json& ids : read_array(ranks, "ranks", place)) {
      per_rank.push_back(read_ids(ids, fmt::format("{}[{}]", place, per_rank.size())));
    }
    lists.push_back(std::move(per_rank));
  }
  return lists;
}

json parse_json(std::string_view text, std::string_view what) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    if (error.byte > text.size()) {
      throw InvalidInput(fmt::format("{}: JSON ends too early, after {} bytes", what, text.size()));
    }
    throw InvalidInput(
        fmt::format("{}: not valid JSON at byte {} of {}", what, error.byte, text.size()));
  } catch (const json::out_of_range&) {
    throw InvalidInput(fmt::format("{}: holds a number beyond the range of double", what));
  }
}

}  // namespace dyncp
