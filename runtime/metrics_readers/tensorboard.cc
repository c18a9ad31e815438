// TensorBoard event files: records of {length, masked crc32c of it, data, masked crc32c of that}, little-
// endian, the data being Event messages in protobuf's wire format:
//   Event {1: wall_time, 2: step, 3: file_version, 5: Summary}    Summary {1: Value, repeated}
//   Value {1: tag, 2: simple_value (float), 8: TensorProto}
//   TensorProto {1: dtype, 4: tensor_content, 5: float_val, 6: double_val, 7: int_val, 10: int64_val}
// Sources: tensorflow/core/lib/io/record_writer.h, core/util/event.proto, framework/summary.proto,
// framework/tensor.proto. Only scalars are taken. A record that is cut or whose checksum is wrong is
// unreadable; after a wrong length nothing more can be read.
#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "runtime/metrics_readers/reader.h"

namespace dyncp {
namespace {

// CRC-32C (Castagnoli), reflected, polynomial 0x1EDC6F41.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = value;
  }
  return table;
}

std::uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8);
  }
  crc ^= 0xFFFFFFFFU;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

constexpr std::size_t kFrame = 12;  // length and its checksum

// The length of the record that `bytes` begins with; false when its checksum is wrong or cut.
bool read_length(std::string_view bytes, std::uint64_t& length) {
  if (bytes.size() < kFrame) return false;
  length = little_endian(bytes.substr(0, 8));
  return masked_crc(bytes.substr(0, 8)) == little_endian(bytes.substr(8, 4));
}

// One field of a message.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;
  std::uint64_t integer = 0;  // varint, or the bits of a fixed one
  std::string_view bytes;     // length-delimited
};

// Goes through the fields of a message; false at its end or at what is no message (broken() then).
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    std::uint64_t key = 0;
    if (!varint(key)) return fail();
    field = {};
    field.number = static_cast<std::uint32_t>(key >> 3);
    field.wire = static_cast<std::uint32_t>(key & 7);
    std::uint64_t length = 0;
    switch (field.wire) {
      case 0:
        return varint(field.integer) || fail();
      case 1:
        return fixed(8, field) || fail();
      case 2:
        if (!varint(length) || length > rest_.size()) return fail();
        field.bytes = rest_.substr(0, static_cast<std::size_t>(length));
        rest_.remove_prefix(field.bytes.size());
        return true;
      case 5:
        return fixed(4, field) || fail();
      default:
        return fail();
    }
  }
  bool broken() const { return broken_; }

 private:
  bool fail() {
    broken_ = true;
    return false;
  }
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return true;
    }
    return false;
  }
  bool fixed(std::size_t size, Field& field) {
    if (rest_.size() < size) return false;
    field.integer = little_endian(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  bool broken_ = false;
};

constexpr double kFloatSpacing = 0x1p-23, kDoubleSpacing = 0x1p-52;

double float_of(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

// The one number of a tensor of one element; false for anything else.
bool scalar_of(std::string_view tensor, double& value, double& spacing) {
  Message message(tensor);
  Field field;
  std::uint64_t dtype = 0;
  int numbers = 0;
  std::string_view content;
  while (message.next(field)) {
    // A repeated number comes alone or packed.
    const bool packed = field.wire == 2;
    const std::string_view bytes = field.bytes;
    if (field.number == 1 && field.wire == 0) dtype = field.integer;
    if (field.number == 4 && packed) content = bytes;
    if (field.number == 5 && (!packed ? field.wire == 5 : bytes.size() == 4)) {
      value = float_of(packed ? little_endian(bytes) : field.integer);
      spacing = kFloatSpacing;
      ++numbers;
    }
    if (field.number == 6 && (!packed ? field.wire == 1 : bytes.size() == 8)) {
      value = std::bit_cast<double>(packed ? little_endian(bytes) : field.integer);
      spacing = kDoubleSpacing;
      ++numbers;
    }
    if ((field.number == 7 || field.number == 10) && !packed && field.wire == 0) {
      value = static_cast<double>(static_cast<std::int64_t>(field.integer));
      spacing = 0;
      ++numbers;
    }
  }
  if (message.broken()) return false;
  if (numbers == 1) return true;
  if (numbers > 1) return false;
  constexpr std::uint64_t kFloat = 1, kDouble = 2;  // of enum DataType
  if (dtype == kFloat && content.size() == 4) {
    value = float_of(little_endian(content));
    spacing = kFloatSpacing;
    return true;
  }
  if (dtype == kDouble && content.size() == 8) {
    value = std::bit_cast<double>(little_endian(content));
    spacing = kDoubleSpacing;
    return true;
  }
  return false;
}

// False when the summary is no message.
bool read_summary(std::string_view summary, std::int64_t step, LogBuilder& log) {
  Message message(summary);
  Field field;
  while (message.next(field)) {
    if (field.number != 1 || field.wire != 2) continue;
    Message one(field.bytes);
    Field part;
    std::string_view tag;
    double value = 0, spacing = 0;
    bool scalar = false;
    while (one.next(part)) {
      if (part.number == 1 && part.wire == 2) tag = part.bytes;
      if (part.number == 2 && part.wire == 5) {
        value = float_of(part.integer);
        spacing = kFloatSpacing;
        scalar = true;
      }
      if (part.number == 8 && part.wire == 2) scalar = scalar_of(part.bytes, value, spacing);
    }
    if (one.broken()) return false;
    if (scalar && !tag.empty()) log.add_binary(log.metric(tag), step, value, spacing);
  }
  return !message.broken();
}

bool read_event(std::string_view data, LogBuilder& log) {
  Message message(data);
  Field field;
  std::int64_t step = 0;
  std::string_view summary;
  while (message.next(field)) {
    if (field.number == 2 && field.wire == 0) step = static_cast<std::int64_t>(field.integer);
    if (field.number == 5 && field.wire == 2) summary = field.bytes;
  }
  return !message.broken() && read_summary(summary, step, log);
}

void read_tensorboard(std::string_view bytes, LogBuilder& log) {
  std::int64_t record = 0;
  while (!bytes.empty()) {
    ++record;
    std::uint64_t length = 0;
    if (!read_length(bytes, length)) {
      log.unreadable(record,
                     bytes.size() < kFrame
                         ? "the last record is cut"
                         : "a record whose length is damaged; nothing after it can be read",
                     "");
      break;
    }
    bytes.remove_prefix(kFrame);
    if (length > bytes.size() || bytes.size() - length < 4) {
      log.unreadable(record, "the last record is cut", "");
      break;
    }
    const std::string_view data = bytes.substr(0, static_cast<std::size_t>(length));
    const bool sound = masked_crc(data) == little_endian(bytes.substr(data.size(), 4));
    bytes.remove_prefix(data.size() + 4);
    if (!sound) {
      log.unreadable(record, "a record whose checksum is wrong", "");
    } else if (!read_event(data, log)) {
      log.unreadable(record, "a record that is no event", "");
    }
  }
  log.count_lines(record);
}

bool is_tensorboard(std::string_view bytes) {
  std::uint64_t length = 0;
  return read_length(bytes, length);
}

}  // namespace

const MetricsReader kTensorBoardReader = {"TensorBoard events", read_tensorboard, is_tensorboard};

}  // namespace dyncp
