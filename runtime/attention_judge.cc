#include "runtime/attention_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"
#include "runtime/checks/attention_problem.h"
#include "runtime/checks/slice_case.h"

namespace dyncp {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostWork = 5e9;  // multiply-adds of one forward pass

Format format_of(const std::string& name, const NamedTensor& tensor) {
  if (tensor.dtype == "F64") return Format::kDouble;
  if (tensor.dtype == "F32") return Format::kFloat;
  if (tensor.dtype == "BF16") return Format::kBf16;
  if (tensor.dtype == "F16") return Format::kFp16;
  throw InvalidInput(
      fmt::format("tensor {} has dtype {}, expected F64, F32, F16 or BF16", name, tensor.dtype));
}

Format coarser(Format a, Format b) {
  return format_limits(a).unit_roundoff() >= format_limits(b).unit_roundoff() ? a : b;
}

bool has(const Safetensors& file, const std::string& name) {
  return file.tensors.find(name) != file.tensors.end();
}

/// Reads tensors of one candidate into pack order.
class Reader {
 public:
  Reader(const Candidate& candidate, const Safetensors& file)
      : candidate_(candidate),
        file_(file),
        pack_(candidate.problem.pack()),
        size_(candidate.problem.cp),
        local_(pack_.padded_tokens() / size_) {}

  const Pack& pack() const { return pack_; }

  /// [rows, heads, dim] in pack order; rows of other ranks are NaN when only this rank's were
  /// recorded, and `whole` says whether all were.
  Tensor<double> rows(const std::string& name, bool& whole) const {
    const NamedTensor& tensor = find_tensor(file_, name);
    std::vector<std::int64_t> shape = tensor.shape;
    const auto expected = [&] {
      return InvalidInput(fmt::format(
          "tensor {} has shape {}, expected [{}, heads, dim] (the pack) or [{}, {}, heads, dim] "
          "(all slices){}",
          name, shape_text(tensor), pack_.padded_tokens(), size_, local_,
          candidate_.rank
              ? fmt::format(" or [{}, heads, dim] (the slice of rank {})", local_, *candidate_.rank)
              : ""));
    };
    if (shape.size() < 3 || shape.size() > 4) throw expected();
    const std::int64_t heads = shape[shape.size() - 2], dim = shape.back();
    if (heads < 1 || dim < 1 || heads > 4096 || dim > 4096) throw expected();
    if (shape.size() == 4 && shape[0] == 1 && size_ > 1) shape.erase(shape.begin());
    const auto at = [&](std::int64_t index) {
      return tensor.values[static_cast<std::size_t>(index)];
    };
    Tensor<double> result(pack_.padded_tokens(), static_cast<int>(heads), static_cast<int>(dim),
                          kNaN);
    const std::int64_t width = heads * dim;
    const auto copy = [&](const std::vector<std::int64_t>& targets, std::int64_t first) {
      for (std::size_t i = 0; i < targets.size(); ++i) {
        for (std::int64_t x = 0; x < width; ++x) {
          result.data[static_cast<std::size_t>(targets[i] * width + x)] =
              at((first + static_cast<std::int64_t>(i)) * width + x);
        }
      }
    };
    whole = true;
    if (shape.size() == 4) {
      if (shape[0] != size_ || shape[1] != local_) throw expected();
      for (int rank = 0; rank < size_; ++rank) {
        copy(zigzag_rows(pack_, size_, rank), rank * local_);
      }
    } else if (shape[0] == pack_.padded_tokens()) {
      result.data = tensor.values;
    } else if (candidate_.rank && shape[0] == local_) {
      copy(zigzag_rows(pack_, size_, *candidate_.rank), 0);
      whole = false;
    } else {
      throw expected();
    }
    return result;
  }

  /// [heads, rows] in pack order, and the units it was stored in.
  HeadRows<double> lse(const std::string& name, int heads,
                       std::vector<std::vector<std::int64_t>>& units, bool& transposed) const {
    const NamedTensor& tensor = find_tensor(file_, name);
    std::vector<std::int64_t> shape = tensor.shape;
    const auto expected = [&] {
      return InvalidInput(fmt::format(
          "tensor {} has shape {}, expected [{}, {}] (the pack){}", name, shape_text(tensor), heads,
          pack_.padded_tokens(),
          size_ == 1 ? ""
          : candidate_.rank
              ? fmt::format(" or [{}, {}] (the slice of rank {})", heads, local_, *candidate_.rank)
              : fmt::format(" or [{}, {}, {}] (all slices)", size_, heads, local_)));
    };
    if (shape.size() == 3 && shape[2] == 1 && local_ != 1) shape.pop_back();
    if (shape.size() == 4 && shape[3] == 1) shape.pop_back();
    if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
    const bool slices = shape.size() == 3;
    if (slices && shape[0] != size_) throw expected();
    if (slices) shape.erase(shape.begin());
    if (shape.size() != 2) throw expected();
    const auto fits = [&](std::int64_t a, std::int64_t b) {
      return a == heads && (b == local_ || (!slices && b == pack_.padded_tokens()));
    };
    transposed = !fits(shape[0], shape[1]) && fits(shape[1], shape[0]);
    if (!transposed && !fits(shape[0], shape[1])) throw expected();
    const std::int64_t rows = transposed ? shape[0] : shape[1];
    units.clear();
    if (slices) {
      for (int rank = 0; rank < size_; ++rank) units.push_back(zigzag_rows(pack_, size_, rank));
    } else if (candidate_.rank && rows == local_) {
      units.push_back(zigzag_rows(pack_, size_, *candidate_.rank));
    } else if (rows == pack_.padded_tokens()) {
      units.push_back(zigzag_rows(pack_, 1, 0));
    } else {
      throw expected();
    }
    HeadRows<double> result(heads, pack_.padded_tokens(), kNaN);
    std::size_t next = 0;
    for (const std::vector<std::int64_t>& unit : units) {
      for (std::int64_t a = 0; a < shape[0]; ++a) {
        for (std::int64_t b = 0; b < shape[1]; ++b) {
          const std::int64_t h = transposed ? b : a, i = transposed ? a : b;
          result.at(static_cast<int>(h), unit[static_cast<std::size_t>(i)]) = tensor.values[next++];
        }
      }
    }
    return result;
  }

 private:
  const Candidate& candidate_;
  const Safetensors& file_;
  Pack pack_;
  int size_;
  std::int64_t local_;
};

void require_finite(const char* name, const Tensor<double>& tensor, const Pack& pack,
                    const std::vector<bool>& rows) {
  for (int s = 0; s < pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const std::int64_t row = pack.first_row(s) + i;
      if (!rows[static_cast<std::size_t>(row)]) continue;
      for (int h = 0; h < tensor.heads; ++h) {
        for (int d = 0; d < tensor.dim; ++d) {
          if (std::isfinite(tensor.at(row, h, d))) continue;
          throw InvalidInput(fmt::format(
              "tensor {}: position {} of sequence {} is {}, and with such an input nothing can be "
              "compared",
              name, i, s, tensor.at(row, h, d)));
        }
      }
    }
  }
}

}  // namespace

RecordedAttention read_attention(const Safetensors& file) {
  const Candidate candidate = read_candidate(file);
  const Reader reader(candidate, file);
  const Problem& problem = candidate.problem;
  RecordedAttention result;
  AttentionRecording& recording = result.recording;
  recording.pack = reader.pack();
  recording.size = problem.cp;
  recording.options.causal = problem.mask != "full";
  recording.options.window = problem.window;
  recording.recorded.assign(static_cast<std::size_t>(recording.pack.padded_tokens()),
                            !candidate.rank.has_value());
  if (candidate.rank) {
    for (std::int64_t row : zigzag_rows(recording.pack, problem.cp, *candidate.rank)) {
      recording.recorded[static_cast<std::size_t>(row)] = true;
    }
  }
  const std::vector<bool> all_rows(recording.recorded.size(), true);
  const auto rank_text = [&] { return fmt::format("rank {}", candidate.rank.value_or(0)); };

  bool q_whole = false, k_whole = false, v_whole = false, whole = false;
  recording.q = reader.rows("q", q_whole);
  recording.k = reader.rows("k", k_whole);
  recording.v = reader.rows("v", v_whole);
  if (!k_whole || !v_whole) {
    throw InvalidInput(fmt::format(
        "k and v are those of {} alone: its queries see keys of every rank, expected [{}, heads, "
        "dim] or [{}, {}, heads, dim]",
        rank_text(), recording.pack.padded_tokens(), problem.cp,
        recording.pack.padded_tokens() / problem.cp));
  }
  if (problem.sink) {
    const NamedTensor& sink = find_tensor(file, "sink");
    recording.options.sink = sink.values;
  }
  require_valid_attention(recording.pack.padded_tokens(), recording.q, recording.k, recording.v,
                          recording.options);
  const AttentionShape shape{recording.q.heads, recording.k.heads, recording.q.dim,
                             recording.v.dim};
  const double work = attention_work(recording.pack, shape, recording.options);
  if (work > kMostWork) {
    throw InvalidInput(fmt::format(
        "the recording needs {:.1e} multiply-adds of naive loops, expected at most {:.0e}: record "
        "fewer heads or shorter sequences",
        work, kMostWork));
  }
  require_finite("q", recording.q, recording.pack, q_whole ? all_rows : recording.recorded);
  require_finite("k", recording.k, recording.pack, all_rows);
  require_finite("v", recording.v, recording.pack, all_rows);

  Format storage = coarser(
      format_of("q", find_tensor(file, "q")),
      coarser(format_of("k", find_tensor(file, "k")), format_of("v", find_tensor(file, "v"))));
  Format accumulator = Format::kDouble;
  const auto note = [&](const std::string& name) {
    const Format format = format_of(name, find_tensor(file, name));
    storage = coarser(storage, format);
  };
  const auto read = [&](const std::string& name, int heads, int dim) {
    Tensor<double> tensor = reader.rows(name, whole);
    if (tensor.heads != heads || tensor.dim != dim) {
      throw InvalidInput(fmt::format("tensor {} has {} heads of {}, expected {} of {}", name,
                                     tensor.heads, tensor.dim, heads, dim));
    }
    note(name);
    return tensor;
  };
  if (has(file, "o")) recording.o = read("o", shape.heads, shape.value_dim);
  if (has(file, "lse")) {
    recording.lse = reader.lse("lse", shape.heads, recording.units, result.lse_transposed);
    const Format format = format_of("lse", find_tensor(file, "lse"));
    if (format != Format::kDouble && format != Format::kFloat) {
      throw InvalidInput("tensor lse has dtype " + find_tensor(file, "lse").dtype +
                         ", expected F32 or F64: LSE in 16 bits says too little");
    }
    if (format == Format::kFloat) accumulator = Format::kFloat;
  }
  const bool gradients = has(file, "dq") || has(file, "dk") || has(file, "dv");
  if (gradients) {
    recording.d_o = read("do", shape.heads, shape.value_dim);
    const bool d_o_whole = whole;
    require_finite("do", *recording.d_o, recording.pack, d_o_whole ? all_rows : recording.recorded);
    if (has(file, "dq")) recording.dq = read("dq", shape.heads, shape.dim);
    const bool keys = has(file, "dk") || has(file, "dv");
    if (keys && (!q_whole || !d_o_whole)) {
      throw InvalidInput(
          fmt::format("dk and dv need q and do of all ranks, but those of {} alone were recorded",
                      rank_text()));
    }
    if (has(file, "dk")) recording.dk = read("dk", shape.kv_heads, shape.dim);
    if (has(file, "dv")) recording.dv = read("dv", shape.kv_heads, shape.value_dim);
  }
  if (!recording.o && !recording.lse && !gradients) {
    throw InvalidInput("the file has none of o, lse, dq, dk and dv: nothing to judge");
  }
  if (storage != Format::kDouble) accumulator = Format::kFloat;
  const Accumulation accumulation = problem.cp > 1 ? Accumulation::kRounded : Accumulation::kWide;
  const RingPlan plan = make_ring_plan(recording.pack, problem.cp, recording.options.causal,
                                       recording.options.window);
  AttentionPrecision precision = ring_precision(plan, Arithmetic::kDouble, accumulation);
  precision.storage = storage;
  precision.accumulator = accumulator;
  result.precision = precision;
  return result;
}

namespace {

/// "sequence 1 position 17 (rank 2)".
std::string place_text(const AttentionRecording& recording, std::int64_t row) {
  const auto& cu = recording.pack.cu_seqlens_padded();
  const int s = static_cast<int>(std::upper_bound(cu.begin(), cu.end(), row) - cu.begin()) - 1;
  const std::int64_t position = row - recording.pack.first_row(s);
  const int rank = ZigzagLayout{recording.size}.rank_of(recording.pack.padded_length(s), position);
  return recording.size == 1 ? fmt::format("sequence {} position {}", s, position)
                             : fmt::format("sequence {} position {} (rank {})", s, position, rank);
}

/// Rows that a result must leave at zero.
template <typename Visit>
void for_each_padding_row(const AttentionRecording& recording, Visit visit) {
  for (int s = 0; s < recording.pack.sequences(); ++s) {
    for (std::int64_t i = recording.pack.real_length(s); i < recording.pack.padded_length(s); ++i) {
      const std::int64_t row = recording.pack.first_row(s) + i;
      if (recording.recorded[static_cast<std::size_t>(row)]) visit(row);
    }
  }
}

bool all_zero(const Tensor<double>& tensor) {
  // NaN is padding or not recorded.
  return std::all_of(tensor.data.begin(), tensor.data.end(),
                     [](double value) { return value == 0 || std::isnan(value); });
}

class Judge {
 public:
  Judge(const RecordedAttention& recorded, const std::string& driver, CaseResult& result)
      : recorded_(recorded),
        recording_(recorded.recording),
        expected_(expect_attention(recorded.recording, recorded.precision)),
        driver_(driver),
        result_(result) {}

  void run() {
    if (recording_.lse) {
      result_.expect(driver_ + ".lse_layout", Kind::kAttention, !recorded_.lse_transposed, [&] {
        return fmt::format("lse is stored as [rows, heads] ({} heads), expected [heads, rows]",
                           recording_.q.heads);
      });
    }
    forward();
    padding();
    if (recording_.dq) {
      gradient("dq", Gradient::kQuery, *recording_.dq, expected_.backward.dq, expected_.scales.dq);
    }
    if (recording_.dk) {
      gradient("dk", Gradient::kKey, *recording_.dk, expected_.backward.dk, expected_.scales.dk);
    }
    if (recording_.dv) {
      gradient("dv", Gradient::kValue, *recording_.dv, expected_.backward.dv, expected_.scales.dv);
    }
  }

 private:
  void forward() {
    RowVerdict o, lse, either;
    if (recording_.o) o = judge_o(recording_, expected_);
    if (recording_.lse) lse = judge_lse(recording_, expected_);
    if (!recording_.o && !recording_.lse) return;
    // A row is right when everything recorded about it is.
    const auto less = [](const HeadRow& a, const HeadRow& b) {
      return std::pair(a.row, a.head) < std::pair(b.row, b.head);
    };
    std::set_union(o.wrong.begin(), o.wrong.end(), lse.wrong.begin(), lse.wrong.end(),
                   std::back_inserter(either.wrong), less);
    std::vector<HeadRow> right;
    std::set_union(o.right.begin(), o.right.end(), lse.right.begin(), lse.right.end(),
                   std::back_inserter(right), less);
    std::set_difference(right.begin(), right.end(), either.wrong.begin(), either.wrong.end(),
                        std::back_inserter(either.right), less);
    std::string explanation;
    if (!either.wrong.empty()) explanation = explain_forward(recording_, expected_, either);
    if (recording_.o) {
      result_.expect(driver_ + ".o", Kind::kAttention, o.wrong.empty(), [&] {
        return wrong_rows("o", o, *recording_.o, expected_.forward.o) + explanation;
      });
      report("o", *recording_.o, expected_.forward.o, expected_.scales.o);
    }
    if (recording_.lse) {
      result_.expect(driver_ + ".lse", Kind::kAttention, lse.wrong.empty(), [&] {
        const HeadRow& first = lse.wrong.front();
        return fmt::format(
            "lse is wrong in {} of {} rows, the first is {} head {}: expected {:.9g}, "
            "got {:.9g}, allowed difference {:.1e}{}",
            lse.wrong.size(), lse.wrong.size() + lse.right.size(),
            place_text(recording_, first.row), first.head,
            expected_.forward.lse.at(first.head, first.row),
            recording_.lse->at(first.head, first.row),
            recorded_lse_allowed(expected_, first.head, first.row), explanation);
      });
    }
  }

  void padding() {
    const std::pair<const char*, const std::optional<Tensor<double>>*> tensors[] = {
        {"o", &recording_.o},
        {"dq", &recording_.dq},
        {"dk", &recording_.dk},
        {"dv", &recording_.dv}};
    for (const auto& named : tensors) {
      const std::optional<Tensor<double>>* const tensor = named.second;
      if (!tensor->has_value()) continue;
      std::int64_t count = 0, first = -1;
      for_each_padding_row(recording_, [&](std::int64_t row) {
        bool zero = true;
        for (int h = 0; h < (*tensor)->heads; ++h) {
          for (int d = 0; d < (*tensor)->dim; ++d) zero = zero && (*tensor)->at(row, h, d) == 0;
        }
        if (zero) return;
        if (first < 0) first = row;
        ++count;
      });
      result_.expect(driver_ + ".padding_zero", Kind::kPadding, count == 0, [&] {
        return fmt::format("{} is not zero in {} padding rows, the first is {}", named.first, count,
                           place_text(recording_, first));
      });
    }
  }

  void gradient(const char* name, Gradient which, const Tensor<double>& got,
                const Tensor<double>& reference, const ErrorScale& scale) {
    const RowVerdict rows = judge_gradient(recording_, got, reference, scale, expected_.precision);
    result_.expect(fmt::format("{}.{}", driver_, name), Kind::kAttention, rows.wrong.empty(), [&] {
      return wrong_rows(name, rows, got, reference) +
             explain_gradient(recording_, expected_, which, rows);
    });
    report(name, got, reference, scale);
  }

  std::string wrong_rows(const char* name, const RowVerdict& rows, const Tensor<double>& got,
                         const Tensor<double>& reference) const {
    const HeadRow& first = rows.wrong.front();
    int worst = 0;
    double largest = -1;
    for (int d = 0; d < got.dim; ++d) {
      const double error =
          std::fabs(got.at(first.row, first.head, d) - reference.at(first.row, first.head, d));
      if (!(error <= largest)) {
        largest = error;
        worst = d;
      }
      if (std::isnan(error)) break;
    }
    return fmt::format(
        "{} is wrong in {} of {} rows, the first is {} head {}: dimension {} "
        "expected {:.6g}, got {:.6g}",
        name, rows.wrong.size(), rows.wrong.size() + rows.right.size(),
        place_text(recording_, first.row), first.head, worst,
        reference.at(first.row, first.head, worst), got.at(first.row, first.head, worst));
  }

  void report(const char* name, const Tensor<double>& got, const Tensor<double>& reference,
              const ErrorScale& scale) {
    std::vector<bool> rows = expected_.scales.real;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = rows[i] && recording_.recorded[i];
    const TensorError error = compare(got, reference, scale, rows, expected_.precision);
    const bool statistic = expected_.precision.storage != expected_.precision.accumulator;
    result_.detail(fmt::format(
        "{}: largest difference {:.2e}, {:.2f} of the bound{}", name, error.absolute,
        error.bound_ratio,
        statistic ? fmt::format(", row statistic {:.2f} (limit {:.2f})", error.row_statistic,
                                row_statistic_limit(expected_.precision, got.dim))
                  : ""));
  }

  const RecordedAttention& recorded_;
  const AttentionRecording& recording_;
  AttentionExpectation expected_;
  std::string driver_;
  CaseResult& result_;
};

}  // namespace

void judge_recording(const RecordedAttention& recorded, const std::string& driver,
                     CaseResult& result) {
  const AttentionRecording& recording = recorded.recording;
  if (recording.pack.real_tokens() == 0) {
    result.mistrust("the pack has no tokens");
    return;
  }
  for (const auto& [name, tensor] :
       {std::pair<const char*, const Tensor<double>*>{"q", &recording.q},
        {"k", &recording.k},
        {"v", &recording.v}}) {
    if (all_zero(*tensor)) result.mistrust(fmt::format("{} is zero everywhere", name));
  }
  if (recording.d_o && all_zero(*recording.d_o)) result.mistrust("do is zero everywhere");
  Judge(recorded, driver, result).run();
}

CaseResult judge_attention(const Problem& problem, const Safetensors& file,
                           const std::string& driver) {
  CaseResult result;
  const RecordedAttention recorded = read_attention(file);
  judge_recording(recorded, driver, result);
  if (driver == "ring") mistrust_vacuous_slices(problem, result);
  return result;
}

}  // namespace dyncp
