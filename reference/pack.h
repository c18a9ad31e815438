// A pack (THD): several sequences laid end to end as [tokens, heads, dim].
// Two boundary arrays describe it: cu_seqlens counts real tokens (compact), cu_seqlens_padded is
// the physical layout. Token j of sequence i lives at row cu_seqlens_padded[i] + j, never at
// cu_seqlens[i] + j. Both describe the WHOLE pack, whatever CP size runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/sequence.h"

namespace dyncp {

/// Immutable layout of a pack. Lengths and offsets in tokens; empty sequences are allowed.
class Pack {
 public:
  Pack() = default;

  /// Throws InvalidInput unless 0 <= real <= padded for every sequence.
  explicit Pack(std::vector<Sequence> sequences);

  /// Pads each real length to a multiple of `multiple` tokens. Throws InvalidInput on a negative
  /// length or multiple < 1.
  static Pack padded_to(const std::vector<std::int64_t>& real_lengths, std::int64_t multiple);

  int sequences() const { return static_cast<int>(sequences_.size()); }
  const Sequence& sequence(int index) const { return sequences_[static_cast<std::size_t>(index)]; }
  std::int64_t real_length(int index) const { return sequence(index).real_length; }
  std::int64_t padded_length(int index) const { return sequence(index).padded_length; }

  /// Prefix sums of the real lengths, sequences() + 1 entries, first 0.
  const std::vector<std::int64_t>& cu_seqlens() const { return cu_seqlens_; }
  /// Prefix sums of the padded lengths, sequences() + 1 entries, first 0.
  const std::vector<std::int64_t>& cu_seqlens_padded() const { return cu_seqlens_padded_; }

  /// First row of a sequence in the whole pack.
  std::int64_t first_row(int index) const {
    return cu_seqlens_padded_[static_cast<std::size_t>(index)];
  }
  std::int64_t real_tokens() const { return cu_seqlens_.back(); }
  std::int64_t padded_tokens() const { return cu_seqlens_padded_.back(); }
  std::int64_t max_padded_length() const;

  bool operator==(const Pack& other) const { return sequences_ == other.sequences_; }

 private:
  std::vector<Sequence> sequences_;
  std::vector<std::int64_t> cu_seqlens_ = {0};
  std::vector<std::int64_t> cu_seqlens_padded_ = {0};
};

}  // namespace dyncp
