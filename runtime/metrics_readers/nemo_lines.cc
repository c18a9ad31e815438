// Step lines of NeMo and NeMo Automodel:
//   Training epoch 0, iteration 3/9 | lr: 0.0006 | global_step: 3 | reduced_train_loss: 8.595
//   Epoch 0: :   1%| | 795/77225 [9:07<..., loss=3.1, reduced_train_loss=3.090, global_step=794.0]
//   ... | INFO | root | step 9 | epoch 0 | loss 0.6974 | grad_norm 1.5436 | mem 24.90 GiB | ...
//   ... | INFO | root | [val] step 9 | epoch 0 | loss 0.71 | ...     and [val] name "x" | step 9 | ...
// The last value of a file without a line end may have been cut and is left out.
#include <algorithm>
#include <cctype>
#include <string>

#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

class NemoReader {
 public:
  explicit NemoReader(LogBuilder& log) : log_(log) {}

  void read(std::string_view text) {
    LineScanner lines(text);
    std::string_view line;
    while (lines.next(line)) {
      number_ = lines.number();
      unterminated_ = lines.unterminated();
      if (read_training_epoch(line) || read_progress_bar(line)) continue;
      read_automodel(line);
    }
    log_.count_lines(number_);
  }

 private:
  // name, then its number; `last`: nothing follows in the line.
  void take(std::string_view name, std::string_view value, std::int64_t step, int rank, bool last,
            std::string_view prefix) {
    name = trim(name);
    value = trim(value);
    if (name.empty() || value.empty()) return;
    if (last && unterminated_) {
      log_.unreadable(number_, "the last field of the file is cut", value);
      return;
    }
    const ScannedNumber number = scan_field(value);
    if (number.length == 0) {
      if (std::isalpha(static_cast<unsigned char>(value.front())) != 0) return;  // a word
      log_.unreadable(number_, "a field without a number",
                      std::string(name) + " " + std::string(value));
      return;
    }
    log_.add(rank, log_.metric(std::string(prefix) + std::string(name)), step, number.value,
             number.digits);
  }

  // The fields between separators, from `at` on: use(field, whether it is the last one).
  template <typename Use>
  static void each_field(std::string_view line, std::size_t at, std::string_view separator,
                         Use use) {
    while (at <= line.size()) {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      use(line.substr(at, end - at), end == line.size());
      if (end == line.size()) break;
      at = end + separator.size();
    }
  }

  // NeMo 2 logger. The step is global_step where the line has it, else the iteration.
  bool read_training_epoch(std::string_view line) {
    const std::size_t found = line.find("Training epoch ");
    if (found == std::string_view::npos) return false;
    const std::size_t word = line.find(", iteration ", found);
    if (word == std::string_view::npos) return false;
    std::size_t length = 0;
    std::int64_t step = scan_integer(line.substr(word + 12), length);
    if (step < 0) return false;
    const std::int64_t global = named_step(line, "global_step: ");
    if (global >= 0) step = global;
    const std::size_t bar = line.find('|', word);
    if (bar == std::string_view::npos) return true;
    const int rank = scan_rank(line.substr(0, found));
    each_field(line, bar + 1, "|", [&](std::string_view field, bool last) {
      const std::size_t colon = field.find(':');
      if (colon == std::string_view::npos) return;
      take(field.substr(0, colon), field.substr(colon + 1), step, rank, last, "");
    });
    return true;
  }

  // NeMo 1 progress bar: the same step is drawn again and again, the last drawing counts.
  bool read_progress_bar(std::string_view line) {
    const std::size_t found = line.find("Epoch ");
    const std::size_t open = found == std::string_view::npos ? found : line.find('[', found);
    if (open == std::string_view::npos || line.find("/", found) > open) return false;
    const std::int64_t step = named_step(line, "global_step=");
    if (step < 0) return false;
    const int rank = scan_rank(line.substr(0, found));
    each_field(line, open + 1, ", ", [&](std::string_view field, bool last) {
      const std::size_t equals = field.find('=');
      if (equals == std::string_view::npos) return;
      std::string_view value = field.substr(equals + 1);
      const bool closed = !value.empty() && value.back() == ']';
      if (closed) value.remove_suffix(1);
      take(field.substr(0, equals), value, step, rank, last && !closed, "");
    });
    return true;
  }

  void read_automodel(std::string_view line) {
    // The word "step" begins a field, or follows "[val] ".
    std::size_t at = line.find("step ");
    while (at != std::string_view::npos && at > 0 && line[at - 1] != ' ')
      at = line.find("step ", at + 1);
    if (at == std::string_view::npos) return;
    std::size_t length = 0;
    const std::int64_t step = scan_integer(line.substr(at + 5), length);
    const std::size_t bar = at + 5 + length;
    if (step < 0 || line.substr(bar, 3) != " | ") return;
    const std::string_view before = line.substr(0, at);
    const std::size_t mark = before.rfind("[val]");
    std::string prefix;
    if (mark != std::string_view::npos) {
      prefix = "val ";
      const std::size_t open = before.find('"', mark);
      const std::size_t close = open == std::string_view::npos ? open : before.find('"', open + 1);
      if (close != std::string_view::npos) {
        prefix += std::string(before.substr(open + 1, close - open - 1)) + " ";
      }
    }
    const int rank = scan_rank(before);
    each_field(line, bar + 3, " | ", [&](std::string_view field, bool last) {
      field = trim(field);
      const std::size_t blank = field.find(' ');
      if (blank == std::string_view::npos) return;
      take(field.substr(0, blank), field.substr(blank + 1), step, rank, last, prefix);
    });
  }

  // The number behind `name`, or -1; progress bars write it as 794.0.
  static std::int64_t named_step(std::string_view line, std::string_view name) {
    const std::size_t at = line.find(name);
    if (at == std::string_view::npos) return -1;
    const ScannedNumber number = scan_number(line.substr(at + name.size()));
    if (number.length == 0 || !(number.value >= 0 && number.value < 9e15)) return -1;
    return static_cast<std::int64_t>(number.value);
  }

  LogBuilder& log_;
  std::int64_t number_ = 0;
  bool unterminated_ = false;
};

}  // namespace

const MetricsReader kNemoReader = {
    "NeMo step log", [](std::string_view text, LogBuilder& log) { NemoReader(log).read(text); },
    nullptr};

}  // namespace dyncp
