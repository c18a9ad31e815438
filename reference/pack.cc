#include "reference/pack.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reference/error.h"

namespace dyncp {

Pack::Pack(std::vector<Sequence> sequences) : sequences_(std::move(sequences)) {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    if (s.real_length < 0 || s.real_length > s.padded_length ||
        s.padded_length > kMaxSequenceLength) {
      throw InvalidInput("sequence " + std::to_string(i) + " of the pack has real length " +
                         std::to_string(s.real_length) + " and padded length " +
                         std::to_string(s.padded_length) +
                         ": expected 0 <= real <= padded <= 2^40");
    }
    cu_seqlens_.push_back(cu_seqlens_.back() + s.real_length);
    cu_seqlens_padded_.push_back(cu_seqlens_padded_.back() + s.padded_length);
  }
}

Pack Pack::padded_to(const std::vector<std::int64_t>& real_lengths, std::int64_t multiple) {
  if (multiple < 1) {
    throw InvalidInput("padding multiple " + std::to_string(multiple) + " must be at least 1");
  }
  require_valid_lengths(real_lengths);
  std::vector<Sequence> sequences;
  sequences.reserve(real_lengths.size());
  for (std::int64_t length : real_lengths)
    sequences.push_back({length, round_up(length, multiple)});
  return Pack(std::move(sequences));
}

std::int64_t Pack::max_padded_length() const {
  std::int64_t longest = 0;
  for (const Sequence& s : sequences_) longest = std::max(longest, s.padded_length);
  return longest;
}

}  // namespace dyncp
