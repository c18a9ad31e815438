// `dyncp check attention`: the direct reference of a whole pack. What can be known without another
// implementation is checked exactly: packing, padding, isolation, routing, coverage counts; and the
// gradients against differences of the forward pass.
// The judge of recorded tensors is runtime/attention_judge.cc.
#include "reference/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "runtime/attention_judge.h"
#include "runtime/check.h"
#include "runtime/checks/attention_problem.h"
#include "runtime/checks/slice_case.h"

namespace dyncp {
namespace {

/// Forward and backward of one case.
struct Results {
  AttentionForward forward;
  AttentionBackward backward;
};

AttentionForward forward_of(const AttentionCase& c) {
  return attention_forward(c.pack, c.q, c.k, c.v, c.options);
}

Results results_of(const AttentionCase& c) {
  Results results{forward_of(c), {}};
  results.backward = attention_backward(c.pack, c.q, c.k, c.v, results.forward, c.d_o, c.options);
  return results;
}

/// Where two results first differ in `count` rows, `row_a` and `row_b` on: "dq at row 3"; empty when
/// they are equal bit for bit (all values are finite or -inf, so == will do).
std::string first_difference(const Results& a, std::int64_t row_a, const Results& b,
                             std::int64_t row_b, std::int64_t count) {
  const auto differs = [&](const char* name, const Tensor<double>& x, const Tensor<double>& y) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (int h = 0; h < x.heads; ++h) {
        for (int d = 0; d < x.dim; ++d) {
          if (x.at(row_a + i, h, d) == y.at(row_b + i, h, d)) continue;
          return fmt::format("{} of token {}, head {}, dimension {} is {} and {}", name, i, h, d,
                             x.at(row_a + i, h, d), y.at(row_b + i, h, d));
        }
      }
    }
    return std::string();
  };
  const std::pair<const char*, std::pair<const Tensor<double>*, const Tensor<double>*>> pairs[] = {
      {"o", {&a.forward.o, &b.forward.o}},
      {"dq", {&a.backward.dq, &b.backward.dq}},
      {"dk", {&a.backward.dk, &b.backward.dk}},
      {"dv", {&a.backward.dv, &b.backward.dv}}};
  for (const auto& [name, tensors] : pairs) {
    std::string difference = differs(name, *tensors.first, *tensors.second);
    if (!difference.empty()) return difference;
  }
  for (int h = 0; h < a.forward.lse.heads; ++h) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double x = a.forward.lse.at(h, row_a + i), y = b.forward.lse.at(h, row_b + i);
      if (x != y) return fmt::format("lse of token {}, head {} is {} and {}", i, h, x, y);
    }
  }
  return {};
}

void check_packing(const Problem& problem, const AttentionCase& c, const Results& whole,
                   CaseResult& result) {
  for (int s = 0; s < c.pack.sequences(); ++s) {
    const Pack alone({c.pack.sequence(s)});
    const Results one = results_of(attention_case(problem, alone, Format::kDouble, 0.0, {s}));
    const std::string difference =
        first_difference(whole, c.pack.first_row(s), one, 0, c.pack.padded_length(s));
    result.expect("attention.packing", Kind::kAttention, difference.empty(), [&] {
      return fmt::format("sequence {} in the pack and alone: {}", s, difference);
    });
  }
}

void check_padding(const Problem& problem, const AttentionCase& c, const Results& with_nan,
                   CaseResult& result) {
  const Results zeros = results_of(attention_case(problem, c.pack, Format::kDouble, 0.0));
  const std::string difference = first_difference(with_nan, 0, zeros, 0, c.pack.padded_tokens());
  result.expect("attention.padding", Kind::kPadding, difference.empty(), [&] {
    return fmt::format("padding filled with NaN and with zeros: {}", difference);
  });
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t i = c.pack.real_length(s); i < c.pack.padded_length(s); ++i) {
      const std::int64_t row = c.pack.first_row(s) + i;
      bool clean = true;
      for (const Tensor<double>* tensor : {&with_nan.forward.o, &with_nan.backward.dq,
                                           &with_nan.backward.dk, &with_nan.backward.dv}) {
        for (int h = 0; h < tensor->heads; ++h) {
          for (int d = 0; d < tensor->dim; ++d) clean = clean && tensor->at(row, h, d) == 0;
        }
      }
      for (int h = 0; h < with_nan.forward.lse.heads; ++h) {
        const double lse = with_nan.forward.lse.at(h, row);
        clean = clean && std::isinf(lse) && lse < 0;
      }
      if (!result.expect("attention.padding_zero", Kind::kPadding, clean, [&] {
            return fmt::format(
                "padding row {} of sequence {}: expected O = 0, LSE = -inf and no "
                "gradient",
                i, s);
          })) {
        return;
      }
    }
  }
}

void check_isolation(const Problem& problem, const AttentionCase& c, const Results& before,
                     CaseResult& result) {
  const int changed = longest_sequence(c.pack);
  const Results after = results_of(
      attention_case(problem, c.pack, Format::kDouble, std::nan(""),
                     contents_with(c.pack.sequences(), changed, c.pack.sequences() + 1000)));
  for (int s = 0; s < c.pack.sequences(); ++s) {
    const std::string difference = first_difference(before, c.pack.first_row(s), after,
                                                    c.pack.first_row(s), c.pack.padded_length(s));
    if (s == changed) {
      result.expect("attention.isolation_control", Kind::kAttention, !difference.empty(), [&] {
        return fmt::format("sequence {} has other contents but the same results", s);
      });
    } else {
      result.expect("attention.isolation", Kind::kAttention, difference.empty(), [&] {
        return fmt::format("other contents of sequence {} change sequence {}: {}", changed, s,
                           difference);
      });
    }
  }
}

/// Calls body(sequence, position, row, head) for every real query.
template <typename Body>
void for_each_query(const AttentionCase& c, Body body) {
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < c.pack.real_length(s); ++i) {
      for (int h = 0; h < c.q.heads; ++h) body(s, i, c.pack.first_row(s) + i, h);
    }
  }
}

// Sums of `terms` products of size `magnitude` agree within this when only their order differs.
double roundoff(double terms, double magnitude) { return (terms + 16) * 0x1p-52 * magnitude; }

/// V = 1: every row of P sums to 1 (to 1 - exp(sink - lse) with a sink).
void check_row_sums(const AttentionCase& given, CaseResult& result) {
  AttentionCase c = given;
  std::fill(c.v.data.begin(), c.v.data.end(), 1.0);
  const AttentionForward output = forward_of(c);
  bool held = true;
  for_each_query(c, [&](int s, std::int64_t i, std::int64_t row, int h) {
    if (!held) return;
    const double sink =
        c.options.sink.empty()
            ? 0
            : std::exp(c.options.sink[static_cast<std::size_t>(h)] - output.lse.at(h, row));
    held = result.expect(
        "attention.row_sums", Kind::kAttention,
        std::fabs(output.o.at(row, h, 0) + sink - 1) <= roundoff(4.0 * double(i) + 64, 1), [&] {
          return fmt::format(
              "sequence {} query {} head {}: with V = 1, O is {} and the sink's "
              "share {}, expected a sum of 1",
              s, i, h, output.o.at(row, h, 0), sink);
        });
  });
}

/// q = 0: all visible keys weigh the same, and V = one-hot in key mod value_dim counts them.
void check_counts(const AttentionCase& given, CaseResult& result) {
  AttentionCase c = given;
  c.options.sink.clear();
  std::fill(c.q.data.begin(), c.q.data.end(), 0.0);
  std::fill(c.v.data.begin(), c.v.data.end(), 0.0);
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < c.pack.real_length(s); ++j) {
      for (int h = 0; h < c.v.heads; ++h) {
        c.v.at(c.pack.first_row(s) + j, h, static_cast<int>(j % c.v.dim)) = 1;
      }
    }
  }
  const AttentionForward output = forward_of(c);
  bool held = true;
  for_each_query(c, [&](int s, std::int64_t i, std::int64_t row, int h) {
    if (!held) return;
    // Written out here, so that it does not lean on visible_keys.
    const std::int64_t first =
        c.options.window < 0 ? 0 : std::max<std::int64_t>(0, i - c.options.window);
    const std::int64_t last = c.options.causal ? i : c.pack.real_length(s) - 1;
    const auto total = static_cast<double>(last - first + 1);
    for (int d = 0; d < c.v.dim && held; ++d) {
      std::int64_t count = 0;
      for (std::int64_t j = first; j <= last; ++j) count += j % c.v.dim == d;
      const double expected = static_cast<double>(count) / total;
      held = result.expect("attention.coverage", Kind::kAttention,
                           std::fabs(output.o.at(row, h, d) - expected) <= 0x1p-50, [&] {
                             return fmt::format(
                                 "sequence {} query {} head {} sees {} of {} keys that are {} mod "
                                 "{}, expected {}",
                                 s, i, h, output.o.at(row, h, d) * total, total, d, c.v.dim, count);
                           });
    }
    held =
        held &&
        result.expect(
            "attention.coverage", Kind::kAttention,
            std::fabs(output.lse.at(h, row) - std::log(total)) <= 0x1p-50 * (1 + std::log(total)),
            [&] {
              return fmt::format("sequence {} query {} head {}: lse {} with q = 0, expected log {}",
                                 s, i, h, output.lse.at(h, row), total);
            });
  });
}

/// Keys on a circle and queries so long that one key has all the weight: O is exactly its V row.
void check_routing(const AttentionCase& given, CaseResult& result) {
  AttentionCase c = given;
  if (c.q.dim < 2) return;
  c.options.sink.clear();
  const auto target = [&](int s, std::int64_t i) {
    const std::int64_t first =
        c.options.window < 0 ? 0 : std::max<std::int64_t>(0, i - c.options.window);
    const std::int64_t last = c.options.causal ? i : c.pack.real_length(s) - 1;
    return first + (i * 7 + 3) % (last - first + 1);
  };
  for (Tensor<double>* tensor : {&c.q, &c.k}) {
    std::fill(tensor->data.begin(), tensor->data.end(), 0.0);
  }
  for (int s = 0; s < c.pack.sequences(); ++s) {
    const auto real = static_cast<double>(c.pack.real_length(s));
    // The nearest other key is lower by length * (1 - cos(step)) * scale: more than exp underflows.
    const double step = 2 * std::numbers::pi / (real + 1);
    const double length = 2000 * std::sqrt(static_cast<double>(c.q.dim)) / (1 - std::cos(step));
    for (std::int64_t i = 0; i < c.pack.real_length(s); ++i) {
      const std::int64_t row = c.pack.first_row(s) + i;
      const double key = step * static_cast<double>(i);
      const double query = step * static_cast<double>(target(s, i));
      for (int h = 0; h < c.k.heads; ++h) {
        c.k.at(row, h, 0) = std::cos(key);
        c.k.at(row, h, 1) = std::sin(key);
      }
      for (int h = 0; h < c.q.heads; ++h) {
        c.q.at(row, h, 0) = length * std::cos(query);
        c.q.at(row, h, 1) = length * std::sin(query);
      }
    }
  }
  const AttentionForward output = forward_of(c);
  const int group = c.q.heads / c.k.heads;
  bool held = true;
  for_each_query(c, [&](int s, std::int64_t i, std::int64_t row, int h) {
    for (int d = 0; d < c.v.dim && held; ++d) {
      const std::int64_t key = target(s, i);
      const double expected = c.v.at(c.pack.first_row(s) + key, h / group, d);
      held = result.expect("attention.routing", Kind::kAttention,
                           output.o.at(row, h, d) == expected, [&] {
                             return fmt::format(
                                 "sequence {} query {} head {} asks for key {} alone: dimension {} "
                                 "of O is {}, expected its V, {}",
                                 s, i, h, key, d, output.o.at(row, h, d), expected);
                           });
    }
  });
}

/// Constant keys: P is uniform and no key is worth turning to.
void check_constant_keys(const AttentionCase& given, CaseResult& result) {
  AttentionCase c = given;
  c.options.sink.clear();
  std::fill(c.k.data.begin(), c.k.data.end(), 0.5);
  const Results results = results_of(c);
  bool held = true;
  for_each_query(c, [&](int s, std::int64_t i, std::int64_t row, int h) {
    // dQ is a sum of dS, whose terms cancel: their size is |dO||V| summed over value_dim.
    const double terms = static_cast<double>(c.pack.real_length(s)) + c.v.dim;
    for (int d = 0; d < c.q.dim && held; ++d) {
      held = result.expect("attention.constant_keys", Kind::kAttention,
                           std::fabs(results.backward.dq.at(row, h, d)) <=
                               roundoff(terms, 12.0 * c.v.dim * (1 + c.q.dim)),
                           [&] {
                             return fmt::format(
                                 "sequence {} query {} head {}: dQ is {} with constant keys, "
                                 "expected 0",
                                 s, i, h, results.backward.dq.at(row, h, d));
                           });
    }
  });
}

/// sum_j dV_j = sum_i dO_i in each sequence and group of heads, without a sink.
void check_gradient_sums(const AttentionCase& c, const Results& results, CaseResult& result) {
  if (!c.options.sink.empty()) return;
  const int group = c.q.heads / c.k.heads;
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (int kv = 0; kv < c.k.heads; ++kv) {
      for (int d = 0; d < c.v.dim; ++d) {
        double d_v = 0, d_o = 0, magnitude = 0;
        for (std::int64_t i = 0; i < c.pack.real_length(s); ++i) {
          const std::int64_t row = c.pack.first_row(s) + i;
          d_v += results.backward.dv.at(row, kv, d);
          for (int h = kv * group; h < (kv + 1) * group; ++h) {
            d_o += c.d_o.at(row, h, d);
            magnitude += std::fabs(c.d_o.at(row, h, d));
          }
        }
        const double terms = 8.0 * static_cast<double>(c.pack.real_length(s)) * group;
        if (!result.expect(
                "attention.gradient_sums", Kind::kAttention,
                std::fabs(d_v - d_o) <= roundoff(terms, magnitude), [&] {
                  return fmt::format(
                      "sequence {} K/V head {} dimension {}: dV sums to {}, expected {}, "
                      "the sum of dO",
                      s, kv, d, d_v, d_o);
                })) {
          return;
        }
      }
    }
  }
}

/// sum over real rows of O * dO.
double objective(const AttentionCase& c) {
  const AttentionForward output = forward_of(c);
  double sum = 0;
  for_each_query(c, [&](int, std::int64_t, std::int64_t row, int h) {
    for (int d = 0; d < c.v.dim; ++d) sum += output.o.at(row, h, d) * c.d_o.at(row, h, d);
  });
  return sum;
}

/// Gradients against central differences along random directions, on the first tokens of every
/// sequence.
void check_differences(const Problem& problem, CaseResult& result) {
  constexpr std::int64_t kTokens = 24;
  constexpr double kStep = 1e-4;
  std::vector<Sequence> sequences;
  const Pack pack = problem.pack();
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t real = std::min(kTokens, pack.real_length(s));
    sequences.push_back({real, real + (pack.padded_length(s) > pack.real_length(s))});
  }
  AttentionCase c = attention_case(problem, Pack(std::move(sequences)));
  const AttentionBackward gradients = results_of(c).backward;
  double magnitude = 1;
  for_each_query(c, [&](int, std::int64_t, std::int64_t row, int h) {
    for (int d = 0; d < c.v.dim; ++d) magnitude += std::fabs(c.d_o.at(row, h, d));
  });
  // Directions are +1/-1 in every element, drawn like the inputs but from another seed.
  Problem other = problem;
  other.seed = problem.seed + 1;
  const AttentionCase signs = attention_case(other, c.pack, Format::kDouble, 1.0);
  const auto check = [&](const char* name, std::vector<double>& values,
                         const std::vector<double>& gradient, const std::vector<double>& sign) {
    const std::vector<double> kept = values;
    double expected = 0;
    // A direction of unit length, so that the step is the same for every size.
    const double unit = 1 / std::sqrt(std::max<double>(1, static_cast<double>(values.size())));
    const auto move = [&](double step) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = kept[i] + (sign[i] < 0 ? -step : step) * unit;
      }
      return objective(c);
    };
    for (std::size_t i = 0; i < values.size(); ++i) {
      expected += gradient[i] * (sign[i] < 0 ? -unit : unit);
    }
    const double measured = (move(kStep) - move(-kStep)) / (2 * kStep);
    values = kept;
    // Truncation: kStep^2 / 6 times a third derivative, which a direction of unit length keeps below
    // some tenths of the magnitude; roundoff: 2^-52 * magnitude / kStep.
    result.expect("attention.differences", Kind::kAttention,
                  std::fabs(measured - expected) <= 1e-9 * magnitude, [&] {
                    return fmt::format(
                        "the derivative along a direction in {} is {} by differences, {} by the "
                        "gradient",
                        name, measured, expected);
                  });
    return std::fabs(measured - expected);
  };
  double worst = check("q", c.q.data, gradients.dq.data, signs.q.data);
  worst = std::max(worst, check("k", c.k.data, gradients.dk.data, signs.k.data));
  worst = std::max(worst, check("v", c.v.data, gradients.dv.data, signs.v.data));
  if (!c.options.sink.empty()) {
    const std::vector<double> up(c.options.sink.size(), 1.0);
    worst = std::max(worst, check("sink", c.options.sink, gradients.d_sink, up));
  }
  result.detail(fmt::format("gradients against differences: largest deviation {:.1e}", worst));
}

CaseResult run(const Problem& problem) {
  const Pack pack = problem.pack();
  // Forward and backward of: the case, its sequences, zeros, other contents, invariants.
  require_affordable(problem, pack, 24);
  CaseResult result;
  if (pack.real_tokens() == 0) {
    result.mistrust("the pack has no tokens");
    return result;
  }
  const AttentionCase c = attention_case(problem, pack);
  const Results results = results_of(c);
  check_packing(problem, c, results, result);
  check_padding(problem, c, results, result);
  check_isolation(problem, c, results, result);
  check_counts(c, result);
  check_routing(c, result);
  check_row_sums(c, result);
  check_constant_keys(c, result);
  check_gradient_sums(c, results, result);
  check_differences(problem, result);

  int with_tokens = 0;
  for (int s = 0; s < pack.sequences(); ++s) with_tokens += pack.real_length(s) > 0;
  if (pack.padded_tokens() == pack.real_tokens()) {
    result.mistrust("the pack has no padding row");
  } else if (with_tokens < 2) {
    result.mistrust("one sequence alone: nothing can leak into it");
  }
  return result;
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  const WindowPlan plan =
      tier == Tier::kSmoke ? WindowPlan{.windows = 1, .sequences = 3, .longest = 24}
      : tier == Tier::kCi  ? WindowPlan{.windows = 2, .sequences = 6, .longest = 96}
                           : WindowPlan{.windows = 8, .sequences = 8, .longest = 300};
  return window_cases("attention", sets, seed, plan, [](Problem& problem, int number) {
    // One device holds the whole pack: what the window's CP size leaves is its padding.
    const Pack pack = problem.pack();
    problem.padded.clear();
    for (int s = 0; s < pack.sequences(); ++s) problem.padded.push_back(pack.padded_length(s));
    problem.cp = 1;
    problem.first_rank = 0;
    problem.contract = Contract::kV1;
    problem.tensor_parallel = 1;
    vary_attention(problem, number);
  });
}

}  // namespace

const Driver& attention_driver() {
  static const Driver driver{
      "attention",
      "the direct reference: packing, padding, isolation, routing, invariants, differences",
      {"lengths", "padded", "seed", "heads", "kv-heads", "dim", "value-dim", "mask", "window",
       "sink"},
      run,
      [](const Problem& problem, const Safetensors& file) {
        return judge_attention(problem, file, "attention");
      },
      gate_cases};
  return driver;
}

}  // namespace dyncp
