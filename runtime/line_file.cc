#include "runtime/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {

LineFile::LineFile(std::string path, std::string_view begin) : path_(std::move(path)) {
  write_file(path_, begin);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw InvalidInput(one_line(path_) + ": cannot be opened: " + std::strerror(errno));
  }
}

LineFile::~LineFile() { ::close(descriptor_); }

void LineFile::append(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = ::write(descriptor_, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw InvalidInput(one_line(path_) + ": cannot be written: " + std::strerror(errno));
    }
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace dyncp
