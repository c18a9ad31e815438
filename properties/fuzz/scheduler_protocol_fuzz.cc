// The line protocol to schedulers in other processes: any line is a request or refused in one line,
// and any line is an answer of some kind, never an exception; both survive writing.
#include "properties/fuzz/fuzz.h"
#include "runtime/scheduler_protocol.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = dyncp::as_text(data, size);
  const auto request = dyncp::attempt([&] { return dyncp::parse_request(line); });
  if (request) {
    const std::string written = dyncp::request_line(request->problem, request->id);
    require(written.find('\n') == std::string::npos, "a request is one line");
    const dyncp::ScheduleRequest again = dyncp::parse_request(written);
    require(again.id == request->id && again.problem == request->problem,
            "a request survives writing");
  }
  constexpr std::int64_t kId = 7;
  const dyncp::ScheduleAnswer answer = dyncp::parse_answer(line, kId);
  if (const auto* failure = std::get_if<dyncp::SchedulerFailure>(&answer)) {
    dyncp::require_message(failure->sentence);
    return 0;
  }
  const std::string written = dyncp::answer_line(answer, kId);
  require(written.find('\n') == std::string::npos, "an answer is one line");
  require(dyncp::parse_answer(written, kId) == answer, "an answer survives writing");
  return 0;
}
