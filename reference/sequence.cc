#include "reference/sequence.h"

#include "reference/error.h"

namespace dyncp {

std::string_view to_string(Padding padding) {
  switch (padding) {
    case Padding::kNone:
      return "none";
    case Padding::kGlobal:
      return "global";
    case Padding::kGroup:
      return "group";
  }
  return "?";
}

Padding parse_padding(std::string_view name) {
  for (Padding padding : {Padding::kNone, Padding::kGlobal, Padding::kGroup}) {
    if (name == to_string(padding)) return padding;
  }
  throw InvalidInput("unknown padding '" + std::string(name) + "': expected none, global or group");
}

void require_valid_lengths(const std::vector<std::int64_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > kMaxSequenceLength) {
      throw InvalidInput("length " + std::to_string(lengths[i]) + " of sequence " +
                         std::to_string(i) + " is outside 0.." +
                         std::to_string(kMaxSequenceLength));
    }
  }
}

}  // namespace dyncp
