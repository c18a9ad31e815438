// parse_safetensors: any bytes are read as tensors whose values match their shapes, or refused in
// one line; writing what was read and reading that again changes nothing.
#include "properties/fuzz/fuzz.h"
#include "runtime/safetensors.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(dyncp::as_text(data, size));
  const auto file = dyncp::attempt([&] { return dyncp::parse_safetensors(bytes); });
  if (!file) return 0;
  std::size_t values = 0;
  for (const auto& [name, tensor] : file->tensors) {
    std::size_t product = 1;
    for (std::int64_t dimension : tensor.shape) {
      require(dimension >= 0, "dimensions are not negative");
      product *= static_cast<std::size_t>(dimension);
    }
    require(product == tensor.values.size(), "a tensor has as many values as its shape says");
    values += tensor.values.size();
  }
  require(values <= bytes.size(), "every value takes a byte");
  // Bytes are compared, because a NaN equals nothing; the first writing may reorder.
  const std::string written = dyncp::serialize_safetensors(*file);
  const dyncp::Safetensors again = dyncp::parse_safetensors(written);
  require(again.metadata == file->metadata, "metadata survive writing");
  require(again.tensors.size() == file->tensors.size(), "tensors survive writing");
  require(dyncp::serialize_safetensors(again) == written, "writing twice gives the same bytes");
  return 0;
}
