// Console logs of verl: step:12 - actor/pg_loss:0.010 - actor/grad_norm:0.279 - ...
// with whatever Ray puts before it: (TaskRunner pid=4072) in colours. Values are written in full or
// as np.float64(...). A value that ends the file may have been cut.
#include <map>
#include <string>

#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

constexpr std::string_view kStep = "step:";
constexpr std::string_view kSeparator = " - ";

// Where "step:N - " begins, at or after `from`; the step and where the fields begin.
std::size_t find_step(std::string_view line, std::size_t from, std::int64_t& step,
                      std::size_t& fields) {
  for (std::size_t at = line.find(kStep, from); at != std::string_view::npos;
       at = line.find(kStep, at + 1)) {
    if (at > 0 && line[at - 1] != ' ' && line[at - 1] != '\t' && line[at - 1] != ']') continue;
    std::size_t length = 0;
    step = scan_integer(line.substr(at + kStep.size()), length);
    fields = at + kStep.size() + length;
    if (step >= 0 && line.substr(fields, kSeparator.size()) == kSeparator) return at;
  }
  return std::string_view::npos;
}

void read_verl(std::string_view text, LogBuilder& log) {
  std::map<std::string, int, std::less<>> metrics;
  LineScanner lines(text);
  std::string_view line;
  while (lines.next(line)) {
    std::int64_t step = -1;
    std::size_t at = 0;
    if (find_step(line, 0, step, at) == std::string_view::npos) continue;
    while (at < line.size()) {
      const std::size_t begin = at + kSeparator.size();
      const std::size_t end = std::min(line.find(kSeparator, begin), line.size());
      at = end;
      if (begin >= line.size()) break;
      const std::string_view field = line.substr(begin, end - begin);
      if (end == line.size() && lines.unterminated()) {
        log.unreadable(lines.number(), "the last field of the file is cut", field);
        break;
      }
      // Names may hold colons; values hold none.
      const std::size_t colon = field.rfind(':');
      const ScannedNumber number = colon == std::string_view::npos
                                       ? ScannedNumber{}
                                       : scan_field(trim(field.substr(colon + 1)));
      if (number.length == 0) {
        log.unreadable(lines.number(), "a field without a number", field);
        continue;
      }
      const std::string_view name = trim(field.substr(0, colon));
      auto found = metrics.find(name);
      if (found == metrics.end()) found = metrics.emplace(name, log.metric(name)).first;
      log.add(-1, found->second, step, number.value, number.digits);
    }
  }
  log.count_lines(lines.number());
}

}  // namespace

const MetricsReader kVerlConsoleReader = {"verl console log", read_verl, nullptr};

}  // namespace dyncp
