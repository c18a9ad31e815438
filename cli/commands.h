// The subcommands of dyncp, one file each, and how they print.
// Each add_*_command registers one subcommand; its callback stores the exit code (0 all held, 1 a
// check failed). Bad input is thrown as InvalidInput, Infeasible or Unavailable and becomes one
// line on stderr and exit code 2, 2 or 3 in main.cc.
#pragma once

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <string_view>
#include <utility>

namespace dyncp {

void add_gate_command(CLI::App& app, int& exit_code);
void add_check_command(CLI::App& app, int& exit_code);
void add_list_command(CLI::App& app, int& exit_code);
void add_schedule_command(CLI::App& app, int& exit_code);
void add_check_scheduler_command(CLI::App& app, int& exit_code);
void add_lengths_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);

/// Writes to stdout. A reader that went away (`dyncp gate | head -1`) is not an error: the rest of
/// the output is dropped and the verdict stands. Any other failure to write ends in exit code 3.
void write_stdout(std::string_view text);

/// write_stdout of a formatted text.
template <typename... T>
void say(fmt::format_string<T...> format, T&&... values) {
  write_stdout(fmt::format(format, std::forward<T>(values)...));
}

}  // namespace dyncp
