// The bounds of docs/numerics.md; names follow it.
#include "reference/numerics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The reference has a roundoff error of its own, of the same form.
constexpr double kReferenceUnit = 0x1p-53;

double gamma(double x) { return x < 1 ? x / (1 - x) : kInfinity; }

/// t: what one operation can lose to underflow. Storage formats keep subnormals; an accumulator may
/// flush them to zero.
double underflow_unit(const AttentionPrecision& precision) {
  return std::max(format_limits(precision.storage).spacing_at_zero() / 2,
                  std::ldexp(1.0, format_limits(precision.accumulator).min_exponent));
}

ErrorScale empty_scale(const Tensor<double>& like) {
  const Tensor<double> zero(like.rows, like.heads, like.dim);
  return {zero, zero, zero, zero};
}

ErrorScale empty_scale(std::int64_t rows, int heads, int dim) {
  return empty_scale(Tensor<double>(rows, heads, dim));
}

/// Most segments that hold one row as query or as key: the partial results it is summed from.
int most_partials(const RingPlan& plan) {
  int most = 1;
  std::vector<std::vector<int>> as_key(static_cast<std::size_t>(plan.size));
  for (auto& rows : as_key) rows.resize(static_cast<std::size_t>(plan.local_rows()));
  for (int rank = 0; rank < plan.size; ++rank) {
    std::vector<int> as_query(static_cast<std::size_t>(plan.local_rows()));
    for (int step = 0; step < plan.size; ++step) {
      auto& keys = as_key[static_cast<std::size_t>(plan.source(rank, step))];
      for (const Segment& s : plan.steps[std::size_t(rank)][std::size_t(step)].segments) {
        for (std::int64_t i = 0; i < s.qlen; ++i) ++as_query[std::size_t(s.q0 + i)];
        for (std::int64_t j = 0; j < s.klen; ++j) ++keys[std::size_t(s.k0 + j)];
      }
    }
    for (int count : as_query) most = std::max(most, count);
  }
  for (const auto& rows : as_key) {
    for (int count : rows) most = std::max(most, count);
  }
  return most;
}

}  // namespace

double AttentionPrecision::roundings() const {
  switch (accumulation) {
    case Accumulation::kWide:
      return 2;  // P or dS, and the result
    case Accumulation::kRoundedPartials:
      return 3;  // and the partial result
    case Accumulation::kRounded:
      return 3.0 + merges;  // and every running sum
  }
  return 2;
}

AttentionPrecision ring_precision(const RingPlan& plan, Arithmetic arithmetic,
                                  Accumulation accumulation) {
  return {storage_format(arithmetic), accumulator_format(arithmetic), accumulation,
          most_partials(plan)};
}

AttentionScales attention_scales(const Pack& pack, const Tensor<double>& q, const Tensor<double>& k,
                                 const Tensor<double>& v, const AttentionForward& forward,
                                 const Tensor<double>& d_o, const AttentionOptions& options,
                                 const AttentionPrecision& precision) {
  // The backward pass checks every shape, and its results are needed for the output roundings.
  const AttentionBackward backward = attention_backward(pack, q, k, v, forward, d_o, options);
  const double scale = softmax_scale(options, q.dim);
  const int group = q.heads / k.heads;
  const double merges = precision.merges;
  AttentionScales scales{empty_scale(q.rows, q.heads, v.dim),
                         empty_scale(q),
                         empty_scale(k),
                         empty_scale(v),
                         HeadRows<double>(q.heads, q.rows),
                         std::vector<bool>(static_cast<std::size_t>(q.rows)),
                         q.dim};
  // Terms that each dK and dV element is summed from.
  Tensor<double> terms(k.rows, k.heads, 1);
  std::vector<double> p, dp, f, mean_key(static_cast<std::size_t>(q.dim));
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t first = pack.first_row(s);
    const std::int64_t real = pack.real_length(s);
    for (std::int64_t i = 0; i < real; ++i) {
      const std::int64_t row = first + i;
      scales.real[static_cast<std::size_t>(row)] = true;
      const KeyRange keys = visible_keys(options.causal, options.window, i, real);
      const auto n = static_cast<double>(keys.end - keys.begin);
      for (int h = 0; h < q.heads; ++h) {
        const int kv = h / group;
        const double lse = forward.lse.at(h, row);
        // One pass for the probabilities and the largest score magnitude M.
        double m = 0;
        p.clear();
        dp.clear();
        f.clear();
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          double score = 0, magnitude = 0, value = 0, value_magnitude = 0;
          for (int d = 0; d < q.dim; ++d) {
            const double term = q.at(row, h, d) * k.at(first + j, kv, d);
            score += term;
            magnitude += std::fabs(term);
          }
          for (int d = 0; d < v.dim; ++d) {
            const double term = d_o.at(row, h, d) * v.at(first + j, kv, d);
            value += term;
            value_magnitude += std::fabs(term);
          }
          p.push_back(std::exp(scale * score - lse));
          dp.push_back(value);
          m = std::max(m, std::fabs(scale) * magnitude);
          f.push_back(value_magnitude);
        }
        if (!options.sink.empty()) m = std::max(m, std::fabs(options.sink[std::size_t(h)]));
        const double l = m + std::log(n + 1);  // no LSE of any part of the row exceeds it
        const double dim_terms = q.dim + 4.0;
        const double c_lse = dim_terms * m + 2 * n + 2 + (merges + 1) * (l + 6);
        const double c_o = 4 * dim_terms * m + 6 * n + (4 * merges + 2) * (l + 6);
        const double c_p = 2 * dim_terms * m + 2 * n + (merges + 3) * (l + 6);
        scales.lse.at(h, row) = c_lse;

        double row_dot = 0;     // D
        double e = 0;           // sum_d |dO||O|
        double e_absolute = 0;  // sum_d |dO| A
        double d_variance = 0;  // of the row dot D, in units of w^2
        double d_underflow = 0;
        for (int d = 0; d < v.dim; ++d) {
          double a = 0, variance = 0, sum = 0;
          for (std::int64_t j = keys.begin; j < keys.end; ++j) {
            const double weight = p[std::size_t(j - keys.begin)];
            const double value = std::fabs(v.at(first + j, kv, d));
            a += weight * value;
            variance += weight * weight * value * value;
            sum += value;
          }
          const double o = std::fabs(forward.o.at(row, h, d));
          const double cotangent = std::fabs(d_o.at(row, h, d));
          scales.o.storage.at(row, h, d) = a + o;
          scales.o.accumulator.at(row, h, d) = c_o * a;
          scales.o.underflow.at(row, h, d) = sum + n + 1;
          scales.o.walk.at(row, h, d) = variance + o * o;
          row_dot += d_o.at(row, h, d) * forward.o.at(row, h, d);
          e += cotangent * o;
          e_absolute += cotangent * a;
          d_variance += cotangent * cotangent * (variance + o * o);
          d_underflow += cotangent * (sum + n + 1) + 1;
        }

        std::fill(mean_key.begin(), mean_key.end(), 0.0);
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const double weight = p[std::size_t(j - keys.begin)];
          const auto index = static_cast<std::size_t>(j - keys.begin);
          const double ds = weight * (dp[index] - row_dot);
          // Error of dS: storage roundings, accumulator roundings, underflow.
          const double stored = std::fabs(ds) + weight * (e + e_absolute);
          const double accumulated = (c_p + 2) * std::fabs(ds) +
                                     weight * ((v.dim + 2.0) * (f[index] + e) + c_o * e_absolute);
          const double underflow = 1 + f[index] + e + weight * (d_underflow + v.dim);
          const double noise = ds * ds + weight * weight * d_variance;
          for (int d = 0; d < q.dim; ++d) {
            const double key = scale * k.at(first + j, kv, d);
            const double query = scale * q.at(row, h, d);
            const double abs_key = std::fabs(key), abs_query = std::fabs(query);
            scales.dq.storage.at(row, h, d) += stored * abs_key;
            scales.dq.accumulator.at(row, h, d) +=
                (accumulated + (n + merges + 2) * std::fabs(ds)) * abs_key;
            scales.dq.underflow.at(row, h, d) += underflow * abs_key + std::fabs(scale);
            scales.dq.walk.at(row, h, d) += ds * ds * key * key;
            mean_key[std::size_t(d)] += weight * key;
            scales.dk.storage.at(first + j, kv, d) += stored * abs_query;
            scales.dk.accumulator.at(first + j, kv, d) += accumulated * abs_query;
            scales.dk.underflow.at(first + j, kv, d) += underflow * abs_query + std::fabs(scale);
            scales.dk.walk.at(first + j, kv, d) += noise * query * query;
          }
          for (int d = 0; d < v.dim; ++d) {
            const double cotangent = std::fabs(d_o.at(row, h, d));
            scales.dv.storage.at(first + j, kv, d) += weight * cotangent;
            scales.dv.accumulator.at(first + j, kv, d) += c_p * weight * cotangent;
            scales.dv.underflow.at(first + j, kv, d) += cotangent + 1;
            scales.dv.walk.at(first + j, kv, d) += weight * weight * cotangent * cotangent;
          }
          terms.at(first + j, kv, 0) += 1;
        }
        for (int d = 0; d < q.dim; ++d) {
          const double dq = std::fabs(backward.dq.at(row, h, d));
          scales.dq.storage.at(row, h, d) += dq;
          scales.dq.underflow.at(row, h, d) += 1;
          // The error of D is one number per row: it reaches dQ along the mean key.
          const double mean = mean_key[std::size_t(d)];
          scales.dq.walk.at(row, h, d) += d_variance * mean * mean + dq * dq;
        }
      }
    }
    // Sums over queries: one rounding per term, of no more than the sum of magnitudes, which the
    // storage scale holds (before the output is added to it).
    for (std::int64_t j = 0; j < real; ++j) {
      for (int kv = 0; kv < k.heads; ++kv) {
        const double count = terms.at(first + j, kv, 0) + merges + 2;
        const auto add_output = [&](ErrorScale& error, const Tensor<double>& output) {
          for (int d = 0; d < output.dim; ++d) {
            const double x = std::fabs(output.at(first + j, kv, d));
            error.accumulator.at(first + j, kv, d) += count * error.storage.at(first + j, kv, d);
            error.storage.at(first + j, kv, d) += x;
            error.underflow.at(first + j, kv, d) += 1;
            error.walk.at(first + j, kv, d) += x * x;
          }
        };
        add_output(scales.dk, backward.dk);
        add_output(scales.dv, backward.dv);
      }
    }
  }
  return scales;
}

double hard_bound(const ErrorScale& scale, std::size_t index, const AttentionPrecision& precision) {
  const double w = format_limits(precision.storage).unit_roundoff();
  const double u = format_limits(precision.accumulator).unit_roundoff();
  return gamma(precision.roundings() * w) * scale.storage.data[index] +
         1.1 * (u + kReferenceUnit) * scale.accumulator.data[index] +
         precision.roundings() * underflow_unit(precision) * scale.underflow.data[index];
}

double row_statistic(const Tensor<double>& candidate, const Tensor<double>& reference,
                     const ErrorScale& scale, std::int64_t row, int head,
                     const AttentionPrecision& precision) {
  const double w = format_limits(precision.storage).unit_roundoff();
  const double floor = underflow_unit(precision);
  double error = 0, walk = 0, subnormal = 0;
  for (int d = 0; d < reference.dim; ++d) {
    const double difference = candidate.at(row, head, d) - reference.at(row, head, d);
    error += difference * difference;
    walk += scale.walk.at(row, head, d);
    const double u = floor * scale.underflow.at(row, head, d);
    subnormal += u * u;
  }
  if (std::isnan(error)) return kInfinity;
  if (error == 0) return 0;
  return std::sqrt(error) / (w * std::sqrt(walk) + std::sqrt(subnormal));
}

TensorError compare(const Tensor<double>& candidate, const Tensor<double>& reference,
                    const ErrorScale& scale, const std::vector<bool>& real,
                    const AttentionPrecision& precision) {
  TensorError result;
  for (std::int64_t row = 0; row < reference.rows; ++row) {
    if (!real[static_cast<std::size_t>(row)]) continue;
    for (int h = 0; h < reference.heads; ++h) {
      for (int d = 0; d < reference.dim; ++d) {
        const double expected = reference.at(row, h, d);
        const double got = candidate.at(row, h, d);
        const double error = std::fabs(got - expected);
        const double allowed = hard_bound(scale, reference.offset(row, h, d), precision);
        double ratio = kInfinity;  // NaN, and any error where none is allowed
        if (error == 0 || error <= allowed) ratio = error == 0 ? 0 : error / allowed;
        if (error > allowed && allowed > 0) ratio = error / allowed;
        if (!(error <= result.absolute)) result.absolute = error;
        if (ratio > result.bound_ratio) {
          result.bound_ratio = ratio;
          result.worst = {row, h, d};
          result.expected = expected;
          result.got = got;
        }
      }
      const double statistic = row_statistic(candidate, reference, scale, row, h, precision);
      if (statistic > result.row_statistic) {
        result.row_statistic = statistic;
        result.worst_row = {row, h, 0};
      }
    }
  }
  return result;
}

double row_statistic_limit(const AttentionPrecision& precision, int dim) {
  if (precision.storage == precision.accumulator) return kInfinity;
  const double one_rounding = 1.2 + 1.2 / std::sqrt(static_cast<double>(dim));
  switch (precision.accumulation) {
    case Accumulation::kWide:
      break;
    case Accumulation::kRoundedPartials:
      return 1.3 * one_rounding;
    case Accumulation::kRounded:
      return 1.3 * std::sqrt(0.85 + 0.15 * precision.merges) * one_rounding;
  }
  return one_rounding;
}

double lse_tau(Format accumulator, int dim) {
  if (accumulator == Format::kDouble) return 1e-12;
  return 1e-6 * std::sqrt(std::max(1.0, dim / 64.0));
}

double lse_allowed(const HeadRows<double>& reference, const AttentionScales& scales, int head,
                   std::int64_t row, Format accumulator) {
  const double measured =
      lse_tau(accumulator, scales.dim) * (1 + std::fabs(reference.at(head, row)));
  const double proved = 1.1 * (format_limits(accumulator).unit_roundoff() + kReferenceUnit) *
                        scales.lse.at(head, row);
  return std::min(measured, proved);
}

LseError compare_lse(const HeadRows<double>& candidate, const HeadRows<double>& reference,
                     const AttentionScales& scales, Format accumulator) {
  LseError result;
  for (int h = 0; h < reference.heads; ++h) {
    for (std::int64_t row = 0; row < reference.rows; ++row) {
      if (!scales.real[static_cast<std::size_t>(row)]) continue;
      const double expected = reference.at(h, row);
      const double got = candidate.at(h, row);
      const double error = std::fabs(got - expected);
      const double ratio = std::isnan(error)
                               ? kInfinity
                               : error / lse_allowed(reference, scales, h, row, accumulator);
      if (!(error <= result.absolute)) result.absolute = error;
      const double relative = std::isnan(error) ? kInfinity : error / (1 + std::fabs(expected));
      result.relative = std::max(result.relative, relative);
      if (ratio > result.ratio) {
        result.ratio = ratio;
        result.worst = {row, h, 0};
        result.expected = expected;
        result.got = got;
      }
    }
  }
  return result;
}

}  // namespace dyncp
