#include "runtime/metrics_readers/line_scan.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace dyncp {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool starts_lower(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (lower(text[i]) != word[i]) return false;
  }
  return true;
}

// Digits of a decimal number that from_chars took; zero has no significant digit, but decimals.
WrittenDigits digits_of(std::string_view number) {
  WrittenDigits digits;
  bool point = false, leading = true;
  for (const char c : number) {
    if (c == '.') {
      point = true;
    } else if (is_digit(c)) {
      leading = leading && c == '0';
      if (point && digits.decimals < 100) ++digits.decimals;
      if (!leading && digits.significant < 100) ++digits.significant;
    } else if (c == 'e' || c == 'E') {
      digits.exponent = true;
      break;
    }
  }
  return digits;
}

// nan, inf or infinity without sign; 0 = none of them.
std::size_t scan_word(std::string_view text, double& value) {
  std::size_t length = 0;
  if (starts_lower(text, "nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
    length = 3;
  } else if (starts_lower(text, "infinity")) {
    value = std::numeric_limits<double>::infinity();
    length = 8;
  } else if (starts_lower(text, "inf")) {
    value = std::numeric_limits<double>::infinity();
    length = 3;
  }
  const bool whole = length == text.size() || !(is_letter(text[length]) || text[length] == '_');
  return whole ? length : 0;
}

}  // namespace

std::string_view strip_colours(std::string_view line, std::string& buffer) {
  constexpr char kEscape = '\x1b';
  if (std::memchr(line.data(), kEscape, line.size()) == nullptr) return line;
  buffer.clear();
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != kEscape) {
      buffer += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    }
  }
  return buffer;
}

bool LineScanner::next(std::string_view& line) {
  if (pending_.empty()) {
    if (rest_.empty()) return false;
    const auto* end = static_cast<const char*>(std::memchr(rest_.data(), '\n', rest_.size()));
    const std::size_t length =
        end == nullptr ? rest_.size() : static_cast<std::size_t>(end - rest_.data());
    pending_ = rest_.substr(0, length);
    pending_unterminated_ = end == nullptr;
    rest_.remove_prefix(std::min(rest_.size(), length + 1));
    if (!pending_.empty() && pending_.back() == '\r') {
      pending_.remove_suffix(1);
      pending_unterminated_ = false;
    }
    ++number_;
  }
  const std::size_t carriage = pending_.find('\r');
  unterminated_ = pending_unterminated_ && carriage == std::string_view::npos;
  line = strip_colours(pending_.substr(0, carriage), buffer_);
  pending_ =
      carriage == std::string_view::npos ? std::string_view() : pending_.substr(carriage + 1);
  return true;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

ScannedNumber scan_number(std::string_view text) {
  ScannedNumber result;
  std::size_t begin = 0;
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    begin = 1;
  }
  if (begin >= text.size()) return result;
  const char first = text[begin];
  if (is_digit(first) || first == '.') {
    const char* const from = text.data() + begin;
    const auto [end, error] =
        std::from_chars(from, text.data() + text.size(), result.value, std::chars_format::general);
    if (error == std::errc::invalid_argument) return {};
    const auto taken = static_cast<std::size_t>(end - from);
    result.digits = digits_of(text.substr(begin, taken));
    if (error == std::errc::result_out_of_range) {
      // from_chars leaves the value alone; the sign of the exponent says which way it went.
      const bool tiny = text.substr(begin, taken).find("e-") != std::string_view::npos ||
                        text.substr(begin, taken).find("E-") != std::string_view::npos;
      result.value = tiny ? 0 : std::numeric_limits<double>::infinity();
    }
    result.length = begin + taken;
  } else if (const std::size_t word = scan_word(text.substr(begin), result.value); word > 0) {
    result.length = begin + word;
  } else if (begin == 0 && is_letter(first)) {
    // np.float64(0.25), tensor(0.25, device='cuda:0')
    const std::size_t open = text.find('(');
    if (open == std::string_view::npos || open > 16) return {};
    for (const char c : text.substr(0, open)) {
      if (!is_letter(c) && !is_digit(c) && c != '.' && c != '_') return {};
    }
    result = scan_number(text.substr(open + 1));
    const std::size_t close = text.find(')', open + 1 + result.length);
    if (result.length == 0 || close == std::string_view::npos) return {};
    result.length = close + 1;
    return result;
  } else {
    return {};
  }
  if (negative) result.value = -result.value;
  return result;
}

ScannedNumber scan_field(std::string_view text) {
  const ScannedNumber number = scan_number(text);
  std::size_t i = number.length;
  while (i < text.size() && (is_letter(text[i]) || text[i] == '%')) ++i;
  const bool clean = i == text.size() || text[i] == ' ' || text[i] == '\t' || text[i] == '/' ||
                     text[i] == '(' || text[i] == ',';
  return clean ? number : ScannedNumber{};
}

std::int64_t scan_integer(std::string_view text, std::size_t& length) {
  std::size_t i = 0;
  while (i < text.size() && text[i] == ' ') ++i;
  const std::size_t begin = i;
  std::int64_t value = 0;
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    value = value * 10 + (text[i] - '0');
    if (value > kMost) return -1;
  }
  length = i;
  return i == begin ? -1 : value;
}

int scan_rank(std::string_view prefix) {
  const auto number_at = [&](std::size_t at) -> int {
    while (at < prefix.size() && (prefix[at] == ' ' || prefix[at] == '=' || prefix[at] == ':'))
      ++at;
    std::size_t length = 0;
    const std::int64_t value =
        at < prefix.size() && is_digit(prefix[at]) ? scan_integer(prefix.substr(at), length) : -1;
    return value >= 0 && value < (std::int64_t{1} << 24) ? static_cast<int>(value) : -1;
  };
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    const bool fresh = i == 0 || !(is_letter(prefix[i - 1]) || prefix[i - 1] == '_');
    if (!fresh || is_digit(prefix[i])) continue;
    if (starts_lower(prefix.substr(i), "rank")) {
      if (const int rank = number_at(i + 4); rank >= 0) return rank;
    } else if (starts_lower(prefix.substr(i), "default")) {
      if (const int rank = number_at(i + 7); rank >= 0) return rank;
    }
  }
  // mpirun --tag-output: [job,rank]<stdout>:
  if (const std::size_t tag = prefix.find("]<std"); tag != std::string_view::npos) {
    const std::size_t comma = prefix.rfind(',', tag);
    if (comma != std::string_view::npos) return number_at(comma + 1);
    const std::size_t open = prefix.rfind('[', tag);
    if (open != std::string_view::npos) return number_at(open + 1);
  }
  // srun --label: the number, a colon, a blank; a clock has no blank there.
  std::size_t length = 0;
  const std::int64_t label = scan_integer(prefix, length);
  if (label >= 0 && label < (std::int64_t{1} << 24) && length < prefix.size() &&
      prefix[length] == ':' && (length + 1 == prefix.size() || prefix[length + 1] == ' ')) {
    return static_cast<int>(label);
  }
  return -1;
}

}  // namespace dyncp
