// Tables with a header: comma, semicolon or tab, fields in double quotes where needed. One column is
// the step (step, iteration, iter, global_step, in any case; wandb exports call it Step); without one the
// rows are numbered from 1. Empty cells hold no value. A last row without line end may have been
// cut: its last cell is left out.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

std::vector<std::string> split_cells(std::string_view line, char separator) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        cells.back() += line[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        cells.back() += c;
      }
    } else if (c == '"' && trim(cells.back()).empty()) {
      quoted = true;
      cells.back().clear();
    } else if (c == separator) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  for (std::string& cell : cells) cell = std::string(trim(cell));
  return cells;
}

bool is_number(std::string_view cell) {
  const ScannedNumber number = scan_number(cell);
  return number.length > 0 && number.length == cell.size();
}

// The separator that makes this line a header, or 0: at least two cells, every one of them named,
// none a number.
char header_separator(std::string_view line) {
  for (const char separator : {',', '\t', ';'}) {
    const std::vector<std::string> cells = split_cells(line, separator);
    if (cells.size() < 2) continue;
    if (std::none_of(cells.begin(), cells.end(), [](const std::string& cell) {
          return cell.empty() || is_number(cell) || cell.size() > 200;
        })) {
      return separator;
    }
  }
  return 0;
}

std::size_t step_column(const std::vector<std::string>& header) {
  constexpr std::array<std::string_view, 7> kNames = {
      "step", "iteration", "global_step", "iter", "_step", "trainer/global_step", "steps"};
  for (const std::string_view wanted : kNames) {
    for (std::size_t i = 0; i < header.size(); ++i) {
      std::string name = header[i];
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (name == wanted) return i;
    }
  }
  return header.size();
}

void read_csv(std::string_view text, LogBuilder& log) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  LineScanner lines(text);
  std::string_view line;
  char separator = 0;
  std::vector<std::string> header;
  std::vector<int> metrics;
  std::size_t step_at = 0;
  std::int64_t row = 0;
  while (lines.next(line)) {
    if (trim(line).empty() || line[0] == '#') continue;
    if (separator == 0) {
      separator = header_separator(line);
      if (separator == 0)
        break;  // the first line that says something is the header, or it is no table
      header = split_cells(line, separator);
      step_at = step_column(header);
      metrics.assign(header.size(), -1);
      continue;
    }
    std::vector<std::string> cells = split_cells(line, separator);
    if (cells.size() != header.size()) {
      log.unreadable(lines.number(), "a row with another number of cells than the header", line);
      continue;
    }
    std::int64_t step = ++row;
    if (step_at < header.size()) {
      const ScannedNumber number = scan_number(cells[step_at]);
      if (!is_number(cells[step_at]) || !(number.value >= 0 && number.value < 9e15) ||
          number.value != std::floor(number.value)) {
        log.unreadable(lines.number(), "a row whose step is no whole number", line);
        continue;
      }
      step = static_cast<std::int64_t>(number.value);
    }
    if (lines.unterminated()) {
      log.unreadable(lines.number(), "the last cell of the file may be cut", cells.back());
      cells.back().clear();
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == step_at || cells[i].empty()) continue;
      if (!is_number(cells[i])) continue;  // texts are no metrics
      const ScannedNumber number = scan_number(cells[i]);
      if (metrics[i] < 0) metrics[i] = log.metric(header[i]);
      log.add(-1, metrics[i], step, number.value, number.digits);
    }
  }
  log.count_lines(lines.number());
}

}  // namespace

const MetricsReader kCsvReader = {"CSV table", read_csv, nullptr};

}  // namespace dyncp
