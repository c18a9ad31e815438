// `dyncp serve`: a scheduler behind the line protocol, on standard input and output. Serves plugins
// to check-scheduler in a process of their own, and the built-in schedulers to anybody's tools.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "reference/error.h"
#include "runtime/plugin_loader.h"
#include "runtime/scheduler.h"
#include "runtime/scheduler_protocol.h"

namespace dyncp {
namespace {

struct Options {
  std::string scheduler;
  std::string plugin;
};

int serve(const Options& options) {
  if (options.scheduler.empty() == options.plugin.empty()) {
    throw InvalidInput("serve needs either --scheduler NAME or --plugin FILE");
  }
  AskScheduler ask;
  if (options.plugin.empty()) {
    const Scheduler& scheduler = find_scheduler(options.scheduler);
    ask = [&scheduler](const ScheduleProblem& problem) -> ScheduleAnswer {
      try {
        return scheduler.schedule(problem);
      } catch (const Infeasible& refusal) {
        return Refusal{refusal.what()};
      }
    };
  } else {
    ask = [plugin = SchedulerPlugin(options.plugin)](const ScheduleProblem& problem) {
      return plugin.ask(problem);
    };
  }
  for (std::string line; std::getline(std::cin, line);) {
    const ScheduleRequest request = parse_request(line);
    const ScheduleAnswer answer = ask(request.problem);
    if (const auto* failure = std::get_if<SchedulerFailure>(&answer)) {
      throw InvalidInput(failure->sentence);
    }
    std::cout << answer_line(answer, request.id) << std::endl;  // one answer a line, at once
  }
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "serve", "Answer scheduling requests, one JSON line each (docs/check-scheduler.md)");
  command->add_option("--scheduler", options->scheduler, "a built-in scheduler");
  command->add_option("--plugin", options->plugin, "a shared library with a scheduler");
  command->callback([options, &exit_code] { exit_code = serve(*options); });
}

}  // namespace dyncp
