// The dyncp command: registers the subcommands and maps errors to exit codes.
//   0 all held; 1 a check failed; 2 bad usage, bad input or infeasible instance;
//   3 the environment lacks what was asked for; 70 a defect of dyncp itself
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "cli/commands.h"
#include "reference/error.h"

namespace dyncp {

namespace {

int stdout_error = 0;  // errno of the first failed write

/// `text` as one line: line ends become blanks.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int complain(const std::string& message, int exit_code) {
  const std::string line = "dyncp: " + one_line(message) + "\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app{"dyncp: checks that dynamic context parallelism is right", "dyncp"};
  app.set_version_flag("--version", "dyncp " DYNCP_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  using Add = void (*)(CLI::App&, int&);
  for (const Add add : {Add{add_gate_command}, Add{add_check_command}, Add{add_list_command},
                        Add{add_schedule_command}, Add{add_check_scheduler_command},
                        Add{add_lengths_command}, Add{add_serve_command}}) {
    add(app, exit_code);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + " (see dyncp --help)", 2);
  }
  return exit_code;
}

}  // namespace

void write_stdout(std::string_view text) {
  if (stdout_error != 0) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) stdout_error = errno;
}

}  // namespace dyncp

int main(int argc, char** argv) {
  using dyncp::complain;
  std::signal(SIGPIPE, SIG_IGN);
  int exit_code = 0;
  try {
    exit_code = dyncp::run(argc, argv);
  } catch (const dyncp::InvalidInput& error) {
    exit_code = complain(error.what(), 2);
  } catch (const dyncp::Infeasible& error) {
    exit_code = complain(error.what(), 2);
  } catch (const dyncp::Unavailable& error) {
    exit_code = complain(error.what(), 3);
  } catch (const std::bad_alloc&) {
    exit_code = complain("not enough memory for this input", 3);
  } catch (const std::exception& error) {
    exit_code = complain(std::string("internal error: ") + error.what(), 70);
  }
  if (std::fflush(stdout) != 0 && dyncp::stdout_error == 0) dyncp::stdout_error = errno;
  if (dyncp::stdout_error != 0 && dyncp::stdout_error != EPIPE && exit_code == 0) {
    exit_code = complain(
        std::string("cannot write to standard output: ") + std::strerror(dyncp::stdout_error), 3);
  }
  return exit_code;
}
