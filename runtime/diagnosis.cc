#include "runtime/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "reference/rope.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

using Values = std::vector<std::int64_t>;

// CP sizes a build-time or neighbouring group may have.
std::vector<int> other_sizes(int size) {
  std::vector<int> sizes;
  for (int other = 2; other <= 16; ++other) sizes.push_back(other);
  for (int other : {32, 64, 128}) sizes.push_back(other);
  std::erase(sizes, size);
  return sizes;
}

// Which sequence of which boundaries a local row belongs to, as a search in the boundaries divided
// by the size gives it: the last sequence that starts at or before the row.
struct LocalRow {
  std::size_t sequence;
  std::int64_t index;   // row within the sequence's local rows
  std::int64_t length;  // local rows of the sequence
};

template <typename Value>
Values per_row(const Values& cu_seqlens, int size, std::int64_t rows, const Value& value) {
  Values result;
  result.reserve(static_cast<std::size_t>(rows));
  std::size_t s = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    while (s + 2 < cu_seqlens.size() && cu_seqlens[s + 1] / size <= row) ++s;
    if (cu_seqlens.size() < 2) {
      result.push_back(row);
      continue;
    }
    const std::int64_t start = cu_seqlens[s] / size;
    result.push_back(value(LocalRow{s, row - start, cu_seqlens[s + 1] / size - start}));
  }
  return result;
}

// Position by the closed form from a local row of a sequence with `length` local rows.
std::int64_t position_formula(std::int64_t index, std::int64_t length, int size, int rank) {
  if (size == 1) return index;
  const std::int64_t segment = length / 2;
  return index < segment ? rank * segment + index
                         : length * size - (rank + 1) * segment + (index - segment);
}

std::string group_name(int size, int rank) {
  return fmt::format("rank {} in a group of size {}", rank, size);
}

}  // namespace

std::vector<std::int64_t> slice_by_formula(const std::vector<std::int64_t>& cu_seqlens, int size,
                                           int rank, std::int64_t rows) {
  return per_row(cu_seqlens, size, rows, [&](const LocalRow& row) {
    if (size == 1) return cu_seqlens[row.sequence] + row.index;
    const std::int64_t half = row.length / 2;
    return cu_seqlens[row.sequence] + row.index +
           half * (row.index < half ? rank : 2 * (size - 1) - rank);
  });
}

std::vector<std::int64_t> positions_by_formula(const std::vector<std::int64_t>& cu_seqlens,
                                               int size, int rank, std::int64_t rows, bool packed) {
  return per_row(cu_seqlens, size, rows, [&](const LocalRow& row) {
    return position_formula(row.index, row.length, size, rank) +
           (packed ? cu_seqlens[row.sequence] : 0);
  });
}

std::vector<Hypothesis> slice_hypotheses(const Pack& pack, int size, int rank) {
  require_divisible(pack, size);
  const Values& cu = pack.cu_seqlens_padded();
  const std::int64_t total = pack.padded_tokens();
  const std::int64_t rows = total / size;
  const ZigzagLayout layout{size};
  std::vector<Hypothesis> all;
  const auto add = [&all](std::string name, std::int64_t count, std::function<Values()> values) {
    all.push_back({std::move(name), count, std::move(values)});
  };
  // One value per local row, from sequence, local row and the length of its chunk.
  const auto add_per_row = [&](const std::string& name, auto row_of) {
    add(name, rows, [cu, size, rows, row_of] {
      return per_row(cu, size, rows, [&](const LocalRow& row) {
        return cu[row.sequence] + row_of(row.index, row.length);
      });
    });
  };

  if (size > 1) {
    add("the whole pack, not sliced", total,
        [cu, total] { return slice_by_formula(cu, 1, 0, total); });
  }
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    add(fmt::format("the slice of rank {}", other), rows,
        [pack, size, other] { return zigzag_rows(pack, size, other); });
  }
  const auto whole_buffer = [total, size, rows](int of_rank) {
    return [total, size, rows, of_rank] {
      return slice_by_formula({0, total}, size, of_rank, rows);
    };
  };
  add("zigzag of the whole buffer as one sequence", rows, whole_buffer(rank));
  add_per_row("a contiguous part of each sequence",
              [rank](std::int64_t i, std::int64_t length) { return rank * length + i; });
  add("a contiguous part of the whole pack", rows, [rank, rows] {
    Values values;
    for (std::int64_t i = 0; i < rows; ++i) values.push_back(rank * rows + i);
    return values;
  });
  // The slice is taken for a whole pack and cut again, by sequence or as one buffer.
  const auto again = [pack, size, rank](Values boundaries) {
    return [pack, size, rank, boundaries = std::move(boundaries)] {
      const std::int64_t count = boundaries.back() / size;
      return gather(zigzag_rows(pack, size, rank), slice_by_formula(boundaries, size, rank, count));
    };
  };
  if (size > 1) {
    add("a slice that was sliced again", rows / size, again(local_boundaries(pack, size)));
    add("a slice that was sliced again as one sequence", rows / size, again({0, rows}));
  }
  add_per_row("chunk rank + size in place of the mirror chunk (counted forward)",
              [size, rank](std::int64_t i, std::int64_t length) {
                const std::int64_t chunk = length / 2;
                return i < chunk ? rank * chunk + i : (size + rank) * chunk + (i - chunk);
              });
  add_per_row("the mirror chunk before the front chunk",
              [layout, size, rank](std::int64_t i, std::int64_t length) {
                const std::int64_t chunk = length / 2;
                const std::int64_t swapped = i < chunk ? i + chunk : i - chunk;
                return layout.global_index(length * size, rank, swapped);
              });
  add_per_row("the mirror chunk in reverse order",
              [layout, size, rank](std::int64_t i, std::int64_t length) {
                const std::int64_t chunk = length / 2;
                const std::int64_t turned = i < chunk ? i : length - 1 - (i - chunk);
                return layout.global_index(length * size, rank, turned);
              });
  add("all front chunks, then all mirror chunks", rows, [pack, size, rank, layout] {
    Values values;
    for (const bool mirror : {false, true}) {
      for (int s = 0; s < pack.sequences(); ++s) {
        const std::int64_t length = pack.padded_length(s);
        const std::int64_t front = layout.front_length(length);
        for (std::int64_t i = mirror ? front : 0;
             i < (mirror ? layout.local_length(length) : front); ++i) {
          values.push_back(pack.first_row(s) + layout.global_index(length, rank, i));
        }
      }
    }
    return values;
  });
  for (const std::int64_t count : {rows, pack.real_tokens() / size}) {
    add("zigzag by cu_seqlens (real lengths) instead of cu_seqlens_padded", count,
        [pack, size, rank, count] {
          return slice_by_formula(pack.cu_seqlens(), size, rank, count);
        });
    if (rows == pack.real_tokens() / size) break;
  }
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    add(fmt::format("zigzag of the whole buffer as one sequence, of rank {}", other), rows,
        whole_buffer(other));
  }
  for (const int other : other_sizes(size)) {
    for (int r = 0; r < other; ++r) {
      add("the slice of " + group_name(other, r), total / other,
          [cu, other, r, total] { return slice_by_formula(cu, other, r, total / other); });
      add("zigzag of the whole buffer as one sequence, of " + group_name(other, r), total / other,
          [other, r, total] {
            return slice_by_formula({0, total}, other, r, total / other);
          });
    }
  }
  return all;
}

std::vector<Hypothesis> position_hypotheses(const Pack& pack, int size, int rank,
                                            bool packed_table) {
  require_divisible(pack, size);
  const Values& cu = pack.cu_seqlens_padded();
  const std::int64_t total = pack.padded_tokens();
  const std::int64_t rows = total / size;
  std::vector<Hypothesis> all;
  const auto add = [&](std::string name, std::function<Values()> values) {
    all.push_back({std::move(name), rows, std::move(values)});
  };
  // One position per local row: position_of(local row, local rows of its sequence, sequence).
  const auto add_per_row = [&](const std::string& name, auto position_of) {
    add(name, [cu, size, rows, packed_table, position_of] {
      return per_row(cu, size, rows, [&](const LocalRow& row) {
        return position_of(row.index, row.length, row.sequence) +
               (packed_table ? cu[row.sequence] : 0);
      });
    });
  };

  if (packed_table) {
    add("restarting positions: the offset cu_seqlens_padded is missing",
        [pack, size, rank] { return rope_positions(pack, size, rank); });
  } else {
    add("packed-table positions (cu_seqlens_padded added)",
        [pack, size, rank] { return rope_positions_packed_table(pack, size, rank); });
  }
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    add(fmt::format("the positions of rank {}", other), [cu, size, other, rows, packed_table] {
      return positions_by_formula(cu, size, other, rows, packed_table);
    });
  }
  if (size > 1) {
    add_per_row("positions that count the local rows, as if CP were off",
                [](std::int64_t i, std::int64_t, std::size_t) { return i; });
  }
  // Another group's size and rank, on the true local rows or with the boundaries divided by its
  // size as well. Sizes that frameworks build come first, the others last.
  const auto add_group = [&](int other) {
    for (int r = 0; r < other; ++r) {
      const std::string name =
          "the positions of " + group_name(other, r) + ": a build-time group instead of this one";
      add_per_row(name, [other, r](std::int64_t i, std::int64_t length, std::size_t) {
        return position_formula(i, length, other, r);
      });
      add(name + " (its boundaries as well)", [cu, other, r, rows, packed_table] {
        return positions_by_formula(cu, other, r, rows, packed_table);
      });
      // It also slices: an array of its own number of rows.
      if (total / other != rows) {
        all.push_back({name, total / other, [cu, other, r, total, packed_table] {
                         return positions_by_formula(cu, other, r, total / other, packed_table);
                       }});
      }
    }
  };
  for (const int other : other_sizes(size)) {
    if (std::has_single_bit(static_cast<unsigned>(other))) add_group(other);
  }
  // The first sequence's length stands in for every sequence's: chunk size and end, the end alone,
  // or the chunk size of the front half alone.
  const std::int64_t first = pack.sequences() == 0 ? 0 : pack.padded_length(0) / size;
  add_per_row("the first sequence's chunk size used for every sequence",
              [size, rank, first](std::int64_t i, std::int64_t, std::size_t) {
                return position_formula(i, first, size, rank);
              });
  if (size > 1) {
    add_per_row("the first sequence's end used for every sequence",
                [size, rank, first](std::int64_t i, std::int64_t length, std::size_t) {
                  const std::int64_t segment = length / 2;
                  return i < segment ? rank * segment + i
                                     : first * size - (rank + 1) * segment + (i - segment);
                });
    add("one counter through the pack: zigzag of the whole buffer as one sequence",
        [total, size, rank, rows] {
          return positions_by_formula({0, total}, size, rank, rows, false);
        });
    add_per_row(
        "contiguous positions (rank * local length + row)",
        [rank](std::int64_t i, std::int64_t length, std::size_t) { return rank * length + i; });
    add_per_row("the mirror chunk counted forward (as chunk rank + size)",
                [size, rank](std::int64_t i, std::int64_t length, std::size_t) {
                  const std::int64_t segment = length / 2;
                  return i < segment ? rank * segment + i : (size + rank) * segment + (i - segment);
                });
    add_per_row("the mirror chunk counted on from the front chunk",
                [rank](std::int64_t i, std::int64_t length, std::size_t) {
                  return rank * (length / 2) + i;
                });
    add_per_row("the mirror chunk counted down from its end",
                [size, rank](std::int64_t i, std::int64_t length, std::size_t) {
                  const std::int64_t segment = length / 2;
                  return i < segment ? rank * segment + i
                                     : length * size - rank * segment - 1 - (i - segment);
                });
    for (const int chunks : {1, -1}) {
      add_per_row(fmt::format("the mirror chunk one chunk too {}", chunks > 0 ? "late" : "early"),
                  [size, rank, chunks](std::int64_t i, std::int64_t length, std::size_t) {
                    const std::int64_t segment = length / 2;
                    return i < segment
                               ? rank * segment + i
                               : length * size - (rank + 1 - chunks) * segment + (i - segment);
                  });
    }
  }
  add("positions by cu_seqlens (real lengths) instead of cu_seqlens_padded",
      [pack, size, rank, rows, packed_table] {
        return positions_by_formula(pack.cu_seqlens(), size, rank, rows, packed_table);
      });
  for (const int other : other_sizes(size)) {
    if (!std::has_single_bit(static_cast<unsigned>(other))) add_group(other);
  }
  if (size > 1) {
    all.push_back({"the positions of the whole pack, not sliced", total, [cu, total, packed_table] {
                     return positions_by_formula(cu, 1, 0, total, packed_table);
                   }});
  }
  const Values expected = packed_table ? rope_positions_packed_table(pack, size, rank)
                                       : rope_positions(pack, size, rank);
  add("positions of the opposite sign", [expected] {
    Values values = expected;
    for (std::int64_t& value : values) value = -value;
    return values;
  });
  add("position 0 everywhere", [rows] { return Values(static_cast<std::size_t>(rows), 0); });
  return all;
}

Hypothesis offset_hypothesis(const std::vector<std::int64_t>& expected, std::int64_t offset,
                             const std::string& what) {
  return {fmt::format("{} off by {:+}", what, offset), static_cast<std::int64_t>(expected.size()),
          [expected, offset] {
            Values values = expected;
            for (std::int64_t& value : values) value += offset;
            return values;
          }};
}

std::optional<std::int64_t> common_offset(
    const std::vector<std::pair<std::int64_t, std::int64_t>>& expected_and_got) {
  std::map<std::int64_t, std::size_t> counts;
  for (const auto& [expected, got] : expected_and_got) ++counts[got - expected];
  std::int64_t best = 0;
  std::size_t most = 0;
  for (const auto& [offset, count] : counts) {
    if (count > most) {
      most = count;
      best = offset;
    }
  }
  if (best == 0 || 2 * most < expected_and_got.size()) return std::nullopt;
  return best;
}

std::optional<Explanation> best_explanation(const JudgedRows& recording,
                                            const std::vector<Hypothesis>& hypotheses) {
  constexpr std::size_t kSample = 64;  // a hypothesis that explains none of these is not tried on
  std::optional<Explanation> best;
  std::int64_t best_total = 0;
  const auto wrong = static_cast<std::int64_t>(recording.wrong.size());
  const auto right = static_cast<std::int64_t>(recording.right.size());
  for (const Hypothesis& hypothesis : hypotheses) {
    if (hypothesis.rows != recording.rows) continue;
    const Values values = hypothesis.values();
    const RowMatch& matches = hypothesis.matches ? hypothesis.matches : recording.matches;
    const auto explains = [&](std::int64_t row) {
      return matches(row, values[static_cast<std::size_t>(row)]);
    };
    const std::size_t stride = std::max<std::size_t>(1, recording.wrong.size() / kSample);
    bool promising = false;
    for (std::size_t i = 0; i < recording.wrong.size() && !promising; i += stride) {
      promising = explains(recording.wrong[i]);
    }
    if (!promising) continue;
    const std::int64_t wrong_explained =
        std::count_if(recording.wrong.begin(), recording.wrong.end(), explains);
    const std::int64_t total =
        wrong_explained + std::count_if(recording.right.begin(), recording.right.end(), explains);
    if (2 * wrong_explained <= wrong || total <= right) continue;
    if (!best || total > best_total) {
      best = Explanation{hypothesis.name, {}, wrong_explained, total == wrong + right};
      best_total = total;
    } else if (total == best_total && best->also.size() < 2) {
      best->also.push_back(hypothesis.name);
    }
  }
  return best;
}

std::string describe(const std::optional<Explanation>& explanation, std::int64_t wrong_rows) {
  if (!explanation) return "; no known mistake explains the wrong rows";
  std::string also;
  for (const std::string& name : explanation->also) also += ", or " + name;
  return fmt::format("; this looks like {}{} (explains {} of {} wrong rows{})", explanation->name,
                     also, explanation->wrong_explained, wrong_rows,
                     explanation->complete ? ", and every right one" : "");
}

}  // namespace dyncp
