// Plan, coverage proof and execution; see ring.h.
#include "reference/ring.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"

namespace dyncp {

// --- segments ------------------------------------------------------------------------------------

KeyRange segment_keys(const Segment& segment, std::int64_t i) {
  KeyRange keys{0, segment.klen};
  if (segment.causal) keys.end = std::min(keys.end, i + segment.shift + 1);
  if (segment.window >= 0) keys.begin = std::max(keys.begin, i + segment.shift - segment.window);
  return keys;
}

KeyRange segment_queries(const Segment& segment, std::int64_t j) {
  KeyRange queries{0, segment.qlen};
  if (segment.causal) queries.begin = std::max(queries.begin, j - segment.shift);
  if (segment.window >= 0) {
    queries.end = std::min(queries.end, j - segment.shift + segment.window + 1);
  }
  return queries;
}

std::int64_t pair_count(const Segment& segment) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < segment.qlen; ++i) {
    const KeyRange keys = segment_keys(segment, i);
    pairs += std::max<std::int64_t>(0, keys.end - keys.begin);
  }
  return pairs;
}

// --- the plan ------------------------------------------------------------------------------------

namespace {

/// The real rows of one chunk of a sequence on one rank.
struct Chunk {
  std::int64_t local = 0;   // first row in the rank's slice
  std::int64_t global = 0;  // first position in the sequence
  std::int64_t real = 0;    // real tokens
};

/// The front and mirror chunk of a sequence on `rank`.
std::vector<Chunk> chunks_of(const Pack& pack, int size, int rank, int sequence) {
  const ZigzagLayout layout{size};
  const std::int64_t length = pack.padded_length(sequence);
  const std::int64_t first = pack.first_row(sequence) / size;
  const std::int64_t chunk = layout.front_length(length);
  const std::int64_t real = pack.real_length(sequence);
  return {{first, rank * chunk, layout.real_front(real, length, rank)},
          {first + chunk, (2 * size - 1 - rank) * chunk, layout.real_mirror(real, length, rank)}};
}

/// One segment per pair of chunks that share a visible pair.
void add_chunk_pairs(const std::vector<Chunk>& queries, const std::vector<Chunk>& keys, bool causal,
                     std::int64_t window, std::vector<Segment>& segments) {
  for (const Chunk& query : queries) {
    for (const Chunk& key : keys) {
      const Segment segment{
          query.local, query.real, key.local, key.real, causal, query.global - key.global, window};
      if (pair_count(segment) > 0) segments.push_back(segment);
    }
  }
}

/// The segments of one sequence in one step without a window: at most one.
void add_merged(const std::vector<Chunk>& queries, const std::vector<Chunk>& keys, bool causal,
                int rank, int source, std::vector<Segment>& segments) {
  const std::int64_t q_real = queries[0].real + queries[1].real;
  const std::int64_t k_real = keys[0].real + keys[1].real;
  Segment segment{queries[0].local, q_real, keys[0].local, k_real, false, 0, -1};
  if (causal && source == rank) {
    segment.causal = true;  // chunk order is position order, so local causal is global causal
  } else if (causal && source < rank) {
    segment.klen = keys[0].real;
  } else if (causal) {
    segment.q0 = queries[1].local;
    segment.qlen = queries[1].real;
  }
  if (segment.qlen > 0 && segment.klen > 0) segments.push_back(segment);
}

}  // namespace

RingPlan make_ring_plan(const Pack& pack, int size, bool causal, std::int64_t window) {
  require_divisible(pack, size);
  if (window < -1) {
    throw InvalidInput("ring plan: window " + std::to_string(window) +
                       ", expected -1 (all keys) or a count of keys");
  }
  RingPlan plan{pack, size, causal, window, {}};
  for (int rank = 0; rank < size; ++rank) {
    std::vector<RingStep> steps;
    for (int step = 0; step < size; ++step) {
      RingStep ring_step{plan.source(rank, step), {}};
      for (int s = 0; s < pack.sequences(); ++s) {
        const std::vector<Chunk> queries = chunks_of(pack, size, rank, s);
        const std::vector<Chunk> keys = chunks_of(pack, size, ring_step.source, s);
        if (window >= 0) {
          add_chunk_pairs(queries, keys, causal, window, ring_step.segments);
        } else {
          add_merged(queries, keys, causal, rank, ring_step.source, ring_step.segments);
        }
      }
      steps.push_back(std::move(ring_step));
    }
    plan.steps.push_back(std::move(steps));
  }
  return plan;
}

// --- the proof -----------------------------------------------------------------------------------

namespace {

/// Where the rows of any rank's slice belong.
class LocalRows {
 public:
  LocalRows(const Pack& pack, int size)
      : pack_(pack), layout_{size}, boundaries_(local_boundaries(pack, size)) {}

  std::int64_t rows() const { return boundaries_.back(); }
  /// First local row past `sequence`.
  std::int64_t end(int sequence) const { return boundaries_[std::size_t(sequence) + 1]; }
  /// The sequence that holds a local row. REQUIRES: 0 <= row < rows().
  int sequence(std::int64_t row) const {
    const auto past = std::upper_bound(boundaries_.begin(), boundaries_.end(), row);
    return static_cast<int>(past - boundaries_.begin()) - 1;
  }
  /// Position in its sequence of a local row of `rank`.
  std::int64_t position(int rank, int sequence, std::int64_t row) const {
    return layout_.global_index(pack_.padded_length(sequence), rank,
                                row - boundaries_[std::size_t(sequence)]);
  }
  /// First local row of the sequence's mirror chunk.
  std::int64_t mirror(int sequence) const {
    return boundaries_[std::size_t(sequence)] + layout_.front_length(pack_.padded_length(sequence));
  }

 private:
  const Pack& pack_;
  ZigzagLayout layout_;
  std::vector<std::int64_t> boundaries_;
};

/// Keys [begin, end) of the query's own sequence that one step shows to a local query row.
struct Visit {
  std::int64_t row = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int step = 0;
};

std::string place(int rank, int step) {
  return "rank " + std::to_string(rank) + " step " + std::to_string(step);
}

std::string pair_text(int sequence, std::int64_t query, std::int64_t key) {
  return "sequence " + std::to_string(sequence) + " query " + std::to_string(query) + " key " +
         std::to_string(key);
}

/// Records what one segment shows to each of its query rows, or tells what it must not touch.
std::optional<CoverageFault> visit_segment(const RingPlan& plan, const LocalRows& local, int rank,
                                           int step, const Segment& segment,
                                           std::vector<Visit>& visits) {
  const int source = plan.source(rank, step);
  for (std::int64_t i = 0; i < segment.qlen; ++i) {
    const KeyRange keys = segment_keys(segment, i);
    if (keys.begin >= keys.end) continue;
    const std::int64_t row = segment.q0 + i;
    const int sequence = local.sequence(row);
    const std::int64_t query = local.position(rank, sequence, row);
    std::int64_t key_row = segment.k0 + keys.begin;
    const std::int64_t key_end = segment.k0 + keys.end;
    while (key_row < key_end) {
      const int key_sequence = local.sequence(key_row);
      const std::int64_t key = local.position(source, key_sequence, key_row);
      if (key_sequence != sequence) {
        return CoverageFault{rank,
                             step,
                             sequence,
                             query,
                             key,
                             place(rank, step) + " (K/V of rank " + std::to_string(source) +
                                 "): sequence " + std::to_string(sequence) + " query " +
                                 std::to_string(query) + " sees key " + std::to_string(key) +
                                 " of sequence " + std::to_string(key_sequence)};
      }
      if (query >= plan.pack.real_length(sequence)) {
        return CoverageFault{rank,
                             step,
                             sequence,
                             query,
                             key,
                             place(rank, step) + ": " + pair_text(sequence, query, key) +
                                 " is computed, but the query is padding"};
      }
      // A run of local rows inside one chunk is a run of positions.
      const std::int64_t chunk_end =
          key_row < local.mirror(sequence) ? local.mirror(sequence) : local.end(sequence);
      const std::int64_t run = std::min(key_end, chunk_end) - key_row;
      visits.push_back({row, key, key + run, step});
      key_row += run;
    }
  }
  return std::nullopt;
}

/// Compares the sorted visits of one query row with the keys it may see.
std::optional<CoverageFault> check_row(const RingPlan& plan, const LocalRows& local, int rank,
                                       std::int64_t row, std::span<const Visit> visits) {
  const int sequence = local.sequence(row);
  const std::int64_t query = local.position(rank, sequence, row);
  const std::int64_t real = plan.pack.real_length(sequence);
  if (query >= real) return std::nullopt;  // padding queries with visits were refused before
  const KeyRange allowed = visible_keys(plan.causal, plan.window, query, real);
  const auto fault = [&](int step, std::int64_t key, const std::string& what) {
    return CoverageFault{
        rank,  step, sequence,
        query, key,  place(rank, step) + ": " + pair_text(sequence, query, key) + what};
  };
  const auto missing = [&](std::int64_t key) {
    const int owner = ZigzagLayout{plan.size}.rank_of(plan.pack.padded_length(sequence), key);
    return fault((rank - owner + plan.size) % plan.size, key,
                 " is never computed (the key belongs to rank " + std::to_string(owner) + ")");
  };
  std::int64_t next = allowed.begin;
  int previous_step = -1;
  const auto hidden = [&](int step, std::int64_t key) {
    return fault(step, key,
                 key < real ? " is computed, but the mask hides it"
                            : " is computed, but the key is padding");
  };
  for (const Visit& visit : visits) {
    if (visit.begin < allowed.begin || visit.begin >= allowed.end) {
      return hidden(visit.step, visit.begin);
    }
    if (visit.begin > next) return missing(next);
    if (visit.begin < next) {
      return fault(visit.step, visit.begin,
                   " is computed twice (also in step " + std::to_string(previous_step) + ")");
    }
    if (visit.end > allowed.end) return hidden(visit.step, allowed.end);
    next = visit.end;
    previous_step = visit.step;
  }
  if (next < allowed.end) return missing(next);
  return std::nullopt;
}

std::optional<CoverageFault> check_shape(const RingPlan& plan, std::int64_t rows) {
  const auto size = static_cast<std::size_t>(plan.size);
  bool complete = plan.steps.size() == size;
  for (const auto& steps : plan.steps) complete = complete && steps.size() == size;
  if (!complete) {
    return CoverageFault{-1,
                         -1,
                         -1,
                         -1,
                         -1,
                         "the plan does not have " + std::to_string(plan.size) + " ranks of " +
                             std::to_string(plan.size) + " steps"};
  }
  for (int rank = 0; rank < plan.size; ++rank) {
    for (int step = 0; step < plan.size; ++step) {
      const RingStep& ring_step = plan.steps[std::size_t(rank)][std::size_t(step)];
      if (ring_step.source != plan.source(rank, step)) {
        return CoverageFault{rank,
                             step,
                             -1,
                             -1,
                             -1,
                             place(rank, step) + " expects K/V of rank " +
                                 std::to_string(ring_step.source) + ", but the ring holds those " +
                                 "of rank " + std::to_string(plan.source(rank, step))};
      }
      for (const Segment& s : ring_step.segments) {
        if (s.q0 < 0 || s.qlen < 0 || s.q0 + s.qlen > rows || s.k0 < 0 || s.klen < 0 ||
            s.k0 + s.klen > rows) {
          return CoverageFault{rank,
                               step,
                               -1,
                               -1,
                               -1,
                               place(rank, step) + ": a segment of query rows " +
                                   std::to_string(s.q0) + "+" + std::to_string(s.qlen) +
                                   " and key rows " + std::to_string(s.k0) + "+" +
                                   std::to_string(s.klen) + " leaves the slice of " +
                                   std::to_string(rows) + " rows"};
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<CoverageFault> check_coverage(const RingPlan& plan) {
  require_divisible(plan.pack, plan.size);
  const LocalRows local(plan.pack, plan.size);
  if (auto fault = check_shape(plan, local.rows())) return fault;
  for (int rank = 0; rank < plan.size; ++rank) {
    std::vector<Visit> visits;
    for (int step = 0; step < plan.size; ++step) {
      for (const Segment& segment : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
        if (auto fault = visit_segment(plan, local, rank, step, segment, visits)) return fault;
      }
    }
    std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return std::pair(a.row, a.begin) < std::pair(b.row, b.begin);
    });
    auto first = visits.begin();
    for (std::int64_t row = 0; row < local.rows(); ++row) {
      auto last = first;
      while (last != visits.end() && last->row == row) ++last;
      if (auto fault = check_row(plan, local, rank, row, {first, last})) return fault;
      first = last;
    }
  }
  return std::nullopt;
}

ContributionCounts contribution_counts(const RingPlan& plan) {
  const auto rows = static_cast<std::size_t>(plan.local_rows());
  const auto size = static_cast<std::size_t>(plan.size);
  ContributionCounts counts{std::vector(size, std::vector<int>(rows)),
                            std::vector(size, std::vector<int>(rows))};
  for (int rank = 0; rank < plan.size; ++rank) {
    for (int step = 0; step < plan.size; ++step) {
      // A row counts once per step, however many segments of the step touch it.
      std::vector<bool> dq(rows), dkv(rows);
      for (const Segment& segment : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
        for (std::int64_t i = 0; i < segment.qlen; ++i) {
          const KeyRange keys = segment_keys(segment, i);
          if (keys.begin < keys.end) dq[std::size_t(segment.q0 + i)] = true;
        }
        for (std::int64_t j = 0; j < segment.klen; ++j) {
          const KeyRange queries = segment_queries(segment, j);
          if (queries.begin < queries.end) dkv[std::size_t(segment.k0 + j)] = true;
        }
      }
      const auto source = static_cast<std::size_t>(plan.source(rank, step));
      for (std::size_t row = 0; row < rows; ++row) {
        counts.dq[std::size_t(rank)][row] += dq[row];
        counts.dkv[source][row] += dkv[row];
      }
    }
  }
  return counts;
}

std::int64_t step_pairs(const RingPlan& plan, int rank, int step) {
  std::int64_t pairs = 0;
  for (const Segment& segment : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
    pairs += pair_count(segment);
  }
  return pairs;
}

// --- accumulation rules --------------------------------------------------------------------------

namespace {

/// Which chunks of a sequence have a contribution already.
struct Touched {
  bool front = false;
  bool mirror = false;
};

/// The rule for rows first..first+length of `rank`, and marks them touched.
HalfRules take_rows(const RingPlan& plan, const LocalRows& local, int rank, std::int64_t first,
                    std::int64_t length, std::vector<Touched>& touched) {
  HalfRules rules;
  if (length == 0) return rules;
  const int sequence = local.sequence(first);
  const std::vector<Chunk> chunks = chunks_of(plan.pack, plan.size, rank, sequence);
  Touched& seen = touched[std::size_t(sequence)];
  for (int half = 0; half < 2; ++half) {
    const Chunk& chunk = chunks[std::size_t(half)];
    const std::int64_t begin = std::max(first, chunk.local);
    const std::int64_t end = std::min(first + length, chunk.local + chunk.real);
    if (begin >= end) continue;
    if (end - begin != chunk.real) {
      throw InvalidInput("ring plan: a segment of rank " + std::to_string(rank) + " covers rows " +
                         std::to_string(begin) + ".." + std::to_string(end - 1) +
                         ", part of a chunk of " + std::to_string(chunk.real) + " real tokens");
    }
    bool& mark = half == 0 ? seen.front : seen.mirror;
    (half == 0 ? rules.front : rules.mirror) = mark ? Accumulate::kAdd : Accumulate::kCopy;
    mark = true;
  }
  return rules;
}

}  // namespace

std::vector<std::vector<std::vector<SegmentRules>>> backward_rules(const RingPlan& plan) {
  const LocalRows local(plan.pack, plan.size);
  const auto size = static_cast<std::size_t>(plan.size);
  const auto sequences = static_cast<std::size_t>(plan.pack.sequences());
  std::vector dq_touched(size, std::vector<Touched>(sequences));
  std::vector dkv_touched(size, std::vector<Touched>(sequences));
  std::vector rules(size, std::vector<std::vector<SegmentRules>>(size));
  for (int step = plan.size - 1; step >= 0; --step) {
    for (int rank = 0; rank < plan.size; ++rank) {
      const auto source = plan.source(rank, step);
      for (const Segment& s : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
        rules[std::size_t(rank)][std::size_t(step)].push_back(
            {take_rows(plan, local, rank, s.q0, s.qlen, dq_touched[std::size_t(rank)]),
             take_rows(plan, local, source, s.k0, s.klen, dkv_touched[std::size_t(source)])});
      }
    }
  }
  return rules;
}

// --- execution -----------------------------------------------------------------------------------

std::string_view to_string(Arithmetic arithmetic) {
  return format_limits(storage_format(arithmetic)).name;
}

Format storage_format(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kDouble:
      return Format::kDouble;
    case Arithmetic::kFloat:
      return Format::kFloat;
    case Arithmetic::kBf16:
      return Format::kBf16;
    case Arithmetic::kFp16:
      return Format::kFp16;
  }
  return Format::kDouble;
}

Format accumulator_format(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kDouble ? Format::kDouble : Format::kFloat;
}

std::string_view to_string(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::kWide:
      return "wide";
    case Accumulation::kRoundedPartials:
      return "rounded-partials";
    case Accumulation::kRounded:
      return "rounded";
  }
  return "?";
}

namespace {

// The arithmetic policies: the accumulator type, and rounding to the storage format.
struct DoubleArithmetic {
  using Real = double;
  static constexpr Format kStorage = Format::kDouble;
  static Real store(Real value) { return value; }
};
struct FloatArithmetic {
  using Real = float;
  static constexpr Format kStorage = Format::kFloat;
  static Real store(Real value) { return value; }
};
struct Bf16Arithmetic {
  using Real = float;
  static constexpr Format kStorage = Format::kBf16;
  static Real store(Real value) { return round_to_bf16(value); }
};
struct Fp16Arithmetic {
  using Real = float;
  static constexpr Format kStorage = Format::kFp16;
  static Real store(Real value) {
    return static_cast<float>(round_to(Format::kFp16, static_cast<double>(value)));
  }
};

template <typename Real>
constexpr Real kPoison = std::numeric_limits<Real>::quiet_NaN();
template <typename Real>
constexpr Real kEmptyLse = -std::numeric_limits<Real>::infinity();

template <typename Real>
std::span<Real> row_of(Tensor<Real>& tensor, std::int64_t row, int head) {
  return {tensor.data.data() + tensor.offset(row, head, 0), std::size_t(tensor.dim)};
}
template <typename Real>
std::span<const Real> row_of(const Tensor<Real>& tensor, std::int64_t row, int head) {
  return {tensor.data.data() + tensor.offset(row, head, 0), std::size_t(tensor.dim)};
}

template <typename Real>
Real dot(std::span<const Real> a, std::span<const Real> b) {
  Real sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

/// Rounded to the storage format once, then held in the accumulator type.
template <typename Policy>
Tensor<typename Policy::Real> load(const Tensor<double>& tensor) {
  Tensor<typename Policy::Real> result(tensor.rows, tensor.heads, tensor.dim);
  for (std::size_t i = 0; i < tensor.data.size(); ++i) {
    result.data[i] = static_cast<typename Policy::Real>(round_to(Policy::kStorage, tensor.data[i]));
  }
  return result;
}

/// Sums as they leave the rank: rounded to the storage format, padding zeroed.
template <typename Policy>
Tensor<double> finish(const Tensor<typename Policy::Real>& sums, const std::vector<bool>& real) {
  Tensor<double> result(sums.rows, sums.heads, sums.dim);
  for (std::int64_t row = 0; row < sums.rows; ++row) {
    if (!real[std::size_t(row)]) continue;
    for (int h = 0; h < sums.heads; ++h) {
      for (int d = 0; d < sums.dim; ++d) {
        result.at(row, h, d) = double(Policy::store(sums.at(row, h, d)));
      }
    }
  }
  return result;
}

/// Which rows of a rank's slice are real.
std::vector<bool> real_rows(const Pack& pack, int size, int rank) {
  const std::vector<std::int64_t> first = local_boundaries(pack, size);
  const std::vector<std::int64_t> real = real_lengths_on_rank(pack, size, rank);
  std::vector<bool> result(static_cast<std::size_t>(first.back()));
  for (std::size_t s = 0; s < real.size(); ++s) {
    for (std::int64_t i = 0; i < real[s]; ++i) result[std::size_t(first[s] + i)] = true;
  }
  return result;
}

/// Keys and values, with the gradients that travel beside them in backward.
template <typename Real>
struct Travelling {
  Tensor<Real> k, v, dk, dv;
};

/// What every rank holds after one hop of `distance` ranks (+1 forward, -1 backward).
template <typename Real>
std::vector<Travelling<Real>> hop(std::vector<Travelling<Real>> held, int distance) {
  const int size = static_cast<int>(held.size());
  std::vector<Travelling<Real>> arrived(held.size());
  for (int rank = 0; rank < size; ++rank) {
    arrived[std::size_t((rank + distance + size) % size)] = std::move(held[std::size_t(rank)]);
  }
  return arrived;
}

/// The partial attention of one query row over the keys of one segment.
template <typename Policy>
struct RowPartial {
  using Real = typename Policy::Real;
  Real lse = kEmptyLse<Real>;
  std::vector<Real> o;

  void compute(std::span<const Real> q, const Tensor<Real>& k, const Tensor<Real>& v, int kv_head,
               std::int64_t begin, std::int64_t end, Real scale, std::vector<Real>& scores) {
    o.assign(std::size_t(v.dim), Real(0));
    lse = kEmptyLse<Real>;
    if (begin >= end) return;
    scores.clear();
    Real max = kEmptyLse<Real>;
    for (std::int64_t j = begin; j < end; ++j) {
      scores.push_back(scale * dot(q, row_of(k, j, kv_head)));
      max = std::max(max, scores.back());
    }
    Real sum = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      const Real p = std::exp(scores[std::size_t(j - begin)] - max);
      const Real stored = Policy::store(p);
      sum += p;
      const auto v_row = row_of(v, j, kv_head);
      for (std::size_t d = 0; d < o.size(); ++d) o[d] += stored * v_row[d];
    }
    for (Real& value : o) value /= sum;
    lse = max + std::log(sum);
  }
};

/// Merges a partial result into the running one. The running O is uninitialised while its LSE is
/// -inf, so the first partial is copied.
template <typename Real>
void merge_row(std::span<Real> o, Real& lse, std::span<const Real> o_part, Real lse_part) {
  if (lse_part == kEmptyLse<Real>) return;
  if (lse == kEmptyLse<Real>) {
    std::copy(o_part.begin(), o_part.end(), o.begin());
    lse = lse_part;
    return;
  }
  const MergedLse<Real> merged = merge_lse(lse, lse_part);
  for (std::size_t d = 0; d < o.size(); ++d) {
    o[d] = merged.share_a * o[d] + merged.share_b * o_part[d];
  }
  lse = merged.lse;
}

template <typename Policy>
class Ring {
 public:
  using Real = typename Policy::Real;

  Ring(const RingPlan& plan, const std::vector<Tensor<double>>& q,
       const std::vector<Tensor<double>>& k, const std::vector<Tensor<double>>& v,
       const RingOptions& options)
      : plan_(plan),
        options_(options),
        local_(plan.pack, plan.size),
        group_(q[0].heads / k[0].heads),
        scale_(static_cast<Real>(
            softmax_scale({plan.causal, plan.window, options.scale, {}}, q[0].dim))) {
    for (int rank = 0; rank < plan.size; ++rank) {
      q_.push_back(load<Policy>(q[std::size_t(rank)]));
      k_.push_back(load<Policy>(k[std::size_t(rank)]));
      v_.push_back(load<Policy>(v[std::size_t(rank)]));
      real_.push_back(real_rows(plan.pack, plan.size, rank));
    }
    order_ = options.rank_order;
    if (order_.empty()) {
      order_.resize(std::size_t(plan.size));
      std::iota(order_.begin(), order_.end(), 0);
    }
  }

  RingForward forward() const {
    const auto size = static_cast<std::size_t>(plan_.size);
    std::vector<Tensor<Real>> o(
        size, Tensor<Real>(plan_.local_rows(), q_[0].heads, v_[0].dim, kPoison<Real>));
    std::vector<HeadRows<Real>> lse(
        size, HeadRows<Real>(q_[0].heads, plan_.local_rows(), kEmptyLse<Real>));
    std::vector<std::vector<Late>> late(size);
    std::vector<Travelling<Real>> held(size);
    for (std::size_t rank = 0; rank < size; ++rank) held[rank] = {k_[rank], v_[rank], {}, {}};
    for (int step = 0; step < plan_.size; ++step) {
      if (step > 0) held = hop(std::move(held), +1);
      for (int rank : order_) {
        const auto r = static_cast<std::size_t>(rank);
        forward_step(rank, step, held[r], o[r], lse[r], late[r]);
      }
    }
    RingForward output;
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (options_.accumulation == Accumulation::kRounded) {
        merge_late(late[rank], lse[rank], o[rank]);
      }
      apply_sink(o[rank], lse[rank]);
      output.o.push_back(finish<Policy>(o[rank], real_[rank]));
      HeadRows<double> wide(lse[rank].heads, lse[rank].rows);
      for (std::size_t i = 0; i < wide.data.size(); ++i) wide.data[i] = double(lse[rank].data[i]);
      output.lse.push_back(std::move(wide));
    }
    return output;
  }

  RingBackward backward(const RingForward& output, const std::vector<Tensor<double>>& d_o) const {
    const auto size = static_cast<std::size_t>(plan_.size);
    const auto rules = backward_rules(plan_);
    std::vector<Tensor<Real>> cotangent, dq;
    std::vector<HeadRows<Real>> lse, row_dot;
    std::vector<Travelling<Real>> held(size);
    for (std::size_t rank = 0; rank < size; ++rank) {
      cotangent.push_back(load<Policy>(d_o[rank]));
      const Tensor<Real> o = load<Policy>(output.o[rank]);
      dq.emplace_back(o.rows, q_[rank].heads, q_[rank].dim, kPoison<Real>);
      lse.emplace_back(o.heads, o.rows);
      row_dot.emplace_back(o.heads, o.rows, kPoison<Real>);
      for (int h = 0; h < o.heads; ++h) {
        for (std::int64_t row = 0; row < o.rows; ++row) {
          lse[rank].at(h, row) = static_cast<Real>(output.lse[rank].at(h, row));
          if (!real_[rank][std::size_t(row)]) continue;
          row_dot[rank].at(h, row) = dot<Real>(row_of(std::as_const(cotangent[rank]), row, h),
                                               row_of(std::as_const(o), row, h));
        }
      }
      // The last step of forward left the keys and values of the next rank here.
      const std::size_t source = (rank + 1) % size;
      held[rank] = {k_[source], v_[source],
                    Tensor<Real>(o.rows, k_[source].heads, k_[source].dim, kPoison<Real>),
                    Tensor<Real>(o.rows, v_[source].heads, v_[source].dim, kPoison<Real>)};
    }
    for (int step = plan_.size - 1; step >= 0; --step) {
      for (int rank : order_) {
        const auto r = static_cast<std::size_t>(rank);
        backward_step(rank, step, rules[r][std::size_t(step)], cotangent[r], lse[r], row_dot[r],
                      held[r], dq[r]);
      }
      if (step > 0) held = hop(std::move(held), -1);
    }
    RingBackward gradients;
    std::vector<Real> d_sink(options_.sink.size());
    for (std::size_t rank = 0; rank < size; ++rank) {
      gradients.dq.push_back(finish<Policy>(dq[rank], real_[rank]));
      gradients.dk.push_back(finish<Policy>(held[rank].dk, real_[rank]));
      gradients.dv.push_back(finish<Policy>(held[rank].dv, real_[rank]));
      for (std::size_t h = 0; h < d_sink.size(); ++h) {
        Real sum = 0;
        for (std::int64_t row = 0; row < plan_.local_rows(); ++row) {
          if (!real_[rank][std::size_t(row)]) continue;
          sum -= std::exp(static_cast<Real>(options_.sink[h]) - lse[rank].at(int(h), row)) *
                 row_dot[rank].at(int(h), row);
        }
        d_sink[h] += sum;
      }
    }
    gradients.d_sink.assign(d_sink.begin(), d_sink.end());
    return gradients;
  }

 private:
  /// A partial result kept until the final LSE is known (Accumulation::kRounded).
  struct Late {
    std::int64_t row = 0;
    int head = 0;
    Real lse = 0;
    std::vector<Real> o;
  };

  void forward_step(int rank, int step, const Travelling<Real>& held, Tensor<Real>& o,
                    HeadRows<Real>& lse, std::vector<Late>& late) const {
    const Tensor<Real>& q = q_[std::size_t(rank)];
    RowPartial<Policy> partial;
    std::vector<Real> scores;
    for (const Segment& segment : plan_.steps[std::size_t(rank)][std::size_t(step)].segments) {
      for (std::int64_t i = 0; i < segment.qlen; ++i) {
        const std::int64_t row = segment.q0 + i;
        const KeyRange keys = segment_keys(segment, i);
        for (int h = 0; h < q.heads; ++h) {
          partial.compute(row_of(q, row, h), held.k, held.v, h / group_, segment.k0 + keys.begin,
                          segment.k0 + keys.end, scale_, scores);
          if (options_.accumulation != Accumulation::kWide) {
            for (Real& value : partial.o) value = Policy::store(value);
          }
          if (options_.accumulation == Accumulation::kRounded) {
            lse.at(h, row) = merge_lse(lse.at(h, row), partial.lse).lse;
            late.push_back({row, h, partial.lse, partial.o});
          } else {
            merge_row<Real>(row_of(o, row, h), lse.at(h, row), partial.o, partial.lse);
          }
        }
      }
    }
  }

  void merge_late(const std::vector<Late>& late, const HeadRows<Real>& lse, Tensor<Real>& o) const {
    for (const Late& part : late) {
      for (Real& value : row_of(o, part.row, part.head)) value = 0;
    }
    for (const Late& part : late) {
      if (part.lse == kEmptyLse<Real>) continue;
      const Real share = std::exp(part.lse - lse.at(part.head, part.row));
      const auto sum = row_of(o, part.row, part.head);
      for (std::size_t d = 0; d < sum.size(); ++d) {
        sum[d] = Policy::store(sum[d] + Policy::store(share * part.o[d]));
      }
    }
  }

  void apply_sink(Tensor<Real>& o, HeadRows<Real>& lse) const {
    if (options_.sink.empty()) return;
    for (int h = 0; h < o.heads; ++h) {
      const Real sink = static_cast<Real>(options_.sink[std::size_t(h)]);
      for (std::int64_t row = 0; row < o.rows; ++row) {
        Real& row_lse = lse.at(h, row);
        if (row_lse == kEmptyLse<Real>) continue;
        const MergedLse<Real> merged = merge_lse(row_lse, sink);
        for (Real& value : row_of(o, row, h)) value *= merged.share_a;
        row_lse = merged.lse;
      }
    }
  }

  /// sum = contribution or sum + contribution, with the roundings of the accumulation.
  void accumulate(Accumulate rule, std::span<Real> sum, std::span<const Real> part) const {
    for (std::size_t d = 0; d < sum.size(); ++d) {
      const Real value =
          options_.accumulation == Accumulation::kWide ? part[d] : Policy::store(part[d]);
      if (rule == Accumulate::kCopy) {
        sum[d] = value;
      } else {
        sum[d] += value;
        if (options_.accumulation == Accumulation::kRounded) sum[d] = Policy::store(sum[d]);
      }
    }
  }

  /// Adds the rows of one segment's gradient tile into the rank's buffer, half by half.
  void accumulate_tile(int owner, const HalfRules& rules, std::int64_t first,
                       const Tensor<Real>& tile, Tensor<Real>& sums) const {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = first + i;
      const bool front = row < local_.mirror(local_.sequence(row));
      const Accumulate rule = front ? rules.front : rules.mirror;
      if (rule == Accumulate::kNone || !real_[std::size_t(owner)][std::size_t(row)]) continue;
      for (int h = 0; h < tile.heads; ++h) {
        accumulate(rule, row_of(sums, row, h), row_of(tile, i, h));
      }
    }
  }

  void backward_step(int rank, int step, const std::vector<SegmentRules>& rules,
                     const Tensor<Real>& d_o, const HeadRows<Real>& lse,
                     const HeadRows<Real>& row_dot, Travelling<Real>& held,
                     Tensor<Real>& dq) const {
    const Tensor<Real>& q = q_[std::size_t(rank)];
    const int source = plan_.source(rank, step);
    const auto& segments = plan_.steps[std::size_t(rank)][std::size_t(step)].segments;
    for (std::size_t n = 0; n < segments.size(); ++n) {
      const Segment& segment = segments[n];
      Tensor<Real> dq_tile(segment.qlen, q.heads, q.dim);
      Tensor<Real> dk_tile(segment.klen, held.k.heads, held.k.dim);
      Tensor<Real> dv_tile(segment.klen, held.v.heads, held.v.dim);
      for (std::int64_t i = 0; i < segment.qlen; ++i) {
        const KeyRange keys = segment_keys(segment, i);
        for (int h = 0; h < q.heads; ++h) {
          const auto q_row = row_of(q, segment.q0 + i, h);
          const auto d_o_row = row_of(d_o, segment.q0 + i, h);
          const auto dq_row = row_of(dq_tile, i, h);
          for (std::int64_t j = keys.begin; j < keys.end; ++j) {
            const auto k_row = row_of(std::as_const(held.k), segment.k0 + j, h / group_);
            const auto v_row = row_of(std::as_const(held.v), segment.k0 + j, h / group_);
            const Real p = std::exp(scale_ * dot(q_row, k_row) - lse.at(h, segment.q0 + i));
            const Real ds =
                Policy::store(p * (dot(d_o_row, v_row) - row_dot.at(h, segment.q0 + i)));
            const Real stored_p = Policy::store(p);
            const auto dk_row = row_of(dk_tile, j, h / group_);
            const auto dv_row = row_of(dv_tile, j, h / group_);
            for (std::size_t d = 0; d < dv_row.size(); ++d) dv_row[d] += stored_p * d_o_row[d];
            for (std::size_t d = 0; d < dq_row.size(); ++d) {
              dq_row[d] += ds * k_row[d];
              dk_row[d] += ds * q_row[d];
            }
          }
        }
      }
      for (Real& value : dq_tile.data) value *= scale_;
      for (Real& value : dk_tile.data) value *= scale_;
      accumulate_tile(rank, rules[n].dq, segment.q0, dq_tile, dq);
      accumulate_tile(source, rules[n].dkv, segment.k0, dk_tile, held.dk);
      accumulate_tile(source, rules[n].dkv, segment.k0, dv_tile, held.dv);
    }
  }

  const RingPlan& plan_;
  const RingOptions& options_;
  LocalRows local_;
  int group_;
  Real scale_;
  std::vector<Tensor<Real>> q_, k_, v_;
  std::vector<std::vector<bool>> real_;
  std::vector<int> order_;
};

void require_slices(const RingPlan& plan, const std::vector<Tensor<double>>& q,
                    const std::vector<Tensor<double>>& k, const std::vector<Tensor<double>>& v,
                    const RingOptions& options) {
  const auto size = static_cast<std::size_t>(plan.size);
  if (q.size() != size || k.size() != size || v.size() != size) {
    throw InvalidInput("ring: " + std::to_string(q.size()) + ", " + std::to_string(k.size()) +
                       " and " + std::to_string(v.size()) + " slices of q, k and v, expected " +
                       std::to_string(size) + " each");
  }
  const AttentionOptions attention{plan.causal, plan.window, options.scale, options.sink};
  for (std::size_t rank = 0; rank < size; ++rank) {
    require_valid_attention(plan.local_rows(), q[rank], k[rank], v[rank], attention);
    if (!q[rank].same_shape(q[0]) || !k[rank].same_shape(k[0]) || !v[rank].same_shape(v[0])) {
      throw InvalidInput("ring: the slices of rank " + std::to_string(rank) +
                         " have another shape than those of rank 0");
    }
  }
  std::vector<int> order = options.rank_order;
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order.size() != size || order[i] != static_cast<int>(i)) {
      throw InvalidInput("ring: rank_order is no permutation of the " + std::to_string(size) +
                         " ranks");
    }
  }
}

/// Calls `body` with the policy of an arithmetic.
template <typename Body>
auto with_policy(Arithmetic arithmetic, Body body) {
  switch (arithmetic) {
    case Arithmetic::kFloat:
      return body(FloatArithmetic());
    case Arithmetic::kBf16:
      return body(Bf16Arithmetic());
    case Arithmetic::kFp16:
      return body(Fp16Arithmetic());
    case Arithmetic::kDouble:
      break;
  }
  return body(DoubleArithmetic());
}

}  // namespace

RingForward ring_forward(const RingPlan& plan, const std::vector<Tensor<double>>& q,
                         const std::vector<Tensor<double>>& k, const std::vector<Tensor<double>>& v,
                         const RingOptions& options) {
  require_slices(plan, q, k, v, options);
  return with_policy(options.arithmetic, [&](auto policy) {
    return Ring<decltype(policy)>(plan, q, k, v, options).forward();
  });
}

RingBackward ring_backward(const RingPlan& plan, const std::vector<Tensor<double>>& q,
                           const std::vector<Tensor<double>>& k,
                           const std::vector<Tensor<double>>& v, const RingForward& output,
                           const std::vector<Tensor<double>>& d_o, const RingOptions& options) {
  require_slices(plan, q, k, v, options);
  const auto size = static_cast<std::size_t>(plan.size);
  bool fits = output.o.size() == size && output.lse.size() == size && d_o.size() == size;
  for (std::size_t rank = 0; fits && rank < size; ++rank) {
    const Tensor<double> expected(q[rank].rows, q[rank].heads, v[rank].dim);
    fits = output.o[rank].same_shape(expected) && d_o[rank].same_shape(expected) &&
           output.lse[rank].heads == q[rank].heads && output.lse[rank].rows == q[rank].rows;
  }
  if (!fits) throw InvalidInput("ring: o, lse or d_o does not have the shape of the forward pass");
  return with_policy(options.arithmetic, [&](auto policy) {
    return Ring<decltype(policy)>(plan, q, k, v, options).backward(output, d_o);
  });
}

// --- whole packs ---------------------------------------------------------------------------------

std::vector<Tensor<double>> slice_pack(const Pack& pack, int size, const Tensor<double>& whole) {
  if (whole.rows != pack.padded_tokens()) {
    throw InvalidInput("slice: " + std::to_string(whole.rows) + " rows, expected the pack's " +
                       std::to_string(pack.padded_tokens()));
  }
  std::vector<Tensor<double>> slices;
  for (int rank = 0; rank < size; ++rank) {
    slices.push_back(gather(whole, zigzag_rows(pack, size, rank)));
  }
  return slices;
}

Tensor<double> unslice_pack(const Pack& pack, int size, const std::vector<Tensor<double>>& slices) {
  Tensor<double> whole(pack.padded_tokens(), slices[0].heads, slices[0].dim);
  for (int rank = 0; rank < size; ++rank) {
    scatter(slices[std::size_t(rank)], zigzag_rows(pack, size, rank), whole);
  }
  return whole;
}

HeadRows<double> gather(const HeadRows<double>& source, const std::vector<std::int64_t>& rows) {
  HeadRows<double> result(source.heads, static_cast<std::int64_t>(rows.size()));
  for (int h = 0; h < source.heads; ++h) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      result.at(h, static_cast<std::int64_t>(i)) = source.at(h, rows[i]);
    }
  }
  return result;
}

HeadRows<double> unslice_pack(const Pack& pack, int size,
                              const std::vector<HeadRows<double>>& slices) {
  HeadRows<double> whole(slices[0].heads, pack.padded_tokens());
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<std::int64_t> rows = zigzag_rows(pack, size, rank);
    for (int h = 0; h < whole.heads; ++h) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        whole.at(h, rows[i]) = slices[std::size_t(rank)].at(h, static_cast<std::int64_t>(i));
      }
    }
  }
  return whole;
}

RingResult ring_attention(const RingPlan& plan, const Tensor<double>& q, const Tensor<double>& k,
                          const Tensor<double>& v, const Tensor<double>& d_o,
                          const RingOptions& options) {
  const auto slice = [&](const Tensor<double>& whole) {
    return slice_pack(plan.pack, plan.size, whole);
  };
  const auto qs = slice(q), ks = slice(k), vs = slice(v), d_os = slice(d_o);
  const RingForward output = ring_forward(plan, qs, ks, vs, options);
  const RingBackward gradients = ring_backward(plan, qs, ks, vs, output, d_os, options);
  return {{unslice_pack(plan.pack, plan.size, output.o),
           unslice_pack(plan.pack, plan.size, output.lse)},
          {unslice_pack(plan.pack, plan.size, gradients.dq),
           unslice_pack(plan.pack, plan.size, gradients.dk),
           unslice_pack(plan.pack, plan.size, gradients.dv), gradients.d_sink}};
}

}  // namespace dyncp
