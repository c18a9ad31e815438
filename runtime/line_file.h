// A text file that grows line by line while a run goes on.
#pragma once

#include <string>
#include <string_view>

namespace dyncp {

class LineFile {
 public:
  /// Creates the file, or replaces it as a whole, with `begin` in it. Throws InvalidInput naming
  /// the path when that fails or when it names something that is no regular file.
  explicit LineFile(std::string path, std::string_view begin = {});
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Hands the text, whole lines, to the operating system: it is in the file even if this process
  /// dies now. Throws InvalidInput naming the path.
  void append(std::string_view lines);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace dyncp
