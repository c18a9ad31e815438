// What came of asking a scheduler, whoever it is: a built-in class, a shared library or a program
// in another language. Everything that can go wrong on the other side is a value, not an exception:
// it is what the search reports.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "reference/schedule.h"

namespace dyncp {

/// The scheduler said that it has no schedule for the problem. Right or wrong, judged elsewhere.
struct Refusal {
  std::string reason;
  bool operator==(const Refusal&) const = default;
};

/// The scheduler did not answer properly.
struct SchedulerFailure {
  enum class Kind {
    kHang,       // no answer within two deadlines; it was killed
    kLate,       // the answer came after the deadline
    kCrash,      // it ended, by signal or exit code, without answering
    kMalformed,  // it answered something that is no answer
    kWrongId,    // it answered another request
  };
  Kind kind = Kind::kCrash;
  std::string sentence;  // complete
  bool operator==(const SchedulerFailure&) const = default;
};

/// Stable kebab-case name: "hang", "late", "crash", "malformed-answer" or "wrong-id".
std::string_view to_string(SchedulerFailure::Kind kind);

using ScheduleAnswer = std::variant<Schedule, RankLists, Refusal, SchedulerFailure>;

/// Asks once. Never throws for what the scheduler does.
using AskScheduler = std::function<ScheduleAnswer(const ScheduleProblem&)>;

}  // namespace dyncp
