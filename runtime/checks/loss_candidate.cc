#include "runtime/checks/loss_candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/loss.h"
#include "reference/scale_fit.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

// ---- Reading the file -------------------------------------------------------------------------

const NamedTensor* optional_tensor(const Safetensors& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? nullptr : &found->second;
}

std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  shape.erase(std::remove(shape.begin(), shape.end(), 1), shape.end());
  return shape;
}

// Which rows a file holds, and how stacked tensors map to pack order.
struct FileLayout {
  int size = 1;
  std::optional<int> rank;
  std::int64_t rows = 0;
  std::vector<std::int64_t> stacked;  // row of the pack of each row of [size, rows / size]

  FileLayout(const Pack& pack, int size_in, std::optional<int> rank_in)
      : size(size_in), rank(rank_in) {
    require_divisible(pack, size);
    if (rank && (*rank < 0 || *rank >= size)) {
      throw InvalidInput(fmt::format("CP rank {} is outside 0..{}", *rank, size - 1));
    }
    rows = rank ? pack.padded_tokens() / size : pack.padded_tokens();
    for (int r = 0; !rank && r < size; ++r) {
      const auto of_rank = zigzag_rows(pack, size, r);
      stacked.insert(stacked.end(), of_rank.begin(), of_rank.end());
    }
  }
};

struct RowValues {
  std::int64_t width = 1;
  std::vector<double> values;  // [rows, width], rows in the order of the file's layout
};

// `trailing` dimensions (0 or 1) behind the rows.
RowValues row_values(const Safetensors& file, const std::string& name, const FileLayout& layout,
                     int trailing) {
  const NamedTensor& tensor = find_tensor(file, name);
  std::vector<std::int64_t> leading = tensor.shape;
  RowValues result;
  bool fits = leading.size() > static_cast<std::size_t>(trailing);
  if (fits && trailing == 1) {
    result.width = leading.back();
    leading.pop_back();
    fits = result.width >= 1 && result.width <= std::numeric_limits<int>::max();
  }
  leading = without_ones(leading);
  const bool in_order = fits && leading == without_ones({layout.rows});
  const bool is_stacked = fits && !in_order && !layout.rank &&
                          leading == without_ones({layout.size, layout.rows / layout.size});
  if (!in_order && !is_stacked) {
    const char* behind = trailing == 1 ? ", vocabulary" : "";
    std::string expected = fmt::format("[{}{}]", layout.rows, behind);
    if (!layout.rank && layout.size > 1) {
      expected += fmt::format(" or [{}, {}{}]", layout.size, layout.rows / layout.size, behind);
    }
    throw InvalidInput(fmt::format("tensor {} has shape [{}], expected {}", name,
                                   fmt::join(tensor.shape, ", "), expected));
  }
  if (in_order) {
    result.values = tensor.values;
    return result;
  }
  result.values.resize(tensor.values.size());
  for (std::size_t i = 0; i < layout.stacked.size(); ++i) {
    const auto width = static_cast<std::size_t>(result.width);
    std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                result.values.begin() + layout.stacked[i] * result.width);
  }
  return result;
}

std::vector<std::int64_t> integers_of(const Safetensors& file, const std::string& name,
                                      const FileLayout& layout) {
  std::vector<std::int64_t> result;
  for (double value : row_values(file, name, layout, 0).values) {
    if (!(std::abs(value) <= 0x1p53) || value != std::nearbyint(value)) {
      throw InvalidInput(fmt::format("tensor {} holds {} in row {}, expected integers", name, value,
                                     result.size()));
    }
    result.push_back(static_cast<std::int64_t>(value));
  }
  return result;
}

// One value for all rows of the file, or with a whole pack one for each rank.
std::vector<double> scalars_of(const NamedTensor& tensor, const std::string& name,
                               const FileLayout& layout) {
  const bool by_rank =
      !layout.rank && tensor.values.size() == static_cast<std::size_t>(layout.size);
  if (tensor.values.size() != 1 && !by_rank) {
    throw InvalidInput(fmt::format("tensor {} has {} values, expected 1{}", name,
                                   tensor.values.size(),
                                   layout.rank ? "" : ", or one for each rank"));
  }
  return tensor.values;
}

Tensor<double> logits_like(const Safetensors& file, const std::string& name,
                           const FileLayout& layout) {
  RowValues values = row_values(file, name, layout, 1);
  Tensor<double> result(0, 1, static_cast<int>(values.width));
  result.rows = layout.rows;
  result.data = std::move(values.values);
  return result;
}

LossTargets targets_of(const Safetensors& file, const FileLayout& layout) {
  LossTargets targets;
  targets.labels = integers_of(file, "labels", layout);
  for (std::int64_t value : integers_of(file, "mask", layout)) {
    if (value != 0 && value != 1) {
      throw InvalidInput(fmt::format("tensor mask holds {} in row {}, expected 0 or 1", value,
                                     targets.mask.size()));
    }
    targets.mask.push_back(static_cast<std::uint8_t>(value));
  }
  return targets;
}

std::string metadata_of(const Safetensors& file, const std::string& key,
                        const std::set<std::string>& allowed) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return "";
  if (!allowed.contains(found->second)) {
    throw InvalidInput(fmt::format("metadata {} is '{}', expected one of {}", key, found->second,
                                   fmt::join(allowed, ", ")));
  }
  return found->second;
}

// ---- Roundoff ---------------------------------------------------------------------------------
// The candidate computes in arithmetic of unit u from the very logits in the file, with the maximum
// subtracted; exp and log err by at most 4 units. A sum of n terms errs by n units in the worst
// order, and by 6 sqrt(n) but with probability below 1e-7 (Higham and Mary, A new approach to
// probabilistic rounding error analysis, 2019): with 10^5 classes only the latter still tells
// anything.

constexpr double kFloatUnit = 0x1p-24;
constexpr double kDoubleUnit = 0x1p-53;

double summation_units(std::int64_t terms) {
  const auto n = static_cast<double>(terms);
  return std::min(n, 6 * std::sqrt(n));
}

// Roundoff of storing a value in a dtype; integers are exact.
double storage_unit(const NamedTensor& tensor) {
  if (tensor.dtype == "F64") return kDoubleUnit;
  if (tensor.dtype == "F32") return kFloatUnit;
  if (tensor.dtype == "F16") return 0x1p-11;
  if (tensor.dtype == "BF16") return 0x1p-8;
  return 0;
}

double storage_underflow(const NamedTensor& tensor) {
  if (tensor.dtype == "F16") return 0x1p-24;
  if (tensor.dtype == "F32" || tensor.dtype == "BF16") return 0x1p-126;  // flushed subnormals
  return 0;
}

struct RowNumbers {
  double lse = 0;
  double lse_bound = 0;  // absolute
};

RowNumbers row_numbers(const double* x, int vocabulary, double unit) {
  RowNumbers row;
  row.lse = log_sum_exp(x, vocabulary);
  const double maximum = *std::max_element(x, x + vocabulary);
  double spread = 0;  // sum p (max - x): the argument's roundoff, weighted by its share
  for (int v = 0; v < vocabulary; ++v) {
    const double p = std::exp(x[v] - row.lse);
    if (p > 0) spread += p * (maximum - x[v]);
  }
  row.lse_bound = unit * (4 * spread + 8 + summation_units(vocabulary) +
                          4 * std::abs(row.lse - maximum) + 2 * std::abs(row.lse));
  return row;
}

// ---- The rows in the file ---------------------------------------------------------------------

struct Row {
  int rank = 0;  // that holds it
  int sequence = 0;
  std::int64_t position = 0;
  bool real = false;
  std::int64_t next = -1;        // row in the file of the sequence's next token, -1 if not there
  std::int64_t local_next = -1;  // row in the file of the next token of the same slice, -1 if none
};

struct Rows {
  std::vector<Row> rows;
  int ranks = 1;  // size of the group

  std::string name(std::int64_t row) const {
    const Row& r = rows[static_cast<std::size_t>(row)];
    return fmt::format("row {} (rank {}, sequence {}, position {})", row, r.rank, r.sequence,
                       r.position);
  }
};

Rows rows_of(const Pack& pack, int size, std::optional<int> only_rank) {
  const ZigzagLayout layout{size};
  std::vector<std::int64_t> file_row(static_cast<std::size_t>(pack.padded_tokens()), -1);
  std::vector<std::int64_t> pack_row;
  if (only_rank) {
    pack_row = zigzag_rows(pack, size, *only_rank);
  } else {
    for (std::int64_t row = 0; row < pack.padded_tokens(); ++row) pack_row.push_back(row);
  }
  for (std::size_t i = 0; i < pack_row.size(); ++i) {
    file_row[static_cast<std::size_t>(pack_row[i])] = static_cast<std::int64_t>(i);
  }
  Rows result;
  result.ranks = size;
  result.rows.resize(pack_row.size());
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t length = pack.padded_length(s), real = pack.real_length(s);
    const auto at = [&](std::int64_t position) {
      return file_row[static_cast<std::size_t>(pack.first_row(s) + position)];
    };
    for (std::int64_t position = 0; position < length; ++position) {
      if (at(position) < 0) continue;
      Row& row = result.rows[static_cast<std::size_t>(at(position))];
      row.rank = layout.rank_of(length, position);
      row.sequence = s;
      row.position = position;
      row.real = position < real;
      if (position + 1 < real) row.next = at(position + 1);
      const std::int64_t local = layout.local_index(length, position);
      if (local + 1 < layout.local_length(length)) {
        const std::int64_t there = layout.global_index(length, row.rank, local + 1);
        if (there < real) row.local_next = at(there);
      }
    }
  }
  return result;
}

// ---- What it looks like -----------------------------------------------------------------------

struct Look {
  double value;
  std::string text;
};

// The hypothesis whose value is the found one; "" when none is within `tolerance`, relative.
std::string looks_like(double found, const std::vector<Look>& looks, double tolerance) {
  const Look* best = nullptr;
  for (const Look& look : looks) {
    const double difference = std::abs(found - look.value);
    if (!(difference <= tolerance * std::abs(look.value)) || look.value == 0) continue;
    if (best == nullptr || difference < std::abs(found - best->value)) best = &look;
  }
  return best == nullptr ? "" : "; it looks like " + best->text;
}

struct Judge {
  const Safetensors& file;
  const FileLayout& layout;
  Rows rows;
  LossTargets targets;

  // Filled by read_losses and add_up.
  double unit = kFloatUnit;
  std::optional<Tensor<double>> logits = {};
  std::vector<double> losses = {};       // [rows], of the rows that count
  std::vector<double> loss_bounds = {};  // [rows], absolute
  std::vector<LossSum> by_rank = {};
  LossSum total = {};
  double sum_bound = 0;
  CaseResult result = {};

  std::int64_t row_count() const { return static_cast<std::int64_t>(rows.rows.size()); }
  bool whole() const { return !layout.rank || rows.ranks == 1; }
  const Row& row(std::int64_t r) const { return rows.rows[static_cast<std::size_t>(r)]; }

  void judge();
  void check_padding();
  void check_labels();
  void read_losses();
  void check_token_losses();
  void add_up();
  void check_tokens();
  void check_loss();
  void check_gradient();
  std::vector<Look> loss_looks() const;
};

void Judge::check_padding() {
  for (std::int64_t r = 0; r < row_count(); ++r) {
    const bool inert = row(r).real || !targets.counts(r);
    if (!result.expect("loss.inert", Kind::kPadding, inert, [&] {
          return fmt::format("{} is padding but its mask is 1 and its label {}", rows.name(r),
                             targets.labels[static_cast<std::size_t>(r)]);
        })) {
      return;
    }
  }
}

// A row's label is its sequence's next token. Where that token is not in the file (another rank's,
// or behind the last one), only the pattern of labels rolled inside the slice can be told.
void Judge::check_labels() {
  if (optional_tensor(file, "token_ids") == nullptr) {
    result.detail("labels are not judged: the file has no token_ids");
    return;
  }
  const std::vector<std::int64_t> ids = integers_of(file, "token_ids", layout);
  const auto id = [&](std::int64_t r) { return ids[static_cast<std::size_t>(r)]; };
  std::int64_t wrong = 0, rolled = 0, unshifted = 0, first = -1;
  std::int64_t chunk_ends = 0, rolled_chunk_ends = 0;
  std::set<std::int64_t> rolled_values;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    if (!targets.counts(r) || !row(r).real) continue;
    const std::int64_t label = targets.labels[static_cast<std::size_t>(r)];
    const bool at_local_next = row(r).local_next >= 0 && label == id(row(r).local_next);
    if (row(r).next < 0) {
      if (layout.rank && row(r).local_next >= 0) {
        ++chunk_ends;
        rolled_chunk_ends += at_local_next;
        if (at_local_next) rolled_values.insert(label);
      }
      continue;
    }
    if (label == id(row(r).next)) continue;
    if (first < 0) first = r;
    ++wrong;
    rolled += at_local_next;
    unshifted += label == id(r);
  }
  result.expect("loss.labels", Kind::kSlice, wrong == 0, [&] {
    std::string look;
    if (rolled == wrong) {
      look = "; they look like labels rolled after slicing (each is the next token of the slice)";
    } else if (unshifted == wrong) {
      look = "; they look like labels that were not shifted";
    }
    return fmt::format("{} labels are not the next token, first in {}: {}, expected {}{}", wrong,
                       rows.name(first), targets.labels[static_cast<std::size_t>(first)],
                       id(row(first).next), look);
  });
  // Chance agreement of four different tokens is out of the question in text.
  result.expect("loss.labels", Kind::kSlice,
                rolled_chunk_ends < chunk_ends || rolled_values.size() < 4, [&] {
                  return fmt::format(
                      "at all {} chunk ends the label is the first token of the rank's other chunk;"
                      " they look like labels rolled after slicing",
                      chunk_ends);
                });
}

void Judge::read_losses() {
  const NamedTensor* recorded_logits = optional_tensor(file, "logits");
  const NamedTensor* recorded_losses = optional_tensor(file, "loss_per_token");
  if (recorded_logits == nullptr && recorded_losses == nullptr) {
    throw InvalidInput("the file has neither logits nor loss_per_token: one of them is needed");
  }
  const std::string compute = metadata_of(file, "compute", {"float32", "float64"});
  const NamedTensor& source = recorded_logits != nullptr ? *recorded_logits : *recorded_losses;
  unit =
      compute == "float64" || (compute.empty() && source.dtype == "F64") ? kDoubleUnit : kFloatUnit;
  loss_bounds.assign(rows.rows.size(), 0.0);
  if (recorded_logits == nullptr) {
    losses = row_values(file, "loss_per_token", layout, 0).values;
    return;
  }
  logits = logits_like(file, "logits", layout);
  losses = token_losses(*logits, targets);
  for (std::int64_t r = 0; r < row_count(); ++r) {
    if (!targets.counts(r)) continue;
    const auto i = static_cast<std::size_t>(r);
    const double* x = logits->data.data() + logits->offset(r, 0, 0);
    loss_bounds[i] = row_numbers(x, logits->dim, unit).lse_bound + 2 * unit * std::abs(losses[i]);
  }
}

void Judge::check_token_losses() {
  const NamedTensor* recorded = optional_tensor(file, "loss_per_token");
  if (recorded == nullptr || !logits) return;
  const std::vector<double> values = row_values(file, "loss_per_token", layout, 0).values;
  std::int64_t wrong = 0, first = -1;
  std::vector<double> expected_counted, found_counted;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    if (!targets.counts(r)) continue;
    const auto i = static_cast<std::size_t>(r);
    expected_counted.push_back(losses[i]);
    found_counted.push_back(values[i]);
    const double bound = loss_bounds[i] + storage_unit(*recorded) * std::abs(losses[i]) +
                         storage_underflow(*recorded);
    if (std::abs(values[i] - losses[i]) <= bound || values[i] == losses[i]) continue;
    ++wrong;
    if (first < 0) first = r;
  }
  result.expect("loss.token_losses", Kind::kLoss, wrong == 0, [&] {
    const auto i = static_cast<std::size_t>(first);
    const ScaleFit fit = fit_scale(expected_counted, found_counted);
    std::string look;
    if (std::abs(fit.cosine) > 1 - 1e-6) {
      look = looks_like(fit.alpha,
                        {{static_cast<double>(rows.ranks), "losses scaled by the CP size"},
                         {1.0 / rows.ranks, "losses divided by the CP size"},
                         {1 / std::log(2.0), "logarithms to base 2"},
                         {-1, "losses of the wrong sign"}},
                        1e-3);
    }
    return fmt::format(
        "{} of {} token losses are wrong, first in {}: {:.9g}, expected {:.9g}; all of them: "
        "{:.6g} "
        "times the expected ones, cosine {:.6g}{}",
        wrong, expected_counted.size(), rows.name(first), values[i], losses[i], fit.alpha,
        fit.cosine, look);
  });
}

void Judge::add_up() {
  by_rank.assign(static_cast<std::size_t>(rows.ranks), LossSum());
  double magnitude = 0;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    if (!targets.counts(r)) continue;
    const auto i = static_cast<std::size_t>(r);
    LossSum& part = by_rank[static_cast<std::size_t>(row(r).rank)];
    part.sum += losses[i];
    ++part.tokens;
    magnitude += std::abs(losses[i]);
    sum_bound += loss_bounds[i];
  }
  total = combine(by_rank);
  sum_bound += unit * summation_units(total.tokens + rows.ranks) * magnitude;
}

void Judge::check_tokens() {
  const NamedTensor* recorded = optional_tensor(file, "tokens");
  if (recorded == nullptr) return;
  const std::vector<double> found = scalars_of(*recorded, "tokens", layout);
  std::int64_t mask_alone = 0, labelled = 0, real = 0;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    mask_alone += targets.mask[i] != 0;
    labelled += targets.labels[i] != targets.ignore;
    real += row(r).real;
  }
  if (found.size() > 1) {
    for (std::size_t k = 0; k < found.size(); ++k) {
      const auto expected = static_cast<double>(by_rank[k].tokens);
      result.expect("loss.tokens", Kind::kLoss, found[k] == expected, [&] {
        return fmt::format("{} tokens on rank {}, expected {} unmasked ones{}", found[k], k,
                           expected,
                           looks_like(found[k],
                                      {{static_cast<double>(total.tokens),
                                        "the count of all ranks, which a sum over ranks counts "
                                        "once for every rank"},
                                       {2 * expected, "tokens counted twice"}},
                                      0));
      });
    }
    return;
  }
  const auto expected = static_cast<double>(total.tokens);
  result.expect("loss.tokens", Kind::kLoss, found[0] == expected, [&] {
    std::vector<Look> looks = {
        {expected * rows.ranks, "tokens counted once for every rank of the CP group"},
        {2 * expected, "tokens counted twice"},
        {static_cast<double>(mask_alone), "the mask alone, ignored labels included"},
        {static_cast<double>(labelled), "every label, masked ones included"},
        {static_cast<double>(real), "every real token, masked ones included"},
        {static_cast<double>(row_count()), "every row, padding included"}};
    if (whole()) {
      for (std::size_t k = 0; k < by_rank.size(); ++k) {
        looks.push_back(
            {static_cast<double>(by_rank[k].tokens), fmt::format("the count of rank {} alone", k)});
      }
    }
    return fmt::format("{} tokens, expected {} unmasked ones{}", found[0], total.tokens,
                       looks_like(found[0], looks, 0));
  });
}

std::vector<Look> Judge::loss_looks() const {
  const double mean = reported_loss(total);
  const auto size = static_cast<double>(rows.ranks);
  double mean_of_means = 0, sum_of_means = 0;
  std::int64_t labelled = 0;
  for (const LossSum& part : by_rank) {
    mean_of_means += reported_loss(part) / size;
    sum_of_means += reported_loss(part);
  }
  for (std::int64_t label : targets.labels) labelled += label != targets.ignore;
  std::vector<Look> looks = {
      {mean * size, fmt::format("the loss scaled by the CP size, {}", rows.ranks)},
      {mean / size, "the loss divided by the CP size, or tokens counted once for every rank of it"},
      {mean / 2, "tokens counted twice"},
      {mean_of_means, "the mean of the ranks' own means"},
      {sum_of_means, "the sum of the ranks' own means"},
      {total.sum, "the sum over tokens, not divided"},
      {total.sum / static_cast<double>(std::max<std::int64_t>(row_count(), 1)),
       "the sum divided by all rows, padding included"},
      {total.sum / static_cast<double>(std::max<std::int64_t>(labelled, 1)),
       "the sum divided by all labels, masked ones included"},
      {mean / std::log(2.0), "a logarithm to base 2"}};
  for (std::size_t k = 0; k < by_rank.size(); ++k) {
    looks.push_back({reported_loss(by_rank[k]), fmt::format("the own mean of rank {}", k)});
  }
  return looks;
}

void Judge::check_loss() {
  const auto stored = [&](const NamedTensor& tensor, double value) {
    return storage_unit(tensor) * std::abs(value) + storage_underflow(tensor);
  };
  if (const NamedTensor* recorded = optional_tensor(file, "loss_sum")) {
    const std::vector<double> found = scalars_of(*recorded, "loss_sum", layout);
    for (std::size_t k = 0; k < found.size(); ++k) {
      const double expected = found.size() > 1 ? by_rank[k].sum : total.sum;
      const double bound = sum_bound + stored(*recorded, expected);
      result.expect("loss.sum", Kind::kLoss, std::abs(found[k] - expected) <= bound, [&] {
        return fmt::format("loss sum {:.9g}{}, expected {:.9g} within {:.2g}{}", found[k],
                           found.size() > 1 ? fmt::format(" on rank {}", k) : "", expected, bound,
                           looks_like(found[k],
                                      {{expected * rows.ranks, "the sum scaled by the CP size"},
                                       {reported_loss(total), "the mean, already divided"}},
                                      1e-4));
      });
    }
  }
  const NamedTensor* recorded = optional_tensor(file, "loss");
  if (recorded == nullptr) return;
  const std::vector<double> found = scalars_of(*recorded, "loss", layout);
  if (!whole()) {
    result.detail("loss is not judged: it is a mean over all ranks, the file holds one");
    return;
  }
  const double mean = reported_loss(total);
  const auto divisor = static_cast<double>(std::max<std::int64_t>(total.tokens, 1));
  const double bound = sum_bound / divisor + 2 * unit * std::abs(mean) + stored(*recorded, mean);
  for (std::size_t k = 0; k < found.size(); ++k) {
    result.expect("loss.mean", Kind::kLoss, std::abs(found[k] - mean) <= bound, [&] {
      std::string look =
          looks_like(found[k], loss_looks(), std::max(1e-5, 4 * storage_unit(*recorded)));
      const auto empty = std::find_if(by_rank.begin(), by_rank.end(),
                                      [](const LossSum& part) { return part.tokens == 0; });
      if (std::isnan(found[k]) && empty != by_rank.end()) {
        look = fmt::format("; it looks like 0/0 on rank {}, which has no unmasked token",
                           empty - by_rank.begin());
      }
      return fmt::format("loss {:.9g}{}, expected {:.9g} within {:.2g}{}", found[k],
                         found.size() > 1 ? fmt::format(" on rank {}", k) : "", mean, bound, look);
    });
  }
}

void Judge::check_gradient() {
  const NamedTensor* recorded = optional_tensor(file, "grad_logits");
  if (recorded == nullptr) return;
  if (!logits) throw InvalidInput("grad_logits cannot be judged without logits");
  const Tensor<double> found = logits_like(file, "grad_logits", layout);
  if (!found.same_shape(*logits)) {
    throw InvalidInput(
        fmt::format("grad_logits has a vocabulary of {}, logits of {}", found.dim, logits->dim));
  }
  const Tensor<double> of_sum = loss_gradient(*logits, targets);
  const auto size = static_cast<std::size_t>(rows.ranks);
  std::vector<std::vector<double>> expected_on(size), found_on(size);
  std::vector<double> expected_all, found_all;
  std::int64_t leaking = -1;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    const auto rank_of_row = static_cast<std::size_t>(row(r).rank);
    for (int v = 0; v < found.dim; ++v) {
      const double g = found.at(r, 0, v);
      if (!targets.counts(r)) {
        if (g != 0 && leaking < 0) leaking = r;
        continue;
      }
      expected_on[rank_of_row].push_back(of_sum.at(r, 0, v));
      found_on[rank_of_row].push_back(g);
      expected_all.push_back(of_sum.at(r, 0, v));
      found_all.push_back(g);
    }
  }
  result.expect("loss.inert", Kind::kPadding, leaking < 0, [&] {
    const auto i = static_cast<std::size_t>(leaking);
    return fmt::format("{} does not count ({}) but has a gradient, expected exactly 0",
                       rows.name(leaking),
                       !row(leaking).real     ? "padding"
                       : targets.mask[i] == 0 ? "masked"
                                              : "its label is ignored");
  });

  const ScaleFit fit = fit_scale(expected_all, found_all);
  const auto tokens = static_cast<double>(std::max<std::int64_t>(total.tokens, 1));
  std::string of = metadata_of(file, "gradient", {"mean", "sum"});
  if (of.empty()) {
    // A rank's file does not tell the global number of tokens, so there it can only be the sum.
    const bool nearer_mean = whole() && std::abs(std::log(std::abs(fit.alpha) * tokens)) <
                                            std::abs(std::log(std::abs(fit.alpha)));
    of = nearer_mean ? "mean" : "sum";
  } else if (of == "mean" && !whole()) {
    throw InvalidInput(
        "metadata gradient is 'mean', but one rank's file does not tell the number of all tokens");
  }
  const double factor = of == "mean" ? 1 / tokens : 1;
  result.detail(fmt::format("grad_logits is taken as the gradient of the {}", of));
  if (total.tokens == rows.ranks && rows.ranks > 1 && whole()) {
    result.mistrust(
        "as many tokens as ranks: a factor of the CP size cannot be told from the mean");
  }

  std::int64_t wrong_rows = 0, first = -1, other_label = 0;
  for (std::int64_t r = 0; r < row_count(); ++r) {
    if (!targets.counts(r)) continue;
    const double* x = logits->data.data() + logits->offset(r, 0, 0);
    const RowNumbers numbers = row_numbers(x, logits->dim, unit);
    bool wrong = false;
    int lowest = 0;
    for (int v = 0; v < found.dim; ++v) {
      const double g = factor * of_sum.at(r, 0, v);
      const double p = std::exp(x[v] - numbers.lse);
      const double argument = p > 0 ? std::abs(x[v] - numbers.lse) : 0;
      const double bound =
          factor * (p * (numbers.lse_bound + unit * (4 * argument + 8)) + 4 * unit * std::abs(g)) +
          (4 * unit + storage_unit(*recorded)) * std::abs(g) + storage_underflow(*recorded);
      if (!(std::abs(found.at(r, 0, v) - g) <= bound)) wrong = true;
      if (found.at(r, 0, v) < found.at(r, 0, lowest)) lowest = v;
    }
    if (!wrong) continue;
    ++wrong_rows;
    if (first < 0) first = r;
    other_label += lowest != targets.labels[static_cast<std::size_t>(r)];
  }
  result.expect("loss.gradient", Kind::kLoss, wrong_rows == 0, [&] {
    std::string look;
    const auto ranks = static_cast<double>(rows.ranks);
    const double tolerance = std::max(1e-4, 4 * storage_unit(*recorded));
    if (std::isnan(fit.alpha)) {
      look = "; values that are not finite";
    } else if (std::abs(fit.cosine) > 1 - 1e-4) {
      look = looks_like(fit.alpha / factor,
                        {{ranks, fmt::format("a loss scaled by the CP size, {}", rows.ranks)},
                         {1 / ranks,
                          "gradients averaged over CP, or tokens counted once for every "
                          "rank of it"},
                         {0.5, "tokens counted twice"},
                         {-1, "the wrong sign"}},
                        tolerance);
    }
    if (look.empty() && whole() && rows.ranks > 1) {
      // Each rank divided by its own count: the factor differs from rank to rank.
      bool mean_of_means = true, sum_of_means = true;
      for (std::size_t k = 0; k < size; ++k) {
        if (by_rank[k].tokens == 0) continue;
        const double own =
            fit_scale(expected_on[k], found_on[k]).alpha * static_cast<double>(by_rank[k].tokens);
        sum_of_means = sum_of_means && std::abs(own - 1) <= tolerance;
        mean_of_means = mean_of_means && std::abs(own * ranks - 1) <= tolerance;
      }
      if (mean_of_means) look = "; it looks like the mean of the ranks' own means";
      if (sum_of_means) look = "; it looks like the sum of the ranks' own means";
    }
    if (look.empty() && other_label > 0) {
      look = fmt::format("; in {} rows the lowest element is not at the label: other labels?",
                         other_label);
    }
    return fmt::format(
        "{} of {} rows of grad_logits are wrong, first {}; all of them: {:.6g} times the gradient "
        "of the {}, cosine {:.6g}{}",
        wrong_rows, total.tokens, rows.name(first), fit.alpha / factor, of, fit.cosine, look);
  });
}

void Judge::judge() {
  read_losses();
  if (logits) require_valid(targets, row_count(), logits->dim);
  check_padding();
  check_labels();
  check_token_losses();
  add_up();
  check_tokens();
  check_loss();
  check_gradient();
  const auto has = [&](const char* name) { return optional_tensor(file, name) != nullptr; };
  if (!(has("tokens") || has("loss_sum") || (has("loss") && whole()) || has("grad_logits") ||
        (has("logits") && has("loss_per_token")))) {
    result.mistrust(
        "nothing to judge: the file has no tokens, loss_sum, loss (of the whole pack), "
        "grad_logits, "
        "nor both logits and loss_per_token");
  }
  if (total.tokens == 0) {
    result.mistrust("no row of the file counts: a wrong divisor cannot show");
  } else if (total.sum == 0) {
    result.mistrust("every token loss is 0: a wrong factor cannot show");
  }
  if (rows.ranks == 1) {
    result.mistrust("with CP size 1 a factor of the CP size cannot show");
  }
}

}  // namespace

CaseResult judge_loss(const Problem& problem, std::optional<int> rank, const Safetensors& file) {
  const Pack pack = problem.pack();
  const FileLayout layout(pack, problem.cp, rank);
  Judge judge{.file = file,
              .layout = layout,
              .rows = rows_of(pack, problem.cp, rank),
              .targets = targets_of(file, layout)};
  judge.judge();
  return std::move(judge.result);
}

}  // namespace dyncp
