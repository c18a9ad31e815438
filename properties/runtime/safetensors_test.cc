// safetensors: golden bytes, every malformed file refused by one clear line, exact 16-bit
// conversions against an independent table, and files that are replaced whole or not at all.
#include "runtime/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "reference/error.h"

namespace dyncp {
namespace {

std::string file_bytes(const std::string& header, const std::string& data,
                       std::int64_t stated_header_bytes = -1) {
  auto size = static_cast<std::uint64_t>(
      stated_header_bytes < 0 ? static_cast<std::int64_t>(header.size()) : stated_header_bytes);
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((size >> (8 * i)) & 0xff);
  return bytes + header + data;
}

// The message of the InvalidInput that parsing throws; "" when nothing is thrown.
std::string refusal(const std::string& bytes) {
  try {
    parse_safetensors(bytes);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, GoldenFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[12,13]},)"
      R"("empty":{"dtype":"F64","shape":[0,7],"data_offsets":[4,4]}}   )";
  // bf16 1.0 = 0x3f80 and -2.5 = 0xc020; int32 1 and -2; uint8 200.
  const std::string data("\x80\x3f\x20\xc0\x01\x00\x00\x00\xfe\xff\xff\xff\xc8", 13);
  const Safetensors file = parse_safetensors(file_bytes(header, data));
  const Safetensors expected{{{"format", "pt"}},
                             {{"a", {"BF16", {1, 2}, {1.0, -2.5}}},
                              {"b", {"I32", {2}, {1, -2}}},
                              {"scalar", {"U8", {}, {200}}},
                              {"empty", {"F64", {0, 7}, {}}}}};
  EXPECT_EQ(file, expected);
  EXPECT_EQ(parse_safetensors(serialize_safetensors(file)), expected);
}

TEST(Safetensors, SerializedBytesAreThoseOfTheFormat) {
  const Safetensors file{{}, {{"x", {"F32", {1}, {1.0}}}}};
  std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(serialize_safetensors(file), file_bytes(header, std::string("\x00\x00\x80\x3f", 4)));
}

TEST(Safetensors, EmptyFileOfNoTensors) {
  EXPECT_EQ(parse_safetensors(file_bytes("{}", "")), Safetensors());
  EXPECT_EQ(parse_safetensors(serialize_safetensors(Safetensors())), Safetensors());
}

struct Malformed {
  std::string what;
  std::string bytes;
  std::string expected;  // part of the message
};

std::vector<Malformed> malformed_files() {
  const auto header = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  const std::string four(4, '\0');
  const std::string eight(8, '\0');
  const std::string valid = header(R"("F32")", "[1]", "[0,4]");
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto second = [&](const std::string& offsets) {
    return R"({"x":)" + entry + R"(,"y":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets +
           "}}";
  };
  return {
      {"nothing", "", "8 bytes of header size, this one has 0"},
      {"seven bytes", std::string(7, '\0'), "this one has 7"},
      {"empty header", file_bytes("", ""), "does not begin with '{'"},
      {"header longer than the file", file_bytes(valid, "", 1000), "but only"},
      {"header of 2^63 bytes", file_bytes(valid, "", std::numeric_limits<std::int64_t>::max()),
       "at most 100000000"},
      {"header of 2^64-1 bytes", std::string(8, '\xff') + valid, "at most 100000000"},
      {"no JSON", file_bytes("{]", ""), "no JSON at byte 2"},
      {"truncated JSON", file_bytes(valid.substr(0, 20), four), "no JSON at byte"},
      {"JSON array", file_bytes("[]", ""), "does not begin with '{'"},
      {"leading space", file_bytes(" " + valid, four), "does not begin with '{'"},
      {"text after the header", file_bytes(valid + "x", four), "no JSON at byte"},
      {"NUL and text after the header", file_bytes(valid + std::string("\0{", 2), four),
       "no JSON at byte"},
      {"invalid UTF-8", file_bytes("{\"\xff\":" + entry + "}", four), "no JSON at byte"},
      {"tensor is a number", file_bytes(R"({"x":3})", ""), "\"x\" is a number"},
      {"tensor is null", file_bytes(R"({"x":null})", ""), "\"x\" is null"},
      {"tensor is an array", file_bytes(R"({"x":[]})", ""), "\"x\" is an array"},
      {"deep nesting", file_bytes(R"({"x":{"shape":[[[[[[)", ""), "holds an array"},
      {"metadata is no object", file_bytes(R"({"__metadata__":"pt"})", ""), "is a string"},
      {"metadata number", file_bytes(R"({"__metadata__":{"step":3}})", ""), "is or holds a number"},
      {"metadata twice", file_bytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"},
      {"metadata key twice", file_bytes(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "twice"},
      {"name twice", file_bytes(R"({"x":)" + entry + R"(,"x":)" + entry + "}", four), "twice"},
      {"dtype twice", file_bytes(R"({"x":{"dtype":"F32","dtype":"F32"}})", four), "twice"},
      {"shape twice", file_bytes(R"({"x":{"shape":[1],"shape":[1]}})", four), "twice"},
      {"unknown field", file_bytes(R"({"x":{"dtype":"F32","strides":[1]}})", four), "\"strides\""},
      {"no dtype", file_bytes(R"({"x":{"shape":[1],"data_offsets":[0,4]}})", four), "lacks dtype"},
      {"no shape", file_bytes(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", four),
       "lacks shape"},
      {"no offsets", file_bytes(R"({"x":{"dtype":"F32","shape":[1]}})", four),
       "lacks data_offsets"},
      {"unknown dtype", file_bytes(header(R"("F8_E4M3")", "[4]", "[0,4]"), four),
       "expected one of F64"},
      {"dtype is a number", file_bytes(header("32", "[1]", "[0,4]"), four), "expected a string"},
      {"negative dimension", file_bytes(header(R"("F32")", "[-1]", "[0,4]"), four), "negative"},
      {"fractional dimension", file_bytes(header(R"("F32")", "[1.0]", "[0,4]"), four),
       "no 64-bit integer"},
      {"dimension of 2^63", file_bytes(header(R"("F32")", "[9223372036854775808]", "[0,4]"), four),
       "2^63 or more"},
      {"dimension of 2^64", file_bytes(header(R"("F32")", "[18446744073709551616]", "[0,4]"), four),
       "no 64-bit integer"},
      {"shape whose product wraps to 1",
       file_bytes(header(R"("U8")", "[6700417,274177,0,6700417,274177]", "[0,0]"), ""),
       "overflows"},
      {"shape whose product is 2^64",
       file_bytes(header(R"("U8")", "[4294967296,4294967296]", "[0,0]"), ""), "overflows"},
      {"bytes wrap where elements do not",
       file_bytes(header(R"("F64")", "[2305843009213693952]", "[0,0]"), ""), "overflows"},
      {"shape too large", file_bytes(header(R"("F32")", "[2]", "[0,4]"), four),
       "has 4 bytes, expected 8"},
      {"shape too small", file_bytes(header(R"("F32")", "[1]", "[0,8]"), eight),
       "has 8 bytes, expected 4"},
      {"scalar with no bytes", file_bytes(header(R"("F32")", "[]", "[0,0]"), ""),
       "has 0 bytes, expected 4"},
      {"three offsets", file_bytes(header(R"("F32")", "[1]", "[0,4,8]"), four), "[begin, end]"},
      {"one offset", file_bytes(header(R"("F32")", "[1]", "[4]"), four), "[begin, end]"},
      {"offsets the wrong way round", file_bytes(header(R"("F32")", "[1]", "[4,0]"), four),
       "[begin, end]"},
      {"offset of 2^63-1", file_bytes(header(R"("F32")", "[1]", "[0,9223372036854775807]"), four),
       "only 4"},
      {"data truncated", file_bytes(valid, std::string(3, '\0')), "only 3"},
      {"bytes left over", file_bytes(valid, std::string(5, '\0')), "1 bytes follow"},
      {"data without tensors", file_bytes("{}", "z"), "1 bytes follow"},
      {"overlap", file_bytes(second("[2,6]"), eight), "overlaps"},
      {"same bytes twice", file_bytes(second("[0,4]"), four), "overlaps"},
      {"gap", file_bytes(second("[5,9]"), std::string(9, '\0')), "gap"},
      {"gap at the start", file_bytes(header(R"("F32")", "[1]", "[4,8]"), eight), "gap"},
      {"BOOL of 2", file_bytes(header(R"("BOOL")", "[1]", "[0,1]"), "\x02"), "expected 0 or 1"},
      {"line break in a name", file_bytes("{\"a\\nb\":3}", ""), "\"a\\x0ab\""},
  };
}

TEST(Safetensors, EveryMalformedFileIsRefusedByOneLine) {
  for (const Malformed& file : malformed_files()) {
    const std::string message = refusal(file.bytes);
    EXPECT_NE(message.find(file.expected), std::string::npos) << file.what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << file.what;
    EXPECT_LT(message.size(), 400u) << file.what;
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const Safetensors file{
      {{"step", "7"}}, {{"x", {"F32", {2, 3}, {1, 2, 3, 4, 5, 6}}}, {"y", {"BOOL", {2}, {0, 1}}}}};
  const std::string bytes = serialize_safetensors(file);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "") << size << " of " << bytes.size() << " bytes";
  }
  EXPECT_EQ(refusal(bytes), "");
}

TEST(Safetensors, SerializeRefusesWhatItCannotWrite) {
  const auto refused = [](const std::string& name, const NamedTensor& tensor) {
    EXPECT_THROW(serialize_safetensors({{}, {{name, tensor}}}), InvalidInput) << name;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  refused("__metadata__", {"F32", {1}, {1}});
  refused("unknown dtype", {"F8_E5M2", {1}, {1}});
  refused("too few values", {"F32", {2}, {1}});
  refused("negative dimensions", {"F32", {-1, -1}, {1}});
  refused("product overflows", {"F32", {std::int64_t{1} << 32, std::int64_t{1} << 32}, {}});
  refused("NaN", {"I32", {1}, {nan}});
  refused("infinity", {"I64", {1}, {infinity}});
  refused("2^63", {"I64", {1}, {std::ldexp(1.0, 63)}});
  refused("2^64", {"U64", {1}, {std::ldexp(1.0, 64)}});
  refused("I8 128", {"I8", {1}, {128}});
  refused("I8 -129", {"I8", {1}, {-129}});
  refused("U8 256", {"U8", {1}, {256}});
  refused("U8 -1", {"U8", {1}, {-1}});
  refused("BOOL 2", {"BOOL", {1}, {2}});
  refused("BOOL 0.5", {"BOOL", {1}, {0.5}});
  refused("\xff no UTF-8", {"F32", {1}, {1}});
  EXPECT_THROW(serialize_safetensors({{{"key", "\xc3\x28"}}, {}}), InvalidInput);
}

TEST(Safetensors, IntegersKeepTheirLimitsAndRoundTiesToEven) {
  const Safetensors file{{},
                         {{"i8", {"I8", {4}, {-128, 127, 2.5, 3.5}}},
                          {"u8", {"U8", {2}, {255, 0.5}}},
                          {"i64", {"I64", {2}, {-std::ldexp(1.0, 63), std::ldexp(1.0, 53)}}},
                          {"u64", {"U64", {1}, {std::ldexp(1.0, 63)}}}}};
  const Safetensors back = parse_safetensors(serialize_safetensors(file));
  EXPECT_EQ(back.tensors.at("i8").values, (std::vector<double>{-128, 127, 2, 4}));
  EXPECT_EQ(back.tensors.at("u8").values, (std::vector<double>{255, 0}));
  EXPECT_EQ(back.tensors.at("i64"), file.tensors.at("i64"));
  EXPECT_EQ(back.tensors.at("u64"), file.tensors.at("u64"));
}

// The value of a 16-bit pattern by its definition, summed bit by bit: shares nothing with the code
// under test.
double value_by_definition(unsigned pattern, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>((pattern >> mantissa_bits) & ((1u << exponent_bits) - 1));
  double fraction = exponent == 0 ? 0.0 : 1.0;
  double weight = 0.5;
  for (int bit = mantissa_bits - 1; bit >= 0; --bit, weight /= 2) {
    if ((pattern >> bit) & 1u) fraction += weight;
  }
  double scale = 1.0;
  for (int i = std::max(exponent, 1) - bias; i > 0; --i) scale *= 2;
  for (int i = std::max(exponent, 1) - bias; i < 0; ++i) scale /= 2;
  return (pattern >> 15) != 0 ? -fraction * scale : fraction * scale;
}

std::string one_tensor(const std::string& dtype, const std::vector<unsigned>& patterns) {
  std::string data;
  for (unsigned pattern : patterns) {
    data += static_cast<char>(pattern & 0xff);
    data += static_cast<char>(pattern >> 8);
  }
  const std::string count = std::to_string(patterns.size());
  return file_bytes(R"({"x":{"dtype":")" + dtype + R"(","shape":[)" + count +
                        R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                    data);
}

void check_16_bit_dtype(const std::string& dtype, int exponent_bits, int mantissa_bits) {
  std::vector<unsigned> patterns;
  for (unsigned pattern = 0; pattern < 65536; ++pattern) patterns.push_back(pattern);
  const Safetensors file = parse_safetensors(one_tensor(dtype, patterns));
  const std::vector<double>& values = file.tensors.at("x").values;
  const unsigned infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  for (unsigned pattern : patterns) {
    const unsigned magnitude = pattern & 0x7fff;
    const double value = values[pattern];
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(value)) << dtype << " " << pattern;
    } else if (magnitude == infinity) {
      ASSERT_TRUE(std::isinf(value)) << dtype << " " << pattern;
    } else {
      ASSERT_EQ(value, value_by_definition(pattern, exponent_bits, mantissa_bits))
          << dtype << " " << pattern;
    }
    ASSERT_EQ(std::signbit(value), (pattern >> 15) != 0) << dtype << " " << pattern;
  }
  const auto encode = [&](const std::vector<double>& input) {
    const auto count = static_cast<std::int64_t>(input.size());
    const std::string bytes = serialize_safetensors({{}, {{"x", {dtype, {count}, input}}}});
    std::vector<unsigned> result;
    for (std::size_t i = bytes.size() - 2 * input.size(); i < bytes.size(); i += 2) {
      result.push_back(static_cast<unsigned char>(bytes[i]) +
                       256u * static_cast<unsigned char>(bytes[i + 1]));
    }
    return result;
  };
  // Every value encodes to its own pattern; NaN to some NaN of the same sign.
  const std::vector<unsigned> encoded = encode(values);
  for (unsigned pattern : patterns) {
    if ((pattern & 0x7fff) > infinity) {
      ASSERT_GT(encoded[pattern] & 0x7fff, infinity);
      ASSERT_EQ(encoded[pattern] >> 15, pattern >> 15);
    } else {
      ASSERT_EQ(encoded[pattern], pattern) << dtype;
    }
  }
  // Half way between neighbours goes to the even pattern, the next double beyond to the nearer one.
  std::vector<double> half, below, above;
  for (unsigned pattern = 0; pattern < infinity; ++pattern) {
    const double here = values[pattern];
    // The successor of the largest finite value, had the exponent no end, decides on overflow.
    const double next =
        pattern + 1 == infinity ? 2 * here - values[pattern - 1] : values[pattern + 1];
    half.push_back(here + (next - here) / 2);
    below.push_back(std::nextafter(half.back(), 0.0));
    above.push_back(std::nextafter(half.back(), std::numeric_limits<double>::infinity()));
  }
  const auto half_encoded = encode(half), below_encoded = encode(below),
             above_encoded = encode(above);
  for (unsigned pattern = 0; pattern < infinity; ++pattern) {
    ASSERT_EQ(half_encoded[pattern], pattern % 2 == 0 ? pattern : pattern + 1) << dtype;
    ASSERT_EQ(below_encoded[pattern], pattern) << dtype;
    ASSERT_EQ(above_encoded[pattern], pattern + 1) << dtype;
  }
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(encode({largest, -largest, 5e-324, -5e-324}),
            (std::vector<unsigned>{infinity, infinity | 0x8000, 0, 0x8000}));
}

TEST(Safetensors, Float16IsExactForEveryPatternAndRoundsOnce) { check_16_bit_dtype("F16", 5, 10); }

TEST(Safetensors, Bfloat16IsExactForEveryPatternAndRoundsOnce) { check_16_bit_dtype("BF16", 8, 7); }

TEST(Safetensors, Float32AgreesWithTheProcessor) {
  std::vector<double> values = {0.0,  -0.0,  1.0,   0.1,     -0.1,  3.4028235677973366e38,
                                1e39, 1e-40, 1e-46, 1.4e-45, 7e-46, 1.1754943508222875e-38};
  std::uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Exponents around the float range, so that subnormals and overflow occur.
    const double mantissa = 1.0 + static_cast<double>(state >> 12) / std::ldexp(1.0, 52);
    values.push_back(std::ldexp(mantissa, static_cast<int>((state >> 3) % 300) - 160));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const Safetensors back =
      parse_safetensors(serialize_safetensors({{}, {{"x", {"F32", {count}, values}}}}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back.tensors.at("x").values[i], static_cast<double>(static_cast<float>(values[i])))
        << values[i];
  }
}

TEST(Safetensors, FindTensorListsWhatIsThere) {
  const Safetensors file{{}, {{"loss", {}}, {"tokens", {}}}};
  EXPECT_EQ(&find_tensor(file, "loss"), &file.tensors.at("loss"));
  try {
    find_tensor(file, "grad");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(), "there is no tensor \"grad\"; present: \"loss\", \"tokens\"");
  }
}

class SafetensorsFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("dyncp_safetensors_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
  const Safetensors first_{{}, {{"x", {"F64", {1}, {1}}}}};
  const Safetensors second_{{}, {{"y", {"F16", {2}, {1, 2}}}}};
};

TEST_F(SafetensorsFile, IsReplacedWhole) {
  const std::string path = folder_ / "a.safetensors";
  write_safetensors(path, first_);
  EXPECT_EQ(read_safetensors(path), first_);
  write_safetensors(path, second_);
  EXPECT_EQ(read_safetensors(path), second_);
  EXPECT_EQ(files(), 1u);
}

TEST_F(SafetensorsFile, StaysWhenItCannotBeReplaced) {
  const std::string path = folder_ / "a.safetensors";
  write_safetensors(path, first_);
  EXPECT_THROW(write_safetensors(path, {{}, {{"x", {"I8", {1}, {1000}}}}}), InvalidInput);
  EXPECT_EQ(read_safetensors(path), first_);
  EXPECT_EQ(files(), 1u);
}

TEST_F(SafetensorsFile, PathsThatAreNoFileAreNamed) {
  const std::string missing = folder_ / "missing" / "a.safetensors";
  const std::string bad = folder_ / "bad.safetensors";
  std::ofstream(bad) << "short";
  for (const std::string& path : {missing, folder_.string(), bad}) {
    try {
      read_safetensors(path);
      FAIL() << path;
    } catch (const InvalidInput& error) {
      EXPECT_EQ(std::string(error.what()).rfind(path, 0), 0u) << error.what();
    }
  }
  EXPECT_THROW(write_safetensors(missing, first_), InvalidInput);
  EXPECT_THROW(write_safetensors(folder_, first_), InvalidInput);
  EXPECT_EQ(files(), 1u);
  // A device is no file: writing must not replace it.
  EXPECT_THROW(write_safetensors("/dev/null", first_), InvalidInput);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace dyncp
