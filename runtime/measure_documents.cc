// Byte lengths of real documents: the files below a directory.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/files.h"
#include "runtime/lengths.h"

#ifdef DYNCP_HAS_ZLIB
#include <zlib.h>
#endif

namespace dyncp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGz = ".gz";

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw InvalidInput(one_line(path.string()) + ": " + why);
}

#ifdef DYNCP_HAS_ZLIB
// Bytes a .gz file has when unpacked; reading to the end also checks its checksums.
std::int64_t unpacked_bytes(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  if (gzdirect(file) != 0) {  // zlib would pass other bytes through as they are
    gzclose(file);
    refuse(path, "is no .gz file by its contents");
  }
  std::string buffer(1 << 17, '\0');
  std::int64_t total = 0;
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    total += count;
    if (total > kMaxSequenceLength) break;
  }
  // gzread gives no error for a file cut off in the middle: the end is judged when closing.
  const bool damaged = count < 0;
  const int closed = gzclose(file);
  if (damaged || closed != Z_OK) refuse(path, "is no whole .gz file");
  return total;
}
#endif

bool has_suffix(std::string_view name, const std::vector<std::string>& suffixes) {
  return suffixes.empty() || std::any_of(suffixes.begin(), suffixes.end(), [&](const auto& suffix) {
           return name.ends_with(suffix);
         });
}

}  // namespace

bool can_measure_gz() {
#ifdef DYNCP_HAS_ZLIB
  return true;
#else
  return false;
#endif
}

DocumentLengths measure_documents(const std::string& directory,
                                  const std::vector<std::string>& suffixes) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    refuse(directory, error && error != std::errc::no_such_file_or_directory
                          ? "cannot be read: " + error.message()
                          : "is no directory, expected one to measure");
  }
  DocumentLengths documents;
  std::vector<std::pair<std::string, std::int64_t>> found;
  fs::recursive_directory_iterator entry(directory, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    const fs::file_status status = entry->symlink_status(error);
    if (error) refuse(path, "cannot be looked at: " + error.message());
    if (!fs::is_regular_file(status)) continue;
    const std::string name = path.filename().string();
    const bool packed = name.ends_with(kGz);
    const std::string_view inner = std::string_view(name).substr(0, name.size() - kGz.size());
    if (!has_suffix(name, suffixes) && !(packed && has_suffix(inner, suffixes))) continue;
    if (packed && !can_measure_gz()) {
      ++documents.skipped_gz;
      continue;
    }
    std::int64_t bytes = 0;
#ifdef DYNCP_HAS_ZLIB
    if (packed) bytes = unpacked_bytes(path);
#endif
    if (!packed) {
      bytes = static_cast<std::int64_t>(fs::file_size(path, error));
      if (error) refuse(path, "cannot be measured: " + error.message());
    }
    if (bytes > kMaxSequenceLength) refuse(path, "is longer than 2^40 bytes");
    if (static_cast<std::int64_t>(found.size()) >= kMaxLengths) {
      refuse(directory, "holds more than " + std::to_string(kMaxLengths) + " documents");
    }
    found.emplace_back(path.lexically_relative(directory).generic_string(), bytes);
  }
  if (error) refuse(directory, "cannot be read to its end: " + error.message());
  // The order in which a directory lists its files is the file system's own.
  std::sort(found.begin(), found.end());
  for (const auto& [path, bytes] : found) documents.lengths.push_back(bytes);
  return documents;
}

}  // namespace dyncp
