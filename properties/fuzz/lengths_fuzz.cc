// parse_lengths: any text is read as lengths in range, or refused in one line that names a line of
// the text; what was read survives printing and reading again.
#include <algorithm>

#include "properties/fuzz/fuzz.h"
#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/lengths.h"

using dyncp::require;

namespace {

void require_in_range(const std::vector<std::int64_t>& lengths) {
  for (std::int64_t length : lengths) {
    require(length >= 0 && length <= dyncp::kMaxSequenceLength, "every length is in range");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = dyncp::as_text(data, size);
  // {"mode":"file"} names another file; the target is the text alone. \u could spell it too.
  if (text.find("\"file\"") != std::string_view::npos ||
      text.find("\\u") != std::string_view::npos) {
    return 0;
  }
  constexpr std::int64_t kDrawn = 4;  // by a mock-SFT configuration
  std::optional<std::vector<std::int64_t>> lengths;
  try {
    lengths = dyncp::parse_lengths(text, "input", kDrawn, 0);
  } catch (const dyncp::InvalidInput& error) {
    const std::string message = error.what();
    dyncp::require_message(message);
    require(message.starts_with("input:"), "an error names the source");
    const std::int64_t line = std::strtoll(message.c_str() + 6, nullptr, 10);
    require(line >= 1 && line <= 1 + std::count(text.begin(), text.end(), '\n'),
            "an error names a line of the text");
  }
  if (lengths) {
    require(!lengths->empty(), "a text that is read holds a length");
    require(lengths->size() <= std::max<std::size_t>(kDrawn, text.size()),
            "every length takes a byte");
    require_in_range(*lengths);
    require(dyncp::parse_lengths(dyncp::print_lengths(*lengths, {}), "input") == *lengths,
            "printed lengths read back");
  }
  // The value of --lengths, where it cannot name a file.
  if (text.find_first_not_of("0123456789+-, ") != std::string_view::npos) return 0;
  const auto option = dyncp::attempt([&] { return dyncp::lengths_from_option(std::string(text)); });
  if (option) require_in_range(*option);
  return 0;
}
