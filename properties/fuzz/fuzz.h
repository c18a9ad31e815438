// What the fuzz targets share. A target is one function over arbitrary bytes; libFuzzer drives it
// when built with -DDYNCP_FUZZ=ON, replay.cc drives it with seeds and fixed mutations otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "reference/error.h"

/// The entry point libFuzzer looks for, defined by every *_fuzz.cc.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace dyncp {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the process, as a crash that both drivers report with the input, unless `held`.
inline void require(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "broken invariant: %s\n", what);
  std::abort();
}

/// The message of an error that a person can cause: not empty, one line, of bounded length.
inline void require_message(std::string_view message) {
  require(!message.empty(), "an error has a message");
  require(message.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos,
          "an error is one line");
  require(message.size() < 2000, "an error is no longer than a person reads");
}

/// What `read()` makes of the input; nothing when it refuses with an error a person can cause. Any
/// other exception ends the process, and so does a refusal outside of this: what dyncp itself wrote
/// has to be read back.
template <typename Read>
auto attempt(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const InvalidInput& error) {
    require_message(error.what());
    return std::nullopt;
  }
}

}  // namespace dyncp
