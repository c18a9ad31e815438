// Measuring documents: every regular file once, in path order, .gz files unpacked, and nothing
// passed over in silence.
#include <gtest/gtest.h>

#include <algorithm>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

namespace fs = std::filesystem;
using Lengths = std::vector<std::int64_t>;

// `printf 'a page of a manual\n' | 40 times | gzip -n`: 760 bytes packed into 46.
const std::string kPage760(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\x54\x28\x48\x4c\x4f\x55\xc8\x4f\x53\x48\x54\xc8"
    "\x4d\xcc\x2b\x4d\xcc\xe1\x4a\x1c\x15\x1a\x15\x1a\xee\x42\x00\x0b\x22\xbc\x19\xf8\x02\x00\x00",
    46);
// `printf 12345 | gzip -n`.
const std::string kPage5(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x33\x34\x32\x36\x31\x05\x00\x1c\x3a\xf5\xcb\x05\x00"
    "\x00\x00",
    25);

template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(MeasureDocuments, CountsEveryRegularFileOnceInPathOrder) {
  const ScratchFolder folder;
  folder.file("b/two.py", "22");
  folder.file("b/a/deep.txt", std::string(1000, 'x'));
  folder.file("a.py", "1");
  folder.file("empty.py", "");
  folder.file("c.txt", std::string("\0\n\xff", 3));
  folder.file(".hidden", "4444");
  fs::create_symlink("a.py", folder.path() + "/link.py");
  fs::create_directory_symlink("b", folder.path() + "/again");
  // .hidden, a.py, b/a/deep.txt, b/two.py, c.txt, empty.py
  const DocumentLengths all = measure_documents(folder.path(), {});
  EXPECT_EQ(all.lengths, (Lengths{4, 1, 1000, 2, 3, 0}));
  EXPECT_EQ(all.skipped_gz, 0);
  EXPECT_EQ(measure_documents(folder.path() + "/", {}).lengths, all.lengths);
  EXPECT_EQ(measure_documents(folder.path(), {".py"}).lengths, (Lengths{1, 2, 0}));
  EXPECT_EQ(measure_documents(folder.path(), {".txt", ".hidden"}).lengths, (Lengths{4, 1000, 3}));
  EXPECT_TRUE(measure_documents(folder.path(), {".none"}).lengths.empty());
}

TEST(MeasureDocuments, PackedFilesCountTheirUncompressedBytes) {
  const ScratchFolder folder;
  folder.file("ls.1.gz", kPage760);
  folder.file("plain.1", "123");
  folder.file("two.1.gz", kPage5 + kPage760);  // several members are one file
  const auto lengths = [&](const std::vector<std::string>& suffixes) {
    const DocumentLengths documents = measure_documents(folder.path(), suffixes);
    EXPECT_EQ(documents.skipped_gz, can_measure_gz() ? 0 : 2);
    return documents.lengths;
  };
  EXPECT_EQ(lengths({}), can_measure_gz() ? (Lengths{760, 3, 765}) : (Lengths{3}));
  EXPECT_EQ(lengths({".1"}), can_measure_gz() ? (Lengths{760, 3, 765}) : (Lengths{3}));
  EXPECT_EQ(lengths({".gz"}), can_measure_gz() ? (Lengths{760, 765}) : (Lengths{}));
}

TEST(MeasureDocuments, DamagedPackedFilesAreRefused) {
  if (!can_measure_gz()) GTEST_SKIP() << "built without zlib";
  std::string wrong_sum = kPage760;
  wrong_sum[40] = static_cast<char>(wrong_sum[40] ^ 1);
  const std::vector<std::pair<std::string, std::string>> damaged = {
      {kPage760.substr(0, 30), "is no whole .gz file"},
      {kPage760.substr(0, 45), "is no whole .gz file"},
      {wrong_sum, "is no whole .gz file"},
      {"plain text", "is no .gz file by its contents"},
      {"", "is no .gz file by its contents"},
  };
  for (const auto& [bytes, found] : damaged) {
    const ScratchFolder folder;
    const std::string path = folder.file("page.1.gz", bytes);
    EXPECT_EQ(refusal([&] { measure_documents(folder.path(), {}); }), path + ": " + found);
  }
}

TEST(MeasureDocuments, WhatIsNoDirectoryIsRefused) {
  const ScratchFolder folder;
  const std::string file = folder.file("file", "x");
  EXPECT_EQ(refusal([&] { measure_documents(file, {}); }),
            file + ": is no directory, expected one to measure");
  EXPECT_EQ(refusal([&] { measure_documents(folder.path() + "/none", {}); }),
            folder.path() + "/none: is no directory, expected one to measure");
  EXPECT_EQ(refusal([&] { measure_documents("", {}); }),
            ": is no directory, expected one to measure");
}

}  // namespace
}  // namespace dyncp
