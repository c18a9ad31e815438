// Reads and writes safetensors files. The header is taken in by a SAX reader that accepts exactly
// the shape of a safetensors header, so that nothing unexpected is skipped and nothing nests.
#include "runtime/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "reference/error.h"

namespace dyncp {
namespace {

enum class Encoding { kFloat, kSigned, kUnsigned, kBool };

// exponent_bits and mantissa_bits are of IEEE-like floating-point dtypes only.
struct Dtype {
  std::string_view name;
  int bytes;
  Encoding encoding;
  int exponent_bits;
  int mantissa_bits;
};

constexpr std::array<Dtype, 13> kDtypes = {{
    {"F64", 8, Encoding::kFloat, 11, 52},
    {"F32", 4, Encoding::kFloat, 8, 23},
    {"F16", 2, Encoding::kFloat, 5, 10},
    {"BF16", 2, Encoding::kFloat, 8, 7},
    {"I64", 8, Encoding::kSigned, 0, 0},
    {"I32", 4, Encoding::kSigned, 0, 0},
    {"I16", 2, Encoding::kSigned, 0, 0},
    {"I8", 1, Encoding::kSigned, 0, 0},
    {"U64", 8, Encoding::kUnsigned, 0, 0},
    {"U32", 4, Encoding::kUnsigned, 0, 0},
    {"U16", 2, Encoding::kUnsigned, 0, 0},
    {"U8", 1, Encoding::kUnsigned, 0, 0},
    {"BOOL", 1, Encoding::kBool, 0, 0},
}};

// A name as it may stand in a one-line message: quoted, control bytes escaped, cut when long.
std::string quote_name(std::string_view name) {
  constexpr std::size_t kLongest = 80;
  std::string text = "\"";
  for (char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + (name.size() > kLongest ? "\"..." : "\"");
}

const Dtype& find_dtype(std::string_view name, std::string_view tensor) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return dtype;
  }
  std::string known;
  for (const Dtype& dtype : kDtypes) known += fmt::format(" {}", dtype.name);
  throw InvalidInput(fmt::format("tensor {} has dtype {}, expected one of{}", quote_name(tensor),
                                 quote_name(name), known));
}

std::string show_shape(const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kMost = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kMost); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + (shape.size() > kMost ? ", ...]" : "]");
}

// Number of elements, or nothing when the non-zero dimensions multiply to 2^60 or more: then not
// even the byte count is safe to compute, whatever a zero dimension makes of the product.
std::optional<std::uint64_t> element_count(const std::vector<std::int64_t>& shape) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 60;
  std::uint64_t product = 1;
  bool empty = false;
  for (std::int64_t dimension : shape) {
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (static_cast<std::uint64_t>(dimension) >= (kLimit + product - 1) / product) {
      return std::nullopt;
    }
    product *= static_cast<std::uint64_t>(dimension);
  }
  return empty ? 0 : product;
}

std::uint64_t load_little_endian(const char* bytes, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

void append_little_endian(std::uint64_t value, int count, std::string& bytes) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
}

// The value of an IEEE-like bit pattern; exact, because no format here is wider than double.
double decode_float(std::uint64_t bits, const Dtype& dtype) {
  if (dtype.bytes == 8) return std::bit_cast<double>(bits);
  const int bias = (1 << (dtype.exponent_bits - 1)) - 1;
  const bool negative = (bits >> (8 * dtype.bytes - 1)) != 0;
  const auto exponent = static_cast<int>((bits >> dtype.mantissa_bits) &
                                         ((std::uint64_t{1} << dtype.exponent_bits) - 1));
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << dtype.mantissa_bits) - 1);
  double magnitude;
  if (exponent == (1 << dtype.exponent_bits) - 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - bias - dtype.mantissa_bits);
  } else {
    const std::uint64_t significand = mantissa | (std::uint64_t{1} << dtype.mantissa_bits);
    magnitude = std::ldexp(static_cast<double>(significand), exponent - bias - dtype.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

// The nearest bit pattern, ties to even, rounded once: going through float first would round bf16
// and f16 twice.
std::uint64_t encode_float(double value, const Dtype& dtype) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if (dtype.bytes == 8) return bits;
  const int mantissa_bits = dtype.mantissa_bits;
  const int bias = (1 << (dtype.exponent_bits - 1)) - 1;
  const std::uint64_t sign = (bits >> 63) << (8 * dtype.bytes - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << dtype.exponent_bits) - 1) << mantissa_bits;
  const std::uint64_t quiet_bit = std::uint64_t{1} << (mantissa_bits - 1);
  if (std::isnan(value)) return sign | infinity | quiet_bit;
  if (std::isinf(value)) return sign | infinity;

  const auto double_exponent = static_cast<int>((bits >> 52) & 0x7ff);
  if (double_exponent == 0) return sign;  // below half of every smaller format's least value
  const int exponent = double_exponent - 1023;
  const std::uint64_t significand =
      (bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  const int least_normal = 1 - bias;
  const int below_normal = std::max(0, least_normal - exponent);
  const int dropped = 52 - mantissa_bits + below_normal;
  if (dropped > 53) return sign;  // below half of the least subnormal
  std::uint64_t kept = significand >> dropped;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // A carry out of the mantissa moves into the exponent field, which is what rounding up means.
  const auto steps = static_cast<std::uint64_t>(std::max(0, exponent - least_normal));
  return sign | std::min((steps << mantissa_bits) + kept, infinity);
}

double decode(std::uint64_t bits, const Dtype& dtype, std::string_view tensor) {
  switch (dtype.encoding) {
    case Encoding::kFloat:
      return decode_float(bits, dtype);
    case Encoding::kSigned: {
      const int unused = 64 - 8 * dtype.bytes;
      return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
    }
    case Encoding::kUnsigned:
      return static_cast<double>(bits);
    case Encoding::kBool:
      if (bits > 1) {
        throw InvalidInput(fmt::format("BOOL tensor {} holds the byte {}, expected 0 or 1",
                                       quote_name(tensor), bits));
      }
      return static_cast<double>(bits);
  }
  return 0;
}

std::uint64_t encode(double value, const Dtype& dtype, std::string_view tensor) {
  if (dtype.encoding == Encoding::kFloat) return encode_float(value, dtype);
  const double rounded = std::nearbyint(value);
  const int bits = 8 * dtype.bytes;
  double least = 0;
  double end = 2;  // first value that does not fit; a power of two, so exact
  if (dtype.encoding == Encoding::kSigned) {
    least = -std::ldexp(1.0, bits - 1);
    end = std::ldexp(1.0, bits - 1);
  } else if (dtype.encoding == Encoding::kUnsigned) {
    end = std::ldexp(1.0, bits);
  }
  const bool is_bool = dtype.encoding == Encoding::kBool;
  if (!(rounded >= least && rounded < end) || (is_bool && rounded != value)) {
    throw InvalidInput(fmt::format("tensor {} holds {}, which {} cannot hold", quote_name(tensor),
                                   value, dtype.name));
  }
  return rounded < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded))
                     : static_cast<std::uint64_t>(rounded);
}

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::int64_t>> offsets;
};

// Takes exactly {"__metadata__": {string: string}, name: {"dtype", "shape", "data_offsets"}}.
// Every event that does not fit throws, so there is no depth and no state beyond these members.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, std::string> metadata;
  std::map<std::string, Entry> entries;

  bool key(string_t& value) override {
    if (depth_ == 1) {
      name_ = value;
      in_metadata_ = value == kMetadata;
      const bool is_new = in_metadata_
                              ? !std::exchange(metadata_seen_, true)
                              : entries.try_emplace(value, Entry{value, {}, {}, {}}).second;
      if (!is_new) refuse(fmt::format("{} stands in it twice", quote_name(value)));
    } else {
      field_ = value;
      if (in_metadata_) {
        if (metadata.contains(value)) {
          refuse(fmt::format("__metadata__ has {} twice", quote_name(value)));
        }
      } else if (value != "dtype" && value != "shape" && value != "data_offsets") {
        refuse(fmt::format("tensor {} has the field {}, expected dtype, shape and data_offsets",
                           quote_name(name_), quote_name(value)));
      }
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || numbers_ != nullptr) unexpected("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      const Entry& entry = entries.at(name_);
      if (!entry.dtype || !entry.shape || !entry.offsets) {
        refuse(fmt::format("tensor {} lacks {}", quote_name(name_),
                           !entry.dtype   ? "dtype"
                           : !entry.shape ? "shape"
                                          : "data_offsets"));
      }
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || numbers_ != nullptr || field_ == "dtype") {
      unexpected("an array");
    }
    Entry& entry = entries.at(name_);
    auto& target = field_ == "shape" ? entry.shape : entry.offsets;
    if (target) twice();
    numbers_ = &target.emplace();
    return true;
  }
  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || numbers_ != nullptr) unexpected("a string");
    if (in_metadata_) {
      metadata.emplace(field_, value);
      return true;
    }
    if (field_ != "dtype") unexpected("a string");
    auto& dtype = entries.at(name_).dtype;
    if (dtype) twice();
    dtype = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (numbers_ == nullptr) unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      unexpected("a number of 2^63 or more");
    }
    numbers_->push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a number that is no 64-bit integer");
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse(fmt::format("it is no JSON at byte {}", position));
  }

 private:
  static constexpr std::string_view kMetadata = "__metadata__";

  [[noreturn]] static void refuse(const std::string& what) {
    throw InvalidInput("safetensors header: " + what);
  }
  [[noreturn]] void unexpected(const char* what) const {
    if (depth_ == 0) refuse(fmt::format("it is {}, expected an object", what));
    if (depth_ == 1) {
      refuse(fmt::format("{} is {}, expected an object", quote_name(name_), what));
    }
    refuse(fmt::format(
        "{} of {} is or holds {}, expected {}", quote_name(field_), quote_name(name_), what,
        in_metadata_ || field_ == "dtype" ? "a string"
                                          : "an array of integers from 0 to 2^63 - 1"));
  }
  [[noreturn]] void twice() const {
    refuse(fmt::format("tensor {} has {} twice", quote_name(name_), quote_name(field_)));
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  std::string name_;
  std::string field_;
  std::vector<std::int64_t>* numbers_ = nullptr;  // the array being filled
};

NamedTensor read_tensor(const Entry& entry, std::string_view data) {
  const Dtype& dtype = find_dtype(*entry.dtype, entry.name);
  NamedTensor tensor{*entry.dtype, *entry.shape, {}};
  const auto begin = static_cast<std::uint64_t>((*entry.offsets)[0]);
  const auto end = static_cast<std::uint64_t>((*entry.offsets)[1]);
  const std::optional<std::uint64_t> count = element_count(tensor.shape);
  if (!count) {
    throw InvalidInput(fmt::format("tensor {} has shape {}, whose product overflows",
                                   quote_name(entry.name), show_shape(tensor.shape)));
  }
  const auto width = static_cast<std::uint64_t>(dtype.bytes);
  if (end - begin != *count * width) {
    throw InvalidInput(fmt::format("tensor {} has {} bytes, expected {} for {} {}",
                                   quote_name(entry.name), end - begin, *count * width, dtype.name,
                                   show_shape(tensor.shape)));
  }
  tensor.values.reserve(static_cast<std::size_t>(*count));
  for (std::uint64_t i = 0; i < *count; ++i) {
    const char* source = data.data() + begin + i * width;
    tensor.values.push_back(decode(load_little_endian(source, dtype.bytes), dtype, entry.name));
  }
  return tensor;
}

// Every byte of `data_bytes` belongs to exactly one tensor.
void require_tiling(const std::map<std::string, Entry>& entries, std::uint64_t data_bytes) {
  std::vector<const Entry*> order;
  for (const auto& [name, entry] : entries) {
    if (entry.offsets->size() != 2 || (*entry.offsets)[0] > (*entry.offsets)[1]) {
      throw InvalidInput(fmt::format("tensor {} has data_offsets {}, expected [begin, end]",
                                     quote_name(name), show_shape(*entry.offsets)));
    }
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return *a->offsets < *b->offsets; });
  std::uint64_t covered = 0;
  for (const Entry* entry : order) {
    const auto begin = static_cast<std::uint64_t>((*entry->offsets)[0]);
    const auto end = static_cast<std::uint64_t>((*entry->offsets)[1]);
    if (begin != covered) {
      throw InvalidInput(fmt::format(
          "tensor {} begins at data byte {}, expected {}: {}", quote_name(entry->name), begin,
          covered,
          begin < covered ? "it overlaps the tensor before it" : "there is a gap before it"));
    }
    if (end > data_bytes) {
      throw InvalidInput(fmt::format("tensor {} ends at data byte {}, but the file has only {}",
                                     quote_name(entry->name), end, data_bytes));
    }
    covered = end;
  }
  if (covered != data_bytes) {
    throw InvalidInput(fmt::format("{} bytes follow the last tensor", data_bytes - covered));
  }
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close_now(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool close_now() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

[[noreturn]] void refuse_path(const std::string& path, std::string_view doing, int error) {
  throw InvalidInput(fmt::format("{}: cannot {}: {}", path, doing, std::strerror(error)));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

Safetensors parse_safetensors(const std::string& bytes) {
  if (bytes.size() < 8) {
    throw InvalidInput(fmt::format(
        "a safetensors file begins with 8 bytes of header size, this one has {}", bytes.size()));
  }
  const std::uint64_t header_bytes = load_little_endian(bytes.data(), 8);
  if (header_bytes > kMaxSafetensorsHeader) {
    throw InvalidInput(fmt::format("safetensors header of {} bytes, expected at most {}",
                                   header_bytes, kMaxSafetensorsHeader));
  }
  if (header_bytes > bytes.size() - 8) {
    throw InvalidInput(fmt::format("safetensors header of {} bytes, but only {} follow",
                                   header_bytes, bytes.size() - 8));
  }
  const std::string_view rest = std::string_view(bytes).substr(8);
  const std::string_view header = rest.substr(0, static_cast<std::size_t>(header_bytes));
  const std::string_view data = rest.substr(static_cast<std::size_t>(header_bytes));
  if (header.empty() || header.front() != '{') {
    throw InvalidInput("safetensors header: it does not begin with '{'");
  }
  // The JSON lexer takes a NUL byte for the end of input and would ignore what follows.
  if (const std::size_t nul = header.find('\0'); nul != std::string_view::npos) {
    throw InvalidInput(fmt::format("safetensors header: it is no JSON at byte {}", nul + 1));
  }
  HeaderReader reader;
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  require_tiling(reader.entries, data.size());

  Safetensors file;
  file.metadata = std::move(reader.metadata);
  for (const auto& [name, entry] : reader.entries) {
    file.tensors.emplace(name, read_tensor(entry, data));
  }
  return file;
}

std::string serialize_safetensors(const Safetensors& file) {
  struct Item {
    const std::string* name;
    const NamedTensor* tensor;
    const Dtype* dtype;
  };
  std::vector<Item> items;
  for (const auto& [name, tensor] : file.tensors) {
    if (name == "__metadata__") {
      throw InvalidInput("a tensor cannot be called \"__metadata__\"");
    }
    const Dtype& dtype = find_dtype(tensor.dtype, name);
    const bool negative = std::any_of(tensor.shape.begin(), tensor.shape.end(),
                                      [](std::int64_t dimension) { return dimension < 0; });
    const auto count = negative ? std::nullopt : element_count(tensor.shape);
    if (!count || *count != tensor.values.size()) {
      throw InvalidInput(fmt::format("tensor {} has {} values, which do not fill its shape {}",
                                     quote_name(name), tensor.values.size(),
                                     show_shape(tensor.shape)));
    }
    items.push_back({&name, &tensor, &dtype});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.dtype->bytes > b.dtype->bytes; });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::uint64_t offset = 0;
  for (const Item& item : items) {
    const std::uint64_t end =
        offset + item.tensor->values.size() * static_cast<std::uint64_t>(item.dtype->bytes);
    header[*item.name] = {{"dtype", item.tensor->dtype},
                          {"shape", item.tensor->shape},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidInput("a tensor name or metadata string of a safetensors file is no UTF-8");
  }
  while (text.size() % 8 != 0) text += ' ';
  if (text.size() > kMaxSafetensorsHeader) {
    throw InvalidInput(fmt::format("safetensors header of {} bytes, expected at most {}",
                                   text.size(), kMaxSafetensorsHeader));
  }

  std::string bytes;
  bytes.reserve(8 + text.size() + static_cast<std::size_t>(offset));
  append_little_endian(text.size(), 8, bytes);
  bytes += text;
  for (const Item& item : items) {
    for (double value : item.tensor->values) {
      append_little_endian(encode(value, *item.dtype, *item.name), item.dtype->bytes, bytes);
    }
  }
  return bytes;
}

Safetensors read_safetensors(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer before it is refused below.
  const Descriptor input(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (input.get() < 0) refuse_path(path, "open it", errno);
  struct stat status {};
  if (::fstat(input.get(), &status) != 0) refuse_path(path, "read it", errno);
  if (!S_ISREG(status.st_mode)) {
    throw InvalidInput(path + ": expected a regular file");
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(input.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0) {
      if (errno == EINTR) continue;
      refuse_path(path, "read it", errno);
    }
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  try {
    return parse_safetensors(bytes);
  } catch (const InvalidInput& error) {
    throw InvalidInput(path + ": " + error.what());
  }
}

void write_safetensors(const std::string& path, const Safetensors& file) {
  std::string bytes;
  try {
    bytes = serialize_safetensors(file);
  } catch (const InvalidInput& error) {
    throw InvalidInput(path + ": " + error.what());
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw InvalidInput(path + ": expected a regular file or a name that is free");
  }
  // Process id and attempt make the name free even when several writers share the folder.
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; attempt < 1000 && fd < 0; ++attempt) {
    temporary = fmt::format("{}.{}-{}.partial", path, ::getpid(), attempt);
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) refuse_path(path, "write beside it", errno);
  Descriptor output(fd);
  if (!write_all(fd, bytes) || ::fsync(fd) != 0 || !output.close_now() ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    refuse_path(path, "write it", error);
  }
}

const NamedTensor& find_tensor(const Safetensors& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  if (found != file.tensors.end()) return found->second;
  std::string present;
  for (const auto& [other, tensor] : file.tensors) {
    present += (present.empty() ? "" : ", ") + quote_name(other);
  }
  throw InvalidInput(fmt::format("there is no tensor {}; present: {}", quote_name(name),
                                 present.empty() ? "none" : present));
}

}  // namespace dyncp
