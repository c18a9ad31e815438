// Recorded slices: a right file passes, and every wrong slicer, written here by itself, is named.
#include "runtime/checks/zigzag_candidate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

// Real 13 7 1 0 21 tokens, no two sequences alike, none a multiple; padded by 2*4, once more than
// needed. Divisible by sizes 1, 2 and 4.
const Rows kLengths = {13, 7, 1, 0, 21};
const Rows kPadded = {16, 8, 16, 0, 24};
constexpr int kSize = 4;
constexpr std::int64_t kTokens = 64;

Candidate candidate(std::optional<int> rank, int size = kSize) {
  Candidate c;
  c.problem.driver = "zigzag";
  c.problem.lengths = kLengths;
  c.problem.padded = kPadded;
  c.problem.cp = size;
  c.problem.first_rank = 8;
  c.rank = rank;
  return c;
}

NamedTensor integers(const Rows& values, std::vector<std::int64_t> shape = {}) {
  NamedTensor tensor;
  tensor.dtype = "I64";
  tensor.shape = shape.empty() ? Rows{static_cast<std::int64_t>(values.size())} : std::move(shape);
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

Safetensors file_of(const Candidate& c, std::map<std::string, NamedTensor> tensors) {
  return {{{std::string(kCandidateKey), candidate_header(c)}}, std::move(tensors)};
}

// Through bytes and back, as from a file.
CaseResult judge(const Safetensors& file) {
  const Safetensors read = parse_safetensors(serialize_safetensors(file));
  return judge_zigzag(read_candidate(read).problem, read);
}

CaseResult judge_rows(const Rows& rows, int rank, int size = kSize) {
  return judge(file_of(candidate(rank, size), {{"rows", integers(rows)}}));
}

// The one finding says `name` and that it explains everything.
void expect_named(const CaseResult& result, const std::string& name) {
  ASSERT_EQ(result.status(), Status::kFailed) << name;
  EXPECT_NE(result.reason().find("this looks like " + name), std::string::npos)
      << "expected " << name << "\n"
      << result.reason();
  EXPECT_EQ(result.reason().find("no known mistake"), std::string::npos);
}

void expect_complete(const CaseResult& result, const std::string& name) {
  expect_named(result, name);
  EXPECT_NE(result.reason().find("and every right one"), std::string::npos) << result.reason();
}

// ---- Wrong slicers ----------------------------------------------------------------------------

// Chunks of one sequence of `length` tokens in `count` equal parts, in the given order.
Rows chunks(std::int64_t start, std::int64_t length, int count, const std::vector<int>& order) {
  Rows rows;
  for (int chunk : order) {
    for (std::int64_t i = 0; i < length / count; ++i)
      rows.push_back(start + chunk * (length / count) + i);
  }
  return rows;
}

Rows per_sequence(const Rows& lengths, int count, const std::vector<int>& order) {
  Rows rows;
  std::int64_t start = 0;
  for (std::int64_t length : lengths) {
    const Rows part = chunks(start, length, count, order);
    rows.insert(rows.end(), part.begin(), part.end());
    start += length;
  }
  return rows;
}

Rows zigzag(const Rows& lengths, int size, int rank) {
  if (size == 1) return per_sequence(lengths, 1, {0});
  return per_sequence(lengths, 2 * size, {rank, 2 * size - 1 - rank});
}

TEST(ZigzagCandidate, ARightFilePasses) {
  for (int rank = 0; rank < kSize; ++rank) {
    const CaseResult result = judge_rows(zigzag(kPadded, kSize, rank), rank);
    EXPECT_EQ(result.status(), Status::kPassed) << result.reason();
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(judge_rows(zigzag(kPadded, 2, rank), rank, 2).status(), Status::kPassed);
  }
  EXPECT_EQ(judge_rows(zigzag(kPadded, 1, 0), 0, 1).status(), Status::kMistrusted);
}

TEST(ZigzagCandidate, AllRanksStacked) {
  Rows stacked;
  for (int rank = 0; rank < kSize; ++rank) {
    const Rows rows = zigzag(kPadded, kSize, rank);
    stacked.insert(stacked.end(), rows.begin(), rows.end());
  }
  const Safetensors right =
      file_of(candidate(std::nullopt), {{"rows", integers(stacked, {4, 16})}});
  EXPECT_EQ(judge(right).status(), Status::kPassed) << judge(right).reason();
  std::swap_ranges(stacked.begin() + 16, stacked.begin() + 32, stacked.begin() + 32);
  const CaseResult swapped =
      judge(file_of(candidate(std::nullopt), {{"rows", integers(stacked, {4, 1, 16})}}));
  ASSERT_EQ(swapped.findings().size(), 2U);
  EXPECT_NE(swapped.findings()[0].message.find("rank 1: 16 of 16 rows"), std::string::npos)
      << swapped.findings()[0].message;
  EXPECT_NE(swapped.findings()[0].message.find("looks like the slice of rank 2"),
            std::string::npos);
  EXPECT_NE(swapped.findings()[1].message.find("looks like the slice of rank 1"),
            std::string::npos);
}

TEST(ZigzagCandidate, EveryWrongSlicerIsNamed) {
  for (int rank = 0; rank < kSize; ++rank) {
    const auto wrong = [&](const Rows& rows) { return judge_rows(rows, rank); };
    const int other = (rank + 1) % kSize;
    expect_complete(wrong(zigzag(kPadded, kSize, other)),
                    "the slice of rank " + std::to_string(other));
    expect_named(wrong(per_sequence(kPadded, 1, {0})), "the whole pack, not sliced");
    expect_complete(wrong(zigzag({kTokens}, kSize, rank)),
                    "zigzag of the whole buffer as one sequence");
    expect_complete(wrong(zigzag({kTokens}, kSize, other)),
                    "zigzag of the whole buffer as one sequence, of rank " + std::to_string(other));
    expect_complete(wrong(per_sequence(kPadded, kSize, {rank})),
                    "a contiguous part of each sequence");
    expect_complete(wrong(chunks(0, kTokens, kSize, {rank})),
                    "a contiguous part of the whole pack");
    expect_complete(wrong(per_sequence(kPadded, 2 * kSize, {rank, kSize + rank})),
                    "chunk rank + size in place of the mirror chunk");
    expect_complete(wrong(per_sequence(kPadded, 2 * kSize, {2 * kSize - 1 - rank, rank})),
                    "the mirror chunk before the front chunk");
    // Cut again: the local rows as a pack of their own, by sequence or as one.
    const Rows right = zigzag(kPadded, kSize, rank);
    expect_named(wrong(gather(right, zigzag({16}, kSize, rank))),
                 "a slice that was sliced again as one sequence");
    Rows offset = right;
    for (std::int64_t& row : offset) row += 3;
    expect_complete(wrong(offset), "rows off by +3");
    for (int r = 0; r < 2; ++r) {
      expect_named(wrong(zigzag(kPadded, 2, r)),
                   "the slice of rank " + std::to_string(r) + " in a group of size 2");
    }
    // All front chunks, then all mirror chunks.
    Rows grouped = per_sequence(kPadded, 2 * kSize, {rank});
    const Rows mirrors = per_sequence(kPadded, 2 * kSize, {2 * kSize - 1 - rank});
    grouped.insert(grouped.end(), mirrors.begin(), mirrors.end());
    expect_complete(wrong(grouped), "all front chunks, then all mirror chunks");
  }
}

TEST(ZigzagCandidate, SlicedAgainBySequence) {
  // Lengths 32 and 64 on 4 ranks leave 8 and 16 local rows, which divide again.
  Candidate c = candidate(2);
  c.problem.lengths = {31, 50};
  c.problem.padded = {32, 64};
  const Rows once = zigzag({32, 64}, 4, 2);
  const Rows twice = gather(once, zigzag({8, 16}, 4, 2));
  expect_named(judge(file_of(c, {{"rows", integers(twice)}})), "a slice that was sliced again");
}

TEST(ZigzagCandidate, MirrorChunkReversed) {
  Candidate c = candidate(1);
  c.problem.lengths = {31, 50};
  c.problem.padded = {32, 64};
  Rows rows;
  for (const std::int64_t length : {32, 64}) {
    const std::int64_t start = length == 32 ? 0 : 32, chunk = length / 8;
    for (std::int64_t i = 0; i < chunk; ++i) rows.push_back(start + chunk + i);
    for (std::int64_t i = chunk - 1; i >= 0; --i) rows.push_back(start + 6 * chunk + i);
  }
  expect_complete(judge(file_of(c, {{"rows", integers(rows)}})),
                  "the mirror chunk in reverse order");
}

TEST(ZigzagCandidate, RealBoundariesAsTheLayout) {
  // cu_seqlens 0 16 24: sequences lie at 0 and 16, but padding put the second one at row 24.
  Candidate c = candidate(0, 2);
  c.problem.lengths = {16, 8};
  c.problem.padded = {24, 12};
  const Rows rows = zigzag({16, 8}, 2, 0);
  expect_named(judge(file_of(c, {{"rows", integers(rows)}})),
               "zigzag by cu_seqlens (real lengths) instead of cu_seqlens_padded");
}

TEST(ZigzagCandidate, AnotherSizesSliceUnderSizeOne) {
  // A sequence short enough for CP size 1 that fell back to the build-time group's slice.
  expect_named(judge_rows(zigzag(kPadded, 4, 2), 0, 1), "the slice of rank 2 in a group of size 4");
}

TEST(ZigzagCandidate, UnknownNonsenseIsNotNamed) {
  std::mt19937_64 random(3);
  Rows rows = zigzag(kPadded, kSize, 1);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  const CaseResult result = judge_rows(rows, 1);
  EXPECT_EQ(result.status(), Status::kFailed);
  EXPECT_NE(result.reason().find("no known mistake explains"), std::string::npos)
      << result.reason();
}

TEST(ZigzagCandidate, OneWrongRowIsLocated) {
  Rows rows = zigzag(kPadded, kSize, 1);
  rows[5] = 40;
  const CaseResult result = judge_rows(rows, 1);
  ASSERT_EQ(result.findings().size(), 1U);
  EXPECT_EQ(result.findings()[0].check, "zigzag.rows");
  EXPECT_NE(
      result.reason().find("rank 1: 1 of 16 rows of tensor rows are wrong, the first is local row "
                           "5: expected row 22 of the pack (sequence 1, position 6), got row "
                           "40 (sequence 4, position 0)"),
      std::string::npos)
      << result.reason();
}

// ---- Payloads ---------------------------------------------------------------------------------

NamedTensor random_payload(std::int64_t rows, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  NamedTensor tensor;
  tensor.dtype = "F32";
  tensor.shape = {rows, 2, 3};
  for (std::int64_t i = 0; i < rows * 6; ++i) {
    tensor.values.push_back(static_cast<double>(random() % 1000) / 8.0);
  }
  return tensor;
}

NamedTensor take(const NamedTensor& whole, const Rows& rows, bool batch = false) {
  NamedTensor slice;
  slice.dtype = whole.dtype;
  slice.shape = whole.shape;
  slice.shape[0] = static_cast<std::int64_t>(rows.size());
  if (batch) slice.shape.insert(slice.shape.begin(), 1);
  const std::size_t width = whole.values.size() / static_cast<std::size_t>(whole.shape[0]);
  for (std::int64_t row : rows) {
    for (std::size_t i = 0; i < width; ++i) {
      slice.values.push_back(whole.values[static_cast<std::size_t>(row) * width + i]);
    }
  }
  return slice;
}

TEST(ZigzagCandidate, ProvenanceOfAnyPayload) {
  NamedTensor hidden = random_payload(kTokens, 5);
  hidden.values[3] = std::numeric_limits<double>::quiet_NaN();  // padding or not: it travels along
  for (const bool batch : {false, true}) {
    const auto file = [&](const Rows& rows) {
      return file_of(candidate(1),
                     {{"hidden_global", hidden}, {"hidden", take(hidden, rows, batch)}});
    };
    const CaseResult right = judge(file(zigzag(kPadded, kSize, 1)));
    EXPECT_EQ(right.status(), Status::kPassed) << right.reason();
    expect_complete(judge(file(zigzag({kTokens}, kSize, 1))),
                    "zigzag of the whole buffer as one sequence");
    expect_complete(judge(file(per_sequence(kPadded, kSize, {1}))),
                    "a contiguous part of each sequence");
    Rows offset = zigzag(kPadded, kSize, 1);
    for (std::int64_t& row : offset) row -= 1;
    expect_complete(judge(file(offset)), "rows off by -1");
  }
  NamedTensor changed = take(hidden, zigzag(kPadded, kSize, 1));
  changed.values[20] += 1.0;
  const CaseResult result =
      judge(file_of(candidate(1), {{"hidden_global", hidden}, {"hidden", changed}}));
  EXPECT_EQ(result.status(), Status::kFailed);
  EXPECT_NE(result.reason().find("got a row that is nowhere in the pack"), std::string::npos);
}

TEST(ZigzagCandidate, APayloadOfEqualRowsIsMistrusted) {
  NamedTensor zeros = integers(Rows(static_cast<std::size_t>(kTokens), 0));
  const CaseResult result =
      judge(file_of(candidate(1), {{"tokens_global", zeros},
                                   {"tokens", take(zeros, zigzag(kPadded, kSize, 1))}}));
  EXPECT_EQ(result.status(), Status::kMistrusted);
  EXPECT_NE(result.reason().find("too much alike"), std::string::npos) << result.reason();
}

// ---- Labels, counts, boundaries ---------------------------------------------------------------

TEST(ZigzagCandidate, Labels) {
  Rows tokens;
  for (std::int64_t i = 0; i < kTokens; ++i) tokens.push_back(1000 + (i * 37) % 101);
  // Nearly full, so that the next token of most rows is real on every rank.
  Candidate c = candidate(0);
  c.problem.lengths = {15, 7, 14, 0, 23};
  const Rows labels = shift_labels(c.problem.pack(), tokens, 0);  // any value where there is none
  for (int rank = 0; rank < kSize; ++rank) {
    const Rows rows = zigzag(kPadded, kSize, rank);
    const auto file = [&](const Rows& recorded) {
      c.rank = rank;
      return file_of(
          c, {{"tokens_global", integers(tokens)}, {"labels", integers(recorded, {1, 16})}});
    };
    const CaseResult right = judge(file(gather(labels, rows)));
    EXPECT_EQ(right.status(), Status::kPassed) << right.reason();

    Rows rolled;
    const Rows slice = gather(tokens, rows);
    const Rows local = {0, 4, 6, 10, 10, 16};
    for (std::size_t s = 0; s + 1 < local.size(); ++s) {
      for (auto i = local[s]; i < local[s + 1]; ++i) {
        const auto next = i + 1 < local[s + 1] ? i + 1 : local[s];
        rolled.push_back(slice[static_cast<std::size_t>(next)]);
      }
    }
    expect_complete(judge(file(rolled)), "labels shifted inside the local slice");
    expect_complete(judge(file(slice)), "labels not shifted at all");
    const int other = (rank + 1) % kSize;
    expect_named(judge(file(gather(labels, zigzag(kPadded, kSize, other)))),
                 "labels of the slice of rank " + std::to_string(other));
  }
}

TEST(ZigzagCandidate, RealLengths) {
  for (int rank = 0; rank < kSize; ++rank) {
    // Counted one by one.
    Rows counts;
    std::int64_t start = 0;
    for (std::size_t s = 0; s < kPadded.size(); ++s) {
      std::int64_t count = 0;
      for (std::int64_t row : zigzag(kPadded, kSize, rank)) {
        count += row >= start && row < start + kLengths[s];
      }
      counts.push_back(count);
      start += kPadded[s];
    }
    const auto file = [&](const Rows& recorded) {
      return file_of(candidate(rank), {{"real_lengths", integers(recorded)}});
    };
    EXPECT_EQ(judge(file(counts)).status(), Status::kPassed) << judge(file(counts)).reason();
    Rows floors, locals;
    for (std::size_t s = 0; s < kPadded.size(); ++s) {
      floors.push_back(kLengths[s] / kSize);
      locals.push_back(kPadded[s] / kSize);
    }
    expect_complete(judge(file(floors)), "real length / size rounded down");
    expect_complete(judge(file(locals)), "padded length / size: padding counted as real");
    expect_complete(judge(file(kLengths)), "the real lengths of the whole sequences");
    EXPECT_EQ(judge(file(floors)).findings()[0].kind, Kind::kPadding);
  }
}

TEST(ZigzagCandidate, Boundaries) {
  const Rows padded = {0, 16, 24, 40, 40, 64};
  const Rows real = {0, 13, 20, 21, 21, 42};
  const auto file = [&](const std::string& name, const Rows& recorded) {
    return file_of(candidate(1), {{name, integers(recorded)}});
  };
  EXPECT_EQ(judge(file("cu_seqlens_padded", padded)).status(), Status::kPassed);
  EXPECT_EQ(judge(file("cu_seqlens", real)).status(), Status::kPassed);
  expect_complete(judge(file("cu_seqlens_padded", real)), "cu_seqlens: real lengths");
  expect_complete(judge(file("cu_seqlens", padded)), "cu_seqlens_padded: padded lengths");
  expect_complete(judge(file("cu_seqlens_padded", {0, 4, 6, 10, 10, 16})),
                  "boundaries divided by the CP size");
  expect_named(judge(file("cu_seqlens_padded", {0, 16, 24, 40, 40, 64, 64})),
               "one boundary too many");
  // Six boundaries on two ranks: chunks of one, rank 0 keeps the first and the fourth.
  const Safetensors sliced = file_of(candidate(0, 2), {{"cu_seqlens_padded", integers({0, 40})}});
  EXPECT_EQ(judge(sliced).status(), Status::kFailed);
}

TEST(ZigzagCandidate, BoundariesSlicedAsTokens) {
  Candidate c = candidate(0, 2);
  c.problem.lengths = {3, 5, 9};
  c.problem.padded = {4, 8, 12};
  // Boundaries 0 4 12 24, cut into four chunks of one: rank 0 keeps the first and the last.
  expect_named(judge(file_of(c, {{"cu_seqlens_padded", integers({0, 24})}})),
               "boundaries sliced as if they were tokens (rank 0)");
}

TEST(ZigzagCandidate, MisshapenFilesAreRefused) {
  const Rows right = zigzag(kPadded, kSize, 1);
  EXPECT_THROW(judge(file_of(candidate(1), {})), InvalidInput);
  EXPECT_THROW(judge(file_of(candidate(1), {{"rowz", integers(right)}})), InvalidInput);
  EXPECT_THROW(judge(file_of(candidate(1), {{"rows", integers(right, {2, 8})}})), InvalidInput);
  EXPECT_THROW(judge(file_of(candidate(std::nullopt), {{"rows", integers(right)}})), InvalidInput);
  NamedTensor fraction = integers(right);
  fraction.dtype = "F32";
  fraction.values[2] = 1.5;
  EXPECT_THROW(judge(file_of(candidate(1), {{"rows", fraction}})), InvalidInput);
  EXPECT_THROW(
      judge(file_of(candidate(1), {{"x", integers(right)}, {"x_global", integers(right)}})),
      InvalidInput);  // x_global has 16 rows, not 64
  EXPECT_THROW(judge(file_of(candidate(1), {{"real_lengths", integers({1, 2})}})), InvalidInput);
}

}  // namespace
}  // namespace dyncp
