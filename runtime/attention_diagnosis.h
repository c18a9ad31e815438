// What wrong attention rows look like: named hypotheses, each predicting O and LSE (or a gradient)
// as one kind of wrong implementation would have computed them, and the search for the one that
// fits what was recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/numerics.h"
#include "reference/pack.h"
#include "reference/tensor.h"

namespace dyncp {

/// Tensors that an implementation recorded, all in pack order. Rows that were not recorded hold
/// anything; `recorded` says which count.
struct AttentionRecording {
  Pack pack;
  int size = 1;  // CP group size
  AttentionOptions options;
  Tensor<double> q, k, v;             // inputs, whole pack
  std::optional<Tensor<double>> d_o;  // input of backward, whole pack
  std::optional<Tensor<double>> o;    // results
  std::optional<HeadRows<double>> lse;
  std::optional<Tensor<double>> dq, dk, dv;
  std::vector<bool> recorded;  // [rows] whose results were recorded
  /// The rows that one recorded [heads, rows] LSE array covers, in its order: one list for a whole
  /// pack, one per rank for slices.
  std::vector<std::vector<std::int64_t>> units;
};

/// The reference on the recorded inputs, and how far a correct implementation may be from it.
struct AttentionExpectation {
  AttentionPrecision precision;
  AttentionForward forward;
  AttentionBackward backward;
  AttentionScales scales;
};

/// Computes it; gradients only matter when the recording has d_o.
AttentionExpectation expect_attention(const AttentionRecording& recording,
                                      const AttentionPrecision& precision);

/// A row of a tensor and a head: query head for O, LSE and dQ, K/V head for dK and dV.
struct HeadRow {
  std::int64_t row = 0;
  int head = 0;
  bool operator==(const HeadRow&) const = default;
};

/// Rows that are wrong and rows that are right, both ascending.
struct RowVerdict {
  std::vector<HeadRow> wrong, right;
};

/// What |lse - ref| may be for a recording: four times the measured tau, for base-2 and approximate
/// exponentials.
double recorded_lse_allowed(const AttentionExpectation& expected, int head, std::int64_t row);

/// Real recorded rows by O (element bound and row statistic) and by LSE.
RowVerdict judge_o(const AttentionRecording& recording, const AttentionExpectation& expected);
RowVerdict judge_lse(const AttentionRecording& recording, const AttentionExpectation& expected);
/// The same for a gradient.
RowVerdict judge_gradient(const AttentionRecording& recording, const Tensor<double>& gradient,
                          const Tensor<double>& reference, const ErrorScale& scale,
                          const AttentionPrecision& precision);

/// "step 1 (K/V of rank 2) is lost on rank 3 (fits 40 of 40 rows tried)" for every rank with wrong
/// rows, or that no known fault fits. `wrong` rows by O or LSE, `right` by both.
std::string explain_forward(const AttentionRecording& recording,
                            const AttentionExpectation& expected, const RowVerdict& rows);
enum class Gradient { kQuery, kKey, kValue };
std::string explain_gradient(const AttentionRecording& recording,
                             const AttentionExpectation& expected, Gradient which,
                             const RowVerdict& rows);

}  // namespace dyncp
