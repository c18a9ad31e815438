#include "runtime/attention_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "reference/ring.h"
#include "reference/scale_fit.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kTriedWrong = 40;  // rows per rank that hypotheses are tried on
constexpr std::size_t kTriedRight = 20;
// A hypothesis must leave at most this share of the difference it is to explain.
constexpr double kLeft = 0.3;

/// A query or a key, with everything hypotheses ask about it.
struct Place {
  std::int64_t row = 0;
  int head = 0;
  int sequence = 0;
  std::int64_t position = 0;
  int rank = 0;
  std::int64_t local = 0;  // row in the rank's slice
  bool mirror = false;     // in the rank's mirror chunk
};

class Layout {
 public:
  Layout(const Pack& pack, int size)
      : pack_(pack), zigzag_{size}, local_(local_boundaries(pack, size)) {
    for (int rank = 0; rank < size; ++rank) rows_.push_back(zigzag_rows(pack, size, rank));
  }

  Place place(const HeadRow& at) const {
    const auto& cu = pack_.cu_seqlens_padded();
    Place place;
    place.row = at.row;
    place.head = at.head;
    place.sequence =
        static_cast<int>(std::upper_bound(cu.begin(), cu.end(), at.row) - cu.begin()) - 1;
    place.position = at.row - pack_.first_row(place.sequence);
    const std::int64_t length = pack_.padded_length(place.sequence);
    place.rank = zigzag_.rank_of(length, place.position);
    const std::int64_t index = zigzag_.local_index(length, place.position);
    place.local = local_[static_cast<std::size_t>(place.sequence)] + index;
    place.mirror = index >= zigzag_.front_length(length);
    return place;
  }
  /// Pack row of a local row of a rank.
  std::int64_t row(int rank, std::int64_t local) const {
    return rows_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(local)];
  }
  std::int64_t first_local(int sequence) const {
    return local_[static_cast<std::size_t>(sequence)];
  }
  int size() const { return zigzag_.size; }

 private:
  const Pack& pack_;
  ZigzagLayout zigzag_;
  std::vector<std::int64_t> local_;
  std::vector<std::vector<std::int64_t>> rows_;
};

/// A key row, and how often it is counted.
struct Key {
  std::int64_t row = 0;
  double weight = 1;
};

/// One row of O and LSE as an implementation would have it.
struct Prediction {
  double lse = 0;
  std::vector<double> o;
  std::vector<double> magnitude;  // sum_j P_ij |V_jd|
  std::vector<double> variance;   // sum_j P_ij^2 V_jd^2
};

/// Nothing where the hypothesis says nothing about a row (it may hold anything there).
using Predict = std::function<std::optional<Prediction>(const Place&)>;

struct Hypothesis {
  std::string name;
  Predict predict;
};

/// A row of a gradient, per hypothesis.
using PredictGradient = std::function<std::vector<double>(const Place&)>;

struct GradientHypothesis {
  std::string name;
  PredictGradient predict;
};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::isnan(sum) ? kInfinity : std::sqrt(sum);
}

std::vector<double> row_values(const Tensor<double>& tensor, std::int64_t row, int head) {
  std::vector<double> values;
  for (int d = 0; d < tensor.dim; ++d) values.push_back(tensor.at(row, head, d));
  return values;
}

/// At most `count` of the rows, evenly spread.
std::vector<HeadRow> spread(const std::vector<HeadRow>& rows, std::size_t count) {
  if (rows.size() <= count) return rows;
  std::vector<HeadRow> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(rows[i * rows.size() / count]);
  return result;
}

/// How well one hypothesis fits the rows tried.
struct Fit {
  std::size_t wrong = 0, right = 0;
  std::size_t tried_wrong = 0, tried_right = 0;
  bool explains() const {
    return wrong > 0 && 10 * wrong >= 9 * tried_wrong && 10 * right >= 9 * tried_right;
  }
};

/// Wrong rows of one rank (every row when no ring ran), and right ones of the same chunks.
struct Group {
  int rank = -1;  // -1: all
  std::vector<Place> wrong, right;
  std::size_t wrong_total = 0;
};

std::vector<Group> by_rank(const Layout& layout, const RowVerdict& rows) {
  std::map<int, RowVerdict> verdicts;
  for (const HeadRow& at : rows.wrong) verdicts[layout.place(at).rank].wrong.push_back(at);
  for (const HeadRow& at : rows.right) {
    const auto found = verdicts.find(layout.place(at).rank);
    if (found != verdicts.end()) found->second.right.push_back(at);
  }
  std::vector<Group> groups;
  for (const auto& [rank, verdict] : verdicts) {
    Group group{layout.size() == 1 ? -1 : rank, {}, {}, verdict.wrong.size()};
    bool halves[2] = {false, false};
    for (const HeadRow& at : spread(verdict.wrong, kTriedWrong)) {
      group.wrong.push_back(layout.place(at));
      halves[group.wrong.back().mirror] = true;
    }
    std::vector<HeadRow> same_half;
    for (const HeadRow& at : verdict.right) {
      if (halves[layout.place(at).mirror]) same_half.push_back(at);
    }
    for (const HeadRow& at : spread(same_half, kTriedRight)) {
      group.right.push_back(layout.place(at));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// The first of the best-fitting hypotheses, and one more that fits as well.
struct Best {
  std::string name, also;
  Fit fit;
};

template <typename H, typename Try>
std::optional<Best> find_best(const std::vector<H>& hypotheses, const Group& group, Try tried) {
  std::optional<Best> best;
  for (const H& hypothesis : hypotheses) {
    Fit fit;
    for (const Place& place : group.wrong) {
      const std::optional<bool> match = tried(hypothesis, place, /*is_wrong=*/true);
      if (!match) continue;
      ++fit.tried_wrong;
      fit.wrong += *match;
    }
    // Silence about most rows is no explanation.
    if (2 * fit.tried_wrong < group.wrong.size()) continue;
    if (10 * fit.wrong < 9 * fit.tried_wrong || fit.wrong == 0) continue;
    for (const Place& place : group.right) {
      const std::optional<bool> match = tried(hypothesis, place, /*is_wrong=*/false);
      if (!match) continue;
      ++fit.tried_right;
      fit.right += *match;
    }
    if (!fit.explains()) continue;
    const auto score = [&group](const Fit& f) {
      return static_cast<double>(f.wrong) / static_cast<double>(group.wrong.size()) +
             static_cast<double>(f.right + 1) / static_cast<double>(f.tried_right + 1);
    };
    if (!best || score(fit) > score(best->fit) + 1e-9) {
      best = Best{hypothesis.name, "", fit};
    } else if (best->also.empty() && score(fit) > score(best->fit) - 1e-9) {
      best->also = hypothesis.name;
    }
  }
  return best;
}

/// "; this looks like: A on ranks 1, 2 (fits 40 of 40 rows tried); B on rank 3 (...)".
std::string summary(const std::vector<std::pair<int, std::optional<Best>>>& explained) {
  struct Line {
    std::string name, also;
    std::vector<int> ranks;
    std::size_t wrong = 0, tried = 0;
  };
  std::vector<Line> lines;
  std::vector<int> open;
  for (const auto& [rank, best] : explained) {
    if (!best) {
      open.push_back(rank);
      continue;
    }
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&, name = best->name](const Line& l) { return l.name == name; });
    if (line == lines.end()) line = lines.insert(line, Line{best->name, best->also, {}, 0, 0});
    line->ranks.push_back(rank);
    line->wrong += best->fit.wrong;
    line->tried += best->fit.tried_wrong;
  }
  const auto ranks_text = [](const std::vector<int>& ranks) {
    if (ranks.empty() || ranks.front() < 0) return std::string();
    return fmt::format(" on rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  };
  std::string text;
  for (const Line& line : lines) {
    text +=
        fmt::format("{} {}{} (fits {} of {} rows tried{})",
                    text.empty() ? "; this looks like:" : ";", line.name, ranks_text(line.ranks),
                    line.wrong, line.tried, line.also.empty() ? "" : "; so does: " + line.also);
  }
  if (!open.empty()) {
    text += text.empty() ? "; no known fault fits" + ranks_text(open)
                         : "; no known fault fits the rows" + ranks_text(open);
  }
  return text;
}

std::string with_ratio(double alpha, const std::vector<std::pair<double, std::string>>& names) {
  for (const auto& [value, name] : names) {
    if (std::fabs(alpha / value - 1) < 5e-3) return fmt::format("{:.4g} ({})", alpha, name);
  }
  return fmt::format("{:.4g}", alpha);
}

// --- forward -------------------------------------------------------------------------------------

class ForwardDiagnosis {
 public:
  ForwardDiagnosis(const AttentionRecording& recording, const AttentionExpectation& expected)
      : r_(recording),
        e_(expected),
        layout_(recording.pack, recording.size),
        plan_(make_ring_plan(recording.pack, recording.size, recording.options.causal,
                             recording.options.window)),
        scale_(softmax_scale(recording.options, recording.q.dim)),
        group_(recording.q.heads / recording.k.heads) {
    add_lse_formats();
    add_masks();
    add_softmax();
    if (recording.size > 1) add_ring();
  }

  std::string explain(const RowVerdict& rows) {
    if (std::string text = explain_nan(rows); !text.empty()) return text;
    std::vector<std::pair<int, std::optional<Best>>> explained;
    for (const Group& group : by_rank(layout_, rows)) {
      const auto tried = [&](const Hypothesis& hypothesis, const Place& place, bool is_wrong) {
        return matches(hypothesis.predict, place, is_wrong);
      };
      std::optional<Best> best = find_best(hypotheses_, group, tried);
      if (!best) best = find_best(fitted_scale(group), group, tried);
      if (!best) best = single_key(group);
      explained.emplace_back(group.rank, std::move(best));
    }
    return summary(explained);
  }

 private:
  // --- predictions ---

  std::vector<Key> visible(const Place& query) const {
    std::vector<Key> keys;
    const std::int64_t first = r_.pack.first_row(query.sequence);
    const KeyRange range = visible_keys(r_.options.causal, r_.options.window, query.position,
                                        r_.pack.real_length(query.sequence));
    for (std::int64_t j = range.begin; j < range.end; ++j) keys.push_back({first + j, 1});
    return keys;
  }

  double score(const Place& query, std::int64_t key_row, int kv_head) const {
    double sum = 0;
    for (int d = 0; d < r_.q.dim; ++d) {
      sum += r_.q.at(query.row, query.head, d) * r_.k.at(key_row, kv_head, d);
    }
    return scale_ * sum;
  }

  struct Softmax {
    double factor = 1;    // of the scale
    bool modulo = false;  // query head h reads K/V head h % kv_heads
    double sinks = 1;     // how often the sink is counted
  };

  std::optional<Prediction> attend(const Place& query, const std::vector<Key>& keys,
                                   const Softmax& softmax) const {
    const int kv = softmax.modulo ? query.head % r_.k.heads : query.head / group_;
    std::vector<double> p;
    double max = -kInfinity;
    for (const Key& key : keys) {
      p.push_back(softmax.factor * score(query, key.row, kv));
      if (key.weight > 0) max = std::max(max, p.back());
      if (std::isnan(p.back())) return std::nullopt;
    }
    const bool sink = !r_.options.sink.empty() && softmax.sinks > 0;
    const double logit = sink ? r_.options.sink[static_cast<std::size_t>(query.head)] : 0;
    if (sink) max = std::max(max, logit);
    if (max == -kInfinity) return std::nullopt;
    double sum = sink ? softmax.sinks * std::exp(logit - max) : 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      p[i] = keys[i].weight * std::exp(p[i] - max);
      sum += p[i];
    }
    if (sum <= 0) return std::nullopt;
    Prediction result;
    result.lse = max + std::log(sum);
    for (int d = 0; d < r_.v.dim; ++d) {
      double o = 0, magnitude = 0, variance = 0;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const double term = p[i] / sum * r_.v.at(keys[i].row, kv, d);
        o += term;
        magnitude += std::fabs(term);
        variance += term * term;
      }
      if (std::isnan(o)) return std::nullopt;
      result.o.push_back(o);
      result.magnitude.push_back(magnitude);
      result.variance.push_back(variance);
    }
    return result;
  }

  Prediction reference(const Place& query) const { return *attend(query, visible(query), {}); }

  // --- matching ---

  /// How far O may be from a prediction of it, as a norm over the row.
  double o_tolerance(const Place& query, const Prediction& prediction) const {
    const double w = format_limits(e_.precision.storage).unit_roundoff();
    const double u = format_limits(e_.precision.accumulator).unit_roundoff();
    double walk = 0, magnitude = 0, reference_magnitude = 0, accumulator = 0;
    for (std::size_t d = 0; d < prediction.o.size(); ++d) {
      walk += prediction.variance[d] + prediction.o[d] * prediction.o[d];
      magnitude += std::pow(prediction.magnitude[d] + std::fabs(prediction.o[d]), 2);
      const std::size_t index = e_.scales.o.storage.offset(query.row, query.head, int(d));
      reference_magnitude += std::pow(e_.scales.o.storage.data[index], 2);
      accumulator += std::pow(e_.scales.o.accumulator.data[index], 2);
    }
    const double growth = std::sqrt(magnitude / std::max(reference_magnitude, 1e-300));
    const double summed = 1.1 * (u + 0x1p-53) * std::sqrt(accumulator) * std::max(1.0, growth);
    if (e_.precision.storage == e_.precision.accumulator) {
      return summed + e_.precision.roundings() * w * std::sqrt(magnitude);
    }
    return summed + row_statistic_limit(e_.precision, r_.v.dim) * w * std::sqrt(walk);
  }

  std::optional<bool> matches(const Predict& predict, const Place& place, bool is_wrong) const {
    const std::optional<Prediction> prediction = predict(place);
    if (!prediction) return std::nullopt;
    if (r_.o) {
      const std::vector<double> got = row_values(*r_.o, place.row, place.head);
      const double error = distance(got, prediction->o);
      if (!(error <= o_tolerance(place, *prediction))) return false;
    }
    if (r_.lse) {
      const double got = r_.lse->at(place.head, place.row);
      const double expected = e_.forward.lse.at(place.head, place.row);
      const double allowed =
          4 * lse_tau(e_.precision.accumulator, r_.q.dim) * (1 + std::fabs(prediction->lse));
      const double error = std::fabs(got - prediction->lse);
      if (!(error <= allowed)) return false;
      const double difference = std::fabs(got - expected);
      if (is_wrong && difference > recorded_lse_allowed(e_, place.head, place.row) &&
          error > kLeft * difference) {
        return false;
      }
      return true;
    }
    if (!is_wrong) return true;
    const std::vector<double> got = row_values(*r_.o, place.row, place.head);
    const std::vector<double> expected = row_values(e_.forward.o, place.row, place.head);
    return distance(got, prediction->o) <= kLeft * distance(got, expected);
  }

  std::string explain_nan(const RowVerdict& rows) const {
    std::size_t count = 0;
    for (const HeadRow& at : rows.wrong) {
      const bool o = r_.o && std::isnan(r_.o->at(at.row, at.head, 0));
      const bool lse = r_.lse && std::isnan(r_.lse->at(at.head, at.row));
      count += o || lse;
    }
    if (count * 2 < rows.wrong.size()) return "";
    return fmt::format(
        "; {} of {} wrong rows are NaN: a buffer that was never written, padding "
        "that was multiplied by 0, or a merge of two empty parts",
        count, rows.wrong.size());
  }

  // --- hypotheses ---

  void add(std::string name, Predict predict) {
    hypotheses_.push_back({std::move(name), std::move(predict)});
  }
  void add_keys(std::string name, std::function<std::vector<Key>(const Place&)> keys) {
    add(std::move(name), [this, keys = std::move(keys)](const Place& query) {
      return attend(query, keys(query), {});
    });
  }

  void add_lse_formats() {
    if (!r_.lse) return;
    const auto with_lse = [this](const Place& query, double lse) {
      Prediction prediction = reference(query);
      prediction.lse = lse;
      return prediction;
    };
    const auto reference_lse = [this](const Place& query) {
      return e_.forward.lse.at(query.head, query.row);
    };
    add("LSE in base 2 (log2 instead of the natural logarithm)", [=](const Place& query) {
      return with_lse(query, reference_lse(query) * std::numbers::log2e);
    });
    add("LSE multiplied by ln 2 (taken for a base-2 logarithm once too often)",
        [=](const Place& query) {
          return with_lse(query, reference_lse(query) * std::numbers::ln2);
        });
    add("LSE of the opposite sign",
        [=](const Place& query) { return with_lse(query, -reference_lse(query)); });
    add("LSE stored as [rows, heads] and read as [heads, rows]",
        [this, with_lse](const Place& query) -> std::optional<Prediction> {
          for (const auto& unit : r_.units) {
            const auto found = std::find(unit.begin(), unit.end(), query.row);
            if (found == unit.end()) continue;
            const auto rows = static_cast<std::int64_t>(unit.size());
            const std::int64_t index = query.head * rows + (found - unit.begin());
            const auto head = static_cast<int>(index % r_.q.heads);
            const std::int64_t row = unit[static_cast<std::size_t>(index / r_.q.heads)];
            if (!e_.scales.real[static_cast<std::size_t>(row)]) return std::nullopt;
            return with_lse(query, e_.forward.lse.at(head, row));
          }
          return std::nullopt;
        });
  }

  void add_masks() {
    const auto run_of = [this](const Place& query, std::int64_t begin, std::int64_t end) {
      std::vector<Key> keys;
      const std::int64_t first = r_.pack.first_row(query.sequence);
      for (std::int64_t j = std::max<std::int64_t>(0, begin); j < end; ++j) {
        keys.push_back({first + j, 1});
      }
      return keys;
    };
    const auto range = [this](const Place& query) {
      return visible_keys(r_.options.causal, r_.options.window, query.position,
                          r_.pack.real_length(query.sequence));
    };
    if (r_.options.causal) {
      add_keys("the next token is visible", [=, this](const Place& query) {
        const KeyRange keys = range(query);
        return run_of(query, keys.begin,
                      std::min(keys.end + 1, r_.pack.real_length(query.sequence)));
      });
      add_keys("the diagonal is dropped (a token does not see itself)", [=](const Place& query) {
        const KeyRange keys = range(query);
        return run_of(query, keys.begin, keys.end - 1);
      });
      add_keys("no causal mask", [=, this](const Place& query) {
        return run_of(query, range(query).begin, r_.pack.real_length(query.sequence));
      });
    } else {
      add_keys("a causal mask where none was asked for", [=](const Place& query) {
        return run_of(query, range(query).begin, query.position + 1);
      });
      add_keys("padding keys are visible", [=, this](const Place& query) {
        return run_of(query, range(query).begin, r_.pack.padded_length(query.sequence));
      });
    }
    if (r_.options.window >= 0) {
      add_keys("the window is ignored",
               [=](const Place& query) { return run_of(query, 0, range(query).end); });
      add_keys("the window is one key too wide", [=, this](const Place& query) {
        return run_of(query, query.position - r_.options.window - 1, range(query).end);
      });
      add_keys("the window is one key too narrow", [=, this](const Place& query) {
        return run_of(query, query.position - r_.options.window + 1, range(query).end);
      });
    }
    const auto with_sequences = [this](const Place& query, int from, int to, bool padding) {
      std::vector<Key> keys = visible(query);
      for (int s = from; s <= to; ++s) {
        if (s == query.sequence) continue;
        const std::int64_t count = padding ? r_.pack.padded_length(s) : r_.pack.real_length(s);
        for (std::int64_t j = 0; j < count; ++j) keys.push_back({r_.pack.first_row(s) + j, 1});
      }
      return keys;
    };
    if (r_.pack.sequences() > 1) {
      add_keys("all earlier sequences of the pack are visible", [=](const Place& query) {
        return with_sequences(query, 0, query.sequence - 1, false);
      });
      add_keys(
          "all earlier sequences of the pack and their padding are visible",
          [=](const Place& query) { return with_sequences(query, 0, query.sequence - 1, true); });
      add_keys("the sequence before is visible", [=](const Place& query) {
        return with_sequences(query, std::max(0, query.sequence - 1), query.sequence - 1, false);
      });
      add_keys("all sequences of the pack are visible", [=, this](const Place& query) {
        return with_sequences(query, 0, r_.pack.sequences() - 1, false);
      });
    }
  }

  void add_softmax() {
    const auto attend_with = [this](Softmax softmax) {
      return [this, softmax](const Place& query) { return attend(query, visible(query), softmax); };
    };
    if (r_.k.heads > 1 && group_ > 1) {
      add(fmt::format("query head h reads K/V head h mod {} instead of h / {}", r_.k.heads, group_),
          attend_with({1, true, 1}));
    }
    if (!r_.options.sink.empty()) {
      add("the sink is left out", attend_with({1, false, 0}));
      add("the sink is counted twice", attend_with({1, false, 2}));
      if (r_.size > 2) {
        add(fmt::format("the sink is counted in each of {} ring steps", r_.size),
            attend_with({1, false, static_cast<double>(r_.size)}));
      }
    }
  }

  int step_of(const Place& query, std::int64_t key_row) const {
    const int owner = layout_.place({key_row, 0}).rank;
    return (query.rank - owner + r_.size) % r_.size;
  }

  std::vector<Key> reweighted(const Place& query, int step, double weight) const {
    std::vector<Key> keys = visible(query);
    for (Key& key : keys) {
      if (step_of(query, key.row) == step) key.weight = weight;
    }
    return keys;
  }

  /// Keys of `step` as local key rows of the plan, taken from another rank's buffer.
  std::vector<Key> stale(const Place& query, int step, int source) const {
    std::vector<Key> keys;
    for (const Key& key : reweighted(query, step, 0)) {
      if (key.weight > 0) keys.push_back(key);
    }
    for (const Segment& segment :
         plan_.steps[static_cast<std::size_t>(query.rank)][static_cast<std::size_t>(step)]
             .segments) {
      const std::int64_t i = query.local - segment.q0;
      if (i < 0 || i >= segment.qlen) continue;
      const KeyRange range = segment_keys(segment, i);
      for (std::int64_t j = range.begin; j < range.end; ++j) {
        keys.push_back({layout_.row(source, segment.k0 + j), 1});
      }
    }
    return keys;
  }

  void add_ring() {
    const int size = r_.size;
    const bool zigzag = r_.options.causal && r_.options.window < 0;
    // Source ranks differ by the computing rank; the name is completed from the group's rank.
    for (int rank = 0; rank < size; ++rank) {
      for (int step = 0; step < size; ++step) {
        const int source = plan_.source(rank, step);
        const auto only = [this, rank](auto keys) {
          return [this, rank, keys](const Place& query) -> std::optional<Prediction> {
            if (query.rank != rank) return std::nullopt;
            return attend(query, keys(query), {});
          };
        };
        const std::string what = fmt::format("step {} (K/V of rank {})", step, source);
        add(what + " is lost",
            only([this, step](const Place& query) { return reweighted(query, step, 0); }));
        add(what + " is counted twice",
            only([this, step](const Place& query) { return reweighted(query, step, 2); }));
        if (step == 0) continue;
        for (int other : {step - 1, step + 1}) {
          if (other >= size) continue;
          const int stale_source = plan_.source(rank, other);
          add(fmt::format(
                  "step {} reads the K/V of rank {} instead of rank {}: a receive buffer "
                  "is read {}",
                  step, stale_source, source,
                  other < step ? "before the data has arrived" : "after it was overwritten"),
              only([this, step, stale_source](const Place& query) {
                return stale(query, step, stale_source);
              }));
        }
        if (zigzag && source < rank) {
          add(fmt::format("step {} reads the mirror chunk of rank {} instead of its front chunk",
                          step, source),
              only([this, step, source](const Place& query) {
                std::vector<Key> keys = reweighted(query, step, 0);
                const std::int64_t length = r_.pack.padded_length(query.sequence);
                const std::int64_t chunk = ZigzagLayout{r_.size}.front_length(length);
                for (std::int64_t j = 0; j < chunk; ++j) {
                  keys.push_back(
                      {layout_.row(source, layout_.first_local(query.sequence) + chunk + j), 1});
                }
                return keys;
              }));
        }
      }
    }
    if (!zigzag) return;
    const auto without_upper = [this](const Place& query) {
      std::vector<Key> keys = visible(query);
      for (Key& key : keys) {
        if (layout_.place({key.row, 0}).rank > query.rank) key.weight = 0;
      }
      return keys;
    };
    add("the LSE of the mirror chunk is not merged in steps whose source is a later rank (O is "
        "merged with that LSE)",
        [this, without_upper](const Place& query) -> std::optional<Prediction> {
          const std::optional<Prediction> part = attend(query, without_upper(query), {});
          if (!part) return std::nullopt;
          Prediction prediction = reference(query);
          const double growth = std::exp(prediction.lse - part->lse);
          for (auto* values : {&prediction.o, &prediction.magnitude}) {
            for (double& value : *values) value *= growth;
          }
          for (double& value : prediction.variance) value *= growth * growth;
          prediction.lse = part->lse;
          return prediction;
        });
    add_keys("the mirror chunk is not merged at all in steps whose source is a later rank",
             without_upper);
    add("real lengths per rank are rounded down (real / size) instead of counted",
        [this, size](const Place& query) -> std::optional<Prediction> {
          const std::int64_t real = r_.pack.real_length(query.sequence);
          const std::int64_t base = layout_.first_local(query.sequence);
          const std::int64_t rows = real / size, half = real / (2 * std::int64_t{size});
          const auto index = [&](const Place& place) { return place.local - base; };
          if (index(query) >= rows) return std::nullopt;  // never computed: anything may be there
          std::vector<Key> keys;
          for (const Key& key : visible(query)) {
            const Place place = layout_.place({key.row, 0});
            if (index(place) >= (place.rank < query.rank ? half : rows)) continue;
            keys.push_back(key);
          }
          return attend(query, keys, {});
        });
  }

  /// What a scale of `factor` times the expected one leaves unexplained in the group's wrong rows.
  std::vector<double> misfit(const Group& group, double factor) const {
    std::vector<double> residuals;
    for (const Place& query : group.wrong) {
      const auto prediction = attend(query, visible(query), {factor, false, 1});
      if (r_.lse) {
        residuals.push_back(prediction ? prediction->lse - r_.lse->at(query.head, query.row) : 0);
        continue;
      }
      for (int d = 0; d < r_.v.dim; ++d) {
        residuals.push_back(prediction ? prediction->o[static_cast<std::size_t>(d)] -
                                             r_.o->at(query.row, query.head, d)
                                       : 0);
      }
    }
    return residuals;
  }

  /// The softmax scale that fits best, as a hypothesis of its own: a grid, then Gauss-Newton.
  std::vector<Hypothesis> fitted_scale(const Group& group) const {
    double factor = 1, lowest = kInfinity;
    for (int i = -24; i <= 24; ++i) {
      const double tried = std::pow(2.0, i / 4.0);
      if (const double value = norm(misfit(group, tried)); value < lowest) {
        lowest = value;
        factor = tried;
      }
    }
    for (int i = 0; i < 20 && factor > 0; ++i) {
      const double step = 1e-5 * factor;
      const std::vector<double> at = misfit(group, factor);
      const std::vector<double> above = misfit(group, factor + step);
      const std::vector<double> below = misfit(group, factor - step);
      double product = 0, square = 0;
      for (std::size_t n = 0; n < at.size(); ++n) {
        const double slope = (above[n] - below[n]) / (2 * step);
        product += slope * at[n];
        square += slope * slope;
      }
      if (!(square > 0)) break;
      factor -= product / square;
    }
    if (!(factor > 0) || std::isinf(factor)) return {};
    const double root = std::sqrt(static_cast<double>(r_.q.dim));
    const std::string name =
        with_ratio(factor, {{root, "no division by sqrt(dim)"},
                            {1 / root, "division by dim instead of sqrt(dim)"},
                            {std::numbers::log2e, "log2 e applied twice"},
                            {std::numbers::ln2, "log2 e left out of a base-2 exponential"}});
    // One number fitted to all rows: rounding moves each row's optimum a little.
    return {{"the softmax scale is " + name + " times the expected one",
             [this, factor](const Place& query) {
               return attend(query, visible(query), {factor, false, 1});
             }}};
  }

  /// The one key whose loss or repetition explains a row, if there is one.
  std::optional<std::pair<std::int64_t, double>> best_key(const Place& query) const {
    const std::vector<Key> keys = visible(query);
    std::optional<std::pair<std::int64_t, double>> best;
    double least = kInfinity;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      for (double weight : {0.0, 2.0}) {
        std::vector<Key> changed = keys;
        changed[i].weight = weight;
        const auto prediction = attend(query, changed, {});
        if (!prediction) continue;
        const Predict predict = [&found = *prediction](const Place&) {
          return std::optional(found);
        };
        if (!matches(predict, query, true).value_or(false)) continue;
        double misfit = 0;
        if (r_.o) misfit += distance(prediction->o, row_values(*r_.o, query.row, query.head));
        if (r_.lse) misfit += std::fabs(prediction->lse - r_.lse->at(query.head, query.row));
        if (misfit < least) {
          least = misfit;
          best = {keys[i].row, weight};
        }
      }
    }
    return best;
  }

  std::optional<Best> single_key(const Group& group) const {
    std::map<std::pair<std::int64_t, double>, std::size_t> votes;
    std::size_t found = 0;
    std::optional<std::pair<Place, std::pair<std::int64_t, double>>> example;
    // Quadratic in the row's keys: fewer rows than for other hypotheses.
    const std::size_t tried = std::min<std::size_t>(group.wrong.size(), 12);
    for (std::size_t i = 0; i < tried; ++i) {
      const Place& query = group.wrong[i * group.wrong.size() / tried];
      const auto key = best_key(query);
      if (!key) continue;
      ++found;
      ++votes[*key];
      if (!example) example = {query, *key};
    }
    if (found * 10 < tried * 9 || found == 0) return std::nullopt;
    const auto top = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
      return a.second < b.second;
    });
    const auto key_text = [&](std::int64_t row) {
      const Place key = layout_.place({row, 0});
      return fmt::format("key {} of sequence {}", key.position, key.sequence);
    };
    Best best;
    best.fit = {found, 0, tried, 0};
    const char* const fates[] = {"is missing", "is counted twice"};
    if (top->second * 10 >= found * 9) {
      best.name = fmt::format("{} {}", key_text(top->first.first), fates[top->first.second > 1]);
    } else {
      best.name = fmt::format(
          "one key of each row {}, not the same in all: in sequence {} query {} it is {}",
          example->second.second > 1 ? "is counted twice" : "is missing", example->first.sequence,
          example->first.position, key_text(example->second.first));
    }
    return best;
  }

  const AttentionRecording& r_;
  const AttentionExpectation& e_;
  Layout layout_;
  RingPlan plan_;
  double scale_;
  int group_;
  std::vector<Hypothesis> hypotheses_;
};

// --- gradients -----------------------------------------------------------------------------------

class GradientDiagnosis {
 public:
  GradientDiagnosis(const AttentionRecording& recording, const AttentionExpectation& expected,
                    Gradient which)
      : r_(recording),
        e_(expected),
        which_(which),
        layout_(recording.pack, recording.size),
        scale_(softmax_scale(recording.options, recording.q.dim)),
        group_(recording.q.heads / recording.k.heads),
        got_(which == Gradient::kQuery ? *recording.dq
             : which == Gradient::kKey ? *recording.dk
                                       : *recording.dv),
        reference_(which == Gradient::kQuery ? expected.backward.dq
                   : which == Gradient::kKey ? expected.backward.dk
                                             : expected.backward.dv),
        error_(which == Gradient::kQuery ? expected.scales.dq
               : which == Gradient::kKey ? expected.scales.dk
                                         : expected.scales.dv) {
    if (recording.size > 1) add_ring();
    if (which != Gradient::kQuery && group_ > 1) add_heads();
  }

  std::string explain(const RowVerdict& rows) {
    std::size_t poisoned = 0;
    for (const HeadRow& at : rows.wrong) {
      poisoned += std::isnan(norm(row_values(got_, at.row, at.head)));
    }
    if (poisoned * 2 >= rows.wrong.size()) {
      return fmt::format(
          "; {} of {} wrong rows are NaN: a buffer that was added to before it was "
          "written, or padding that leaked",
          poisoned, rows.wrong.size());
    }
    std::vector<std::pair<int, std::optional<Best>>> explained;
    for (const Group& group : by_rank(layout_, rows)) {
      const auto tried = [&](const GradientHypothesis& hypothesis, const Place& place,
                             bool is_wrong) {
        return matches(hypothesis.predict(place), place, is_wrong);
      };
      std::vector<GradientHypothesis> mine;
      for (const auto& [rank, hypothesis] : hypotheses_) {
        if (rank < 0 || rank == group.rank) mine.push_back(hypothesis);
      }
      std::optional<Best> best = find_best(mine, group, tried);
      if (!best) best = find_best(fitted_factor(group), group, tried);
      explained.emplace_back(group.rank, std::move(best));
    }
    return summary(explained);
  }

 private:
  /// What each ring step and each query head of the group contributes, [step][head in group].
  using Parts = std::vector<std::vector<std::vector<double>>>;

  /// LSE and row dot with which the backward pass of one query row works, per step.
  struct RowConstants {
    double lse = 0;
    double row_dot = 0;
  };
  enum class Constants { kFinal, kStepBoth, kStepLse, kStepO };

  double dot(const Tensor<double>& a, std::int64_t a_row, int a_head, const Tensor<double>& b,
             std::int64_t b_row, int b_head) const {
    double sum = 0;
    for (int d = 0; d < a.dim; ++d) sum += a.at(a_row, a_head, d) * b.at(b_row, b_head, d);
    return sum;
  }

  int step_between(const Place& query, const Place& key) const {
    return (query.rank - key.rank + r_.size) % r_.size;
  }

  /// Per step: the LSE and O.dO of that step's keys alone.
  const std::vector<RowConstants>& step_constants(const Place& query) const {
    auto& constants = step_cache_[{query.row, query.head}];
    if (!constants.empty()) return constants;
    const auto size = static_cast<std::size_t>(r_.size);
    std::vector<std::vector<std::pair<double, double>>> terms(size);  // (score, dO.V)
    const std::int64_t first = r_.pack.first_row(query.sequence);
    const KeyRange keys = visible_keys(r_.options.causal, r_.options.window, query.position,
                                       r_.pack.real_length(query.sequence));
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const Place key = layout_.place({first + j, query.head / group_});
      terms[static_cast<std::size_t>(step_between(query, key))].emplace_back(
          scale_ * dot(r_.q, query.row, query.head, r_.k, key.row, key.head),
          dot(*r_.d_o, query.row, query.head, r_.v, key.row, key.head));
    }
    for (const auto& step : terms) {
      double max = -kInfinity, sum = 0, weighted = 0;
      for (const auto& [score, value] : step) max = std::max(max, score);
      for (const auto& [score, value] : step) {
        sum += std::exp(score - max);
        weighted += std::exp(score - max) * value;
      }
      constants.push_back(
          {step.empty() ? 0 : max + std::log(sum), step.empty() ? 0 : weighted / sum});
    }
    return constants;
  }

  RowConstants constants(const Place& query, int step, Constants mode) const {
    RowConstants final{e_.forward.lse.at(query.head, query.row),
                       dot(*r_.d_o, query.row, query.head, e_.forward.o, query.row, query.head)};
    if (mode == Constants::kFinal) return final;
    const RowConstants& own = step_constants(query)[static_cast<std::size_t>(step)];
    if (mode != Constants::kStepO) final.lse = own.lse;
    if (mode != Constants::kStepLse) final.row_dot = own.row_dot;
    return final;
  }

  /// Adds what one (query, key) pair contributes to the gradient row.
  void add_pair(const Place& query, const Place& key, Constants mode, Parts& parts) const {
    const int step = step_between(query, key);
    const RowConstants row = constants(query, step, mode);
    const double p =
        std::exp(scale_ * dot(r_.q, query.row, query.head, r_.k, key.row, key.head) - row.lse);
    auto& sum =
        parts[static_cast<std::size_t>(step)]
             [static_cast<std::size_t>(which_ == Gradient::kQuery ? 0 : query.head % group_)];
    if (which_ == Gradient::kValue) {
      for (int d = 0; d < r_.v.dim; ++d) {
        sum[static_cast<std::size_t>(d)] += p * r_.d_o->at(query.row, query.head, d);
      }
      return;
    }
    const double ds =
        scale_ * p * (dot(*r_.d_o, query.row, query.head, r_.v, key.row, key.head) - row.row_dot);
    for (int d = 0; d < r_.q.dim; ++d) {
      sum[static_cast<std::size_t>(d)] +=
          ds * (which_ == Gradient::kQuery ? r_.k.at(key.row, key.head, d)
                                           : r_.q.at(query.row, query.head, d));
    }
  }

  const Parts& parts(const Place& place, Constants mode) const {
    Parts& result = parts_cache_[{place.row, place.head, static_cast<int>(mode)}];
    if (!result.empty()) return result;
    const auto dim = static_cast<std::size_t>(got_.dim);
    result.assign(static_cast<std::size_t>(r_.size),
                  std::vector(static_cast<std::size_t>(group_), std::vector<double>(dim)));
    const std::int64_t first = r_.pack.first_row(place.sequence);
    const std::int64_t real = r_.pack.real_length(place.sequence);
    if (which_ == Gradient::kQuery) {
      const KeyRange keys =
          visible_keys(r_.options.causal, r_.options.window, place.position, real);
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        add_pair(place, layout_.place({first + j, place.head / group_}), mode, result);
      }
      return result;
    }
    for (std::int64_t i = 0; i < real; ++i) {
      const KeyRange keys = visible_keys(r_.options.causal, r_.options.window, i, real);
      if (!keys.contains(place.position)) continue;
      for (int h = place.head * group_; h < (place.head + 1) * group_; ++h) {
        add_pair(layout_.place({first + i, h}), place, mode, result);
      }
    }
    return result;
  }

  /// Sum of the parts with a weight per step and head.
  std::vector<double> weighted(const Place& place, Constants mode,
                               const std::function<double(int step, int head)>& weight) const {
    std::vector<double> sum(static_cast<std::size_t>(got_.dim));
    const Parts& all = parts(place, mode);
    for (std::size_t step = 0; step < all.size(); ++step) {
      for (std::size_t head = 0; head < all[step].size(); ++head) {
        const double factor = weight(static_cast<int>(step), static_cast<int>(head));
        for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += factor * all[step][head][d];
      }
    }
    return sum;
  }

  void add(int rank, std::string name, PredictGradient predict) {
    hypotheses_.emplace_back(rank, GradientHypothesis{std::move(name), std::move(predict)});
  }

  void add_ring() {
    const int size = r_.size;
    const auto weigh = [this](std::function<double(int)> weight) {
      return [this, weight](const Place& place) {
        return weighted(place, Constants::kFinal, [&](int step, int) { return weight(step); });
      };
    };
    const bool query = which_ == Gradient::kQuery;
    // Steps are numbered as in the forward pass; the backward pass runs them from the last to 0.
    for (int rank = 0; rank < size; ++rank) {
      for (int step = 0; step < size; ++step) {
        const int other = query ? (rank - step + size) % size : (rank + step) % size;
        const std::string what =
            query ? fmt::format("the contribution of step {} (K/V of rank {})", step, other)
                  : fmt::format("the contribution of step {} (computed on rank {})", step, other);
        add(rank, what + " is lost", weigh([step](int t) { return t == step ? 0 : 1; }));
        add(rank, what + " is added twice", weigh([step](int t) { return t == step ? 2 : 1; }));
        if (step < size - 1) {
          add(rank, what + " overwrites what was accumulated before it",
              weigh([step](int t) { return t <= step ? 1 : 0; }));
        }
      }
    }
    const auto with = [this](Constants mode) {
      return [this, mode](const Place& place) {
        return weighted(place, mode, [](int, int) { return 1; });
      };
    };
    add(-1, "each step's backward uses the LSE and O of that step instead of the final ones",
        with(Constants::kStepBoth));
    add(-1, "each step's backward uses the LSE of that step instead of the final one",
        with(Constants::kStepLse));
    if (which_ != Gradient::kValue) {
      add(-1, "each step's backward uses the O of that step instead of the final one",
          with(Constants::kStepO));
    }
    if (query) return;
    for (int distance = 1; distance < size; ++distance) {
      add(-1,
          distance == size - 1
              ? std::string("the gradients of the keys of the rank before: one hop too many")
          : distance == 1
              ? std::string("the gradients of the next rank's keys: the last hop home is missing")
              : fmt::format("the gradients of the keys of the rank {} further", distance),
          [this, distance, size](const Place& place) {
            const int rank = (place.rank + distance) % size;
            return row_values(reference_, layout_.row(rank, place.local), place.head);
          });
    }
  }

  void add_heads() {
    for (int head = 0; head < group_; ++head) {
      add(-1, fmt::format("only query head {} of each group of {} contributes", head, group_),
          [this, head](const Place& place) {
            return weighted(place, Constants::kFinal,
                            [&](int, int h) { return h == head ? 1 : 0; });
          });
    }
  }

  std::vector<GradientHypothesis> fitted_factor(const Group& group) const {
    std::vector<double> reference, candidate;
    for (const Place& place : group.wrong) {
      for (int d = 0; d < got_.dim; ++d) {
        reference.push_back(reference_.at(place.row, place.head, d));
        candidate.push_back(got_.at(place.row, place.head, d));
      }
    }
    const ScaleFit fit = fit_scale(reference, candidate);
    if (!(std::fabs(fit.cosine) > 0.99)) return {};
    const double root = std::sqrt(static_cast<double>(r_.q.dim));
    std::vector<std::pair<double, std::string>> names;
    if (which_ != Gradient::kValue) {
      names = {{root, "the softmax scale is left out"}, {1 / root, "the softmax scale twice"}};
    }
    if (group_ > 1) {
      names.emplace_back(1.0 / group_, "the mean over the heads of a group instead of the sum");
    }
    names.emplace_back(r_.size, "the CP size");
    names.emplace_back(1.0 / r_.size, "divided by the CP size");
    names.emplace_back(-1, "the opposite sign");
    const double alpha = fit.alpha;
    return {{with_ratio(alpha, names) + " times the expected gradient",
             [this, alpha](const Place& place) {
               std::vector<double> values = row_values(reference_, place.row, place.head);
               for (double& value : values) value *= alpha;
               return values;
             }}};
  }

  std::optional<bool> matches(const std::vector<double>& prediction, const Place& place,
                              bool is_wrong) const {
    const std::vector<double> got = row_values(got_, place.row, place.head);
    const std::vector<double> expected = row_values(reference_, place.row, place.head);
    const double w = format_limits(e_.precision.storage).unit_roundoff();
    double walk = 0, bound = 0;
    for (int d = 0; d < got_.dim; ++d) {
      walk += error_.walk.at(place.row, place.head, d);
      bound += std::pow(
          hard_bound(error_, error_.walk.offset(place.row, place.head, d), e_.precision), 2);
    }
    // What is predicted may be larger than the reference, and its roundings with it.
    const double growth = std::max(1.0, norm(prediction) / std::max(norm(expected), 1e-300));
    const double tolerance =
        growth * (e_.precision.storage == e_.precision.accumulator
                      ? std::sqrt(bound)
                      : row_statistic_limit(e_.precision, got_.dim) * w * std::sqrt(walk));
    const double error = distance(got, prediction);
    // A wrong row is explained when most of its difference is gone; rounding follows the sum.
    const double difference = distance(got, expected);
    if (is_wrong)
      return error <= std::max(tolerance, 0.02 * norm(prediction)) && error <= kLeft * difference;
    return error <= 2 * tolerance;
  }

  const AttentionRecording& r_;
  const AttentionExpectation& e_;
  Gradient which_;
  Layout layout_;
  double scale_;
  int group_;
  const Tensor<double>& got_;
  const Tensor<double>& reference_;
  const ErrorScale& error_;
  std::vector<std::pair<int, GradientHypothesis>> hypotheses_;  // rank, -1 = every
  mutable std::map<std::pair<std::int64_t, int>, std::vector<RowConstants>> step_cache_;
  mutable std::map<std::tuple<std::int64_t, int, int>, Parts> parts_cache_;
};

/// Real recorded rows of a tensor, split by `right`.
template <typename Right>
RowVerdict split_rows(const AttentionRecording& recording, int heads, Right right) {
  RowVerdict verdict;
  for (int s = 0; s < recording.pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < recording.pack.real_length(s); ++i) {
      const std::int64_t row = recording.pack.first_row(s) + i;
      if (!recording.recorded[static_cast<std::size_t>(row)]) continue;
      for (int h = 0; h < heads; ++h) {
        (right(row, h) ? verdict.right : verdict.wrong).push_back({row, h});
      }
    }
  }
  return verdict;
}

bool within(const Tensor<double>& got, const Tensor<double>& reference, const ErrorScale& scale,
            std::int64_t row, int head, const AttentionPrecision& precision) {
  for (int d = 0; d < got.dim; ++d) {
    const double error = std::fabs(got.at(row, head, d) - reference.at(row, head, d));
    if (!(error <= hard_bound(scale, scale.walk.offset(row, head, d), precision))) return false;
  }
  return row_statistic(got, reference, scale, row, head, precision) <=
         row_statistic_limit(precision, got.dim);
}

}  // namespace

AttentionExpectation expect_attention(const AttentionRecording& recording,
                                      const AttentionPrecision& precision) {
  AttentionExpectation expected;
  expected.precision = precision;
  expected.forward =
      attention_forward(recording.pack, recording.q, recording.k, recording.v, recording.options);
  const Tensor<double> d_o =
      recording.d_o.value_or(Tensor<double>(recording.q.rows, recording.q.heads, recording.v.dim));
  expected.backward = attention_backward(recording.pack, recording.q, recording.k, recording.v,
                                         expected.forward, d_o, recording.options);
  expected.scales = attention_scales(recording.pack, recording.q, recording.k, recording.v,
                                     expected.forward, d_o, recording.options, precision);
  return expected;
}

double recorded_lse_allowed(const AttentionExpectation& expected, int head, std::int64_t row) {
  return 4 * lse_tau(expected.precision.accumulator, expected.scales.dim) *
         (1 + std::fabs(expected.forward.lse.at(head, row)));
}

RowVerdict judge_o(const AttentionRecording& recording, const AttentionExpectation& expected) {
  return split_rows(recording, recording.q.heads, [&](std::int64_t row, int head) {
    return within(*recording.o, expected.forward.o, expected.scales.o, row, head,
                  expected.precision);
  });
}

RowVerdict judge_lse(const AttentionRecording& recording, const AttentionExpectation& expected) {
  return split_rows(recording, recording.q.heads, [&](std::int64_t row, int head) {
    return std::fabs(recording.lse->at(head, row) - expected.forward.lse.at(head, row)) <=
           recorded_lse_allowed(expected, head, row);
  });
}

RowVerdict judge_gradient(const AttentionRecording& recording, const Tensor<double>& gradient,
                          const Tensor<double>& reference, const ErrorScale& scale,
                          const AttentionPrecision& precision) {
  return split_rows(recording, gradient.heads, [&](std::int64_t row, int head) {
    return within(gradient, reference, scale, row, head, precision);
  });
}

std::string explain_forward(const AttentionRecording& recording,
                            const AttentionExpectation& expected, const RowVerdict& rows) {
  return ForwardDiagnosis(recording, expected).explain(rows);
}

std::string explain_gradient(const AttentionRecording& recording,
                             const AttentionExpectation& expected, Gradient which,
                             const RowVerdict& rows) {
  return GradientDiagnosis(recording, expected, which).explain(rows);
}

}  // namespace dyncp
