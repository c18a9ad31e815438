// Text files of a directory as byte-level documents.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/digest.h"
#include "runtime/document_source.h"
#include "runtime/files.h"
#include "runtime/fixtures.h"

namespace dyncp {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw InvalidInput(one_line(path.string()) + ": " + why);
}

// The regular files below `directory` that a corpus may hold, in order of path.
std::vector<fs::path> files_below(const std::string& directory, const CorpusLimits& limits) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse(directory, "is no directory with text files");
  std::vector<std::pair<std::string, fs::path>> found;
  fs::recursive_directory_iterator entry(directory, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    const fs::file_status status = entry->symlink_status(error);
    if (error) refuse(path, "cannot be looked at: " + error.message());
    const std::string name = path.filename().string();
    const bool hidden = name.starts_with('.');
    if (fs::is_directory(status) && (hidden || name == "build")) entry.disable_recursion_pending();
    if (!fs::is_regular_file(status) || hidden) continue;
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error) refuse(path, "cannot be measured: " + error.message());
    if (bytes == 0 || bytes > limits.longest_file) continue;
    if (static_cast<std::int64_t>(found.size()) >= limits.files) {
      refuse(directory, fmt::format("holds more than {} files", limits.files));
    }
    found.emplace_back(path.lexically_relative(directory).generic_string(), path);
  }
  if (error) refuse(directory, "cannot be read to its end: " + error.message());
  // The order in which a directory lists its files is the file system's own.
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [relative, path] : found) paths.push_back(std::move(path));
  return paths;
}

class CorpusSource : public DocumentSource {
 public:
  CorpusSource(const std::string& directory, std::vector<std::int64_t> lengths,
               const CorpusLimits& limits)
      : lengths_(std::move(lengths)) {
    require_valid_lengths(lengths_);
    const bool by_file = lengths_.empty();
    for (const fs::path& path : files_below(directory, limits)) {
      // A file that grew since it was measured is refused by read_file, not cut.
      const std::string bytes = read_file(path.string(), limits.longest_file);
      if (bytes.empty() || bytes.find('\0') != std::string::npos) continue;
      if (static_cast<std::int64_t>(text_.size() + bytes.size()) > limits.total) {
        refuse(directory, fmt::format("holds more than {} bytes of text", limits.total));
      }
      ++files_;
      text_ += bytes;
      if (by_file) lengths_.push_back(static_cast<std::int64_t>(bytes.size()));
    }
    if (text_.empty()) refuse(directory, "holds no text file");
    std::int64_t start = 0;
    for (const std::int64_t length : lengths_) {
      starts_.push_back(start);
      start = (start + length) % static_cast<std::int64_t>(text_.size());
    }
  }

  std::string description() const override {
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    return fmt::format("{} documents of {}..{} bytes from {} text files ({} bytes)",
                       lengths_.size(), *shortest, *longest, files_, text_.size());
  }

  std::int64_t documents() const override { return static_cast<std::int64_t>(lengths_.size()); }

  std::int64_t length(std::int64_t index) const override {
    return lengths_[static_cast<std::size_t>(index)];
  }

  Document document(std::int64_t index) const override {
    Document document;
    auto at = static_cast<std::size_t>(starts_[static_cast<std::size_t>(index)]);
    for (std::int64_t left = length(index); left > 0; --left) {
      document.tokens.push_back(static_cast<unsigned char>(text_[at]));
      if (++at == text_.size()) at = 0;
    }
    return document;
  }

  std::uint64_t fingerprint() const override {
    std::uint64_t value = digest(text_);
    for (const std::int64_t length : lengths_) value = digest(fmt::format(" {}", length), value);
    return value;
  }

 private:
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> starts_;  // of each document in text_
  std::string text_;                  // all files, end to end
  std::int64_t files_ = 0;
};

}  // namespace

std::unique_ptr<DocumentSource> corpus_source(const std::string& directory,
                                              std::vector<std::int64_t> lengths,
                                              const CorpusLimits& limits) {
  return std::make_unique<CorpusSource>(directory, std::move(lengths), limits);
}

std::string default_corpus_directory() {
  const fs::path fixtures = fs::canonical(fixtures_directory());
  const fs::path above = fixtures.parent_path();
  std::error_code ignored;
  const bool source_tree = fs::is_directory(above / "reference", ignored) &&
                           fs::is_regular_file(above / "CMakePresets.json", ignored);
  return source_tree ? above.string() : fixtures.string();
}

}  // namespace dyncp
