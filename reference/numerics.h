// How far a correct attention may be from the reference: roundoff bounds computed from the
// reference itself, element by element, on the same (already rounded) inputs. docs/numerics.md
// derives them and says which constants are proved and which are measured.
//
// Three measures, from the one that never gives a false alarm to the sharpest:
//   hard bound     |x - ref| <= gamma(K w) B + 1.1 u C + K t U for every element
//   row statistic  R = |err| / (w sqrt(sum_d walk)) for every row, compared with a measured limit
//   LSE            |lse - ref| <= tau (1 + |ref|), tau measured, and u C_lse, proved
// w, u: unit roundoff of the storage and the accumulator format; K: roundings to the storage format
// on the way; t: what underflow can cost (half the smallest subnormal of
// the storage format, the smallest normal number of the accumulator); gamma(x) = x / (1 - x).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/ring.h"
#include "reference/rounding.h"

namespace dyncp {

/// How an implementation computes.
struct AttentionPrecision {
  Format storage = Format::kDouble;      // inputs, outputs, P and dS
  Format accumulator = Format::kDouble;  // everything else, LSE included
  Accumulation accumulation = Accumulation::kWide;
  int merges = 1;  // T: partial results a row is summed from, at most

  /// K: roundings to the storage format that one result has gone through, at most.
  double roundings() const;
};

/// The precision of a ring plan's execution. T is the most segments any row is in.
AttentionPrecision ring_precision(const RingPlan& plan, Arithmetic arithmetic,
                                  Accumulation accumulation);

/// Error magnitudes of one output tensor, element by element; 0 on padded rows.
struct ErrorScale {
  Tensor<double> storage;      // B
  Tensor<double> accumulator;  // C, in units of u
  Tensor<double> underflow;    // U
  Tensor<double> walk;         // variance of the error in units of w^2: random roundings
};

struct AttentionScales {
  ErrorScale o, dq, dk, dv;
  HeadRows<double> lse;    // C_lse, in units of u; 0 on padded rows
  std::vector<bool> real;  // [rows]
  int dim = 0;             // products per score
};

/// Scales from the reference's own results on the same inputs. Time like attention_backward.
/// Throws InvalidInput like attention_backward.
AttentionScales attention_scales(const Pack& pack, const Tensor<double>& q, const Tensor<double>& k,
                                 const Tensor<double>& v, const AttentionForward& forward,
                                 const Tensor<double>& d_o, const AttentionOptions& options,
                                 const AttentionPrecision& precision);

/// The hard bound of one element.
double hard_bound(const ErrorScale& scale, std::size_t index, const AttentionPrecision& precision);

/// One element of a tensor; row -1 when there is none.
struct Element {
  std::int64_t row = -1;
  int head = 0;
  int d = 0;
};

/// How a tensor compares with its reference on the real rows.
struct TensorError {
  double absolute = 0;       // largest |x - ref|
  double bound_ratio = 0;    // largest |x - ref| / hard bound; infinite for NaN
  Element worst;             // where, when bound_ratio > 0
  double expected = 0;       // reference there
  double got = 0;            // candidate there
  double row_statistic = 0;  // largest R
  Element worst_row;
  bool holds() const { return bound_ratio <= 1; }
};

/// REQUIRES: candidate, reference and scale have one shape.
TensorError compare(const Tensor<double>& candidate, const Tensor<double>& reference,
                    const ErrorScale& scale, const std::vector<bool>& real,
                    const AttentionPrecision& precision);

/// R of one row and head; infinite when an element is NaN.
double row_statistic(const Tensor<double>& candidate, const Tensor<double>& reference,
                     const ErrorScale& scale, std::int64_t row, int head,
                     const AttentionPrecision& precision);

/// The largest R that a correct implementation shows on rows of `dim` elements, with a margin.
/// Measured (bench/numerics_bench.cc, docs/numerics.md), for storage formats that are narrower than
/// the accumulator; infinite for others, where R measures the order of summation.
double row_statistic_limit(const AttentionPrecision& precision, int dim);

/// tau of the LSE with scores that are sums of `dim` products: with a float accumulator 1e-6, above
/// dim 64 growing with sqrt(dim); with double 1e-12. Measured likewise.
double lse_tau(Format accumulator, int dim);

struct LseError {
  double absolute = 0;
  double relative = 0;  // largest |lse - ref| / (1 + |ref|)
  double ratio = 0;     // largest |lse - ref| / allowed; infinite for NaN
  Element worst;        // d unused
  double expected = 0;
  double got = 0;
  bool holds() const { return ratio <= 1; }
};

/// What |lse - ref| may be in one row: the smaller of tau (1 + |ref|) and the proved 1.1 u C_lse.
double lse_allowed(const HeadRows<double>& reference, const AttentionScales& scales, int head,
                   std::int64_t row, Format accumulator);

/// Compares the real rows. REQUIRES: candidate and reference have one shape.
LseError compare_lse(const HeadRows<double>& candidate, const HeadRows<double>& reference,
                     const AttentionScales& scales, Format accumulator);

}  // namespace dyncp
