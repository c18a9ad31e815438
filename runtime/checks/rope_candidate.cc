#include "runtime/checks/rope_candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"
#include "runtime/diagnosis.h"

namespace dyncp {
namespace {

using Positions = std::vector<std::int64_t>;

// What the judges below share.
struct Case {
  Candidate candidate;
  Pack pack;
  int size = 1;
  std::int64_t local_rows = 0;

  Positions expected(int rank) const {
    return candidate.packed_positions ? rope_positions_packed_table(pack, size, rank)
                                      : rope_positions(pack, size, rank);
  }
  std::vector<Hypothesis> hypotheses(int rank) const {
    return position_hypotheses(pack, size, rank, candidate.packed_positions);
  }
  // Local rows of `rank` that hold real tokens, ascending.
  Positions real_rows(int rank) const {
    Positions rows;
    const Positions local = local_boundaries(pack, size);
    const Positions real = real_lengths_on_rank(pack, size, rank);
    for (std::size_t s = 0; s < real.size(); ++s) {
      for (std::int64_t i = 0; i < real[s]; ++i) rows.push_back(local[s] + i);
    }
    return rows;
  }
  int sequence_of(std::int64_t local_row) const {
    const Positions local = local_boundaries(pack, size);
    return static_cast<int>(std::upper_bound(local.begin(), local.end(), local_row) -
                            local.begin()) -
           1;
  }
};

void judge_positions(const Case& c, const Safetensors& file, CaseResult& result) {
  for (const RecordedRows& part : recorded_rows(c.candidate, file, "positions", 0)) {
    const Positions got = to_integers("positions", part.values);
    const Positions expected = c.expected(part.rank);
    std::vector<Hypothesis> hypotheses = c.hypotheses(part.rank);
    JudgedRows judged{part.rows, {}, {}, [&got](std::int64_t row, std::int64_t position) {
                        return got[static_cast<std::size_t>(row)] == position;
                      }};
    const bool right_count = part.rows == c.local_rows;
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    if (right_count) {
      for (std::int64_t row : c.real_rows(part.rank)) {
        const auto i = static_cast<std::size_t>(row);
        (got[i] == expected[i] ? judged.right : judged.wrong).push_back(row);
        if (got[i] != expected[i]) pairs.emplace_back(expected[i], got[i]);
      }
      if (const auto offset = common_offset(pairs)) {
        hypotheses.push_back(offset_hypothesis(expected, *offset, "positions"));
      }
    } else {
      for (std::int64_t row = 0; row < part.rows; ++row) judged.wrong.push_back(row);
    }
    result.expect("rope.positions", Kind::kPosition, right_count && judged.wrong.empty(), [&] {
      const auto wrong = static_cast<std::int64_t>(judged.wrong.size());
      const std::string ending = describe(best_explanation(judged, hypotheses), wrong);
      if (!right_count) {
        return fmt::format("rank {}: {} positions, expected {}{}", part.rank, part.rows,
                           c.local_rows, ending);
      }
      const std::int64_t first = judged.wrong.front();
      const auto i = static_cast<std::size_t>(first);
      return fmt::format(
          "rank {}: {} of {} positions of real rows are wrong, the first is local row {} (sequence "
          "{}): expected {}, got {}{}",
          part.rank, wrong, judged.wrong.size() + judged.right.size(), first, c.sequence_of(first),
          expected[i], got[i], ending);
    });
  }
}

// One rank's recorded rotation, compared row by row with the rotation to any position.
class Rotation {
 public:
  Rotation(const Tensor<double>& input, const Tensor<double>& output, bool backward,
           const RopePrecision& precision)
      : input_(input), output_(output), backward_(backward), precision_(precision) {}

  // Whether the output row is within the bound of the input row rotated to `position`. The first
  // head alone turns most wrong positions away.
  bool matches(std::int64_t row, std::int64_t position, const RopeOptions& options) const {
    return heads_match(row, position, 1, options) &&
           heads_match(row, position, input_.heads, options);
  }

  bool unchanged(std::int64_t row) const {
    for (int h = 0; h < input_.heads; ++h) {
      for (int d = 0; d < input_.dim; ++d) {
        if (output_.at(row, h, d) != input_.at(row, h, d)) return false;
      }
    }
    return true;
  }

  // The only position in 0..end-1 that the output row fits; nothing when none or several do. Of
  // many positions the first ones and those near the expected one are tried.
  std::optional<std::int64_t> read_position(std::int64_t row, std::int64_t expected,
                                            std::int64_t end, const RopeOptions& options) const {
    constexpr std::int64_t kFirst = 1 << 13, kNear = 2048;
    std::optional<std::int64_t> found;
    const auto try_range = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t position = first; position < last; ++position) {
        if (!matches(row, position, options)) continue;
        if (found) return false;
        found = position;
      }
      return true;
    };
    const bool single =
        try_range(0, std::min(end, kFirst)) &&
        try_range(std::max(kFirst, expected - kNear), std::min(end, expected + kNear));
    return single ? found : std::nullopt;
  }

 private:
  bool heads_match(std::int64_t row, std::int64_t position, int heads,
                   const RopeOptions& options) const {
    Tensor<double> x(1, heads, input_.dim);
    const auto begin = input_.data.begin() + static_cast<std::ptrdiff_t>(input_.offset(row, 0, 0));
    std::copy(begin, begin + static_cast<std::ptrdiff_t>(x.data.size()), x.data.begin());
    const Tensor<double> y =
        backward_ ? rope_backward(x, {position}, options) : rope(x, {position}, options);
    const Tensor<double> bound = rope_error_bound(x, {position}, options, precision_);
    for (int h = 0; h < heads; ++h) {
      for (int d = 0; d < x.dim; ++d) {
        // False for NaN as well.
        if (!(std::fabs(output_.at(row, h, d) - y.at(0, h, d)) <= bound.at(0, h, d))) return false;
      }
    }
    return true;
  }

  const Tensor<double>& input_;
  const Tensor<double>& output_;
  bool backward_;
  RopePrecision precision_;
};

// Rotations with other options, which no array of positions can express.
std::vector<Hypothesis> rotation_hypotheses(const RopeOptions& options, int dim,
                                            const Positions& expected, const Rotation& rotation) {
  std::vector<Hypothesis> all;
  const auto add = [&](std::string name, const RopeOptions& other) {
    all.push_back({std::move(name), static_cast<std::int64_t>(expected.size()),
                   [&expected] { return expected; },
                   [&rotation, other](std::int64_t row, std::int64_t position) {
                     return rotation.matches(row, position, other);
                   }});
  };
  RopeOptions other = options;
  const bool half = options.pairing == Pairing::kHalf;
  other.pairing = half ? Pairing::kInterleaved : Pairing::kHalf;
  add(fmt::format("{} pairing instead of {}", to_string(other.pairing), to_string(options.pairing)),
      other);
  all.push_back({"rows that were not rotated", static_cast<std::int64_t>(expected.size()),
                 [&expected] { return expected; },
                 [&rotation](std::int64_t row, std::int64_t) { return rotation.unchanged(row); }});
  if (options.yarn) {
    other = options;
    other.yarn = std::nullopt;
    add("no YaRN: plain frequencies and no concentration", other);
    other.yarn = options.yarn;
    other.yarn->mscale = other.yarn->mscale_all_dim = 1.0;
    add("YaRN without its concentration", other);
  }
  for (const int rotary_dim : {dim, dim / 2, dim / 4}) {
    if (rotary_dim == options.rotary_dim || rotary_dim < 2 || rotary_dim % 2 != 0) continue;
    other = options;
    other.rotary_dim = rotary_dim;
    add(fmt::format("rotary dimension {} instead of {}", rotary_dim, options.rotary_dim), other);
  }
  for (const double base : {10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0}) {
    if (base == options.base) continue;
    other = options;
    other.base = base;
    add(fmt::format("base {:.0f} instead of {:.0f}", base, options.base), other);
  }
  return all;
}

// One pair of tensors: forward X -> X_rotated, backward X_rotated_grad -> X_grad.
void judge_rotation(const Case& c, const Safetensors& file, const std::string& input_name,
                    const std::string& output_name, bool backward, CaseResult& result) {
  constexpr std::size_t kReadRows = 16;  // wrong rows whose position is read back
  const NamedTensor& output_tensor = find_tensor(file, output_name);
  RopePrecision precision = rope_precision(input_name, find_tensor(file, input_name));
  const RopePrecision of_output = rope_precision(output_name, output_tensor);
  precision.unit = std::max(precision.unit, of_output.unit);
  precision.underflow = std::max(precision.underflow, of_output.underflow);
  precision.angle_unit = std::max(precision.angle_unit, of_output.angle_unit);

  const auto inputs = recorded_tensors(c.candidate, file, input_name, c.local_rows);
  const auto outputs = recorded_tensors(c.candidate, file, output_name, c.local_rows);
  const std::string check = backward ? "rope.backward" : "rope.rotated";
  for (std::size_t part = 0; part < inputs.size(); ++part) {
    const int rank = c.candidate.rank.value_or(static_cast<int>(part));
    const Tensor<double>& input = inputs[part];
    const Tensor<double>& output = outputs[part];
    if (!input.same_shape(output)) {
      throw InvalidInput(fmt::format(
          "tensors {} and {} have shapes {} and {}, expected the same", input_name, output_name,
          shape_text(find_tensor(file, input_name)), shape_text(output_tensor)));
    }
    RopeOptions options = rope_options(c.candidate.problem, input.dim);
    if (options.yarn) options.yarn = c.candidate.yarn;
    require_valid(options);
    if (options.rotary_dim > input.dim) {
      throw InvalidInput(fmt::format("rotary-dim {} is above the {} dimensions of tensor {}",
                                     options.rotary_dim, input.dim, input_name));
    }
    const Positions real = c.real_rows(rank);
    for (std::int64_t row : real) {
      for (int h = 0; h < input.heads; ++h) {
        for (int d = 0; d < input.dim; ++d) {
          if (!std::isfinite(input.at(row, h, d))) {
            throw InvalidInput(fmt::format("tensor {} holds {} in real row {} of rank {}",
                                           input_name, input.at(row, h, d), row, rank));
          }
        }
      }
    }
    const Positions expected = c.expected(rank);
    const Rotation rotation(input, output, backward, precision);
    JudgedRows judged{c.local_rows, {}, {}, [&](std::int64_t row, std::int64_t position) {
                        return rotation.matches(row, position, options);
                      }};
    std::int64_t blind = 0;  // right rows that a neighbouring position would fit as well
    for (std::int64_t row : real) {
      const std::int64_t position = expected[static_cast<std::size_t>(row)];
      if (rotation.matches(row, position, options)) {
        judged.right.push_back(row);
        blind += rotation.matches(row, position + 1, options);
      } else {
        judged.wrong.push_back(row);
      }
    }
    result.expect(check, Kind::kPosition, judged.wrong.empty(), [&] {
      std::vector<Hypothesis> hypotheses = c.hypotheses(rank);
      const auto more = rotation_hypotheses(options, input.dim, expected, rotation);
      hypotheses.insert(hypotheses.begin(), more.begin(), more.end());
      const std::int64_t end = c.pack.padded_tokens() + 64;
      std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
      std::optional<std::int64_t> first_read;
      const std::size_t stride = std::max<std::size_t>(1, judged.wrong.size() / kReadRows);
      for (std::size_t i = 0; i < judged.wrong.size(); i += stride) {
        const std::int64_t row = judged.wrong[i];
        const std::int64_t position = expected[static_cast<std::size_t>(row)];
        const auto read = rotation.read_position(row, position, end, options);
        if (i == 0) first_read = read;
        if (read) pairs.emplace_back(position, *read);
      }
      if (const auto offset = common_offset(pairs)) {
        hypotheses.push_back(offset_hypothesis(expected, *offset, "positions"));
      }
      const auto wrong = static_cast<std::int64_t>(judged.wrong.size());
      const std::int64_t first = judged.wrong.front();
      return fmt::format(
          "rank {}: {} of {} real rows of tensor {} are wrong, the first is local row {} (sequence "
          "{}): expected position {}, {}{}",
          rank, wrong, real.size(), output_name, first, c.sequence_of(first),
          expected[static_cast<std::size_t>(first)],
          first_read ? fmt::format("reads as position {}", *first_read)
                     : std::string("reads as no single position"),
          describe(best_explanation(judged, hypotheses), wrong));
    });
    if (2 * blind > static_cast<std::int64_t>(real.size())) {
      result.mistrust(fmt::format(
          "rank {}: {} of {} real rows of tensor {} would fit the next position as well: values "
          "near zero, or positions too large for the precision",
          rank, blind, real.size(), output_name));
    }
  }
}

}  // namespace

RopeOptions rope_options(const Problem& problem, int dim) {
  RopeOptions options;
  options.rotary_dim = problem.rotary_dim == 0 ? dim : problem.rotary_dim;
  options.base = problem.rope_base;
  options.pairing = parse_pairing(problem.pairing);
  if (problem.yarn_scale != 1.0) options.yarn = YarnScaling{.scale = problem.yarn_scale};
  return options;
}

CaseResult judge_rope(const Problem& problem, const Safetensors& file) {
  Case c;
  c.candidate = read_candidate(file);
  c.candidate.problem = problem;
  c.pack = problem.pack();
  c.size = problem.cp;
  require_divisible(c.pack, c.size);
  c.local_rows = c.pack.padded_tokens() / c.size;

  CaseResult result;
  bool judged = false;
  const auto has = [&file](const std::string& name) { return file.tensors.contains(name); };
  if (has("positions")) {
    judge_positions(c, file, result);
    judged = true;
  }
  for (const std::string name : {"q", "k"}) {
    if (has(name) && has(name + "_rotated")) {
      judge_rotation(c, file, name, name + "_rotated", false, result);
      judged = true;
    }
    if (has(name + "_rotated_grad") && has(name + "_grad")) {
      judge_rotation(c, file, name + "_rotated_grad", name + "_grad", true, result);
      judged = true;
    }
  }
  if (!judged) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file.tensors) names.push_back(name);
    throw InvalidInput(fmt::format(
        "nothing to judge for check rope: expected positions, q and q_rotated, k and k_rotated, "
        "q_rotated_grad and q_grad, or k_rotated_grad and k_grad; the file has {}",
        names.empty() ? "no tensors" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (c.pack.real_tokens() == 0) {
    result.mistrust("the pack has no tokens");
  } else if (c.size == 1) {
    result.mistrust("with CP size 1 the rank holds the whole pack: nothing is sliced");
  }
  return result;
}

}  // namespace dyncp
