// Loads a scheduler that is a shared library (runtime/plugin/dyncp/scheduler_plugin.h). Used inside
// `dyncp serve --plugin`, which is a process of its own, so that a crash stays there.
#pragma once

#include <memory>
#include <string>

#include "runtime/scheduler_answer.h"

namespace dyncp {

class SchedulerPlugin {
 public:
  /// Throws InvalidInput when the file cannot be loaded, lacks one of the three functions, or was
  /// built for another version of the interface.
  explicit SchedulerPlugin(const std::string& path);

  std::string name() const;

  /// Asks once, in this process. A non-zero return value becomes a SchedulerFailure of kind crash.
  ScheduleAnswer ask(const ScheduleProblem& problem) const;

 private:
  struct Functions;
  std::shared_ptr<const Functions> functions_;
};

}  // namespace dyncp
