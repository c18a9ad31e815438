// Zigzag slicing of arbitrary packs: a bijection, equal work, real tokens in front, round trips.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "properties/generators.h"
#include "reference/error.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

RC_GTEST_PROP(ZigzagProperties, RanksPartitionThePack, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  Rows owner(static_cast<std::size_t>(pack.padded_tokens()), -1);
  for (int rank = 0; rank < size; ++rank) {
    const Rows rows = zigzag_rows(pack, size, rank);
    RC_ASSERT(static_cast<std::int64_t>(rows.size()) * size == pack.padded_tokens());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      RC_ASSERT(i == 0 || rows[i - 1] < rows[i]);
      RC_ASSERT(owner.at(static_cast<std::size_t>(rows[i])) == -1);
      owner[static_cast<std::size_t>(rows[i])] = rank;
    }
  }
}

RC_GTEST_PROP(ZigzagProperties, LocalRowsStayInsideTheirSequence, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const Rows local = local_boundaries(pack, size);
  RC_ASSERT(local.size() == static_cast<std::size_t>(pack.sequences()) + 1);
  for (int rank = 0; rank < size; ++rank) {
    const Rows rows = zigzag_rows(pack, size, rank);
    RC_ASSERT(local.back() == static_cast<std::int64_t>(rows.size()));
    for (int s = 0; s < pack.sequences(); ++s) {
      for (auto i = static_cast<std::size_t>(local[static_cast<std::size_t>(s)]);
           static_cast<std::int64_t>(i) < local[static_cast<std::size_t>(s) + 1]; ++i) {
        RC_ASSERT(rows[i] >= pack.first_row(s));
        RC_ASSERT(rows[i] < pack.first_row(s) + pack.padded_length(s));
      }
    }
  }
}

// The formula that Transformer Engine evaluates per local token, written from its description:
// cu[s] + i + half * (rank or 2(size-1) - rank).
RC_GTEST_PROP(ZigzagProperties, AgreesWithTheClosedFormPerToken, ()) {
  const int size = *genCpSizeAboveOne();
  const Pack pack = *genPack(size);
  for (int rank = 0; rank < size; ++rank) {
    Rows expected;
    for (int s = 0; s < pack.sequences(); ++s) {
      const std::int64_t local = pack.padded_length(s) / size;
      for (std::int64_t i = 0; i < local; ++i) {
        const std::int64_t chunks = i < local / 2 ? rank : 2 * (size - 1) - rank;
        expected.push_back(pack.first_row(s) + i + local / 2 * chunks);
      }
    }
    RC_ASSERT(zigzag_rows(pack, size, rank) == expected);
  }
}

RC_GTEST_PROP(ZigzagProperties, LayoutIsItsOwnInverse, ()) {
  const ZigzagLayout layout{*genCpSize()};
  const std::int64_t length = 2 * layout.size * std::int64_t{*genInt(0, 40)};
  for (std::int64_t global = 0; global < length; ++global) {
    const int rank = layout.rank_of(length, global);
    RC_ASSERT(rank >= 0 && rank < layout.size);
    const std::int64_t local = layout.local_index(length, global);
    RC_ASSERT(local >= 0 && local < layout.local_length(length));
    RC_ASSERT(layout.global_index(length, rank, local) == global);
  }
}

RC_GTEST_PROP(ZigzagProperties, EveryRankDoesTheSameCausalWork, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t length = pack.padded_length(s);
    for (int rank = 0; rank < size; ++rank) {
      std::int64_t visible = 0;
      for (std::int64_t position : zigzag_positions(length, size, rank)) visible += position + 1;
      RC_ASSERT(visible * 2 * size == length * (length + 1));
    }
  }
}

RC_GTEST_PROP(ZigzagProperties, RealTokensArePrefixesThatAddUp, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  std::vector<std::int64_t> total(static_cast<std::size_t>(pack.sequences()), 0);
  const Rows local = local_boundaries(pack, size);
  for (int rank = 0; rank < size; ++rank) {
    const Rows rows = zigzag_rows(pack, size, rank);
    const Rows counts = real_lengths_on_rank(pack, size, rank);
    RC_ASSERT(counts.size() == total.size());
    for (int s = 0; s < pack.sequences(); ++s) {
      const auto index = static_cast<std::size_t>(s);
      total[index] += counts[index];
      for (std::int64_t i = local[index]; i < local[index + 1]; ++i) {
        const bool real =
            rows[static_cast<std::size_t>(i)] - pack.first_row(s) < pack.real_length(s);
        RC_ASSERT(real == (i - local[index] < counts[index]));
      }
    }
  }
  for (int s = 0; s < pack.sequences(); ++s) {
    RC_ASSERT(total[static_cast<std::size_t>(s)] == pack.real_length(s));
  }
}

RC_GTEST_PROP(ZigzagProperties, ScatterUndoesGather, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  Tensor<double> payload(pack.padded_tokens(), 2, 3);
  for (std::size_t i = 0; i < payload.data.size(); ++i) payload.data[i] = static_cast<double>(i);
  Tensor<double> back(pack.padded_tokens(), 2, 3, std::numeric_limits<double>::quiet_NaN());
  for (int rank = 0; rank < size; ++rank) {
    const Rows rows = zigzag_rows(pack, size, rank);
    const Tensor<double> slice = gather(payload, rows);
    for (std::int64_t i = 0; i < slice.rows; ++i) {
      RC_ASSERT(slice.at(i, 1, 2) ==
                static_cast<double>(rows[static_cast<std::size_t>(i)] * 6 + 5));
    }
    scatter(slice, rows, back);
  }
  RC_ASSERT(back == payload);
}

RC_GTEST_PROP(ZigzagProperties, BatchIsAPackOfEqualLengths, ()) {
  const int size = *genCpSize();
  const std::int64_t length = 2 * size * std::int64_t{*genInt(0, 6)};
  const int batch = *genInt(1, 4);
  const Pack pack(std::vector<Sequence>(static_cast<std::size_t>(batch), {length, length}));
  for (int rank = 0; rank < size; ++rank) {
    Rows expected;
    for (int b = 0; b < batch; ++b) {
      for (std::int64_t position : zigzag_positions(length, size, rank)) {
        expected.push_back(b * length + position);
      }
    }
    RC_ASSERT(zigzag_rows(pack, size, rank) == expected);
  }
}

// A sequence's rows do not depend on its neighbours, nor on where it stands in the pack.
RC_GTEST_PROP(ZigzagProperties, NeighboursDoNotMatter, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  for (int rank = 0; rank < size; ++rank) {
    Rows expected;
    for (int s = 0; s < pack.sequences(); ++s) {
      for (std::int64_t row : zigzag_rows(Pack({pack.sequence(s)}), size, rank)) {
        expected.push_back(pack.first_row(s) + row);
      }
    }
    RC_ASSERT(zigzag_rows(pack, size, rank) == expected);
  }
}

RC_GTEST_PROP(ZigzagProperties, LabelsAreTheNextTokenOfTheSameSequence, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  Rows tokens;
  for (std::int64_t row = 0; row < pack.padded_tokens(); ++row) tokens.push_back(row);
  const Rows labels = shift_labels(pack, tokens, -7);
  std::int64_t labelled = 0;
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < pack.padded_length(s); ++j) {
      const std::int64_t row = pack.first_row(s) + j;
      const bool has_next = j + 1 < pack.real_length(s);
      RC_ASSERT(labels[static_cast<std::size_t>(row)] == (has_next ? row + 1 : -7));
      labelled += has_next;
    }
  }
  // Over all ranks the sliced labels are the same labels, whatever the size.
  std::int64_t sliced = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (std::int64_t label : gather(labels, zigzag_rows(pack, size, rank))) sliced += label != -7;
  }
  RC_ASSERT(sliced == labelled);
}

RC_GTEST_PROP(ZigzagProperties, LengthsThatDoNotDivideAreRefused, ()) {
  const int size = *genCpSizeAboveOne();
  const std::int64_t multiple = 2 * size;
  const std::int64_t length =
      multiple * std::int64_t{*genInt(0, 5)} + *genInt(1, static_cast<int>(multiple) - 1);
  const Pack pack({{0, 0}, {multiple, multiple}, {length, length}});
  RC_ASSERT_THROWS_AS(zigzag_rows(pack, size, 0), InvalidInput);
  RC_ASSERT_THROWS_AS(zigzag_positions(length, size, 0), InvalidInput);
}

}  // namespace
}  // namespace dyncp
