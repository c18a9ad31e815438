// parse_metrics: any bytes are read as series whose steps increase, or refused in one line. What is
// unreadable is counted and shown, a few lines of it at most.
#include <vector>

#include "properties/fuzz/fuzz.h"
#include "runtime/metrics_readers/read_metrics.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<dyncp::MetricPattern> patterns = {
      dyncp::parse_metric_pattern("step=step ([0-9]+)"),
      dyncp::parse_metric_pattern("loss,gn=loss=(\\S+) gn=(\\S+)")};
  const std::string_view bytes = dyncp::as_text(data, size);
  for (const bool mapped : {false, true}) {
    const auto log = dyncp::attempt([&] {
      return dyncp::parse_metrics(bytes, "input",
                                  mapped ? patterns : std::vector<dyncp::MetricPattern>{});
    });
    if (!log) continue;
    require(!log->series.empty() && !log->format.empty(), "a log that is read holds something");
    require(log->examples.size() <= 5, "few unreadable lines are shown");
    require(static_cast<std::int64_t>(log->examples.size()) <= log->unreadable,
            "shown lines are counted");
    for (const auto& example : log->examples) {
      dyncp::require_message(example.why + " " + example.text);
    }
    for (const dyncp::Series& series : log->series) {
      require(series.size() > 0 && series.steps.size() == series.values.size(),
              "a series has one value a step");
      for (std::size_t i = 1; i < series.steps.size(); ++i) {
        require(series.steps[i - 1] < series.steps[i], "steps increase");
      }
      require(series.resolution.unit_at(1.5) >= 0, "a resolution is a distance");
    }
  }
  return 0;
}
