#include "runtime/metrics_readers/read_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

// Those with a signature first.
constexpr std::array<const MetricsReader*, 7> kReaders = {
    &kTensorBoardReader, &kMegatronGoldenReader, &kMegatronConsoleReader,
    &kJsonLinesReader,   &kVerlConsoleReader,    &kNemoReader,
    &kCsvReader};

// The reader that finds most values in `text`; null when none finds any.
const MetricsReader* best_reader(std::string_view text) {
  const MetricsReader* best = nullptr;
  std::int64_t most = 0;
  for (const MetricsReader* reader : kReaders) {
    if (reader->recognises != nullptr) continue;
    LogBuilder log;
    reader->read(text, log);
    if (log.values() > most) {
      most = log.values();
      best = reader;
    }
  }
  return best;
}

const MetricsReader* recognise(std::string_view text) {
  for (const MetricsReader* reader : kReaders) {
    if (reader->recognises != nullptr && reader->recognises(text)) return reader;
  }
  constexpr std::size_t kHead = 1 << 18;  // bytes
  if (text.size() > kHead) {
    // Cut at a line end, so that no line seems damaged.
    const std::size_t end = text.rfind('\n', kHead);
    if (end != std::string_view::npos) {
      if (const MetricsReader* reader = best_reader(text.substr(0, end + 1))) return reader;
    }
  }
  return best_reader(text);  // a long preamble
}

// std::regex recurses once for each byte that a repetition takes, and the stack is finite.
constexpr std::size_t kLongestMatched = 2048;

void read_patterns(std::string_view text, const std::vector<MetricPattern>& patterns,
                   LogBuilder& log) {
  struct Compiled {
    std::regex regex;
    std::vector<int> metrics;  // -1 = the step
  };
  std::vector<Compiled> compiled;
  for (const MetricPattern& pattern : patterns) {
    Compiled one{std::regex(pattern.pattern), {}};
    for (const std::string& name : pattern.names) {
      one.metrics.push_back(name == "step" ? -1 : log.metric(name));
    }
    compiled.push_back(std::move(one));
  }
  // Steps count the matching lines where no pattern names them.
  const bool named = std::any_of(compiled.begin(), compiled.end(), [](const Compiled& one) {
    return std::find(one.metrics.begin(), one.metrics.end(), -1) != one.metrics.end();
  });
  std::int64_t step = named ? -1 : 0;
  LineScanner lines(text);
  std::string_view line;
  while (lines.next(line)) {
    const std::string_view head = line.substr(0, kLongestMatched);
    struct Found {
      int metric;
      ScannedNumber number;
    };
    std::vector<Found> found;
    for (const Compiled& one : compiled) {
      std::match_results<std::string_view::const_iterator> match;
      if (!std::regex_search(head.begin(), head.end(), match, one.regex)) continue;
      for (std::size_t group = 0; group < one.metrics.size(); ++group) {
        const auto& part = match[group + 1];
        if (!part.matched) continue;
        const std::string_view value =
            head.substr(static_cast<std::size_t>(part.first - head.begin()),
                        static_cast<std::size_t>(part.length()));
        const ScannedNumber number = scan_number(trim(value));
        if (number.length == 0 || number.length != trim(value).size()) {
          log.unreadable(lines.number(), "a group that holds no number", value);
        } else if (one.metrics[group] < 0) {
          step = number.value >= 0 && number.value < 9e15 ? static_cast<std::int64_t>(number.value)
                                                          : -1;
        } else if (lines.unterminated() && part.second == head.end()) {
          log.unreadable(lines.number(), "the last number of the file may be cut", value);
        } else {
          found.push_back({one.metrics[group], number});
        }
      }
    }
    if (!named && !found.empty()) ++step;
    for (const Found& one : found) {
      if (step < 0) {
        log.unreadable(lines.number(), "a value before the first step", line);
        continue;
      }
      log.add(-1, one.metric, step, one.number.value, one.number.digits);
    }
  }
  log.count_lines(lines.number());
}

MetricsLog named_log(LogBuilder log, const std::string& path, std::string format) {
  MetricsLog result = std::move(log).finish();
  result.path = path;
  result.format = std::move(format);
  return result;
}

// The event files below a folder.
MetricsLog read_folder(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().filename().string().find("tfevents") != std::string::npos) {
      files.push_back(entry.path().string());
    }
  }
  if (files.empty()) {
    throw InvalidInput(one_line(path) +
                       ": is a folder without TensorBoard event files (*tfevents*)");
  }
  std::sort(files.begin(), files.end());
  LogBuilder log;
  for (const std::string& file : files) {
    const std::string bytes = read_file(file);
    if (!kTensorBoardReader.recognises(bytes)) {
      throw InvalidInput(one_line(file) + ": is no TensorBoard event file");
    }
    kTensorBoardReader.read(bytes, log);
  }
  if (log.values() == 0) throw InvalidInput(one_line(path) + ": its event files hold no scalar");
  return named_log(std::move(log), path, std::string(kTensorBoardReader.name));
}

}  // namespace

MetricPattern parse_metric_pattern(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw InvalidInput(fmt::format("--map {}: expected NAME=PATTERN", quote(text)));
  }
  MetricPattern result;
  result.pattern = std::string(text.substr(equals + 1));
  std::string_view names = text.substr(0, equals);
  for (;;) {
    const std::size_t comma = names.find(',');
    const std::string_view name = trim(names.substr(0, comma));
    if (name.empty()) throw InvalidInput(fmt::format("--map {}: an empty name", quote(text)));
    result.names.emplace_back(name);
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  std::size_t groups = 0;
  try {
    groups = std::regex(result.pattern).mark_count();
  } catch (const std::regex_error&) {
    throw InvalidInput(
        fmt::format("--map {}: {} is no regular expression", quote(text), quote(result.pattern)));
  }
  if (groups != result.names.size()) {
    throw InvalidInput(fmt::format("--map {}: {} name(s), but {} group(s) in parentheses",
                                   quote(text), result.names.size(), groups));
  }
  return result;
}

MetricsLog parse_metrics(std::string_view bytes, const std::string& path,
                         const std::vector<MetricPattern>& patterns) {
  const bool binary = kTensorBoardReader.recognises(bytes);
  if (!patterns.empty() && !binary) {
    LogBuilder log;
    read_patterns(bytes, patterns, log);
    if (log.values() > 0) return named_log(std::move(log), path, "text, by --map");
  }
  const MetricsReader* reader = recognise(bytes);
  if (reader == nullptr) {
    throw InvalidInput(fmt::format(
        "{}: no metrics found; known are JSON lines, logs of Megatron-LM, verl and NeMo, golden "
        "values, CSV and TensorBoard events; for others use --map{}",
        one_line(path), patterns.empty() ? "" : " (no --map pattern matched a line)"));
  }
  LogBuilder log;
  reader->read(bytes, log);
  if (log.values() == 0) {
    throw InvalidInput(
        fmt::format("{}: recognised as {}, but it holds no value", one_line(path), reader->name));
  }
  return named_log(std::move(log), path, std::string(reader->name));
}

MetricsLog read_metrics(const std::string& path, const std::vector<MetricPattern>& patterns) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return read_folder(path);
  return parse_metrics(read_file(path), path, patterns);
}

}  // namespace dyncp
