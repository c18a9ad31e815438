// `dyncp check zigzag`: the slices of every rank of one CP group, all tokens enumerated, zero
// tolerance. Payloads are provenance: each row carries its own global index.
// The judge of recorded slices is in zigzag_candidate.cc.
#include "reference/zigzag.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "reference/context.h"
#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/checks/slice_case.h"
#include "runtime/checks/zigzag_candidate.h"
#include "runtime/diagnosis.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;  // every token is enumerated
constexpr std::int64_t kShownRows = 64;                     // of a rank, in the details
constexpr int kShownRanks = 16;

// Where in the pack a padded row is.
struct Place {
  int sequence = 0;
  std::int64_t position = 0;
};

Place place_of(const Pack& pack, std::int64_t row) {
  const Rows& cu = pack.cu_seqlens_padded();
  const auto next = std::upper_bound(cu.begin(), cu.end(), row);
  const int sequence = static_cast<int>(next - cu.begin()) - 1;
  return {sequence, row - pack.first_row(sequence)};
}

// One rank: what its PackedSeqParams say, and the rows it holds by the specification.
struct RankSlice {
  CpContext context;
  Rows rows;
};

void check_bijection(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  std::vector<int> holder(static_cast<std::size_t>(pack.padded_tokens()), -1);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::int64_t previous = -1;
    for (std::int64_t row : ranks[rank].rows) {
      const bool in_range = row > previous && row < pack.padded_tokens();
      if (!result.expect("zigzag.bijection", Kind::kSlice, in_range, [&] {
            return fmt::format(
                "rank {} holds row {} after row {}, expected ascending rows below {}", rank, row,
                previous, pack.padded_tokens());
          })) {
        return;
      }
      previous = row;
      int& held_by = holder[static_cast<std::size_t>(row)];
      if (!result.expect("zigzag.bijection", Kind::kSlice, held_by == -1, [&] {
            return fmt::format("ranks {} and {} both hold row {}", held_by, rank, row);
          })) {
        return;
      }
      held_by = static_cast<int>(rank);
    }
  }
  const auto lost = std::find(holder.begin(), holder.end(), -1);
  result.expect("zigzag.bijection", Kind::kSlice, lost == holder.end(),
                [&] { return fmt::format("no rank holds row {}", lost - holder.begin()); });
}

// The inverse of the layout, sequence by sequence: who holds a token, and where.
void check_inverse(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  const ZigzagLayout layout{static_cast<int>(ranks.size())};
  const Rows local = local_boundaries(pack, layout.size);
  for (std::int64_t row = 0; row < pack.padded_tokens(); ++row) {
    const auto [s, position] = place_of(pack, row);
    const std::int64_t length = pack.padded_length(s);
    const int rank = layout.rank_of(length, position);
    const std::int64_t index =
        local[static_cast<std::size_t>(s)] + layout.local_index(length, position);
    const bool held =
        rank >= 0 && rank < layout.size && index >= 0 && index < local.back() &&
        ranks[static_cast<std::size_t>(rank)].rows[static_cast<std::size_t>(index)] == row;
    if (!result.expect("zigzag.inverse", Kind::kSlice, held, [&, s = s, position = position] {
          return fmt::format(
              "row {} (sequence {}, position {}) should be local row {} of rank {}, "
              "which holds another",
              row, s, position, index, rank);
        })) {
      return;
    }
  }
}

// Transformer Engine's closed form, evaluated per local token from the boundaries alone.
void check_formula(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  const int size = static_cast<int>(ranks.size());
  for (int rank = 0; rank < size; ++rank) {
    const Rows& rows = ranks[static_cast<std::size_t>(rank)].rows;
    const Rows formula =
        slice_by_formula(pack.cu_seqlens_padded(), size, rank, pack.padded_tokens() / size);
    const auto differ = std::mismatch(rows.begin(), rows.end(), formula.begin(), formula.end());
    result.expect("zigzag.formula", Kind::kSlice, rows == formula, [&] {
      return fmt::format("rank {}, local row {}: row {} by chunks, {} by the closed form", rank,
                         differ.first - rows.begin(),
                         differ.first == rows.end() ? -1 : *differ.first,
                         differ.second == formula.end() ? -1 : *differ.second);
    });
  }
}

// Under a causal mask a token sees position + 1 keys; every rank's sum must be the same share.
void check_balance(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  const auto size = static_cast<std::int64_t>(ranks.size());
  const Rows local = local_boundaries(pack, static_cast<int>(size));
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t length = pack.padded_length(s);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::int64_t keys = 0;
      for (std::int64_t i = local[static_cast<std::size_t>(s)];
           i < local[static_cast<std::size_t>(s) + 1]; ++i) {
        keys += ranks[rank].rows[static_cast<std::size_t>(i)] - pack.first_row(s) + 1;
      }
      if (!result.expect("zigzag.balance", Kind::kSlice, keys * 2 * size == length * (length + 1),
                         [&] {
                           return fmt::format(
                               "sequence {} of {} tokens: rank {} sees {} keys, "
                               "expected {} as every rank",
                               s, length, rank, keys, length * (length + 1) / (2 * size));
                         })) {
        return;
      }
    }
  }
}

void check_real_counts(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  const int size = static_cast<int>(ranks.size());
  const Rows local = local_boundaries(pack, size);
  Rows total(static_cast<std::size_t>(pack.sequences()), 0);
  for (int rank = 0; rank < size; ++rank) {
    const Rows counts = real_lengths_on_rank(pack, size, rank);
    const Rows& rows = ranks[static_cast<std::size_t>(rank)].rows;
    for (int s = 0; s < pack.sequences(); ++s) {
      const auto index = static_cast<std::size_t>(s);
      total[index] += counts[index];
      for (std::int64_t i = local[index]; i < local[index + 1]; ++i) {
        const std::int64_t position = rows[static_cast<std::size_t>(i)] - pack.first_row(s);
        const bool is_real = position < pack.real_length(s);
        const bool counted = i - local[index] < counts[index];
        if (!result.expect("zigzag.real_count", Kind::kPadding, is_real == counted, [&] {
              return fmt::format(
                  "sequence {} (real {}, padded {}): rank {} counts {} real rows, but "
                  "its local row {} of the sequence is position {}",
                  s, pack.real_length(s), pack.padded_length(s), rank, counts[index],
                  i - local[index], position);
            })) {
          return;
        }
      }
    }
  }
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t counted = total[static_cast<std::size_t>(s)];
    result.expect("zigzag.real_count", Kind::kPadding, counted == pack.real_length(s), [&] {
      return fmt::format("sequence {}: the ranks count {} real tokens, expected {}", s, counted,
                         pack.real_length(s));
    });
  }
}

void check_round_trip(const Pack& pack, const std::vector<RankSlice>& ranks, CaseResult& result) {
  Tensor<std::int64_t> payload(pack.padded_tokens(), 1, 2);
  for (std::int64_t row = 0; row < payload.rows; ++row) {
    payload.at(row, 0, 0) = row;
    payload.at(row, 0, 1) = -row - 1;
  }
  Tensor<std::int64_t> back(payload.rows, 1, 2, -1);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Tensor<std::int64_t> slice = gather(payload, ranks[rank].rows);
    scatter(slice, ranks[rank].rows, back);
  }
  std::int64_t row = 0;
  while (row < payload.rows && back.at(row, 0, 0) == payload.at(row, 0, 0) &&
         back.at(row, 0, 1) == payload.at(row, 0, 1)) {
    ++row;
  }
  result.expect("zigzag.round_trip", Kind::kSlice, row == payload.rows, [&] {
    return fmt::format("after slicing and putting together, row {} carries {}", row,
                       back.at(row, 0, 0));
  });
}

// Every padded length of the pack as a batch of equal lengths: batched slicing, along the sequence
// axis, must be what slicing the pack of that batch is.
void check_batched(const Pack& pack, int size, CaseResult& result) {
  constexpr int kBatch = 2;
  std::set<std::int64_t> lengths;
  for (int s = 0; s < pack.sequences(); ++s) lengths.insert(pack.padded_length(s));
  for (std::int64_t length : lengths) {
    const Pack batch(std::vector<Sequence>(kBatch, Sequence{length, length}));
    for (int rank = 0; rank < size; ++rank) {
      Rows expected;
      const Rows positions = zigzag_positions(length, size, rank);
      for (int b = 0; b < kBatch; ++b) {
        for (std::int64_t position : positions) expected.push_back(b * length + position);
      }
      result.expect("zigzag.batched", Kind::kSlice, zigzag_rows(batch, size, rank) == expected,
                    [&] {
                      return fmt::format(
                          "rank {}: a batch of {} sequences of {} tokens is sliced otherwise than "
                          "the pack of the same sequences",
                          rank, kBatch, length);
                    });
    }
  }
}

// Labels shifted before slicing belong to the token they stand beside. Shifting inside the slice is
// the control: it must differ exactly where a chunk ends and the next token lives elsewhere.
void check_labels(const Problem& problem, const Pack& pack, const std::vector<RankSlice>& ranks,
                  CaseResult& result) {
  constexpr std::int64_t kIgnored = -100;
  const int size = static_cast<int>(ranks.size());
  // Token ids are a random bijective code of the row, so that no two labels look alike.
  const auto tokens_count = static_cast<std::size_t>(pack.padded_tokens());
  std::mt19937_64 random(problem.seed);
  Rows tokens(tokens_count);
  for (std::size_t i = 0; i < tokens_count; ++i) tokens[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = tokens_count; i > 1; --i) std::swap(tokens[i - 1], tokens[random() % i]);
  const Rows labels = shift_labels(pack, tokens, kIgnored);
  const Rows local = local_boundaries(pack, size);
  std::int64_t differ = 0;
  std::int64_t expected_to_differ = 0;
  for (int rank = 0; rank < size; ++rank) {
    const Rows& rows = ranks[static_cast<std::size_t>(rank)].rows;
    const Rows sliced_labels = gather(labels, rows);
    const Rows sliced_tokens = gather(tokens, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto [s, position] = place_of(pack, rows[i]);
      const bool has_next = position + 1 < pack.real_length(s);
      const std::int64_t next = has_next ? tokens[static_cast<std::size_t>(rows[i] + 1)] : kIgnored;
      if (!result.expect(
              "zigzag.labels", Kind::kSlice, sliced_labels[i] == next,
              [&, s = s, position = position] {
                return fmt::format(
                    "rank {}, local row {} (sequence {}, position {}): label {}, expected "
                    "token {} of position {}",
                    rank, i, s, position, sliced_labels[i], next, position + 1);
              })) {
        return;
      }
      if (!has_next) continue;
      const auto end = static_cast<std::size_t>(local[static_cast<std::size_t>(s) + 1]);
      const std::int64_t rolled = i + 1 < end ? sliced_tokens[i + 1] : kIgnored;
      differ += rolled != next;
    }
    // By chunks: the front chunk's last token is followed by chunk rank + 1, which is this rank's
    // mirror chunk on the last rank alone; the mirror chunk's by chunk 2*size - rank.
    const ZigzagLayout layout{size};
    for (int s = 0; s < pack.sequences() && size > 1; ++s) {
      const std::int64_t chunk = layout.front_length(pack.padded_length(s));
      const std::int64_t real = pack.real_length(s);
      if (chunk == 0) continue;
      expected_to_differ += rank != size - 1 && (rank + 1) * chunk < real;
      expected_to_differ += rank != 0 && (2 * size - rank) * chunk < real;
    }
  }
  result.expect("zigzag.labels_control", Kind::kSlice, differ == expected_to_differ, [&] {
    return fmt::format("labels shifted inside the slices are wrong in {} rows, expected {}", differ,
                       expected_to_differ);
  });
}

// Cutting the whole buffer as one sequence is another slice as soon as two sequences have tokens.
void check_whole_buffer_control(const Pack& pack, const std::vector<RankSlice>& ranks,
                                CaseResult& result) {
  const int size = static_cast<int>(ranks.size());
  int with_tokens = 0;
  for (int s = 0; s < pack.sequences(); ++s) with_tokens += pack.padded_length(s) > 0;
  const Rows whole = zigzag_positions(pack.padded_tokens(), size, 0);
  const bool must_differ = size > 1 && with_tokens > 1;
  result.expect("zigzag.whole_buffer_control", Kind::kSlice,
                (whole != ranks.front().rows) == must_differ, [&] {
                  return fmt::format(
                      "the whole buffer cut as one sequence {} the slice of rank 0, "
                      "with {} sequences that have tokens and CP size {}",
                      must_differ ? "equals" : "differs from", with_tokens, size);
                });
}

// CP off: the one rank holds everything in order, whatever the lengths.
void check_size_one(const Pack& pack, CaseResult& result) {
  const Rows rows = zigzag_rows(pack, 1, 0);
  std::int64_t row = 0;
  while (row < static_cast<std::int64_t>(rows.size()) &&
         rows[static_cast<std::size_t>(row)] == row) {
    ++row;
  }
  result.expect("zigzag.size_one", Kind::kSlice, row == pack.padded_tokens(), [&] {
    return fmt::format("with CP size 1, {} rows are in place, expected {}", row,
                       pack.padded_tokens());
  });
}

CaseResult run(const Problem& problem) {
  const Pack pack = problem.pack();
  if (pack.padded_tokens() > kMaxTokens) {
    throw InvalidInput(
        fmt::format("check zigzag enumerates every token: {} padded tokens are more "
                    "than {}",
                    pack.padded_tokens(), kMaxTokens));
  }
  require_divisible(pack, problem.cp);
  CaseResult result;
  std::vector<RankSlice> ranks;
  for (const PackedSeqParams& params : params_of_group(problem, pack, "zigzag.params", result)) {
    const CpContext& context = params.context();
    ranks.push_back({context, zigzag_rows(params.pack(), context.size(), context.rank())});
  }
  if (ranks.empty()) return result;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Rows& rows = ranks[rank].rows;
    const auto expected = static_cast<std::size_t>(pack.padded_tokens() / problem.cp);
    if (!result.expect("zigzag.row_count", Kind::kSlice, rows.size() == expected, [&] {
          return fmt::format("rank {} holds {} rows, expected {}", rank, rows.size(), expected);
        })) {
      return result;
    }
  }
  check_bijection(pack, ranks, result);
  check_inverse(pack, ranks, result);
  check_formula(pack, ranks, result);
  check_balance(pack, ranks, result);
  check_real_counts(pack, ranks, result);
  check_round_trip(pack, ranks, result);
  check_batched(pack, problem.cp, result);
  check_labels(problem, pack, ranks, result);
  check_whole_buffer_control(pack, ranks, result);
  check_size_one(pack, result);

  if (pack.padded_tokens() / problem.cp <= kShownRows && problem.cp <= kShownRanks) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      result.detail(fmt::format(
          "rank {}: rows {}; real rows per sequence {}", rank, fmt::join(ranks[rank].rows, " "),
          fmt::join(real_lengths_on_rank(pack, problem.cp, static_cast<int>(rank)), " ")));
    }
  }
  mistrust_vacuous_slices(problem, result);
  return result;
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  return window_cases(
      "zigzag", sets, seed,
      tier == Tier::kSmoke ? WindowPlan{.windows = 1, .sequences = 24, .longest = 2000}
      : tier == Tier::kCi  ? WindowPlan{.windows = 6, .sequences = 48, .longest = 8000}
                           : WindowPlan{.windows = 24, .sequences = 100, .longest = 32000});
}

}  // namespace

const Driver& zigzag_driver() {
  static const Driver driver{"zigzag",
                             "which tokens each CP rank holds: bijection, real counts, labels",
                             {"lengths", "padded", "seed", "cp", "first-rank", "contract", "tp"},
                             run,
                             judge_zigzag,
                             gate_cases};
  return driver;
}

}  // namespace dyncp
