// The interface of the readers, one file a format. A reader is recognised by what it finds in the
// text, never by a file name. Adding a format: a file with a MetricsReader, and a line in
// read_metrics.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/metrics_log.h"

namespace dyncp {

struct MetricsReader {
  std::string_view name;  // "Megatron-LM console log"
  /// Takes in all that it can; what looks like metrics and is not goes to LogBuilder::unreadable.
  /// Never throws for what the text holds.
  void (*read)(std::string_view text, LogBuilder& log);
  /// Whether the beginning of the file is of this format, for formats that have a signature; null:
  /// the reader that finds most values in the beginning of the text has it.
  bool (*recognises)(std::string_view text);
};

extern const MetricsReader kTensorBoardReader;
extern const MetricsReader kMegatronGoldenReader;
extern const MetricsReader kMegatronConsoleReader;
extern const MetricsReader kJsonLinesReader;
extern const MetricsReader kVerlConsoleReader;
extern const MetricsReader kNemoReader;
extern const MetricsReader kCsvReader;

}  // namespace dyncp
