// What wrong rows look like: named hypotheses, each generating what one kind of wrong
// implementation would have recorded, and the search for the one that explains a recording.
// A row is one token of one rank's slice; a hypothesis gives every row a value: the row of the
// whole pack it holds (slices) or its position (RoPE).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/pack.h"

namespace dyncp {

/// Whether what was recorded in a row is what `value` gives there.
using RowMatch = std::function<bool(std::int64_t row, std::int64_t value)>;

/// One way of going wrong.
struct Hypothesis {
  std::string name;       // completes "this looks like ..."
  std::int64_t rows = 0;  // how many rows it would have recorded
  /// The value of every row; called only for hypotheses with the recorded number of rows.
  std::function<std::vector<std::int64_t>()> values;
  /// Its own way of comparing, where value alone does not say it (another pairing, ...).
  RowMatch matches = nullptr;
};

/// Rows of the pack that wrong slicers hold as rank `rank` of `size`; most likely first.
/// Throws InvalidInput like zigzag_rows.
std::vector<Hypothesis> slice_hypotheses(const Pack& pack, int size, int rank);

/// Positions that wrong position maps give the rows of `rank`; `packed_table` says which of the two
/// right maps was expected. Most likely first. Throws InvalidInput like zigzag_rows.
std::vector<Hypothesis> position_hypotheses(const Pack& pack, int size, int rank,
                                            bool packed_table);

/// The values of `expected` moved by one constant.
Hypothesis offset_hypothesis(const std::vector<std::int64_t>& expected, std::int64_t offset,
                             const std::string& what);

/// The most frequent difference got - expected over the given pairs; nothing when it is 0 or when
/// fewer than half of the pairs agree on it.
std::optional<std::int64_t> common_offset(
    const std::vector<std::pair<std::int64_t, std::int64_t>>& expected_and_got);

/// What was recorded, and which of its rows count.
struct JudgedRows {
  std::int64_t rows = 0;            // recorded rows
  std::vector<std::int64_t> wrong;  // rows that are not what was expected, ascending
  std::vector<std::int64_t> right;  // rows that are; rows in neither list are not judged
  RowMatch matches;
};

/// The hypothesis that explains most rows, right ones included; nothing unless it explains more
/// than half of the wrong rows and more rows in all than there are right ones.
struct Explanation {
  std::string name;
  std::vector<std::string> also;  // other names that explain just as much, at most two
  std::int64_t wrong_explained = 0;
  bool complete = false;  // every judged row is explained
};

std::optional<Explanation> best_explanation(const JudgedRows& recording,
                                            const std::vector<Hypothesis>& hypotheses);

/// "all 8 rows are those of rank 1" style ending of a finding: "; this looks like X (explains all 6
/// wrong rows)", or that no known fault explains them.
std::string describe(const std::optional<Explanation>& explanation, std::int64_t wrong_rows);

/// The closed forms that frameworks evaluate per local row, for any boundaries (real, padded, of
/// another size): sequence s by search in the boundaries divided by `size` (rounded down, last
/// sequence for rows behind the end), i the row within it, l its local length.
///   slice     cu[s] + i + l/2 * (i < l/2 ? rank : 2(size-1) - rank)
///   position  i < l/2 ? rank*l/2 + i : l*size - (rank+1)*l/2 + (i - l/2), plus cu[s] if packed
/// With size 1 row i is row i. They agree with zigzag_rows and rope_positions where these are
/// defined. [rows]
std::vector<std::int64_t> slice_by_formula(const std::vector<std::int64_t>& cu_seqlens, int size,
                                           int rank, std::int64_t rows);
std::vector<std::int64_t> positions_by_formula(const std::vector<std::int64_t>& cu_seqlens,
                                               int size, int rank, std::int64_t rows, bool packed);

}  // namespace dyncp
