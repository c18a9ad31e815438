// Zigzag slicing: golden vectors, the two ways of getting it wrong that look right, and bad input.
#include "reference/zigzag.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/error.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

nlohmann::json golden() {
  std::ifstream file(DYNCP_SOURCE_DIR "/fixtures/vectors/zigzag.json");
  return nlohmann::json::parse(file);
}

Pack pack_of_boundaries(const Rows& cu_seqlens_padded) {
  std::vector<Sequence> sequences;
  for (std::size_t s = 0; s + 1 < cu_seqlens_padded.size(); ++s) {
    const std::int64_t length = cu_seqlens_padded[s + 1] - cu_seqlens_padded[s];
    sequences.push_back({length, length});
  }
  return Pack(std::move(sequences));
}

TEST(Zigzag, GoldenRows) {
  const auto cases = golden().at("slices");
  ASSERT_GE(cases.size(), 9U);
  for (const auto& c : cases) {
    const int size = c.at("size");
    const Pack pack = pack_of_boundaries(c.at("cu_seqlens_padded"));
    ASSERT_EQ(c.at("rows").size(), static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(zigzag_rows(pack, size, rank),
                c.at("rows")[static_cast<std::size_t>(rank)].get<Rows>())
          << c << " rank " << rank;
    }
  }
}

TEST(Zigzag, GoldenRealCounts) {
  const auto cases = golden().at("real_counts");
  ASSERT_GE(cases.size(), 4U);
  for (const auto& c : cases) {
    const Rows real = c.at("real"), padded = c.at("padded");
    std::vector<Sequence> sequences;
    for (std::size_t s = 0; s < real.size(); ++s) sequences.push_back({real[s], padded[s]});
    const Pack pack(std::move(sequences));
    const int size = c.at("size");
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(real_lengths_on_rank(pack, size, rank),
                c.at("counts")[static_cast<std::size_t>(rank)].get<Rows>())
          << c << " rank " << rank;
    }
  }
}

TEST(Zigzag, EachSequenceIsCutByItself) {
  // Two sequences of eight tokens: the whole buffer cut as one gives rank 0 the rows 0..3 12..15.
  const Pack pack({{8, 8}, {8, 8}});
  EXPECT_EQ(zigzag_rows(pack, 2, 0), (Rows{0, 1, 6, 7, 8, 9, 14, 15}));
  EXPECT_EQ(zigzag_positions(16, 2, 0), (Rows{0, 1, 2, 3, 12, 13, 14, 15}));
}

TEST(Zigzag, LabelsAreShiftedBeforeSlicing) {
  const Pack pack({{5, 8}, {1, 4}, {0, 0}, {4, 4}});
  Rows tokens;
  for (std::int64_t i = 0; i < pack.padded_tokens(); ++i) tokens.push_back(100 + i);
  const Rows labels = shift_labels(pack, tokens, -100);
  EXPECT_EQ(labels, (Rows{101, 102, 103, 104, -100, -100, -100, -100,  //
                          -100, -100, -100, -100,                      //
                          113, 114, 115, -100}));
  // Rank 0 of 2 holds tokens 0 1 6 7 of the first sequence; token 1's label lives on rank 1.
  EXPECT_EQ(gather(labels, zigzag_rows(pack, 2, 0)),
            (Rows{101, 102, -100, -100, -100, -100, 113, -100}));
}

TEST(Zigzag, BadInputIsNamed) {
  const Pack odd({{3, 3}});
  EXPECT_NO_THROW(zigzag_rows(odd, 1, 0));
  EXPECT_THROW(zigzag_rows(odd, 2, 0), InvalidInput);
  EXPECT_THROW(zigzag_rows(Pack({{4, 4}, {6, 6}}), 2, 0), InvalidInput);  // 6 is no multiple of 4
  EXPECT_THROW(zigzag_rows(odd, 0, 0), InvalidInput);
  EXPECT_THROW(zigzag_rows(Pack({{8, 8}}), 2, 2), InvalidInput);
  EXPECT_THROW(zigzag_rows(Pack({{8, 8}}), 2, -1), InvalidInput);
  EXPECT_THROW(zigzag_positions(6, 2, 0), InvalidInput);
  EXPECT_THROW(local_boundaries(odd, 2), InvalidInput);
  EXPECT_THROW(real_lengths_on_rank(odd, 2, 0), InvalidInput);
  EXPECT_THROW(shift_labels(odd, {1, 2}), InvalidInput);
  try {
    zigzag_rows(Pack({{4, 4}, {6, 6}}), 2, 0);
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(), "padded length 6 of sequence 1 is no multiple of 2*size = 4");
  }
}

}  // namespace
}  // namespace dyncp
