// Reads sequence lengths in the formats users already have. Every error is one line
// "ORIGIN:LINE: found what, expected what"; nothing is guessed, skipped or rounded silently.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/files.h"
#include "runtime/lengths.h"
#include "runtime/mock_sft.h"

namespace dyncp {
namespace {

constexpr std::string_view kExpectedLength = "expected an integer in 0..1099511627776 (2^40)";
static_assert(kMaxSequenceLength == 1099511627776);

// In the order in which they are looked for.
constexpr std::array<std::string_view, 3> kLengthNames = {"seq_len", "length", "len"};
constexpr std::string_view kExpectedNames = "seq_len, length or len";

constexpr std::string_view kBlanks = " \t\r\n\f\v";

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::int64_t lines_before(std::string_view text, std::size_t position) {
  return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n');
}

// The outcome of reading one integer: a length, or what was found instead.
struct Parsed {
  std::int64_t length = -1;
  std::string found;  // empty when there is a length
};

Parsed parse_length(std::string_view token) {
  std::int64_t value = 0;
  const char* end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, value);
  const bool whole = stop == end && !token.empty();
  if (whole && error == std::errc() && value >= 0 && value <= kMaxSequenceLength) {
    return {value, {}};
  }
  if (token.empty()) return {-1, "an empty value"};
  if (whole && token.front() == '-') return {-1, "the negative length " + quote(token)};
  if (whole) return {-1, "the too large length " + quote(token)};
  const bool like_a_number =
      token.find_first_not_of("0123456789+-.eE_") == std::string_view::npos &&
      std::any_of(token.begin(), token.end(), is_digit);
  return {-1, (like_a_number ? "a number that is no plain integer, " : "text, ") + quote(token)};
}

// Collects the lengths of one source and refuses what is wrong in it.
class Reader {
 public:
  explicit Reader(const std::string& origin) : origin_(one_line(origin)) {}

  [[noreturn]] void refuse(std::int64_t line, std::string_view found,
                           std::string_view expected) const {
    throw InvalidInput(fmt::format("{}:{}: found {}, {}", origin_, line, found, expected));
  }

  void add(std::int64_t length, std::int64_t line) {
    if (static_cast<std::int64_t>(lengths_.size()) >= kMaxLengths) {
      refuse(line, "more lengths", fmt::format("expected at most {}", kMaxLengths));
    }
    lengths_.push_back(length);
  }

  void add(std::string_view token, std::int64_t line) {
    const Parsed parsed = parse_length(token);
    if (!parsed.found.empty()) refuse(line, parsed.found, kExpectedLength);
    add(parsed.length, line);
  }

  std::vector<std::int64_t> finish(std::int64_t line) {
    if (lengths_.empty()) refuse(line, "no length", "expected at least one");
    return std::move(lengths_);
  }

 private:
  std::string origin_;
  std::vector<std::int64_t> lengths_;
};

// Calls visit(line text without its end, line number from 1) for every line.
template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::vector<std::int64_t> parse_plain_list(std::string_view text, Reader reader) {
  std::int64_t line = 1;
  bool comma_allowed = false;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == ',') {
      if (!comma_allowed)
        reader.refuse(line, "a comma without a length before it", kExpectedLength);
      comma_allowed = false;
      ++i;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (is_blank(c)) {
      line += c == '\n';
      ++i;
    } else {
      std::size_t end = i;
      while (end < text.size() && text[end] != ',' && text[end] != '#' && !is_blank(text[end])) {
        ++end;
      }
      reader.add(text.substr(i, end - i), line);
      comma_allowed = true;
      i = end;
    }
  }
  return reader.finish(line);
}

// [1, 2, 3] and nothing after it.
std::vector<std::int64_t> parse_json_array(std::string_view text, Reader reader) {
  enum class State { kFirst, kValue, kSeparator, kDone };
  State state = State::kFirst;
  std::int64_t line = 1 + lines_before(text, text.find('['));
  for (std::size_t i = text.find('[') + 1; i < text.size();) {
    const char c = text[i];
    if (is_blank(c)) {
      line += c == '\n';
      ++i;
    } else if (state == State::kDone) {
      reader.refuse(line, quote(text.substr(i)), "expected nothing behind the array");
    } else if (c == ']' && state != State::kValue) {
      state = State::kDone;
      ++i;
    } else if (state == State::kSeparator) {
      if (c != ',') reader.refuse(line, quote(text.substr(i)), "expected ',' or ']'");
      state = State::kValue;
      ++i;
    } else {
      std::size_t end = i;
      while (end < text.size() && text[end] != ',' && text[end] != ']' && !is_blank(text[end])) {
        ++end;
      }
      reader.add(text.substr(i, end - i), line);
      state = State::kSeparator;
      i = end;
    }
  }
  if (state != State::kDone) reader.refuse(line, "the end of the text", "expected ',' or ']'");
  return reader.finish(line);
}

// ---- JSON lines ---------------------------------------------------------------------------------

// Takes in one object without building it: of {"id": 7, "len": 512, ...} only the length is kept.
class RecordHandler : public nlohmann::json::json_sax_t {
 public:
  std::int64_t length = -1;
  bool is_config = false;     // has a key "mode" at the top
  std::string found;          // what is wrong, when something is
  std::string_view expected;  // in its place
  std::size_t broken_at = 0;  // byte of a syntax error, from 1

  bool null() override { return value("null"); }
  bool boolean(bool v) override { return value(v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override { return number(std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override { return number(std::to_string(v)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool string(string_t& text) override { return value("text, " + quote(text)); }
  bool binary(binary_t&) override { return value("binary data"); }
  bool start_object(std::size_t) override {
    if (depth_ > 0 && !value("an object")) return false;
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return fail("an array", "expected an object");
    if (!value("an array")) return false;
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    at_length_ = false;
    if (depth_ != 1) return true;
    is_config |= name == "mode";
    at_length_ = std::find(kLengthNames.begin(), kLengthNames.end(), name) != kLengthNames.end();
    if (at_length_ && length >= 0) return fail("a second length", "expected one a line");
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    broken_at = position;
    return false;
  }

 private:
  bool fail(std::string what, std::string_view wanted) {
    found = std::move(what);
    expected = wanted;
    return false;
  }
  // A value that is no number.
  bool value(const std::string& what) {
    if (depth_ == 0) return fail(what, "expected an object");
    return !(depth_ == 1 && at_length_) || fail(what + " as the length", kExpectedLength);
  }
  bool number(const std::string& text) {
    if (depth_ == 0) return fail(quote(text), "expected an object");
    if (depth_ != 1 || !at_length_) return true;
    const Parsed parsed = parse_length(text);
    if (!parsed.found.empty()) return fail(parsed.found, kExpectedLength);
    length = parsed.length;
    return true;
  }

  int depth_ = 0;
  bool at_length_ = false;
};

std::vector<std::int64_t> parse_json_lines(std::string_view text, Reader reader) {
  std::int64_t last = 1;
  for_each_line(text, [&](std::string_view line, std::int64_t number) {
    last = number;
    line = trimmed(line);
    if (line.empty()) return;
    RecordHandler record;
    if (!nlohmann::json::sax_parse(line.begin(), line.end(), &record)) {
      if (!record.found.empty()) reader.refuse(number, record.found, record.expected);
      reader.refuse(
          number, fmt::format("broken or truncated JSON at byte {} of the line", record.broken_at),
          R"(expected {"len": ...})");
    }
    if (record.length < 0) {
      reader.refuse(number, "an object without a length",
                    fmt::format("expected a key {}", kExpectedNames));
    }
    reader.add(record.length, number);
  });
  return reader.finish(last);
}

// ---- CSV ----------------------------------------------------------------------------------------

// The fields of one line; a field may stand in double quotes, "" being a quote inside them.
std::vector<std::string> split_fields(std::string_view line, char separator) {
  std::vector<std::string> fields(1);
  bool inside_quotes = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && inside_quotes && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      inside_quotes = !inside_quotes;
    } else if (c == separator && !inside_quotes) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) field = std::string(trimmed(field));
  return fields;
}

// A comma, semicolon or tab, whichever comes first in the header.
char separator_of(std::string_view header) {
  const std::size_t found = header.find_first_of(",;\t");
  return found == std::string_view::npos ? ',' : header[found];
}

bool starts_a_number(std::string_view field) {
  return !field.empty() && (is_digit(field[0]) || field[0] == '-' || field[0] == '+' ||
                            (field[0] == '.' && field.size() > 1));
}

// Whether a line names columns: some field starts like a name, and none like a number.
bool is_header(std::string_view line) {
  bool names = false;
  for (const std::string& field : split_fields(line, separator_of(line))) {
    if (starts_a_number(field)) return false;
    names |= !field.empty() && (is_letter(field[0]) || field[0] == '_');
  }
  return names;
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// Index of the column that holds the lengths. Throws when no column is named so.
std::size_t length_column(const std::vector<std::string>& header, std::int64_t line,
                          const Reader& reader) {
  if (header.size() == 1) return 0;
  for (std::string_view name : kLengthNames) {
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (lower(header[i]) == name) return i;
    }
  }
  reader.refuse(line, fmt::format("{} columns without a name of lengths", header.size()),
                fmt::format("expected one named {}", kExpectedNames));
}

// With `every_column` all values are lengths, row by row, as Megatron reads its mock-SFT files.
std::vector<std::int64_t> parse_csv(std::string_view text, bool every_column, Reader reader) {
  std::vector<std::string> header;
  std::size_t column = 0;
  char separator = ',';
  std::int64_t last = 1;
  for_each_line(text, [&](std::string_view line, std::int64_t number) {
    last = number;
    line = trimmed(line);
    if (line.empty() || line.front() == '#') return;
    if (header.empty()) {
      separator = separator_of(line);
      header = split_fields(line, separator);
      if (!every_column) {
        column = length_column(header, number, reader);
      } else if (!is_header(line)) {
        reader.refuse(number, quote(line) + " in the line that Megatron drops as a header",
                      "expected a name such as seq_len");
      }
      return;
    }
    // The common case, a single column of plain integers, needs no splitting.
    if (header.size() == 1 && line.find_first_of(",;\t\"") == std::string_view::npos) {
      reader.add(line, number);
      return;
    }
    const std::vector<std::string> fields = split_fields(line, separator);
    if (fields.size() != header.size()) {
      reader.refuse(number, fmt::format("{} fields", fields.size()),
                    fmt::format("expected {} as in the header", header.size()));
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (every_column || i == column) reader.add(fields[i], number);
    }
  });
  return reader.finish(last);
}

// ---- Megatron's mock-SFT configuration ----------------------------------------------------------

// Number of the line in which a key first stands; 1 when it does not.
std::int64_t line_of_key(std::string_view text, std::string_view key) {
  const std::size_t position = text.find(fmt::format("\"{}\"", key));
  return position == std::string_view::npos ? 1 : 1 + lines_before(text, position);
}

// The values of one configuration, with errors that name key and line.
class Config {
 public:
  Config(std::string_view text, const Reader& reader) : text_(text), reader_(reader) {
    try {
      object_ = nlohmann::json::parse(text.begin(), text.end());
    } catch (const nlohmann::json::parse_error& error) {
      const std::size_t position = std::min(error.byte, text.size());
      reader.refuse(1 + lines_before(text, position),
                    fmt::format("broken or truncated JSON at byte {}", error.byte),
                    R"(expected lines of {"len": ...} or an object with "mode")");
    } catch (const nlohmann::json::exception&) {  // a number beyond double
      reader.refuse(1, "JSON with a number out of range",
                    R"(expected lines of {"len": ...} or an object with "mode")");
    }
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view found,
                           std::string_view expected) const {
    reader_.refuse(line_of_key(text_, key), found, expected);
  }

  std::string text(std::string_view key, std::string_view expected) const {
    const nlohmann::json& value = find(key, expected);
    if (!value.is_string()) refuse(key, describe(key, value), expected);
    return value.get<std::string>();
  }

  std::int64_t tokens(std::string_view key) const {
    const nlohmann::json& value = find(key, kExpectedLength);
    const bool fits = value.is_number_unsigned() &&
                      value.get<std::uint64_t>() <= std::uint64_t{kMaxSequenceLength};
    if (!fits) refuse(key, describe(key, value), kExpectedLength);
    return value.get<std::int64_t>();
  }

  double number(std::string_view key, double low, double high) const {
    const std::string expected = fmt::format("expected a number in {}..{}", low, high);
    const nlohmann::json& value = find(key, expected);
    const bool fits =
        value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
    if (!fits) refuse(key, describe(key, value), expected);
    return value.get<double>();
  }

 private:
  static std::string describe(std::string_view key, const nlohmann::json& value) {
    const std::string shown = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    return fmt::format("{} = {}", key, quote(shown));
  }

  const nlohmann::json& find(std::string_view key, std::string_view expected) const {
    const auto found = object_.find(std::string(key));
    if (found == object_.end()) refuse(key, fmt::format("no key \"{}\"", key), expected);
    return *found;
  }

  std::string_view text_;
  const Reader& reader_;
  nlohmann::json object_;
};

std::vector<std::int64_t> parse_config(std::string_view text, const std::string& origin,
                                       std::int64_t count, std::uint64_t seed) {
  const Reader reader(origin);
  const Config config(text, reader);
  const std::string expected_mode =
      R"(expected "mode" to be "file" or "distribution", or lines of {"len": ...})";
  const std::string mode = config.text("mode", expected_mode);
  if (mode == "file") {
    const std::string named = config.text("path", "expected the path of a CSV file");
    // An absolute path stays what it is.
    const std::string path = (std::filesystem::path(origin).parent_path() / named).string();
    return parse_csv(read_file(path), true, Reader(path));
  }
  if (mode != "distribution") config.refuse("mode", "mode " + quote(mode), expected_mode);
  const std::string type = config.text("type", R"(expected "type" to be "lognormal")");
  if (type != "lognormal") {
    config.refuse("type", "type " + quote(type), R"(expected "type" to be "lognormal")");
  }
  MockSftDistribution distribution;
  distribution.min_seq_len = config.tokens("min_seq_len");
  distribution.max_seq_len = config.tokens("max_seq_len");
  distribution.mean_seq_len = config.number("mean_seq_len", 1, 1099511627776.0);
  distribution.lognormal_sigma = config.number("lognormal_sigma", 0, 20);
  if (distribution.min_seq_len > distribution.max_seq_len) {
    config.refuse("min_seq_len", fmt::format("min_seq_len {}", distribution.min_seq_len),
                  fmt::format("expected at most max_seq_len {}", distribution.max_seq_len));
  }
  return draw_mock_sft(distribution, count, seed);
}

// A text that starts with '{': JSON lines when the first line is a whole object that is no
// configuration; else a configuration, however many lines it takes.
std::vector<std::int64_t> parse_json_objects(std::string_view text, const std::string& origin,
                                             std::int64_t count, std::uint64_t seed) {
  const std::size_t start = text.find('{');
  const std::string_view first = text.substr(start, text.find('\n', start) - start);
  RecordHandler record;
  const bool syntax_holds =
      nlohmann::json::sax_parse(first.begin(), first.end(), &record) || !record.found.empty();
  if (syntax_holds && !record.is_config) return parse_json_lines(text, Reader(origin));
  constexpr std::size_t kMaxConfigBytes = 1 << 20;
  if (text.size() > kMaxConfigBytes) {
    Reader(origin).refuse(1 + lines_before(text, start), "broken or truncated JSON",
                          R"(expected {"len": ...})");
  }
  return parse_config(text, origin, count, seed);
}

// The first line that is neither blank nor a comment.
std::string_view first_content_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (!line.empty() && line.front() != '#') return line;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> parse_lengths(std::string_view text, const std::string& origin,
                                        std::int64_t count, std::uint64_t seed) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    Reader(origin).refuse(1 + lines_before(text, zero), "binary data",
                          "expected integers, CSV or JSON as text");
  }
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first != std::string_view::npos && text[first] == '[') {
    return parse_json_array(text, Reader(origin));
  }
  if (first != std::string_view::npos && text[first] == '{') {
    return parse_json_objects(text, origin, count, seed);
  }
  if (is_header(first_content_line(text))) return parse_csv(text, false, Reader(origin));
  return parse_plain_list(text, Reader(origin));
}

std::string print_lengths(const std::vector<std::int64_t>& lengths,
                          const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += "# " + one_line(note) + "\n";
  for (std::int64_t length : lengths) text += std::to_string(length) + "\n";
  return text;
}

std::vector<std::int64_t> read_lengths(const std::string& path, std::int64_t count,
                                       std::uint64_t seed) {
  return parse_lengths(read_file(path), path, count, seed);
}

std::vector<std::int64_t> lengths_from_option(const std::string& value, std::int64_t count,
                                              std::uint64_t seed) {
  const bool only_integers = value.find_first_not_of("0123456789+-, ") == std::string::npos;
  std::error_code ignored;
  if (!only_integers && std::filesystem::exists(value, ignored)) {
    return read_lengths(value, count, seed);
  }
  if (!only_integers && value.find(',') == std::string::npos && !starts_a_number(value)) {
    throw InvalidInput(fmt::format(
        "--lengths: {} is no existing file, expected one or integers separated by commas",
        quote(value)));
  }
  std::vector<std::int64_t> lengths;
  std::size_t start = 0;
  for (int item = 1;; ++item) {
    const std::size_t end = std::min(value.find(',', start), value.size());
    const Parsed parsed = parse_length(trimmed(std::string_view(value).substr(start, end - start)));
    if (!parsed.found.empty()) {
      throw InvalidInput(
          fmt::format("--lengths: item {} is {}, {}", item, parsed.found, kExpectedLength));
    }
    if (static_cast<std::int64_t>(lengths.size()) >= kMaxLengths) {
      throw InvalidInput(fmt::format("--lengths: more than {} lengths", kMaxLengths));
    }
    lengths.push_back(parsed.length);
    if (end == value.size()) return lengths;
    start = end + 1;
  }
}

}  // namespace dyncp
