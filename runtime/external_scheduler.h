// A scheduler that is another program: started once, asked line by line
// (runtime/scheduler_protocol.h). When it hangs, crashes or answers nonsense that is the answer; it
// is then started again, so that the search goes on.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/scheduler_answer.h"

namespace dyncp {

class ExternalScheduler {
 public:
  /// `command` is run by /bin/sh in a process group of its own, at the first question. `deadline`
  /// is how long it may take over an answer (start-up, before the first answer: ten times that).
  /// Throws InvalidInput when the command is empty.
  ExternalScheduler(std::string command, std::chrono::milliseconds deadline);
  /// Ends the program and everything it started.
  ~ExternalScheduler();
  ExternalScheduler(const ExternalScheduler&) = delete;
  ExternalScheduler& operator=(const ExternalScheduler&) = delete;

  /// Asks once. Never throws for what the program does; throws Unavailable when no process can be
  /// started at all.
  ScheduleAnswer ask(const ScheduleProblem& problem);

  /// How often the program had to be started again.
  int restarts() const { return restarts_; }

 private:
  class Process;
  std::string command_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<Process> process_;
  std::int64_t next_id_ = 1;
  int starts_ = 0;
  int restarts_ = 0;
};

}  // namespace dyncp
