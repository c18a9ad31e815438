#include "runtime/checks/zigzag_candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"
#include "runtime/diagnosis.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

constexpr std::string_view kGlobalSuffix = "_global";

// What all judges below share.
struct Case {
  Candidate candidate;
  Pack pack;
  int size = 1;
  std::int64_t local_rows = 0;
};

bool same_values(const double* a, const double* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool same =
        std::isnan(a[i]) ? std::isnan(b[i])
                         : std::bit_cast<std::uint64_t>(a[i]) == std::bit_cast<std::uint64_t>(b[i]);
    if (!same) return false;
  }
  return true;
}

// "sequence 1, position 3" of a padded row, or that it is none.
std::string place_text(const Pack& pack, std::int64_t row) {
  if (row < 0 || row >= pack.padded_tokens()) return "outside the pack";
  const Rows& cu = pack.cu_seqlens_padded();
  const auto sequence =
      static_cast<int>(std::upper_bound(cu.begin(), cu.end(), row) - cu.begin()) - 1;
  return fmt::format("sequence {}, position {}", sequence, row - pack.first_row(sequence));
}

// Whether two slices differ other than by which padding rows they hold.
bool differs_in_real_rows(const Pack& pack, const Rows& a, const Rows& b) {
  const auto is_real = [&pack](std::int64_t row) {
    if (row < 0 || row >= pack.padded_tokens()) return false;
    const Rows& cu = pack.cu_seqlens_padded();
    const auto s = static_cast<int>(std::upper_bound(cu.begin(), cu.end(), row) - cu.begin()) - 1;
    return row - pack.first_row(s) < pack.real_length(s);
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && (is_real(a[i]) || is_real(b[i]))) return true;
  }
  return false;
}

// Compares one rank's recorded rows with the slice. matches(local row, row of the pack) says what
// was recorded; got(local row) names it for the message.
void judge_slice(const Case& c, const std::string& check, const std::string& tensor, int rank,
                 std::int64_t recorded, const RowMatch& matches,
                 const std::function<std::optional<std::int64_t>(std::int64_t)>& got,
                 CaseResult& result) {
  const Rows expected = zigzag_rows(c.pack, c.size, rank);
  JudgedRows judged{recorded, {}, {}, matches};
  const bool right_count = recorded == c.local_rows;
  for (std::int64_t row = 0; row < recorded; ++row) {
    const bool held = right_count && matches(row, expected[static_cast<std::size_t>(row)]);
    (held ? judged.right : judged.wrong).push_back(row);
  }
  std::vector<Hypothesis> hypotheses = slice_hypotheses(c.pack, c.size, rank);
  if (right_count && judged.wrong.empty()) {
    result.expect(check, Kind::kSlice, true, nullptr);
    // Rows that are alike say nothing: the payload must tell the slice from every wrong one.
    for (const Hypothesis& hypothesis : hypotheses) {
      if (hypothesis.rows != recorded || recorded == 0) continue;
      const Rows values = hypothesis.values();
      if (!differs_in_real_rows(c.pack, values, expected)) continue;
      bool alike = true;
      for (std::size_t i = 0; i < values.size() && alike; ++i) {
        alike = matches(static_cast<std::int64_t>(i), values[i]);
      }
      if (alike) {
        result.mistrust(
            fmt::format("tensor {} would be the same for {}: its rows are too much alike", tensor,
                        hypothesis.name));
        return;
      }
    }
    return;
  }
  if (right_count) {
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    for (std::int64_t row : judged.wrong) {
      if (const auto value = got(row)) {
        pairs.emplace_back(expected[static_cast<std::size_t>(row)], *value);
      }
    }
    if (const auto offset = common_offset(pairs)) {
      hypotheses.push_back(offset_hypothesis(expected, *offset, "rows"));
    }
  }
  const auto explanation = best_explanation(judged, hypotheses);
  result.expect(check, Kind::kSlice, false, [&] {
    const auto wrong = static_cast<std::int64_t>(judged.wrong.size());
    const std::string ending = describe(explanation, wrong);
    if (!right_count) {
      return fmt::format("rank {}: tensor {} has {} rows, expected {}{}", rank, tensor, recorded,
                         c.local_rows, ending);
    }
    const std::int64_t first = judged.wrong.front();
    const std::int64_t want = expected[static_cast<std::size_t>(first)];
    const auto value = got(first);
    return fmt::format(
        "rank {}: {} of {} rows of tensor {} are wrong, the first is local row {}: expected row {} "
        "of the pack ({}), got {}{}",
        rank, wrong, recorded, tensor, first, want, place_text(c.pack, want),
        value ? fmt::format("row {} ({})", *value, place_text(c.pack, *value))
              : "a row that is nowhere in the pack",
        ending);
  });
}

void judge_rows(const Case& c, const Safetensors& file, CaseResult& result) {
  for (const RecordedRows& part : recorded_rows(c.candidate, file, "rows", 0)) {
    const Rows rows = to_integers("rows", part.values);
    judge_slice(
        c, "zigzag.rows", "rows", part.rank, part.rows,
        [&rows](std::int64_t local, std::int64_t row) {
          return rows[static_cast<std::size_t>(local)] == row;
        },
        [&rows](std::int64_t local) {
          return std::optional<std::int64_t>(rows[static_cast<std::size_t>(local)]);
        },
        result);
  }
}

// The whole pack's payload as flat rows: [padded tokens, ...] or [1, padded tokens, ...].
struct GlobalPayload {
  std::int64_t width = 1;
  int trailing = 0;
  const std::vector<double>* values = nullptr;

  const double* row(std::int64_t index) const { return values->data() + index * width; }
};

GlobalPayload global_payload(const Case& c, const Safetensors& file, const std::string& name) {
  const NamedTensor& tensor = find_tensor(file, name);
  const std::int64_t tokens = c.pack.padded_tokens();
  const auto& shape = tensor.shape;
  const bool batched = shape.size() >= 2 && shape[0] == 1 && shape[1] == tokens && tokens != 1;
  if (shape.empty() || (!batched && shape[0] != tokens)) {
    throw InvalidInput(fmt::format("tensor {} has shape {}, expected [{}, ...]: the padded pack",
                                   name, shape_text(tensor), tokens));
  }
  GlobalPayload payload;
  payload.trailing = static_cast<int>(shape.size()) - (batched ? 2 : 1);
  payload.width = tokens == 0 ? 0 : static_cast<std::int64_t>(tensor.values.size()) / tokens;
  payload.values = &tensor.values;
  return payload;
}

std::uint64_t hash_row(const double* row, std::int64_t width) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::int64_t i = 0; i < width; ++i) {
    const double value = std::isnan(row[i]) ? std::numeric_limits<double>::quiet_NaN() : row[i];
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

void judge_payload(const Case& c, const Safetensors& file, const std::string& name,
                   CaseResult& result) {
  const GlobalPayload global = global_payload(c, file, name + std::string(kGlobalSuffix));
  std::unordered_multimap<std::uint64_t, std::int64_t> rows_by_content;
  for (const RecordedRows& part : recorded_rows(c.candidate, file, name, global.trailing)) {
    if (part.rows > 0 && part.width != global.width) {
      throw InvalidInput(fmt::format("tensor {} has {} values a row, {}{} has {}", name, part.width,
                                     name, kGlobalSuffix, global.width));
    }
    const auto matches = [&](std::int64_t local, std::int64_t row) {
      return row >= 0 && row < c.pack.padded_tokens() &&
             same_values(part.row(local), global.row(row), global.width);
    };
    // Built at the first wrong row.
    const auto provenance = [&](std::int64_t local) -> std::optional<std::int64_t> {
      if (rows_by_content.empty()) {
        for (std::int64_t row = 0; row < c.pack.padded_tokens(); ++row) {
          rows_by_content.emplace(hash_row(global.row(row), global.width), row);
        }
      }
      std::optional<std::int64_t> first;
      const auto [begin, end] =
          rows_by_content.equal_range(hash_row(part.row(local), global.width));
      for (auto it = begin; it != end; ++it) {
        if (matches(local, it->second) && (!first || it->second < *first)) first = it->second;
      }
      return first;
    };
    judge_slice(c, "zigzag.payload", name, part.rank, part.rows, matches, provenance, result);
  }
}

// Labels against the tokens of the whole pack, in rows that have a next token.
void judge_labels(const Case& c, const Safetensors& file, CaseResult& result) {
  const GlobalPayload global = global_payload(c, file, "tokens_global");
  if (global.trailing != 0) throw InvalidInput("tensor tokens_global has more than one dimension");
  const Rows tokens = to_integers("tokens_global", *global.values);
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  const Rows labels = shift_labels(c.pack, tokens, kNone);
  const Rows local = local_boundaries(c.pack, c.size);
  for (const RecordedRows& part : recorded_rows(c.candidate, file, "labels", 0)) {
    if (part.rows != c.local_rows) {
      throw InvalidInput(fmt::format("tensor labels has {} rows on rank {}, expected {}", part.rows,
                                     part.rank, c.local_rows));
    }
    const Rows got = to_integers("labels", part.values);
    const Rows rows = zigzag_rows(c.pack, c.size, part.rank);
    const Rows expected = gather(labels, rows);
    const Rows slice = gather(tokens, rows);
    JudgedRows judged{part.rows, {}, {}, [&got](std::int64_t row, std::int64_t value) {
                        return got[static_cast<std::size_t>(row)] == value;
                      }};
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const auto i = static_cast<std::size_t>(row);
      if (expected[i] == kNone) continue;
      (got[i] == expected[i] ? judged.right : judged.wrong).push_back(row);
    }
    // Each hypothesis gives the label that stands in every row.
    const auto rolled = [&](bool whole_slice) {
      Rows values = slice;
      for (int s = 0; s < c.pack.sequences(); ++s) {
        const auto begin = static_cast<std::size_t>(local[static_cast<std::size_t>(s)]);
        const auto end = static_cast<std::size_t>(local[static_cast<std::size_t>(s) + 1]);
        if (!whole_slice && begin < end) {
          std::rotate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                      values.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                      values.begin() + static_cast<std::ptrdiff_t>(end));
        }
      }
      if (whole_slice && !values.empty()) {
        std::rotate(values.begin(), values.begin() + 1, values.end());
      }
      return values;
    };
    std::vector<Hypothesis> hypotheses = {
        {"labels shifted inside the local slice instead of before slicing", part.rows,
         [&] { return rolled(false); }},
        {"labels shifted through the whole local slice, across sequences, instead of before "
         "slicing",
         part.rows, [&] { return rolled(true); }},
        {"labels not shifted at all", part.rows, [&] { return Rows(slice); }},
        {"labels shifted twice", part.rows,
         [&] { return gather(shift_labels(c.pack, labels, kNone), rows); }},
        {"labels shifted the other way", part.rows, [&] {
           Rows previous(tokens.size(), kNone);
           for (std::size_t i = 1; i < tokens.size(); ++i) previous[i] = tokens[i - 1];
           return gather(previous, rows);
         }}};
    for (const Hypothesis& slicing : slice_hypotheses(c.pack, c.size, part.rank)) {
      if (slicing.rows != part.rows) continue;
      hypotheses.push_back(
          {"labels of " + slicing.name, part.rows, [&labels, slicing] {
             Rows values;
             for (std::int64_t row : slicing.values()) {
               const bool inside = row >= 0 && row < static_cast<std::int64_t>(labels.size());
               values.push_back(inside ? labels[static_cast<std::size_t>(row)] : kNone);
             }
             return values;
           }});
    }
    result.expect("zigzag.labels", Kind::kSlice, judged.wrong.empty(), [&] {
      const auto wrong = static_cast<std::int64_t>(judged.wrong.size());
      const auto first = static_cast<std::size_t>(judged.wrong.front());
      return fmt::format(
          "rank {}: {} of {} labels are wrong, the first in local row {} ({}): expected {}, got "
          "{}{}",
          part.rank, wrong, judged.wrong.size() + judged.right.size(), first,
          place_text(c.pack, rows[first]), expected[first], got[first],
          describe(best_explanation(judged, hypotheses), wrong));
    });
    if (judged.wrong.empty() && c.size > 1) {
      const Rows inside = rolled(false);
      const bool same =
          std::all_of(judged.right.begin(), judged.right.end(), [&](std::int64_t row) {
            return inside[static_cast<std::size_t>(row)] == expected[static_cast<std::size_t>(row)];
          });
      if (same && c.candidate.rank) {
        result.mistrust(fmt::format(
            "rank {}: labels shifted inside the slice would be the same in every row", part.rank));
      }
    }
  }
}

void judge_real_lengths(const Case& c, const Safetensors& file, CaseResult& result) {
  for (const RecordedRows& part : recorded_rows(c.candidate, file, "real_lengths", 0)) {
    if (part.rows != c.pack.sequences()) {
      throw InvalidInput(
          fmt::format("tensor real_lengths has {} entries on rank {}, expected one "
                      "for each of {} sequences",
                      part.rows, part.rank, c.pack.sequences()));
    }
    const Rows got = to_integers("real_lengths", part.values);
    const Rows expected = real_lengths_on_rank(c.pack, c.size, part.rank);
    JudgedRows judged{part.rows, {}, {}, [&got](std::int64_t s, std::int64_t value) {
                        return got[static_cast<std::size_t>(s)] == value;
                      }};
    for (std::int64_t s = 0; s < part.rows; ++s) {
      const auto i = static_cast<std::size_t>(s);
      (got[i] == expected[i] ? judged.right : judged.wrong).push_back(s);
    }
    const auto of_each = [&](auto count) {
      return [&c, count] {
        Rows values;
        for (int s = 0; s < c.pack.sequences(); ++s) {
          values.push_back(count(c.pack.real_length(s), c.pack.padded_length(s)));
        }
        return values;
      };
    };
    using Length = std::int64_t;
    const int size = c.size;
    std::vector<Hypothesis> hypotheses = {
        {"real length / size rounded down", part.rows,
         of_each([size](Length real, Length) { return real / size; })},
        {"real length / size rounded up", part.rows,
         of_each([size](Length real, Length) { return ceil_div(real, size); })},
        {"padded length / size: padding counted as real", part.rows,
         of_each([size](Length, Length padded) { return padded / size; })},
        {"the real lengths of the whole sequences", part.rows,
         of_each([](Length real, Length) { return real; })},
        {"real tokens of a contiguous part", part.rows,
         of_each([size, rank = part.rank](Length real, Length padded) {
           return std::clamp<Length>(real - rank * (padded / size), 0, padded / size);
         })}};
    for (int rank = 0; rank < size; ++rank) {
      if (rank == part.rank) continue;
      hypotheses.push_back({fmt::format("the counts of rank {}", rank), part.rows,
                            [&c, rank] { return real_lengths_on_rank(c.pack, c.size, rank); }});
    }
    result.expect("zigzag.real_count", Kind::kPadding, judged.wrong.empty(), [&] {
      const auto wrong = static_cast<std::int64_t>(judged.wrong.size());
      const auto s = static_cast<int>(judged.wrong.front());
      return fmt::format(
          "rank {}: the real tokens of {} of {} sequences are counted wrong, the first is sequence "
          "{} (real {}, padded {}): expected {}, got {}{}",
          part.rank, wrong, part.rows, s, c.pack.real_length(s), c.pack.padded_length(s),
          expected[static_cast<std::size_t>(s)], got[static_cast<std::size_t>(s)],
          describe(best_explanation(judged, hypotheses), wrong));
    });
  }
}

// Boundaries describe the whole pack on every rank; the usual mistakes make them local.
void judge_boundaries(const Case& c, const Safetensors& file, const std::string& name,
                      const Rows& expected, CaseResult& result) {
  const NamedTensor& tensor = find_tensor(file, name);
  const Rows got = to_integers(name, tensor.values);
  const auto recorded = static_cast<std::int64_t>(got.size());
  JudgedRows judged{recorded, {}, {}, [&got](std::int64_t i, std::int64_t value) {
                      return got[static_cast<std::size_t>(i)] == value;
                    }};
  for (std::int64_t i = 0; i < recorded; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const bool right = got.size() == expected.size() && got[index] == expected[index];
    (right ? judged.right : judged.wrong).push_back(i);
  }
  std::vector<Hypothesis> hypotheses;
  const auto add = [&hypotheses](std::string hypothesis, const Rows& values) {
    hypotheses.push_back({std::move(hypothesis), static_cast<std::int64_t>(values.size()),
                          [values] { return values; }});
  };
  Rows divided = expected, doubled = expected;
  for (std::int64_t& boundary : divided) boundary /= c.size;
  for (std::int64_t& boundary : doubled) boundary /= 2 * std::int64_t{c.size};
  const bool padded = name == "cu_seqlens_padded";
  add("boundaries divided by the CP size", divided);
  add("boundaries divided by twice the CP size", doubled);
  add(padded ? "cu_seqlens: real lengths" : "cu_seqlens_padded: padded lengths",
      padded ? c.pack.cu_seqlens() : c.pack.cu_seqlens_padded());
  // cu_seqlens itself went through the slicer, as if its entries were tokens.
  const auto entries = static_cast<std::int64_t>(expected.size());
  for (int rank = 0; rank < c.size && c.size > 1; ++rank) {
    Rows sliced;
    for (std::int64_t entry : slice_by_formula({0, entries}, c.size, rank, entries / c.size)) {
      sliced.push_back(expected[static_cast<std::size_t>(entry)]);
    }
    add(fmt::format("boundaries sliced as if they were tokens (rank {})", rank), sliced);
  }
  Rows with_end = expected;
  with_end.push_back(expected.back());
  add("one boundary too many: the end twice", with_end);
  add("the leading 0 is missing", Rows(expected.begin() + 1, expected.end()));
  result.expect("zigzag.boundaries", Kind::kSlice, got == expected, [&] {
    const std::string ending = describe(best_explanation(judged, hypotheses),
                                        static_cast<std::int64_t>(judged.wrong.size()));
    if (got.size() != expected.size()) {
      return fmt::format("{} has {} entries, expected {}{}", name, got.size(), expected.size(),
                         ending);
    }
    const auto first = static_cast<std::size_t>(judged.wrong.front());
    return fmt::format("{} has {} wrong entries, the first is entry {}: expected {}, got {}{}",
                       name, judged.wrong.size(), first, expected[first], got[first], ending);
  });
}

}  // namespace

CaseResult judge_zigzag(const Problem& problem, const Safetensors& file) {
  Case c;
  c.candidate = read_candidate(file);
  c.candidate.problem = problem;
  c.pack = problem.pack();
  c.size = problem.cp;
  require_divisible(c.pack, c.size);
  c.local_rows = c.pack.padded_tokens() / c.size;

  CaseResult result;
  const auto has = [&file](const std::string& name) { return file.tensors.contains(name); };
  bool judged = false;
  bool judged_slice = false;
  if (has("rows")) {
    judge_rows(c, file, result);
    judged = judged_slice = true;
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (!name.ends_with(kGlobalSuffix)) continue;
    const std::string local = name.substr(0, name.size() - kGlobalSuffix.size());
    if (!has(local)) continue;
    judge_payload(c, file, local, result);
    judged = judged_slice = true;
  }
  if (has("labels") && has("tokens_global") && !has("labels_global")) {
    judge_labels(c, file, result);
    judged = true;
  }
  if (has("real_lengths")) {
    judge_real_lengths(c, file, result);
    judged = true;
  }
  if (has("cu_seqlens")) {
    judge_boundaries(c, file, "cu_seqlens", c.pack.cu_seqlens(), result);
    judged = true;
  }
  if (has("cu_seqlens_padded")) {
    judge_boundaries(c, file, "cu_seqlens_padded", c.pack.cu_seqlens_padded(), result);
    judged = true;
  }
  if (!judged) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file.tensors) names.push_back(name);
    throw InvalidInput(fmt::format(
        "nothing to judge for check zigzag: expected rows, X with X_global, labels with "
        "tokens_global, real_lengths, cu_seqlens or cu_seqlens_padded; the file has {}",
        names.empty() ? "no tensors" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (c.pack.padded_tokens() == 0) {
    result.mistrust("the pack has no tokens");
  } else if (c.size == 1) {
    result.mistrust("with CP size 1 the rank holds the whole pack: nothing is sliced");
  } else if (!judged_slice) {
    result.detail("no tensor shows which rows the rank holds: add rows, or X with X_global");
  }
  return result;
}

}  // namespace dyncp
