#include "runtime/metrics_readers/json_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/metrics_readers/line_scan.h"

namespace dyncp {
namespace {

constexpr int kDeepest = 64;  // levels; more is no metric, and recursion has to end somewhere

bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// Bare words outside of strings, put into quotes.
std::string quote_words(std::string_view text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      result += c;
      if (c == '\\' && i + 1 < text.size()) result += text[++i];
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    bool replaced = false;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, word.size()) != word) continue;
      result += '"';
      result += word;
      result += '"';
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) result += c;
  }
  return result;
}

// Digits of the shortest text that reads back as the same double.
WrittenDigits shortest_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return {};
  return {0, 17, true};
}

}  // namespace

nlohmann::ordered_json parse_lax_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  if (too_deep(text)) return Json(Json::value_t::discarded);
  const bool words =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  if (!words) return Json::parse(text.begin(), text.end(), nullptr, false);
  return Json::parse(quote_words(text), nullptr, false);
}

bool json_number(const nlohmann::ordered_json& value, double& number, WrittenDigits& digits) {
  digits = {};
  if (value.is_null()) {
    number = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (value.is_number_float()) {
    number = value.get<double>();
    digits = shortest_digits(number);
    return true;
  }
  if (value.is_number()) {
    number = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const ScannedNumber scanned = scan_number(text);
  if (scanned.length == 0 || scanned.length != text.size()) return false;
  number = scanned.value;
  digits = scanned.digits;
  return true;
}

}  // namespace dyncp
