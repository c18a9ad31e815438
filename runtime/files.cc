#include "runtime/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "reference/error.h"

namespace dyncp {
namespace {

// A file descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  // Whether closing went well: some file systems report a failed write only here.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

[[noreturn]] void refuse(const std::string& path, const char* action, int error) {
  throw InvalidInput(
      fmt::format("{}: cannot be {}: {}", one_line(path), action, std::strerror(error)));
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string one_line(std::string_view text, std::size_t longest) {
  std::string line;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line + (text.size() > longest ? "..." : "");
}

std::string quote(std::string_view text) { return "'" + one_line(text, 40) + "'"; }

std::string read_file(const std::string& path, std::int64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) refuse(path, "opened", errno);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) refuse(path, "read", errno);
  if (S_ISDIR(status.st_mode)) {
    throw InvalidInput(one_line(path) + ": is a directory, expected a file");
  }
  const auto refuse_size = [&] {
    throw InvalidInput(fmt::format("{}: is larger than {} bytes, the most that is read",
                                   one_line(path), max_bytes));
  };
  std::string bytes;
  if (S_ISREG(status.st_mode)) {
    if (status.st_size > max_bytes) refuse_size();
    bytes.reserve(static_cast<std::size_t>(status.st_size) + 1);
  }
  // The size is only a hint (it is 0 in /proc, and a file may grow): read until the end.
  constexpr std::size_t kChunk = 1 << 16;
  for (;;) {
    const std::size_t filled = bytes.size();
    bytes.resize(std::max(filled + kChunk, bytes.capacity()));
    const ssize_t count = ::read(file.number(), bytes.data() + filled, bytes.size() - filled);
    const int error = errno;
    bytes.resize(filled + static_cast<std::size_t>(count > 0 ? count : 0));
    if (count == 0) return bytes;
    if (count < 0 && error != EINTR) refuse(path, "read", error);
    if (static_cast<std::int64_t>(bytes.size()) > max_bytes) refuse_size();
  }
}

void write_file(const std::string& path, std::string_view bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw InvalidInput(one_line(path) + ": is no regular file, expected one or a free name");
  }
  // Process id and attempt make the name free even when several writers share the folder.
  std::string temporary;
  int number = -1;
  for (int attempt = 0; attempt < 1000 && number < 0; ++attempt) {
    temporary = fmt::format("{}.{}-{}.partial", path, ::getpid(), attempt);
    number = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (number < 0 && errno != EEXIST) break;
  }
  if (number < 0) refuse(path, "written", errno);
  Descriptor file(number);
  if (!write_all(number, bytes) || ::fsync(number) != 0 || !file.close() ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    refuse(path, "written", error);
  }
}

}  // namespace dyncp
