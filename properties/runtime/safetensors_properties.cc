// safetensors: what is written is read back, and no damaged file does anything but get refused.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/error.h"
#include "runtime/safetensors.h"

namespace dyncp {
namespace {

const std::vector<std::string> kDtypes = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16",
                                          "I8",  "U64", "U32", "U16",  "U8",  "BOOL"};

// A value that `dtype` holds exactly.
double draw_value(const std::string& dtype) {
  if (dtype == "BOOL") return *rc::gen::inRange(0, 2);
  if (dtype == "U8") return *rc::gen::inRange(0, 256);
  if (dtype == "I8") return *rc::gen::inRange(-128, 128);
  if (dtype == "U16") return *rc::gen::inRange(0, 65536);
  if (dtype == "I16") return *rc::gen::inRange(-32768, 32768);
  if (dtype == "U32") return *rc::gen::arbitrary<std::uint32_t>();
  if (dtype == "I32") return *rc::gen::arbitrary<std::int32_t>();
  if (dtype == "I64") return static_cast<double>(*rc::gen::arbitrary<std::int32_t>()) * 1048576;
  if (dtype == "U64") return static_cast<double>(*rc::gen::arbitrary<std::uint32_t>()) * 4294967296;
  if (*rc::gen::inRange(0, 8) == 0) {
    return *rc::gen::element(std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), -0.0,
                             std::numeric_limits<double>::quiet_NaN());
  }
  if (dtype == "F64") return std::bit_cast<double>(*rc::gen::arbitrary<std::uint64_t>());
  if (dtype == "F32") {
    return static_cast<double>(std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>()));
  }
  // 8 significand bits and a moderate exponent fit f16 and bf16 alike.
  return std::ldexp(*rc::gen::inRange(-255, 256), *rc::gen::inRange(-16, 8));
}

Safetensors draw_file() {
  Safetensors file;
  const int metadata = *rc::gen::inRange(0, 3);
  for (int i = 0; i < metadata; ++i) {
    // Quotes, line breaks and non-ASCII text must survive the JSON header.
    file.metadata["key" + std::to_string(i)] =
        *rc::gen::element<std::string>("", "a\"b\\c", "line\nbreak", "\xc3\xa9", "{}");
  }
  const int tensors = *rc::gen::inRange(0, 5);
  for (int i = 0; i < tensors; ++i) {
    NamedTensor tensor;
    tensor.dtype = *rc::gen::elementOf(kDtypes);
    std::int64_t count = 1;
    const int rank = *rc::gen::inRange(0, 4);
    for (int d = 0; d < rank; ++d) {
      tensor.shape.push_back(*rc::gen::inRange<std::int64_t>(0, 5));
      count *= tensor.shape.back();
    }
    for (std::int64_t k = 0; k < count; ++k) tensor.values.push_back(draw_value(tensor.dtype));
    file.tensors["tensor " + std::to_string(i)] = tensor;
  }
  return file;
}

// Equality in which NaN equals NaN and -0 differs from 0.
bool same(const Safetensors& a, const Safetensors& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, left] : a.tensors) {
    if (!b.tensors.contains(name)) return false;
    const NamedTensor& right = b.tensors.at(name);
    if (left.dtype != right.dtype || left.shape != right.shape ||
        left.values.size() != right.values.size()) {
      return false;
    }
    for (std::size_t i = 0; i < left.values.size(); ++i) {
      const double x = left.values[i], y = right.values[i];
      if (std::isnan(x) ? !std::isnan(y) : (x != y || std::signbit(x) != std::signbit(y))) {
        return false;
      }
    }
  }
  return true;
}

RC_GTEST_PROP(SafetensorsProperties, RoundTripIsExact, ()) {
  const Safetensors file = draw_file();
  RC_ASSERT(same(parse_safetensors(serialize_safetensors(file)), file));
}

RC_GTEST_PROP(SafetensorsProperties, SerializingIsAFunctionOfTheContents, ()) {
  const std::string bytes = serialize_safetensors(draw_file());
  RC_ASSERT(serialize_safetensors(parse_safetensors(bytes)) == bytes);
}

// Flipped bytes, cuts, repeats and insertions: refused as InvalidInput in one line, or still a file
// that serializes and parses to itself. Any other exception, or a crash, fails.
RC_GTEST_PROP(SafetensorsProperties, DamagedFilesAreRefusedOrConsistent, ()) {
  std::string bytes = serialize_safetensors(draw_file());
  const int damages = *rc::gen::inRange(1, 4);
  for (int i = 0; i < damages; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size() + 1);
    const auto length = std::min(*rc::gen::inRange<std::size_t>(1, 12), bytes.size() - at);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        if (at < bytes.size()) bytes[at] = *rc::gen::arbitrary<char>();
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.insert(at, *rc::gen::element<std::string>("[", "{", "\"", "9", "-", "1e400", ",",
                                                        std::string(1, '\0')));
    }
  }
  try {
    const Safetensors file = parse_safetensors(bytes);
    RC_ASSERT(same(parse_safetensors(serialize_safetensors(file)), file));
    RC_TAG("accepted");
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    RC_ASSERT(!message.empty());
    RC_ASSERT(message.find('\n') == std::string::npos);
    RC_TAG("refused");
  }
}

}  // namespace
}  // namespace dyncp
