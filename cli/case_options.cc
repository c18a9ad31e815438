#include "cli/case_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cli/commands.h"
#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {

void ProblemWords::add_options(CLI::App& command, const Driver& driver,
                               const std::vector<std::string_view>& except) {
  command_ = &command;
  command.allow_extras();
  static const Problem defaults;
  for (const ProblemOption& option : problem_options()) {
    const auto named = [&](const std::vector<std::string_view>& names) {
      return std::find(names.begin(), names.end(), option.name) != names.end();
    };
    if (!named(driver.options) || named(except)) continue;
    Given& given = given_.emplace_back();
    given.option = &option;
    const std::string flag = fmt::format("--{}", option.name);
    const std::string fallback = option.flag ? "" : option.text(defaults);
    const std::string help =
        fallback.empty() ? std::string(option.help) : fmt::format("{} ({})", option.help, fallback);
    if (option.flag) {
      command.add_flag_function(
          flag,
          [&given](std::int64_t count) {
            given.values.assign(static_cast<std::size_t>(count), "1");
          },
          help);
      continue;
    }
    command.add_option(flag, given.values, help)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name(std::string(option.value));
  }
}

std::vector<std::string> ProblemWords::words() const {
  std::vector<std::string> words;
  for (const Given& given : given_) {
    for (const std::string& value : given.values) {
      if (value.compare(0, 2, "--") == 0) {
        // The next option, taken for the value of this one: the grammar says that it is missing.
        words.insert(words.end(), {fmt::format("--{}", given.option->name), value});
      } else {
        words.push_back(fmt::format("--{}={}", given.option->name, value));
      }
    }
  }
  const std::vector<std::string> extras = command_->remaining();
  words.insert(words.end(), extras.begin(), extras.end());
  return words;
}

void ReportFiles::add_options(CLI::App& command) {
  command.add_option("--junit", junit, "write a JUnit XML file")->type_name("FILE");
  command.add_option("--json", json, "write a JSON file")->type_name("FILE");
  command.add_option("--html", html, "write a self-contained HTML page")->type_name("FILE");
  command.add_option("--timings", timings, "write the seconds of every case as JSON")
      ->type_name("FILE");
}

void ReportFiles::require_writable() const {
  for (const std::string& path : {junit, json, html, timings}) {
    if (path.empty()) continue;
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).has_parent_path()
                                             ? std::filesystem::path(path).parent_path()
                                             : ".";
    if (!std::filesystem::is_directory(folder, error)) {
      throw InvalidInput(fmt::format("{}: cannot be written, there is no folder {}", one_line(path),
                                     one_line(folder.string())));
    }
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
      throw InvalidInput(one_line(path) + ": is no regular file, expected one or a free name");
    }
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
      throw InvalidInput(
          fmt::format("{}: cannot be written: {}", one_line(path), std::strerror(errno)));
    }
  }
}

void ReportFiles::write(const Report& report) const {
  if (!junit.empty()) write_file(junit, to_junit(report));
  if (!json.empty()) write_file(json, to_json_text(report));
  if (!html.empty()) write_file(html, to_html(report));
  if (!timings.empty()) write_file(timings, timings_text(report));
}

void RunSettings::add_options(CLI::App& command) {
  command.add_option("--deadline", deadline_seconds, "seconds that a case may take (30)")
      ->type_name("SECONDS");
  command
      .add_option("--jobs", jobs,
                  "cases at a time (one a processor); the report does not depend on it")
      ->type_name("N");
  command.add_flag("-v,--verbose", verbose, "tell every case in full");
}

void RunSettings::require_valid() const {
  constexpr double kLongest = 1e6;
  if (!(deadline_seconds > 0) || deadline_seconds > kLongest) {
    throw InvalidInput(fmt::format("--deadline {}: expected seconds above 0, at most {}",
                                   deadline_seconds, kLongest));
  }
  constexpr int kMostJobs = 1024;
  if (jobs < 0 || jobs > kMostJobs) {
    throw InvalidInput(fmt::format("--jobs {}: expected an integer in 0..{}", jobs, kMostJobs));
  }
}

Report run_and_tell(std::vector<Case> cases, const RunSettings& settings) {
  constexpr int kMostTold = 10;
  const bool in_full = cases.size() == 1 || settings.verbose;
  const bool progress = !in_full && isatty(STDOUT_FILENO) != 0;
  RunOptions options;
  options.deadline_seconds = settings.deadline_seconds;
  options.threads = settings.jobs;
  if (options.threads == 0) {
    options.threads =
        in_full ? 1 : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  // The command first, and on its way before the case begins: a crash must not take it along.
  options.one_by_one = in_full && options.threads == 1;
  const auto tell_command = [](const std::string& command) {
    say("run: {}\n", command);
    std::fflush(stdout);
  };
  if (in_full) options.on_start = [&](const Case& one) { tell_command(one.command); };
  int told = 0;
  options.on_done = [&](const CaseRun& run, std::size_t done, std::size_t total) {
    const Status status = run.result.status();
    const bool bad = status == Status::kFailed || status == Status::kInvalid;
    const bool tell = !in_full && bad && told++ < kMostTold;
    if (progress) say("\r\x1b[K");
    if (tell) tell_command(run.command);
    if (tell || in_full) say("{}", case_text(run));
    if (progress && done < total) say("{}/{} {}", done, total, run.driver->name);
    if (progress) std::fflush(stdout);
  };
  tell_case_on_crash();
  Report report = run_cases(std::move(cases), options);
  report.version = DYNCP_VERSION;
  return report;
}

std::vector<LeftOut> left_out_here() {
  std::error_code ignored;
  const bool gpu = std::filesystem::exists("/dev/nvidiactl", ignored);
  return {
      {"CUDA kernels and NCCL", gpu ? "this build has no CUDA runtime (there is a GPU)"
                                    : "no GPU here, and this build has no CUDA runtime"},
      {"Ranks in processes of their own", "this build has no MPI transport; ranks are simulated"},
  };
}

Tier parse_tier(const std::string& name) {
  if (name == "smoke") return Tier::kSmoke;
  if (name == "ci") return Tier::kCi;
  if (name == "full") return Tier::kFull;
  throw InvalidInput(fmt::format("--tier {}: expected smoke, ci or full", quote(name)));
}

void leave_if_abandoned(const Report& report, int exit_code) {
  if (!report.abandoned) return;
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(exit_code);
}

}  // namespace dyncp
