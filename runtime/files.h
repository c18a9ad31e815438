// Whole files in and out, and text as it may stand in a one-line message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dyncp {

/// Largest file read_file takes by default, in bytes.
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 31;

/// `text` with line ends, control bytes and non-ASCII bytes as \xNN, cut after `longest` bytes:
/// printable ASCII on one line.
std::string one_line(std::string_view text, std::size_t longest = 4096);

/// one_line in single quotes, cut after 40 bytes: a piece of somebody's input in an error message.
std::string quote(std::string_view text);

/// The contents of a file or a pipe. Throws InvalidInput naming the path: a directory, not
/// readable, larger than `max_bytes`.
std::string read_file(const std::string& path, std::int64_t max_bytes = kMaxFileBytes);

/// Writes to a temporary name in the same folder and renames, so that no half-written file is ever
/// seen under `path`; an existing file is replaced as a whole. Throws InvalidInput naming the path.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace dyncp
