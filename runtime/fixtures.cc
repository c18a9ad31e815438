#include "runtime/fixtures.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

std::string fixtures_directory() {
  if (const char* chosen = std::getenv("DYNCP_FIXTURES"); chosen != nullptr && *chosen != '\0') {
    if (is_folder(chosen)) return chosen;
    throw InvalidInput("DYNCP_FIXTURES: " + quote(chosen) + " is no directory");
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed =
        (program.parent_path() / "../share/dyncp/fixtures").lexically_normal();
    if (is_folder(installed)) return installed.string();
  }
  if (is_folder(DYNCP_FIXTURES_DEFAULT)) return DYNCP_FIXTURES_DEFAULT;
  throw Unavailable(
      "the fixtures are neither beside the program nor where it was built: set DYNCP_FIXTURES to "
      "the folder 'fixtures' of dyncp");
}

std::vector<LengthSet> fixture_length_sets() {
  const fs::path directory = fs::path(fixtures_directory()) / "lengths";
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path ending = entry->path().extension();
    if (ending == ".txt" || ending == ".csv" || ending == ".json" || ending == ".jsonl") {
      files.push_back(entry->path());
    }
  }
  if (error) {
    throw InvalidInput(one_line(directory.string()) + ": cannot be read: " + error.message());
  }
  std::sort(files.begin(), files.end());
  std::vector<LengthSet> sets;
  for (const fs::path& file : files) {
    sets.push_back({file.stem().string(), read_lengths(file.string())});
  }
  return sets;
}

}  // namespace dyncp
