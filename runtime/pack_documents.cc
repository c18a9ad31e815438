#include "runtime/pack_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "reference/error.h"
#include "reference/loss.h"
#include "reference/rope.h"
#include "reference/zigzag.h"

namespace dyncp {

PackedMicrobatch pack_documents(const std::vector<PackEntry>& entries, const CpGroup& group,
                                int rank, Contract contract) {
  std::vector<Sequence> sequences;
  std::vector<int> ids;
  for (const PackEntry& entry : entries) {
    const Document& document = *entry.document;
    if (!document.loss_mask.empty() && document.loss_mask.size() != document.tokens.size()) {
      throw InvalidInput(fmt::format("sequence {} has {} tokens and a loss mask of {} entries",
                                     entry.id, document.tokens.size(), document.loss_mask.size()));
    }
    sequences.push_back({static_cast<std::int64_t>(document.tokens.size()), entry.padded_length});
    ids.push_back(entry.id);
  }
  const Pack pack(std::move(sequences));

  // The whole pack, row by row.
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(pack.padded_tokens()), 0);
  for (int s = 0; s < pack.sequences(); ++s) {
    const Document& document = *entries[static_cast<std::size_t>(s)].document;
    std::copy(document.tokens.begin(), document.tokens.end(), tokens.begin() + pack.first_row(s));
  }
  const std::vector<std::int64_t> labels = shift_labels(pack, tokens, kIgnoreLabel);
  std::vector<std::uint8_t> mask(tokens.size(), 0);
  for (int s = 0; s < pack.sequences(); ++s) {
    const Document& document = *entries[static_cast<std::size_t>(s)].document;
    for (std::size_t i = 0; i < document.tokens.size(); ++i) {
      const std::size_t row = static_cast<std::size_t>(pack.first_row(s)) + i;
      const bool counts = document.loss_mask.empty() || document.loss_mask[i] != 0;
      mask[row] = counts && labels[row] != kIgnoreLabel ? 1 : 0;
    }
  }

  const bool has_group = group.size > 1 || contract == Contract::kV2;
  PackedSeqParams params(pack, group.size, has_group ? std::optional<CpGroup>(group) : std::nullopt,
                         rank, contract);
  const CpContext& context = params.context();
  const std::vector<std::int64_t> rows = zigzag_rows(pack, context.size(), context.rank());
  return {.params = params,
          .sequence_ids = std::move(ids),
          .tokens = gather(tokens, rows),
          .labels = gather(labels, rows),
          .positions = rope_positions(pack, context.size(), context.rank()),
          .loss_mask = gather(mask, rows)};
}

}  // namespace dyncp
