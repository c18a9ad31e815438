// Runs the dyncp command as a person does and takes what it prints.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "properties/runtime/scratch_folder.h"
#include "runtime/files.h"

namespace dyncp {

struct Outcome {
  int exit_code = -1;  // -1: killed by a signal
  std::string out;     // stdout
  std::string err;     // stderr
};

/// Runs a shell command line; what it prints to stderr is not taken apart.
inline Outcome run_shell(const std::string& line) {
  FILE* const pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell");
  Outcome outcome;
  std::array<char, 1 << 16> buffer{};
  std::size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) {
    outcome.out.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

/// Runs `before` DYNCP_COMMAND `arguments` `after` in a shell: `before` may set variables, `after`
/// may redirect.
inline Outcome run_command(const std::string& arguments, const std::string& before = "",
                           const std::string& after = "") {
  const ScratchFolder folder;
  const std::string errors = folder.path() + "/stderr";
  const std::string line =
      before + " " + DYNCP_COMMAND + " " + arguments + " 2>" + errors + " " + after;
  Outcome outcome = run_shell(line);
  outcome.err = read_file(errors);
  return outcome;
}

/// Whether the text is one line that begins with "dyncp: ".
inline bool is_one_line(const std::string& text) {
  return text.rfind("dyncp: ", 0) == 0 && text.find('\n') == text.size() - 1;
}

/// The last line of a text, without its line end.
inline std::string last_line(const std::string& text) {
  if (text.empty() || text.back() != '\n') return text;
  const std::size_t before = text.rfind('\n', text.size() - 2);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.size() - 1 - begin);
}

}  // namespace dyncp
