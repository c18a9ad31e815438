// The safetensors file format: 8 bytes of little-endian header size, a JSON header, raw tensor
// bytes, little-endian and row-major. Values are held as doubles; every dtype listed here converts
// exactly, except I64/U64 beyond 2^53, which round to nearest. Source: the format description of
// the safetensors project; where readers in the field are lax (unknown fields, BOOL bytes other
// than 0 and 1), this one is strict.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dyncp {

/// One tensor, row-major.
struct NamedTensor {
  std::string dtype = "F64";  // F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool operator==(const NamedTensor&) const = default;
};

struct Safetensors {
  std::map<std::string, std::string> metadata;  // the header's __metadata__
  std::map<std::string, NamedTensor> tensors;
  bool operator==(const Safetensors&) const = default;
};

/// Longest JSON header read or written, in bytes (the format's own limit).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses a whole file held in memory. NaN stays NaN (sign kept, payload not). Throws InvalidInput,
/// one line: truncated, header no JSON, a name twice, an unknown field or dtype, offsets that
/// overlap, leave a gap, leave the file or leave bytes over, a shape that overflows or does not
/// match the bytes.
Safetensors parse_safetensors(const std::string& bytes);

/// The bytes of a file with these tensors, widest dtype first so that every tensor is aligned.
/// Values are rounded once to the tensor's dtype (to nearest, ties to even; floating point
/// overflows to infinity). Throws InvalidInput for an unknown dtype, a shape that does not match
/// the number of values, an integer dtype that cannot hold a value (NaN included), a BOOL other
/// than 0 and 1, a name or metadata that is no UTF-8, or a tensor called "__metadata__".
std::string serialize_safetensors(const Safetensors& file);

/// Throws InvalidInput naming the path when it is no regular file or cannot be read or parsed.
Safetensors read_safetensors(const std::string& path);

/// Writes to a temporary name in the same folder and renames, so no half-written file is ever seen;
/// a regular file of that name is replaced. Throws InvalidInput naming the path when it cannot be
/// written or names something that is no regular file; the old file, if any, then stays.
void write_safetensors(const std::string& path, const Safetensors& file);

/// The tensor called `name`. Throws InvalidInput that lists the names present.
const NamedTensor& find_tensor(const Safetensors& file, const std::string& name);

}  // namespace dyncp
