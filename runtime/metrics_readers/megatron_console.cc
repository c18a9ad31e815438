// Console logs of Megatron-LM and Megatron-Bridge (training_log in megatron/training/training.py):
//   [date] iteration        3/     100 | consumed samples:  24 | ... | lm loss: 6.612992E+00 |
//   loss scale: 1.0 | grad norm: 111.173 | ... |
//   validation loss at iteration 10 | lm loss value: 6.5E+00 | lm loss PPL: 6.6E+02 |
// with any fields. Fields end in '|', so that a field without one may have been cut. Several ranks
// may write to one file, even into one line.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/metrics_readers/line_scan.h"
#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

constexpr std::string_view kIteration = "iteration ";
constexpr std::string_view kValidation = "validation loss at iteration ";

// Where a record begins.
struct Start {
  std::size_t at = std::string_view::npos;  // of the word
  std::size_t fields = 0;                   // behind the step
  std::int64_t step = -1;
  bool validation = false;
};

// The first "iteration N/M" or "validation loss at iteration N" at or after `from`.
Start find_start(std::string_view text, std::size_t from) {
  for (std::size_t at = from;; ++at) {
    const void* hit = at < text.size() ? ::memmem(text.data() + at, text.size() - at,
                                                  kIteration.data(), kIteration.size())
                                       : nullptr;
    if (hit == nullptr) return {};
    at = static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
    std::size_t length = 0;
    Start start;
    const std::size_t digits = at + kIteration.size();
    start.step = scan_integer(text.substr(digits), length);
    if (start.step < 0) continue;
    const std::size_t behind = digits + length;
    const std::size_t before = kValidation.size() - kIteration.size();
    start.validation = at >= before && text.substr(at - before, kValidation.size()) == kValidation;
    if (start.validation) {
      start.at = at - before;
    } else if (behind < text.size() && text[behind] == '/' &&
               !(at >= 2 && text[at - 2] == ',')) {  // "Training epoch 0, iteration 3/9" is NeMo's
      start.at = at;
    } else {
      continue;
    }
    const std::size_t bar = text.find('|', behind);
    start.fields = bar == std::string_view::npos ? text.size() : bar + 1;
    return start;
  }
}

class ConsoleReader {
 public:
  explicit ConsoleReader(LogBuilder& log) : log_(log) {}

  void read(std::string_view text) {
    LineScanner lines(text);
    std::string_view line;
    while (lines.next(line)) {
      number_ = lines.number();
      unterminated_ = lines.unterminated();
      read_line(line);
    }
    log_.count_lines(number_);
  }

 private:
  void read_line(std::string_view line) {
    Start start = find_start(line, 0);
    std::size_t prefix = 0;  // where what precedes the record begins
    while (start.at != std::string_view::npos) {
      const int rank = scan_rank(line.substr(prefix, start.at - prefix));
      std::size_t at = start.fields;
      Start next;
      expected_ = 0;
      std::size_t taken = 0;
      while (at < line.size()) {
        const auto* bar =
            static_cast<const char*>(std::memchr(line.data() + at, '|', line.size() - at));
        const std::size_t end =
            bar == nullptr ? line.size() : static_cast<std::size_t>(bar - line.data());
        const std::string_view field = line.substr(at, end - at);
        const bool cut = bar == nullptr && unterminated_;
        if (cut && trim(field).empty()) break;
        if (cut) {
          log_.unreadable(number_, "the last field of the file is cut", field);
          break;
        }
        if (!take_field(field, rank, start)) {
          // Not a field: another record may begin here, when two writers share a line.
          next = find_start(line, at);
          if (next.at != std::string_view::npos && next.at < end) break;
          next = {};
        } else {
          ++taken;
        }
        at = end + 1;
      }
      if (taken == 0 && !start.validation) {
        log_.unreadable(number_, "an iteration without any value", line.substr(start.at));
      }
      prefix = at;
      start = next;
    }
  }

  // name: value. False when it is neither that nor a field with a text for a value.
  bool take_field(std::string_view field, int rank, const Start& start) {
    std::size_t begin = 0;
    while (begin < field.size() && field[begin] == ' ') ++begin;
    field.remove_prefix(begin);
    // Lines repeat their fields in the same order: the name that came here last time comes again.
    if (expected_ < order_.size() && !start.validation) {
      const Known& known = order_[expected_];
      if (field.size() > known.name.size() && field[known.name.size()] == ':' &&
          std::memcmp(field.data(), known.name.data(), known.name.size()) == 0) {
        ++expected_;
        return take_value(field, field.substr(known.name.size() + 1), known.metric, rank,
                          start.step);
      }
    }
    const std::size_t colon = field.find(':');
    if (colon == std::string_view::npos) return trim(field).empty();
    std::string name(trim(field.substr(0, colon)));
    if (name.empty() || find_start(field, 0).at != std::string_view::npos) return false;
    const std::string_view value = field.substr(colon + 1);
    const ScannedNumber number = scan_field(trim(value));
    if (start.validation) name = "validation " + name;
    if (number.length == 0) {
      const std::string_view text = trim(value);
      const bool word = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0;
      if (!word) log_.unreadable(number_, "a field without a number", field);
      return true;
    }
    const int metric = log_.metric(name);
    if (!start.validation) {
      order_.resize(std::min(order_.size(), expected_));
      order_.push_back({name, metric});
      ++expected_;
    }
    log_.add(rank, metric, start.step, number.value, number.digits);
    return true;
  }

  bool take_value(std::string_view field, std::string_view value, int metric, int rank,
                  std::int64_t step) {
    std::size_t begin = 0;
    while (begin < value.size() && value[begin] == ' ') ++begin;
    value.remove_prefix(begin);
    const ScannedNumber number = scan_field(value);
    if (number.length == 0) {
      log_.unreadable(number_, "a field whose number is damaged", field);
      return find_start(field, 0).at == std::string_view::npos;
    }
    log_.add(rank, metric, step, number.value, number.digits);
    // A number, and then another writer's record: the field is not over.
    return value.size() - number.length < kIteration.size() ||
           find_start(value, 0).at == std::string_view::npos;
  }

  struct Known {
    std::string name;
    int metric;
  };

  LogBuilder& log_;
  std::vector<Known> order_;  // fields of the last line
  std::size_t expected_ = 0;  // index of the next one
  std::int64_t number_ = 0;
  bool unterminated_ = false;
};

}  // namespace

const MetricsReader kMegatronConsoleReader = {
    "Megatron-LM console log",
    [](std::string_view text, LogBuilder& log) { ConsoleReader(log).read(text); }, nullptr};

}  // namespace dyncp
