// The problem grammar: any command is parsed or refused in one line, and a parsed problem prints as
// a command that parses to itself.
#include "properties/fuzz/fuzz.h"
#include "runtime/problem.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = dyncp::as_text(data, size);
  // --lengths may name a file; the target is the text alone.
  if (text.find('/') != std::string_view::npos) return 0;
  const auto problem = dyncp::attempt([&] { return dyncp::parse_command(text); });
  if (!problem) return 0;
  const std::string printed = dyncp::print_command(*problem);
  require(printed.find_first_of("\r\n") == std::string::npos, "a command is one line");
  require(dyncp::parse_command(printed) == *problem, "a printed command parses to its problem");
  const auto pack = dyncp::attempt([&] { return problem->pack(); });
  require(!pack || pack->sequences() == static_cast<int>(problem->lengths.size()),
          "a pack holds every sequence");
  (void)dyncp::attempt([&] { return problem->schedule_problem(); });
  return 0;
}
