// Length files: every format reads as documented, and every bad input is refused with exactly one
// line that names the source, the line and what was found there.
#include "runtime/lengths.h"

#include <gtest/gtest.h>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/mock_sft.h"

namespace dyncp {
namespace {

using Lengths = std::vector<std::int64_t>;

// The message of the InvalidInput that `action` throws.
template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

void expect_one_line(const std::string& message) {
  EXPECT_FALSE(message.empty());
  EXPECT_LT(message.size(), 400U) << message;
  for (char c : message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << message;
}

TEST(ParseLengths, ReadsEveryFormat) {
  const std::vector<std::pair<std::string, Lengths>> texts = {
      // Plain lists.
      {"1", {1}},
      {"0", {0}},
      {"3 1\n2\n", {3, 1, 2}},
      {"3,1 , 2", {3, 1, 2}},
      {"3,1,\n2,\n", {3, 1, 2}},
      {"# two documents\n10 # the first\n\n\t20\r\n", {10, 20}},
      {"10#20\n30", {10, 30}},
      {"007\n1099511627776\n", {7, std::int64_t{1} << 40}},
      {"\xef\xbb\xbf"
       "5\n6\n",
       {5, 6}},
      // CSV.
      {"seq_len\n4096\n1024\n64\n", {4096, 1024, 64}},
      {"tokens per document\r\n5\r\n\r\n6\r\n", {5, 6}},
      {"id,seq_len\na,5\nb,6\n", {5, 6}},
      {"length;name\n5;x\n6;y", {5, 6}},
      {"name\tLEN\nx\t5\ny\t6\n", {5, 6}},
      {"\"id\",\"len\"\n\"a, b \"\"c\"\"\",\"5\"\n7, 6 \n", {5, 6}},
      {",seq_len\n0,5\n1,6\n", {5, 6}},
      {"len,seq_len,length\n1,5,2\n3,6,4\n", {5, 6}},
      {"# comment\nlen\n# another\n5\n", {5}},
      {"\xef\xbb\xbflen\n5\n", {5}},
      // JSON lines.
      {R"({"id": 0, "len": 5})", {5}},
      {"{\"id\": \"a\", \"len\": 5}\n\n{\"length\": 6}\r\n  {\"seq_len\":7, \"x\": {\"len\": 9}}\n",
       {5, 6, 7}},
      {R"({"tags": [{"len": -1}, ["len", 3.5]], "len": 5, "mean": 1e99})", {5}},
      // JSON arrays.
      {"[1, 2, 3]", {1, 2, 3}},
      {" \n[\n 1\n,2 ]\n\n", {1, 2}},
      // Megatron's mock SFT configuration, on one line and on several.
      {R"({"mode":"distribution","type":"lognormal","min_seq_len":100,"max_seq_len":4096,)"
       R"("mean_seq_len":2048,"lognormal_sigma":1.1})",
       {4096, 1736, 3282, 4096}},
      {"{\n \"format\": \"thd\",\n \"mode\": \"distribution\",\n \"type\": \"lognormal\",\n"
       " \"min_seq_len\": 100, \"max_seq_len\": 4096,\n \"mean_seq_len\": 2048.0,\n"
       " \"lognormal_sigma\": 1.1\n}\n",
       {4096, 1736, 3282, 4096}},
  };
  for (const auto& [text, expected] : texts) {
    EXPECT_EQ(parse_lengths(text, "text", 4, 0), expected) << text;
  }
}

TEST(ParseLengths, RefusesBadInputInOneLineWithOriginAndLine) {
  struct Bad {
    std::string text;
    int line;
    std::string found;
  };
  const std::string config =
      "{\"mode\":\"distribution\",\n\"type\":\"lognormal\",\n\"min_seq_len\":100,\n"
      "\"max_seq_len\":4096,\n\"mean_seq_len\":2048,\n\"lognormal_sigma\":1.1}";
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<Bad> texts = {
      // Nothing in it.
      {"", 1, "no length"},
      {" \n\n# only a comment\n", 4, "no length"},
      {"[]", 1, "no length"},
      {"seq_len\n", 1, "no length"},
      // Plain lists.
      {"5\n-3\n", 2, "the negative length '-3'"},
      {"5\n6.5\n", 2, "'6.5'"},
      {"5\n1e3\n", 2, "'1e3'"},
      {"1e3\n", 1, "'1e3'"},
      {"5\n+6\n", 2, "'+6'"},
      {"5\n1_000\n", 2, "'1_000'"},
      {"5\nabc\n", 2, "text, 'abc'"},
      {"5\n0x10\n", 2, "text, '0x10'"},
      {"5\n\xc2\xa0\n", 2, "text, '\\xc2\\xa0'"},
      {"5\n1099511627777\n", 2, "the too large length '1099511627777'"},
      {"5\n99999999999999999999999\n", 2, "the too large length"},
      {"5\n-99999999999999999999999\n", 2, "the negative length"},
      {"5\n" + std::string(1000, '7') + "\n", 2, "the too large length"},
      {"5\n" + std::string(1000, 'x') + "\n", 2, "text"},
      {"5,\n,6\n", 2, "a comma without a length"},
      {",5", 1, "a comma without a length"},
      {std::string("5\n6\0", 4), 2, "binary data"},
      {std::string("\x1f\x8b\x08\0\0", 5), 1, "binary data"},
      {"\x1f\x8b\x08", 1, "text, '\\x1f\\x8b\\x08'"},
      {std::string("5\0\n\0", 4), 1, "binary data"},
      // CSV.
      {"id,len\na,5\nb,six\n", 3, "text, 'six'"},
      {"id,len\na,5\nb,-6\n", 3, "the negative length '-6'"},
      {"id,len\na,5\nb,\n", 3, "an empty value"},
      {"id,len\na,5\nb\n", 3, "1 fields"},
      {"id,len\na,5\nb,6,7\n", 3, "3 fields"},
      {"id,tokens\na,5\n", 1, "2 columns without a name of lengths"},
      {"len\n5\n\nsix\n", 4, "text, 'six'"},
      {"len\n5\n6.0\n", 3, "'6.0'"},
      {"some prose\nwith no numbers\n", 2, "text, 'with no numbers'"},
      {"prose", 1, "no length"},
      // JSON lines.
      {"{\"len\": 5}\n{\"len\": 6", 2, "broken or truncated JSON at byte"},
      {"{\"len\": 5}\n{\"le", 2, "broken or truncated JSON at byte"},
      {"{\"len\": 5}\n{\"len\": -6}", 2, "the negative length '-6'"},
      {"{\"len\": 5}\n{\"len\": 6.5}", 2, "'6.5'"},
      {"{\"len\": 5}\n{\"len\": 1e3}", 2, "'1e3'"},
      {"{\"len\": 5}\n{\"len\": \"6\"}", 2, "text, '6' as the length"},
      {"{\"len\": 5}\n{\"len\": null}", 2, "null as the length"},
      {"{\"len\": 5}\n{\"len\": [6]}", 2, "an array as the length"},
      {"{\"len\": 5}\n{\"len\": {}}", 2, "an object as the length"},
      {"{\"len\": 5}\n{\"len\": 1099511627777}", 2, "the too large length"},
      {"{\"len\": 5}\n{\"len\": 99999999999999999999999}", 2, "'99999999999999999999999'"},
      {"{\"len\": 5}\n{\"len\": 6, \"length\": 6}", 2, "a second length"},
      {"{\"len\": 5}\n{\"tokens\": 6}", 2, "an object without a length"},
      {"{\"len\": 5}\n[6]", 2, "an array"},
      {"{\"len\": 5}\n6", 2, "'6'"},
      {"{\"len\": 5}\n\"six\"", 2, "text, 'six'"},
      {"{\"len\": 5} {\"len\": 6}\n", 1, "broken or truncated JSON at byte"},
      {"{\"x\": 5}", 1, "an object without a length"},
      {"{\"len\": 5}\n{\"mode\": \"file\"}", 2, "an object without a length"},
      // JSON arrays.
      {"[1,\n2", 2, "the end of the text"},
      {"[1,\n2,\n", 3, "the end of the text"},
      {"[", 1, "the end of the text"},
      {"[1,\n-2]", 2, "the negative length '-2'"},
      {"[1,\n2.5]", 2, "'2.5'"},
      {"[1,\n\"2\"]", 2, "text"},
      {"[1,\n[2]]", 2, "text"},
      {"[1,\n,2]", 2, "an empty value"},
      {"[1,\n]", 2, "an empty value"},
      {"[1\n2]", 2, "'2]'"},
      {"[1]\n[2]", 2, "'[2]'"},
      // The mock SFT configuration.
      {"{\n\"mode\": \"distribution\",\n", 3, "broken or truncated JSON"},
      {"{\"mode\"", 1, "broken or truncated JSON"},
      {"{", 1, "broken or truncated JSON"},
      {"{\n\"type\": \"lognormal\"\n}", 1, "no key \"mode\""},
      {"{\n\"mode\": 1\n}", 2, "mode = '1'"},
      {"{\n\"mode\": \"verification\"\n}", 2, "mode 'verification'"},
      {changed("lognormal", "normal"), 2, "type 'normal'"},
      {changed("\"min_seq_len\":100,", ""), 1, "no key \"min_seq_len\""},
      {changed(":100", ":-100"), 3, "min_seq_len = '-100'"},
      {changed(":100", ":1.5"), 3, "min_seq_len = '1.5'"},
      {changed(":100", ":\"\xff\""), 3, "broken or truncated JSON"},
      {changed(":100", ":5000"), 3, "min_seq_len 5000"},
      {changed("4096", "1099511627777"), 4, "max_seq_len = '1099511627777'"},
      {changed("2048", "0"), 5, "mean_seq_len = '0'"},
      {changed("2048", "\"2048\""), 5, "mean_seq_len"},
      {changed("2048", "1e999"), 1, ""},
      {changed("1.1", "-1"), 6, "lognormal_sigma = '-1'"},
      {changed("1.1", "1e6"), 6, "lognormal_sigma"},
  };
  for (const Bad& bad : texts) {
    SCOPED_TRACE(bad.text.substr(0, 200));
    const std::string message = refusal([&] { parse_lengths(bad.text, "some/origin.txt", 4, 0); });
    expect_one_line(message);
    const std::string start = "some/origin.txt:" + std::to_string(bad.line) + ": found ";
    EXPECT_EQ(message.substr(0, start.size()), start) << message;
    EXPECT_NE(message.find(bad.found), std::string::npos) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
  }
}

TEST(ParseLengths, OriginCannotBreakTheLine) {
  const std::string message = refusal([] { parse_lengths("x y", "a\nb", 1, 0); });
  expect_one_line(message);
  EXPECT_EQ(message.substr(0, 9), "a\\x0ab:1:") << message;
}

TEST(ParseLengths, TenMillionLengthsAreReadAndTooManyRefused) {
  // The most that is read, in the densest format; one more is too many.
  std::string text;
  for (std::int64_t i = 0; i < kMaxLengths; ++i) text += i % 50 == 49 ? "7\n" : "7 ";
  const auto lengths = parse_lengths(text, "big");
  EXPECT_EQ(static_cast<std::int64_t>(lengths.size()), kMaxLengths);
  text += "7";
  const std::string message = refusal([&] { parse_lengths(text, "big"); });
  expect_one_line(message);
  EXPECT_EQ(message, "big:400001: found more lengths, expected at most 20000000");
}

TEST(ReadLengths, ReadsFilesAndNamesThoseItCannotRead) {
  const ScratchFolder folder;
  EXPECT_EQ(read_lengths(folder.file("plain.txt", "1 2\n")), (Lengths{1, 2}));
  for (const auto& [path, found] : std::vector<std::pair<std::string, std::string>>{
           {folder.path(), "is a directory"},
           {folder.path() + "/missing.txt", "cannot be opened"},
           {folder.path() + "/plain.txt/below", "cannot be opened"},
           {folder.file("empty.txt", ""), ":1: found no length"},
           {folder.file("binary.bin", std::string("\x7f"
                                                  "ELF\0\0\0",
                                                  7)),
            ":1: found binary data"},
           {folder.file("bad.csv", "len\n5\nx\n"), ":3: found text, 'x'"},
       }) {
    const std::string message = refusal([&, name = path] { read_lengths(name); });
    expect_one_line(message);
    EXPECT_EQ(message.substr(0, path.size()), path) << message;
    EXPECT_NE(message.find(found), std::string::npos) << message;
  }
}

TEST(ReadLengths, MockFileModeReadsEveryValueOfTheCsvBesideIt) {
  const ScratchFolder folder;
  folder.file("lengths.csv", "a,b\n1,2\n3,4\n");
  folder.file("no_header.csv", "4096\n1024\n");
  folder.file("text.csv", "len\n5\nx\n");
  const auto config = [&](const std::string& path) {
    return folder.file("config.json", R"({"mode": "file", "path": ")" + path + R"("})");
  };
  EXPECT_EQ(read_lengths(config("lengths.csv")), (Lengths{1, 2, 3, 4}));
  EXPECT_EQ(read_lengths(config(folder.path() + "/lengths.csv")), (Lengths{1, 2, 3, 4}));
  for (const auto& [path, found] : std::vector<std::pair<std::string, std::string>>{
           {"missing.csv", "missing.csv: cannot be opened"},
           {"", "is a directory"},
           {"text.csv", "text.csv:3: found text, 'x'"},
           {"no_header.csv", "no_header.csv:1: found '4096' in the line that Megatron drops"},
           {"config.json", "config.json:1: found no length"},
       }) {
    const std::string message = refusal([&, name = path] { read_lengths(config(name)); });
    expect_one_line(message);
    EXPECT_NE(message.find(found), std::string::npos) << message;
  }
  const std::string message =
      refusal([&] { read_lengths(folder.file("config.json", "{\n\"mode\": \"file\"}")); });
  EXPECT_NE(message.find("config.json:1: found no key \"path\""), std::string::npos) << message;
}

TEST(LengthsFromOption, TakesIntegersOrAFile) {
  const ScratchFolder folder;
  EXPECT_EQ(lengths_from_option("698,7,0"), (Lengths{698, 7, 0}));
  EXPECT_EQ(lengths_from_option("698, 7 ,0"), (Lengths{698, 7, 0}));
  EXPECT_EQ(lengths_from_option("5"), (Lengths{5}));
  EXPECT_EQ(lengths_from_option(folder.file("1,2.txt", "5 6")), (Lengths{5, 6}));
  for (const auto& [value, found] : std::vector<std::pair<std::string, std::string>>{
           {"5,-3", "item 2 is the negative length '-3'"},
           {"-3", "item 1 is the negative length '-3'"},
           {"5,abc,7", "item 2 is text, 'abc'"},
           {"5,1.5", "item 2 is a number that is no plain integer, '1.5'"},
           {"5,,6", "item 2 is an empty value"},
           {"5,6,", "item 3 is an empty value"},
           {"5 6", "item 1 is text, '5 6'"},
           {"", "item 1 is an empty value"},
           {"5,1099511627777", "item 2 is the too large length '1099511627777'"},
           {"lengths.txt", "'lengths.txt' is no existing file"},
           {"a\nb", "'a\\x0ab' is no existing file"},
           {folder.path() + "/missing", "is no existing file"},
       }) {
    const std::string message = refusal([&, text = value] { lengths_from_option(text); });
    expect_one_line(message);
    EXPECT_EQ(message.substr(0, 11), "--lengths: ") << message;
    EXPECT_NE(message.find(found), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace dyncp
