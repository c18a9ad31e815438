#include "runtime/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

// The step a metrics line belongs to; 0 when the line is none.
std::int64_t step_of(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return 0;
  return json["step"].get<std::int64_t>();
}

}  // namespace

std::string metrics_lines_until(const std::string& path, std::int64_t steps) {
  const std::string text = read_file(path);
  std::size_t end = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const std::size_t line_end = text.find('\n', end);
    if (line_end == std::string::npos ||
        step_of(std::string_view(text).substr(end, line_end - end)) != step) {
      throw InvalidInput(fmt::format(
          "{}: line {} is not the metrics of step {}: going on after step {} needs those of all "
          "steps before",
          one_line(path), step, step, steps));
    }
    end = line_end + 1;
  }
  return text.substr(0, end);
}

std::string metrics_line(const StepMetrics& metrics) {
  nlohmann::ordered_json json = {{"step", metrics.step},
                                 {"loss", metrics.loss},
                                 {"tokens", metrics.tokens},
                                 {"grad_norm", metrics.gradient_norm},
                                 {"learning_rate", metrics.learning_rate},
                                 {"real_tokens", metrics.real_tokens},
                                 {"padded_tokens", metrics.padded_tokens}};
  json["cp_sizes"] = nlohmann::ordered_json::object();
  for (const auto& [size, groups] : metrics.cp_sizes) {
    json["cp_sizes"][std::to_string(size)] = groups;
  }
  json["parameter_norms"] = nlohmann::ordered_json::object();
  for (const auto& [name, norm] : metrics.parameter_norms) json["parameter_norms"][name] = norm;
  return json.dump() + "\n";
}

}  // namespace dyncp
