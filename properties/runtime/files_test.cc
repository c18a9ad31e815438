// Whole files in and out: what is written is read back, nothing is ever seen half written, and
// every refusal names the path on one line.
#include "runtime/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"

namespace dyncp {
namespace {

namespace fs = std::filesystem;

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

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Files, WhatIsWrittenIsReadBack) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/a";
  std::string all_bytes;
  for (int i = 0; i < 300000; ++i) all_bytes += static_cast<char>(i * 7 % 256);
  for (const std::string& bytes : {std::string(), std::string("x"), all_bytes,
                                   all_bytes.substr(0, 65536), all_bytes.substr(0, 65537)}) {
    write_file(path, bytes);
    EXPECT_EQ(read_file(path), bytes);
    EXPECT_EQ(entries(folder.path()), 1U) << "a temporary file was left behind";
  }
}

TEST(Files, ReadsAPipeToItsEnd) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string bytes(200000, 'p');
  std::thread writer([&] { std::ofstream(path) << bytes; });
  EXPECT_EQ(read_file(path), bytes);
  writer.join();
}

TEST(Files, RefusesWhatItCannotRead) {
  const ScratchFolder folder;
  const std::string file = folder.file("ten", "0123456789");
  EXPECT_EQ(read_file(file, 10), "0123456789");
  EXPECT_EQ(refusal([&] { read_file(file, 9); }),
            file + ": is larger than 9 bytes, the most that is read");
  EXPECT_EQ(refusal([&] { read_file(folder.path()); }),
            folder.path() + ": is a directory, expected a file");
  EXPECT_EQ(refusal([&] { read_file(folder.path() + "/none"); }),
            folder.path() + "/none: cannot be opened: No such file or directory");
  EXPECT_EQ(refusal([&] { read_file("no\nfile"); }),
            "no\\x0afile: cannot be opened: No such file or directory");
  // An endless source is refused at the limit, not read for ever.
  EXPECT_EQ(refusal([&] { read_file("/dev/zero", 1 << 20); }),
            "/dev/zero: is larger than 1048576 bytes, the most that is read");
}

TEST(Files, RefusesWhatItCannotWriteAndLeavesTheOldFile) {
  const ScratchFolder folder;
  const std::string below_file = folder.file("file", "old") + "/below";
  EXPECT_EQ(refusal([&] { write_file(below_file, "new"); }),
            below_file + ": cannot be written: Not a directory");
  EXPECT_EQ(refusal([&] { write_file(folder.path() + "/none/file", "new"); }),
            folder.path() + "/none/file: cannot be written: No such file or directory");
  EXPECT_EQ(refusal([&] { write_file(folder.path(), "new"); }),
            folder.path() + ": is no regular file, expected one or a free name");
  EXPECT_EQ(refusal([&] { write_file("/dev/full", "new"); }),
            "/dev/full: is no regular file, expected one or a free name");
  EXPECT_EQ(read_file(folder.path() + "/file"), "old");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(Files, ReplacesAsAWhole) {
  // A reader that has the old file open keeps the old contents: the new ones are another file.
  const ScratchFolder folder;
  const std::string path = folder.file("file", "old contents");
  std::ifstream reader(path);
  write_file(path, "new");
  std::string seen;
  std::getline(reader, seen);
  EXPECT_EQ(seen, "old contents");
  EXPECT_EQ(read_file(path), "new");
}

TEST(Files, TextForMessagesIsPrintableAndOnOneLine) {
  EXPECT_EQ(one_line("plain text"), "plain text");
  EXPECT_EQ(one_line("a\nb\r\t\x7f\xc3\xa9"), "a\\x0ab\\x0d\\x09\\x7f\\xc3\\xa9");
  EXPECT_EQ(one_line(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(one_line("12345", 3), "123...");
  EXPECT_EQ(quote("it"), "'it'");
  EXPECT_EQ(quote(std::string(41, 'x')), "'" + std::string(40, 'x') + "...'");
}

}  // namespace
}  // namespace dyncp
