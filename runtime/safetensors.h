// The safetensors file format: 8 bytes of little-endian header size, a JSON header, raw tensor
// bytes. Values are held as doubles; every dtype listed here converts exactly, except I64/U64
// beyond 2^53.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dyncp {

/// One tensor, row-major.
struct NamedTensor {
  std::string dtype = "F64";  // F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool operator==(const NamedTensor&) const = default;
};

struct Safetensors {
  std::map<std::string, std::string> metadata;  // the header's __metadata__
  std::map<std::string, NamedTensor> tensors;
  bool operator==(const Safetensors&) const = default;
};

/// Parses a whole file held in memory. Throws InvalidInput: truncated, header no JSON, offsets that
/// overlap or leave the file, unknown dtype, shape that does not match the bytes.
Safetensors parse_safetensors(const std::string& bytes);

/// The bytes of a file with these tensors. Values are rounded to the tensor's dtype (to nearest,
/// ties to even). Throws InvalidInput for an unknown dtype or a shape that does not match.
std::string serialize_safetensors(const Safetensors& file);

/// Throws InvalidInput naming the path when the file cannot be read or parsed.
Safetensors read_safetensors(const std::string& path);

/// Writes to a temporary name in the same folder and renames, so no half-written file is ever seen.
/// Throws InvalidInput naming the path when it cannot be written.
void write_safetensors(const std::string& path, const Safetensors& file);

/// The tensor called `name`. Throws InvalidInput that lists the names present.
const NamedTensor& find_tensor(const Safetensors& file, const std::string& name);

}  // namespace dyncp
