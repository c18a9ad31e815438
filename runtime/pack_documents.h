// Documents into one rank's slice of a pack: the step between a schedule and the model. Labels are
// shifted while a sequence is whole, then tokens, labels, positions and mask are sliced together.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/context.h"
#include "runtime/microbatch.h"

namespace dyncp {

/// One sequence of a pack. `document` must outlive the call.
struct PackEntry {
  int id = 0;  // in the global batch
  const Document* document = nullptr;
  std::int64_t padded_length = 0;  // tokens
};

/// What `rank`, a member of `group`, holds of the pack of `entries`, in this order. A row counts
/// (loss_mask 1) when its document's mask says so and it has a next token; padding rows hold token
/// 0, label -100, mask 0, and positions that go on.
/// Throws InvalidInput: a padded length below the document's, a mask that is neither empty nor as
/// long as the tokens, and as PackedSeqParams does.
PackedMicrobatch pack_documents(const std::vector<PackEntry>& entries, const CpGroup& group,
                                int rank, Contract contract = Contract::kV1);

}  // namespace dyncp
