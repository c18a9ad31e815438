// Metrics as JSON lines, one object a step: those of dyncp train, of verl's file logger
// ({"step": 3, "data": {...}}), of NeMo Automodel (training.jsonl) and of anything else that names its
// step. Nested objects give names with '/': {"parameter_norms": {"head": 1}} is parameter_norms/head.
// Text before the object (a rank prefix) is left alone.
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "runtime/metrics_readers/json_text.h"
#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 9> kStepNames = {"step",
                                                        "iteration",
                                                        "global_step",
                                                        "iter",
                                                        "_step",
                                                        "Step",
                                                        "trainer/global_step",
                                                        "training/global_step",
                                                        "train/global_step"};

class JsonLinesReader {
 public:
  explicit JsonLinesReader(LogBuilder& log) : log_(log) {}

  void read(std::string_view text) {
    LineScanner lines(text);
    std::string_view line;
    while (lines.next(line)) {
      const std::size_t open = line.find('{');
      if (open == std::string_view::npos) continue;
      const std::string_view object = line.substr(open);
      if (object.find("step") == std::string_view::npos &&
          object.find("iter") == std::string_view::npos &&
          object.find("Step") == std::string_view::npos) {
        continue;
      }
      const Json json = parse_lax_json(trim(object));
      if (json.is_discarded()) {
        log_.unreadable(lines.number(),
                        lines.unterminated() ? "the last line of the file is cut" : "no JSON",
                        line);
        continue;
      }
      std::string_view step_name;
      std::int64_t step = -1;
      if (!find_step(json, step_name, step)) {
        log_.unreadable(lines.number(), "an object without a step", line);
        continue;
      }
      const int rank = scan_rank(line.substr(0, open));
      for (const auto& [name, value] : json.items()) {
        if (name == step_name) continue;
        // verl's wrapper has no name of its own.
        take(value, name == "data" && value.is_object() ? "" : name, rank, step);
      }
    }
    log_.count_lines(lines.number());
  }

 private:
  static bool find_step(const Json& json, std::string_view& name, std::int64_t& step) {
    if (!json.is_object()) return false;
    for (const std::string_view candidate : kStepNames) {
      const auto found = json.find(std::string(candidate));
      if (found == json.end() || !found->is_number()) continue;
      const double value = found->get<double>();
      if (!(value >= 0 && value < 9e15) || value != std::floor(value)) return false;
      name = candidate;
      step = static_cast<std::int64_t>(value);
      return true;
    }
    return false;
  }

  void take(const Json& value, const std::string& name, int rank, std::int64_t step) {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        take(inner, name.empty() ? key : name + "/" + key, rank, step);
      }
      return;
    }
    double number = 0;
    WrittenDigits digits;
    if (!json_number(value, number, digits)) return;  // texts, lists and booleans are no metrics
    auto found = metrics_.find(name);
    if (found == metrics_.end()) found = metrics_.emplace(name, log_.metric(name)).first;
    log_.add(rank, found->second, step, number, digits);
  }

  LogBuilder& log_;
  std::map<std::string, int> metrics_;
};

}  // namespace

const MetricsReader kJsonLinesReader = {
    "JSON lines", [](std::string_view text, LogBuilder& log) { JsonLinesReader(log).read(text); },
    nullptr};

}  // namespace dyncp
