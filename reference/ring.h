// Ring attention over a CP group: the plan as data, the proof that the plan is right, and its
// execution in several arithmetics.
//
// Rank r of a group of `size` holds the zigzag slice of the pack (reference/zigzag.h). In step t it
// holds the keys and values of rank (r - t) mod size, computes one partial attention per segment of
// the plan, and passes the keys and values on to rank r + 1. Partial results merge by their LSE.
// Backward runs the steps in the opposite order and direction; dK/dV travel with their keys and
// end on the rank that owns them.
//
// A kernel that consumes the same segments runs the plan that was proved.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/attention.h"
#include "reference/pack.h"
#include "reference/rounding.h"
#include "reference/tensor.h"

namespace dyncp {

/// A run of query rows against a run of key rows. q0 counts rows of the computing rank's slice, k0
/// rows of the source rank's slice. Query q0 + i sees key k0 + j if and only if
///   (!causal || j <= i + shift) && (window < 0 || j >= i + shift - window).
struct Segment {
  std::int64_t q0 = 0;
  std::int64_t qlen = 0;
  std::int64_t k0 = 0;
  std::int64_t klen = 0;
  bool causal = false;
  std::int64_t shift = 0;
  std::int64_t window = -1;
  bool operator==(const Segment&) const = default;
};

/// The keys j (counted from k0) that query i (counted from q0) sees; begin >= end when none.
KeyRange segment_keys(const Segment& segment, std::int64_t i);

/// The queries i (counted from q0) that see key j (counted from k0); begin >= end when none.
KeyRange segment_queries(const Segment& segment, std::int64_t j);

/// Query-key pairs a segment computes.
std::int64_t pair_count(const Segment& segment);

/// What one rank does in one ring step.
struct RingStep {
  int source = 0;  // the rank whose keys and values are held
  std::vector<Segment> segments;
  bool operator==(const RingStep&) const = default;
};

/// The whole plan of one pack on one group. Ranks are ranks inside the group: where the group
/// starts in the rank domain does not matter.
struct RingPlan {
  Pack pack;
  int size = 1;
  bool causal = true;
  std::int64_t window = -1;
  std::vector<std::vector<RingStep>> steps;  // [rank][step], size * size entries

  /// The rank whose keys and values `rank` holds in `step`.
  int source(int rank, int step) const { return (rank - step + size) % size; }
  /// Rows of every rank's slice.
  std::int64_t local_rows() const { return pack.padded_tokens() / size; }
  bool operator==(const RingPlan&) const = default;
};

/// The zigzag ring. Segments cover real tokens exactly, for every size and length; empty ones are
/// left out. Without a window there is at most one segment per sequence and step:
///   causal, step 0       all real rows x all real rows, causal in local order
///   causal, source < r   all real rows x the source's front chunk, no mask
///   causal, source > r   the mirror chunk's rows x all of the source's real rows, no mask
///   full                 all real rows x all of the source's real rows, no mask
/// With a window the mask is no longer uniform over two chunks, and there is one segment per pair
/// of chunks that share a visible pair.
/// Throws InvalidInput when a padded length is no multiple of 2*size, size < 1 or window < -1.
RingPlan make_ring_plan(const Pack& pack, int size, bool causal, std::int64_t window = -1);

/// Why a plan is wrong. -1 where a field does not apply. Queries and keys are positions in the
/// sequence.
struct CoverageFault {
  int rank = -1;
  int step = -1;
  int sequence = -1;
  std::int64_t query = -1;
  std::int64_t key = -1;
  std::string sentence;
};

/// Proves that every allowed (query, key) pair of real tokens is computed exactly once and no other
/// pair at all, by merging the visible key intervals of each query row; or the first fault. Exact
/// for every plan, whoever made it. Time O(tokens * size * log size).
std::optional<CoverageFault> check_coverage(const RingPlan& plan);

/// How many ring steps contribute to each row: to its dQ on the rank that holds the query, and to
/// its dK/dV on the way round. Sequences of 2*size*n real tokens under a causal mask give
///   dQ: r + 1 in the front chunk, size in the mirror chunk;  dKV: size, then r + 1.
struct ContributionCounts {
  std::vector<std::vector<int>> dq;   // [rank][local row]
  std::vector<std::vector<int>> dkv;  // [owner][local row]
};
ContributionCounts contribution_counts(const RingPlan& plan);

/// Pairs that `rank` computes in `step`.
std::int64_t step_pairs(const RingPlan& plan, int rank, int step);

/// How a gradient half-chunk takes a segment's contribution. Buffers start uninitialised: the
/// first contribution is a copy, later ones add.
enum class Accumulate { kNone, kCopy, kAdd };

/// The rule for the rows in a rank's front chunk and for those in its mirror chunk.
struct HalfRules {
  Accumulate front = Accumulate::kNone;
  Accumulate mirror = Accumulate::kNone;
  bool operator==(const HalfRules&) const = default;
};

struct SegmentRules {
  HalfRules dq;   // rows of the computing rank
  HalfRules dkv;  // rows of the source, in the buffer that travels with its keys
  bool operator==(const SegmentRules&) const = default;
};

/// rules[rank][step][segment] of the backward pass, steps numbered as in the plan and executed from
/// size - 1 down to 0. REQUIRES: a segment covers all real rows of a chunk or none of them, as
/// those of make_ring_plan do (throws InvalidInput otherwise).
std::vector<std::vector<std::vector<SegmentRules>>> backward_rules(const RingPlan& plan);

/// The LSE of the union of two disjoint sets of keys, and the share of each in it. Safe for -inf
/// (an empty set): two empty sets give -inf and no share. The maximum is subtracted first.
template <typename T>
struct MergedLse {
  T lse = -std::numeric_limits<T>::infinity();
  T share_a = 0;
  T share_b = 0;
};

template <typename T>
MergedLse<T> merge_lse(T a, T b) {
  const T high = a > b ? a : b;
  const T low = a > b ? b : a;
  if (high == -std::numeric_limits<T>::infinity()) return {};
  const T lse = high + std::log1p(std::exp(low - high));
  return {lse, std::exp(a - lse), std::exp(b - lse)};
}

/// Number formats of an execution. Inputs, outputs, P and dS are rounded to the storage format;
/// everything else is computed in the accumulator format.
///   kDouble  double / double      kBf16  bf16 / float
///   kFloat   float / float        kFp16  fp16 / float
enum class Arithmetic { kDouble, kFloat, kBf16, kFp16 };

/// "double", "float", "bf16" or "fp16".
std::string_view to_string(Arithmetic arithmetic);
Format storage_format(Arithmetic arithmetic);
Format accumulator_format(Arithmetic arithmetic);

/// How partial results of ring steps are kept.
///   kWide             in the accumulator format throughout
///   kRoundedPartials  each segment's result is rounded to the storage format, sums are wide
///   kRounded          sums are rounded to the storage format in every step as well, and O is
///                     merged after the last step, as TransformerEngine does
enum class Accumulation { kWide, kRoundedPartials, kRounded };

/// "wide", "rounded-partials" or "rounded".
std::string_view to_string(Accumulation accumulation);

struct RingOptions {
  double scale = 0;          // softmax scale; 0 stands for 1/sqrt(dim)
  std::vector<double> sink;  // one logit per query head, applied once after the last merge
  Arithmetic arithmetic = Arithmetic::kDouble;
  Accumulation accumulation = Accumulation::kWide;
  /// The order in which the ranks of a step are simulated; empty = 0, 1, ... It must not matter.
  std::vector<int> rank_order;
};

/// Per-rank slices, [rank]; values are exact in the storage format (LSE in the accumulator format).
struct RingForward {
  std::vector<Tensor<double>> o;
  std::vector<HeadRows<double>> lse;
};
struct RingBackward {
  std::vector<Tensor<double>> dq, dk, dv;
  std::vector<double> d_sink;  // summed over the ranks
};

/// Runs the plan on the ranks' slices q[rank], k[rank], v[rank] (rounded to the storage format
/// first). Padded rows get O = 0 and LSE = -inf; real rows the plan misses stay NaN.
/// Throws InvalidInput when a slice does not fit the plan.
RingForward ring_forward(const RingPlan& plan, const std::vector<Tensor<double>>& q,
                         const std::vector<Tensor<double>>& k, const std::vector<Tensor<double>>& v,
                         const RingOptions& options);

/// Gradients from the final O and LSE. Padded rows get 0; real rows the plan misses stay NaN.
RingBackward ring_backward(const RingPlan& plan, const std::vector<Tensor<double>>& q,
                           const std::vector<Tensor<double>>& k,
                           const std::vector<Tensor<double>>& v, const RingForward& output,
                           const std::vector<Tensor<double>>& d_o, const RingOptions& options);

/// Slices of a whole-pack tensor, one per rank, and back.
std::vector<Tensor<double>> slice_pack(const Pack& pack, int size, const Tensor<double>& whole);
Tensor<double> unslice_pack(const Pack& pack, int size, const std::vector<Tensor<double>>& slices);
HeadRows<double> unslice_pack(const Pack& pack, int size,
                              const std::vector<HeadRows<double>>& slices);
/// Columns of [heads, rows], in the given order.
HeadRows<double> gather(const HeadRows<double>& source, const std::vector<std::int64_t>& rows);

/// Slices the whole pack, runs the plan forward and backward, and puts the results back together.
struct RingResult {
  AttentionForward output;
  AttentionBackward gradients;
};
RingResult ring_attention(const RingPlan& plan, const Tensor<double>& q, const Tensor<double>& k,
                          const Tensor<double>& v, const Tensor<double>& d_o,
                          const RingOptions& options);

}  // namespace dyncp
