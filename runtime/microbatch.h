// One packed microbatch on one rank: what the data pipeline yields and the model consumes.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/context.h"

namespace dyncp {

/// All vectors have params.total_tokens() entries: this rank's zigzag slice of the pack, in local
/// order. Padding rows hold token 0, label -100 and mask 0.
struct PackedMicrobatch {
  PackedSeqParams params;
  std::vector<int> sequence_ids;        // ids in the global batch, in pack order
  std::vector<std::int64_t> tokens;     // 0..vocabulary-1
  std::vector<std::int64_t> labels;     // next token, shifted before slicing; -100 = none
  std::vector<std::int64_t> positions;  // restart at 0 in each sequence
  std::vector<std::uint8_t> loss_mask;  // 1 = counts
};

/// One document of the global batch.
struct Document {
  std::vector<std::int64_t> tokens;
  std::vector<std::uint8_t> loss_mask;  // per label position; empty = all ones
};

}  // namespace dyncp
