// Every format gives back the lengths that were written in it, and whatever is done to a text, it
// is either read as lengths in range or refused in one line: never a crash, never a wild number.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "properties/generators.h"
#include "reference/error.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

using Lengths = std::vector<std::int64_t>;

// Lengths up to the largest one allowed, small ones more often.
rc::Gen<Lengths> genAnyLengths() { return genLengths({kMaxSequenceLength, 1, 40}); }

std::string join(const Lengths& lengths, const std::string& separator) {
  std::string text;
  for (std::int64_t length : lengths) {
    text += (text.empty() ? "" : separator) + std::to_string(length);
  }
  return text;
}

// The same lengths in each format, with separators and columns chosen by `style`.
std::string as_plain(const Lengths& lengths, int style) {
  return join(lengths,
              std::vector<std::string>{"\n", ",", " ", "\r\n", "\t", ",\n",
                                       " # a comment, 7\n"}[static_cast<std::size_t>(style % 7)]);
}
std::string as_csv(const Lengths& lengths, int style) {
  const std::string name =
      std::vector<std::string>{"seq_len", "length", "LEN"}[static_cast<std::size_t>(style % 3)];
  const char separator = ",;\t"[style / 3 % 3];
  std::string text;
  switch (style / 9 % 3) {
    case 0:
      return name + "\n" + join(lengths, "\n") + "\n";
    case 1:
      text = std::string("id") + separator + name + "\n";
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        text += std::to_string(i + 1000) + separator + std::to_string(lengths[i]) + "\n";
      }
      return text;
    default:
      text = "\"" + name + "\"" + separator + "\"title\"\r\n";
      for (std::int64_t length : lengths) {
        text += "\"" + std::to_string(length) + "\"" + separator + "\"a,;\"\" 5\"\r\n";
      }
      return text;
  }
}
std::string as_json_lines(const Lengths& lengths, int style) {
  const std::string name =
      std::vector<std::string>{"seq_len", "length", "len"}[static_cast<std::size_t>(style % 3)];
  std::string text;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::string length = "\"" + name + "\": " + std::to_string(lengths[i]);
    text += style % 2 == 0 ? R"({"id": ")" + std::to_string(i) + "\", " + length + "}\n"
                           : "{" + length + R"(, "tags": [1, {"len": -2}]})" + "\r\n";
  }
  return text;
}
std::string as_json_array(const Lengths& lengths, int style) {
  return style % 2 == 0 ? "[" + join(lengths, ",") + "]"
                        : "[\n " + join(lengths, " ,\n ") + "\n]\n";
}

using Writer = std::string (*)(const Lengths&, int);
constexpr Writer kWriters[] = {as_plain, as_csv, as_json_lines, as_json_array};

RC_GTEST_PROP(ParseLengths, EveryFormatGivesBackWhatWasWritten, ()) {
  const auto lengths = *genAnyLengths();
  const auto style = *genInt(0, 53);
  for (const Writer write : kWriters) {
    const std::string text = write(lengths, style);
    RC_LOG() << text;
    RC_ASSERT(parse_lengths(text, "text") == lengths);
    RC_ASSERT(parse_lengths("\xef\xbb\xbf" + text, "text") == lengths);
  }
}

RC_GTEST_PROP(ParseLengths, GivesBackWhatDyncpPrints, ()) {
  const auto lengths = *genAnyLengths();
  const auto note = *rc::gen::arbitrary<std::string>();
  const std::string text = print_lengths(lengths, {note, "two\nlines, 5"});
  RC_ASSERT(parse_lengths(text, "text") == lengths);
  RC_ASSERT(std::count(text.begin(), text.end(), '\n') ==
            static_cast<std::ptrdiff_t>(lengths.size()) + 2);
}

RC_GTEST_PROP(ParseLengths, DamagedTextIsReadInRangeOrRefusedInOneLine, ()) {
  const auto lengths = *genAnyLengths();
  std::string text = kWriters[*genInt(0, 3)](lengths, *genInt(0, 53));
  // Up to four bytes changed, left out or put in; characters that mean something come often.
  const std::string meaningful = "[]{},:;\"#-+.e_\n\r\t 09\\\xff";
  const int changes = *genInt(1, 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const auto at = static_cast<std::size_t>(*genInt(0, static_cast<int>(text.size()) - 1));
    const char byte =
        meaningful[static_cast<std::size_t>(*genInt(0, static_cast<int>(meaningful.size()) - 1))];
    switch (*genInt(0, 3)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1);
        break;
      default:
        text.resize(at);
    }
  }
  RC_LOG() << text;
  try {
    const auto read = parse_lengths(text, "text");
    RC_CLASSIFY(true, "read");
    RC_ASSERT(!read.empty());
    for (std::int64_t length : read) RC_ASSERT(length >= 0 && length <= kMaxSequenceLength);
  } catch (const InvalidInput& error) {
    RC_CLASSIFY(true, "refused");
    const std::string message = error.what();
    RC_ASSERT(message.starts_with("text:"));
    const std::int64_t line = std::stoll(message.substr(5));
    RC_ASSERT(line >= 1);
    RC_ASSERT(line <= 1 + std::count(text.begin(), text.end(), '\n'));
    RC_ASSERT(message.find_first_of("\r\n") == std::string::npos);
  }
}

RC_GTEST_PROP(LengthSummary, AgreesWithItsDefinitions, ()) {
  const auto lengths = *genLengths({5000, 1, 60});
  const std::int64_t max_tokens = *genInt(1, 5000);
  const LengthSummary summary = summarize_lengths(lengths, max_tokens);
  const auto n = static_cast<std::int64_t>(lengths.size());
  const auto count_if = [&](auto condition) {
    return std::count_if(lengths.begin(), lengths.end(), condition);
  };
  RC_ASSERT(summary.count == n);
  RC_ASSERT(summary.total == std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  RC_ASSERT(summary.min == *std::min_element(lengths.begin(), lengths.end()));
  RC_ASSERT(summary.max == *std::max_element(lengths.begin(), lengths.end()));
  for (const auto& [percent, value] :
       {std::pair{50, summary.p50}, {90, summary.p90}, {99, summary.p99}}) {
    const std::int64_t bound = value;
    RC_ASSERT(std::find(lengths.begin(), lengths.end(), bound) != lengths.end());
    RC_ASSERT(100 * count_if([&](auto l) { return l <= bound; }) >= percent * n);
    RC_ASSERT(100 * count_if([&](auto l) { return l < bound; }) < percent * n);
  }
  std::int64_t counted = 0, tokens = 0, next = summary.histogram.front().low;
  for (const LengthSummary::Bin& bin : summary.histogram) {
    RC_ASSERT(bin.low == next);
    next = bin.high + 1;
    RC_ASSERT(bin.count == count_if([&](auto l) { return l >= bin.low && l <= bin.high; }));
    counted += bin.count;
    tokens += bin.tokens;
  }
  RC_ASSERT(counted == n);
  RC_ASSERT(tokens == summary.total);
  const std::int64_t above = count_if([&](auto l) { return l > max_tokens; });
  RC_ASSERT(summary.share_above == static_cast<double>(above) / static_cast<double>(n));
  std::int64_t tokens_above = 0;
  for (auto l : lengths) tokens_above += l > max_tokens ? l : 0;
  RC_ASSERT(summary.token_share_above * static_cast<double>(std::max<std::int64_t>(1, tokens)) >=
            static_cast<double>(tokens_above) * (1 - 1e-15));
  RC_ASSERT(summary.token_share_above * static_cast<double>(std::max<std::int64_t>(1, tokens)) <=
            static_cast<double>(tokens_above) * (1 + 1e-15));
}

}  // namespace
}  // namespace dyncp
