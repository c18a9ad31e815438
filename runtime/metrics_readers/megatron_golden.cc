// Golden values of Megatron-LM's functional tests, one JSON object:
//   {"lm loss": {"start_step": 1, "end_step": 50, "step_interval": 5, "values": {"1": 10.9, ...}}}
// and its older form, where "values" is a list that begins at start_step. Values are rounded to 5
// decimals; a missing one is the text "nan".
#include <algorithm>
#include <charconv>

#include "runtime/metrics_readers/json_text.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

using Json = nlohmann::ordered_json;

// The object and its "values", or null.
const Json* values_of(const Json& entry) {
  if (!entry.is_object()) return nullptr;
  const auto found = entry.find("values");
  if (found == entry.end() || !(found->is_object() || found->is_array())) return nullptr;
  return &*found;
}

std::int64_t integer_of(const Json& entry, const char* name, std::int64_t otherwise) {
  const auto found = entry.find(name);
  if (found == entry.end() || !found->is_number_integer()) return otherwise;
  const auto value = found->get<std::int64_t>();
  return value >= 0 && value < (std::int64_t{1} << 53) ? value : otherwise;
}

bool is_golden(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return false;
  if (text.find("\"values\"") == std::string_view::npos) return false;
  const Json json = parse_lax_json(text);
  if (!json.is_object()) return false;
  return std::any_of(json.begin(), json.end(),
                     [](const Json& entry) { return values_of(entry) != nullptr; });
}

void take(LogBuilder& log, int metric, std::int64_t step, const Json& value) {
  double number = 0;
  WrittenDigits digits;
  if (!json_number(value, number, digits)) {
    log.unreadable(1, "a value that is no number",
                   value.dump(-1, ' ', true, Json::error_handler_t::replace));
    return;
  }
  // Rounded to 5 decimals by the program that writes these files.
  if (value.is_number_float()) digits = {5, 17, false};
  log.add(-1, metric, step, number, digits);
}

void read_golden(std::string_view text, LogBuilder& log) {
  log.count_lines(std::count(text.begin(), text.end(), '\n'));
  const Json json = parse_lax_json(text);
  if (!json.is_object()) return;
  for (const auto& [name, entry] : json.items()) {
    const Json* values = values_of(entry);
    if (values == nullptr) continue;
    const int metric = log.metric(name);
    if (values->is_object()) {
      for (const auto& [key, value] : values->items()) {
        std::int64_t step = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), step);
        if (error != std::errc() || end != key.data() + key.size() || step < 0) {
          log.unreadable(1, "a step that is no number", key);
          continue;
        }
        take(log, metric, step, value);
      }
      continue;
    }
    const std::int64_t interval = std::max<std::int64_t>(1, integer_of(entry, "step_interval", 1));
    std::int64_t step = integer_of(entry, "start_step", 0);
    for (const Json& value : *values) {
      take(log, metric, step, value);
      step += std::min(interval, std::int64_t{1} << 32);
    }
  }
}

}  // namespace

const MetricsReader kMegatronGoldenReader = {"Megatron-LM golden values", read_golden, is_golden};

}  // namespace dyncp
