#include "runtime/check.h"

#include <algorithm>
#include <utility>

namespace dyncp {

std::string_view to_string(Status status) {
  switch (status) {
    case Status::kPassed:
      return "PASSED";
    case Status::kFailed:
      return "FAILED";
    case Status::kMistrusted:
      return "MISTRUSTED";
    case Status::kSkipped:
      return "SKIPPED";
    case Status::kInvalid:
      return "INVALID";
  }
  return "?";
}

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kState:
      return "state";
    case Kind::kPosition:
      return "position";
    case Kind::kSlice:
      return "slice";
    case Kind::kPadding:
      return "padding";
    case Kind::kAttention:
      return "attention";
    case Kind::kLoss:
      return "loss";
    case Kind::kSchedule:
      return "schedule";
    case Kind::kCommunication:
      return "communication";
  }
  return "?";
}

bool CaseResult::expect(std::string_view name, Kind kind, bool held,
                        const std::function<std::string()>& message) {
  if (std::find(checks_run_.begin(), checks_run_.end(), name) == checks_run_.end()) {
    checks_run_.emplace_back(name);
  }
  if (!held) findings_.push_back({std::string(name), kind, message()});
  return held;
}

void CaseResult::mistrust(std::string reason) {
  if (mistrusted_.empty()) mistrusted_ = std::move(reason);
}

void CaseResult::skip(std::string reason) { skipped_ = std::move(reason); }

void CaseResult::invalid(std::string reason) { invalid_ = std::move(reason); }

void CaseResult::detail(std::string line) { details_.push_back(std::move(line)); }

Status CaseResult::status() const {
  if (!findings_.empty()) return Status::kFailed;
  if (!invalid_.empty()) return Status::kInvalid;
  if (!skipped_.empty()) return Status::kSkipped;
  if (!mistrusted_.empty() || checks_run_.empty()) return Status::kMistrusted;
  return Status::kPassed;
}

std::string CaseResult::reason() const {
  if (!findings_.empty()) return findings_.front().message;
  if (!invalid_.empty()) return invalid_;
  if (!skipped_.empty()) return skipped_;
  if (!mistrusted_.empty()) return mistrusted_;
  return checks_run_.empty() ? "no check ran" : "";
}

}  // namespace dyncp
