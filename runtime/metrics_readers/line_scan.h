// What the readers of console logs share: lines, terminal colours, rank prefixes and numbers. Hand
// written, because logs have millions of lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/metrics_log.h"

namespace dyncp {

/// Goes through the lines of a text. A carriage return ends a line as a line feed does (progress
/// bars overwrite themselves with it). Terminal colours are taken out. Bytes are not interpreted.
class LineScanner {
 public:
  explicit LineScanner(std::string_view text) : rest_(text) {}

  /// The next line, without its end; false when there is none. The view holds until the next call.
  bool next(std::string_view& line);
  /// Number of the line, from 1.
  std::int64_t number() const { return number_; }
  /// Whether the line had no line end: it may have been cut anywhere.
  bool unterminated() const { return unterminated_; }

 private:
  std::string_view rest_;
  std::string_view pending_;  // what follows a carriage return inside a line
  std::string buffer_;        // a line without its colours
  std::int64_t number_ = 0;
  bool unterminated_ = false;
  bool pending_unterminated_ = false;
};

/// `line` without terminal control sequences (ESC [ ... letter), into `buffer` where there are any.
std::string_view strip_colours(std::string_view line, std::string& buffer);

/// Without blanks and tabs at both ends.
std::string_view trim(std::string_view text);

/// A number at the beginning of a text.
struct ScannedNumber {
  double value = 0;
  WrittenDigits digits;
  std::size_t length = 0;  // bytes taken; 0 = no number
};

/// The number that `text` begins with: decimal, with or without exponent, nan, inf, infinity, in
/// any case, with a sign; or one of these inside np.float64(...), tensor(...) and the like.
ScannedNumber scan_number(std::string_view text);

/// scan_number of a field that holds a number and at most a unit or a second figure: "24.90 GiB",
/// "100.0/120.1", "11278.56(1409.82/gpu)". Length 0 when the number is followed by anything else
/// without a blank between: then it is damaged.
ScannedNumber scan_field(std::string_view text);

/// A non-negative integer at the beginning of a text (blanks skipped first); -1 = none, or above
/// 2^53.
std::int64_t scan_integer(std::string_view text, std::size_t& length);

/// The rank that the beginning of a line names, or -1: [rank3]:, [default3]:, [Rank 3 |, (RANK 3),
/// rank 3:, rank=3, 3: (srun), [1,3]<stdout>: (mpirun).
int scan_rank(std::string_view prefix);

}  // namespace dyncp
