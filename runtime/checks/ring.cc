// `dyncp check ring`: the zigzag ring of one CP group. The plan is proved; its execution is held to
// the direct reference in double (1e-12) and in float, bf16 and fp16 (roundoff bounds); padding,
// isolation, order and history must not change a bit. Two negative controls show that the proof and
// the bound notice a lost step.
// The judge of recorded tensors is runtime/attention_judge.cc.
#include "reference/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "reference/error.h"
#include "reference/numerics.h"
#include "reference/zigzag.h"
#include "runtime/attention_judge.h"
#include "runtime/check.h"
#include "runtime/checks/attention_problem.h"
#include "runtime/checks/slice_case.h"

namespace dyncp {
namespace {

constexpr double kDoubleTolerance = 1e-12;
constexpr int kShownRanks = 16;

std::string place_text(const Pack& pack, int size, std::int64_t row) {
  const auto& cu = pack.cu_seqlens_padded();
  const int s = static_cast<int>(std::upper_bound(cu.begin(), cu.end(), row) - cu.begin()) - 1;
  const std::int64_t position = row - pack.first_row(s);
  return fmt::format("sequence {} position {} (rank {})", s, position,
                     ZigzagLayout{size}.rank_of(pack.padded_length(s), position));
}

// --- the plan ------------------------------------------------------------------------------------

/// The last segment of the plan that reads another rank's keys; its removal loses pairs.
std::optional<std::pair<int, int>> removable_step(const RingPlan& plan) {
  for (int rank = plan.size - 1; rank >= 0; --rank) {
    for (int step = plan.size - 1; step > 0; --step) {
      if (step_pairs(plan, rank, step) > 0) return std::pair(rank, step);
    }
  }
  return std::nullopt;
}

RingPlan without_step(const RingPlan& plan, const std::pair<int, int>& at) {
  RingPlan damaged = plan;
  damaged.steps[static_cast<std::size_t>(at.first)][static_cast<std::size_t>(at.second)]
      .segments.clear();
  return damaged;
}

void check_plan(const RingPlan& plan, CaseResult& result) {
  const auto fault = check_coverage(plan);
  result.expect("ring.coverage", Kind::kAttention, !fault, [&] { return fault->sentence; });
  if (const auto at = removable_step(plan)) {
    result.expect("ring.coverage_control", Kind::kAttention,
                  check_coverage(without_step(plan, *at)).has_value(), [&] {
                    return fmt::format("the proof does not notice that rank {} leaves out step {}",
                                       at->first, at->second);
                  });
  }
}

/// Under a causal mask without a window, the same pairs on every rank in every step, when every
/// token is real: the plan of the padded lengths.
void check_balance(const RingPlan& plan, CaseResult& result) {
  if (!plan.causal || plan.window >= 0) return;
  std::vector<Sequence> full;
  for (int s = 0; s < plan.pack.sequences(); ++s) {
    full.push_back({plan.pack.padded_length(s), plan.pack.padded_length(s)});
  }
  const RingPlan padded = make_ring_plan(Pack(std::move(full)), plan.size, true);
  for (int step = 0; step < plan.size; ++step) {
    const std::int64_t first = step_pairs(padded, 0, step);
    for (int rank = 1; rank < plan.size; ++rank) {
      const std::int64_t pairs = step_pairs(padded, rank, step);
      if (!result.expect("ring.balance", Kind::kAttention, pairs == first, [&] {
            return fmt::format("step {}: rank {} computes {} pairs of padded tokens, rank 0 {}",
                               step, rank, pairs, first);
          })) {
        return;
      }
    }
  }
}

/// Steps that contribute to each row, from the chunk formulas.
void check_contributions(const RingPlan& plan, CaseResult& result) {
  if (plan.window >= 0) return;
  const Pack& pack = plan.pack;
  const ZigzagLayout layout{plan.size};
  const ContributionCounts counts = contribution_counts(plan);
  const std::vector<std::int64_t> local = local_boundaries(pack, plan.size);
  for (int s = 0; s < pack.sequences(); ++s) {
    const std::int64_t real = pack.real_length(s), length = pack.padded_length(s);
    const std::int64_t chunk = layout.front_length(length);
    int ranks_front = 0;  // ranks with any real token
    for (int rank = 0; rank < plan.size; ++rank) {
      ranks_front += layout.real_front(real, length, rank) > 0;
    }
    for (int rank = 0; rank < plan.size; ++rank) {
      // Later ranks' front chunks and all mirror chunks see this front chunk; earlier ranks'
      // mirror chunks see this mirror chunk.
      int sees_front = 0, sees_mirror = 0;
      for (int other = 0; other < plan.size; ++other) {
        const bool front = layout.real_front(real, length, other) > 0;
        const bool mirror = layout.real_mirror(real, length, other) > 0;
        sees_front += other >= rank ? front : mirror;
        sees_mirror += other <= rank && mirror;
      }
      const std::int64_t rows =
          layout.real_front(real, length, rank) + layout.real_mirror(real, length, rank);
      for (std::int64_t i = 0; i < rows; ++i) {
        const bool front = i < chunk;
        const int dq = !plan.causal ? ranks_front : front ? rank + 1 : plan.size;
        const int dkv = !plan.causal ? ranks_front : front ? sees_front : sees_mirror;
        const auto index = static_cast<std::size_t>(local[static_cast<std::size_t>(s)] + i);
        const int got_dq = counts.dq[static_cast<std::size_t>(rank)][index];
        const int got_dkv = counts.dkv[static_cast<std::size_t>(rank)][index];
        if (!result.expect(
                "ring.contributions", Kind::kAttention, got_dq == dq && got_dkv == dkv, [&] {
                  return fmt::format(
                      "sequence {}, rank {}, local row {}: {} steps contribute to dQ and "
                      "{} to dK/dV, expected {} and {}",
                      s, rank, i, got_dq, got_dkv, dq, dkv);
                })) {
          return;
        }
      }
    }
  }
}

// --- the execution -------------------------------------------------------------------------------

RingOptions ring_options(const AttentionOptions& attention, Arithmetic arithmetic,
                         Accumulation accumulation = Accumulation::kWide) {
  return {attention.scale, attention.sink, arithmetic, accumulation, {}};
}

RingResult run_ring(const RingPlan& plan, const AttentionCase& c, const RingOptions& options) {
  return ring_attention(plan, c.q, c.k, c.v, c.d_o, options);
}

/// The direct reference on a case's inputs.
struct Reference {
  AttentionForward forward;
  AttentionBackward backward;
};

Reference reference_of(const AttentionCase& c) {
  Reference reference;
  reference.forward = attention_forward(c.pack, c.q, c.k, c.v, c.options);
  reference.backward =
      attention_backward(c.pack, c.q, c.k, c.v, reference.forward, c.d_o, c.options);
  return reference;
}

struct NamedError {
  const char* name;
  TensorError error;
  int dim;
};

void check_arithmetic(const Problem& problem, const RingPlan& plan, Arithmetic arithmetic,
                      Accumulation accumulation, CaseResult& result) {
  const AttentionCase c = attention_case(problem, plan.pack, storage_format(arithmetic));
  const Reference reference = reference_of(c);
  const AttentionPrecision precision = ring_precision(plan, arithmetic, accumulation);
  const AttentionScales scales =
      attention_scales(plan.pack, c.q, c.k, c.v, reference.forward, c.d_o, c.options, precision);
  const RingResult ring = run_ring(plan, c, ring_options(c.options, arithmetic, accumulation));
  const auto compared = [&](const Tensor<double>& got, const Tensor<double>& expected,
                            const ErrorScale& scale) {
    return compare(got, expected, scale, scales.real, precision);
  };
  const NamedError errors[] = {
      {"o", compared(ring.output.o, reference.forward.o, scales.o), c.v.dim},
      {"dq", compared(ring.gradients.dq, reference.backward.dq, scales.dq), c.q.dim},
      {"dk", compared(ring.gradients.dk, reference.backward.dk, scales.dk), c.q.dim},
      {"dv", compared(ring.gradients.dv, reference.backward.dv, scales.dv), c.v.dim}};
  const bool rounded = precision.storage != precision.accumulator;
  const std::string label =
      rounded ? fmt::format("{} ({})", to_string(arithmetic), to_string(accumulation))
              : std::string(to_string(arithmetic));
  const std::string prefix = fmt::format("ring.{}_", to_string(arithmetic));

  const LseError lse =
      compare_lse(ring.output.lse, reference.forward.lse, scales, precision.accumulator);
  result.expect(prefix + "lse", Kind::kAttention, lse.holds(), [&] {
    return fmt::format(
        "{}: lse of {} head {} is {:.15g}, expected {:.15g}: {:.1f} times what is "
        "allowed",
        label, place_text(plan.pack, plan.size, lse.worst.row), lse.worst.head, lse.got,
        lse.expected, lse.ratio);
  });
  std::string line = fmt::format("{:24} lse {:.1e}", label, lse.relative);
  for (const NamedError& named : errors) {
    const TensorError& error = named.error;
    result.expect(prefix + named.name, Kind::kAttention, error.holds(), [&] {
      return fmt::format(
          "{}: {} of {} head {} dimension {} is {:.9g}, expected {:.9g}: {:.1f} "
          "times the bound",
          label, named.name, place_text(plan.pack, plan.size, error.worst.row), error.worst.head,
          error.worst.d, error.got, error.expected, error.bound_ratio);
    });
    const double limit = row_statistic_limit(precision, named.dim);
    if (rounded) {
      result.expect(prefix + named.name + "_rows", Kind::kAttention, error.row_statistic <= limit,
                    [&] {
                      return fmt::format(
                          "{}: the row of {} at {} head {} is off by {:.2f} times the scale of its "
                          "roundings, expected at most {:.2f}",
                          label, named.name, place_text(plan.pack, plan.size, error.worst_row.row),
                          error.worst_row.head, error.row_statistic, limit);
                    });
    }
    line += fmt::format("  {} {:.1e} ({:.3f} of bound{})", named.name, error.absolute,
                        error.bound_ratio,
                        rounded ? fmt::format(", rows {:.2f}", error.row_statistic) : "");
  }
  result.detail(line);

  if (arithmetic == Arithmetic::kDouble) {
    // The schedule itself: every logic fault is far above this.
    const ErrorScale* magnitudes[] = {&scales.o, &scales.dq, &scales.dk, &scales.dv};
    const Tensor<double>* got[] = {&ring.output.o, &ring.gradients.dq, &ring.gradients.dk,
                                   &ring.gradients.dv};
    const Tensor<double>* expected[] = {&reference.forward.o, &reference.backward.dq,
                                        &reference.backward.dk, &reference.backward.dv};
    for (int t = 0; t < 4; ++t) {
      double worst = 0;
      for (std::size_t i = 0; i < got[t]->data.size(); ++i) {
        const double error = std::fabs(got[t]->data[i] - expected[t]->data[i]);
        const double share = error == 0 ? 0 : error / magnitudes[t]->storage.data[i];
        if (!(share <= worst)) worst = share;
      }
      result.expect("ring.schedule", Kind::kAttention, worst <= kDoubleTolerance, [&] {
        return fmt::format(
            "in double, {} differs from the direct reference by {:.2e} of its "
            "magnitude, expected at most {:.0e}",
            errors[t].name, worst, kDoubleTolerance);
      });
    }
    for (std::size_t h = 0; h < reference.backward.d_sink.size(); ++h) {
      // A sum over all queries of terms of size dO . O.
      double magnitude = 1;
      for (std::int64_t row = 0; row < c.q.rows; ++row) {
        if (!scales.real[static_cast<std::size_t>(row)]) continue;
        for (int d = 0; d < c.v.dim; ++d) {
          magnitude += std::fabs(c.d_o.at(row, static_cast<int>(h), d) *
                                 scales.o.storage.at(row, static_cast<int>(h), d));
        }
      }
      result.expect("ring.d_sink", Kind::kAttention,
                    std::fabs(ring.gradients.d_sink[h] - reference.backward.d_sink[h]) <=
                        kDoubleTolerance * magnitude,
                    [&] {
                      return fmt::format(
                          "gradient of the sink of head {}: {:.15g}, expected "
                          "{:.15g}",
                          h, ring.gradients.d_sink[h], reference.backward.d_sink[h]);
                    });
    }
  }
  if (arithmetic == Arithmetic::kFloat) {
    // The control: the same bound on an execution that leaves out one step.
    if (const auto at = removable_step(plan)) {
      const RingPlan damaged = without_step(plan, *at);
      const auto slice = [&](const Tensor<double>& whole) {
        return slice_pack(plan.pack, plan.size, whole);
      };
      const RingForward lost = ring_forward(damaged, slice(c.q), slice(c.k), slice(c.v),
                                            ring_options(c.options, arithmetic));
      const LseError seen = compare_lse(unslice_pack(plan.pack, plan.size, lost.lse),
                                        reference.forward.lse, scales, precision.accumulator);
      result.expect("ring.lse_control", Kind::kAttention, !seen.holds(), [&] {
        return fmt::format("the LSE bound does not notice that rank {} leaves out step {}",
                           at->first, at->second);
      });
    }
  }
}

/// Where two runs differ; empty when they are the same bit for bit (finite values and -inf).
std::string difference(const RingResult& a, const RingResult& b, const Pack& pack, int size,
                       int except_sequence = -1) {
  const std::pair<const char*, std::pair<const Tensor<double>*, const Tensor<double>*>> pairs[] = {
      {"o", {&a.output.o, &b.output.o}},
      {"dq", {&a.gradients.dq, &b.gradients.dq}},
      {"dk", {&a.gradients.dk, &b.gradients.dk}},
      {"dv", {&a.gradients.dv, &b.gradients.dv}}};
  for (int s = 0; s < pack.sequences(); ++s) {
    if (s == except_sequence) continue;
    for (std::int64_t i = 0; i < pack.padded_length(s); ++i) {
      const std::int64_t row = pack.first_row(s) + i;
      for (const auto& [name, tensors] : pairs) {
        const auto& [x, y] = tensors;
        for (int h = 0; h < x->heads; ++h) {
          for (int d = 0; d < x->dim; ++d) {
            if (x->at(row, h, d) == y->at(row, h, d)) continue;
            return fmt::format("{} of {} head {} dimension {} is {} and {}", name,
                               place_text(pack, size, row), h, d, x->at(row, h, d),
                               y->at(row, h, d));
          }
        }
      }
      for (int h = 0; h < a.output.lse.heads; ++h) {
        const double x = a.output.lse.at(h, row), y = b.output.lse.at(h, row);
        if (x != y) {
          return fmt::format("lse of {} head {} is {} and {}", place_text(pack, size, row), h, x,
                             y);
        }
      }
    }
  }
  return {};
}

/// What must not change a bit, in float.
void check_bits(const Problem& problem, const RingPlan& plan, CaseResult& result) {
  const Pack& pack = plan.pack;
  const AttentionCase c = attention_case(problem, pack, Format::kFloat);
  RingOptions options = ring_options(c.options, Arithmetic::kFloat);
  const RingResult first = run_ring(plan, c, options);

  const RingResult zeros =
      run_ring(plan, attention_case(problem, pack, Format::kFloat, 0.0), options);
  const std::string padding = difference(first, zeros, pack, plan.size);
  result.expect("ring.padding", Kind::kPadding, padding.empty(),
                [&] { return fmt::format("padding filled with NaN and with zeros: {}", padding); });

  const int changed = longest_sequence(pack);
  const RingResult other =
      run_ring(plan,
               attention_case(problem, pack, Format::kFloat, std::nan(""),
                              contents_with(pack.sequences(), changed, pack.sequences() + 1000)),
               options);
  const std::string leak = difference(first, other, pack, plan.size, changed);
  result.expect("ring.isolation", Kind::kAttention, leak.empty(), [&] {
    return fmt::format("other contents of sequence {} change another one: {}", changed, leak);
  });
  result.expect(
      "ring.isolation_control", Kind::kAttention,
      !difference(first, other, pack, plan.size).empty(),
      [&] { return fmt::format("sequence {} has other contents but the same results", changed); });

  options.rank_order.resize(static_cast<std::size_t>(plan.size));
  std::iota(options.rank_order.rbegin(), options.rank_order.rend(), 0);
  const std::string order = difference(first, run_ring(plan, c, options), pack, plan.size);
  result.expect("ring.order", Kind::kAttention, order.empty(),
                [&] { return fmt::format("ranks simulated in the opposite order: {}", order); });
  options.rank_order.clear();

  // Other groups run in between: 2, 1, 4 ranks on another pack.
  Problem small = problem;
  small.lengths = {5, 0, 3};
  small.padded.clear();
  for (int size : {2, 1, 4}) {
    const Pack between = Pack::padded_to(small.lengths, padding_multiple(size, 1));
    const AttentionCase input = attention_case(small, between, Format::kFloat);
    (void)run_ring(make_ring_plan(between, size, plan.causal, plan.window), input, options);
  }
  const std::string history = difference(first, run_ring(plan, c, options), pack, plan.size);
  result.expect("ring.history", Kind::kState, history.empty(), [&] {
    return fmt::format("after groups of 2, 1 and 4 ranks have run: {}", history);
  });
}

void add_table(const RingPlan& plan, CaseResult& result) {
  if (plan.size > kShownRanks) return;
  for (int rank = 0; rank < plan.size; ++rank) {
    std::int64_t total = 0;
    std::vector<std::int64_t> pairs;
    for (int step = 0; step < plan.size; ++step) {
      pairs.push_back(step_pairs(plan, rank, step));
      total += pairs.back();
    }
    const auto real = real_lengths_on_rank(plan.pack, plan.size, rank);
    result.detail(fmt::format("rank {}: {} real tokens of {}, {} pairs, by step {}", rank,
                              std::accumulate(real.begin(), real.end(), std::int64_t{0}),
                              plan.local_rows(), total, fmt::join(pairs, " ")));
  }
}

CaseResult run(const Problem& problem) {
  const Pack pack = problem.pack();
  require_divisible(pack, problem.cp);
  // Five executions and references forward and backward, and six in float.
  require_affordable(problem, pack, 40);
  if (static_cast<double>(pack.padded_tokens()) * problem.cp > 5e7) {
    throw InvalidInput(
        fmt::format("check ring proves every row of every step: {} padded tokens on "
                    "{} ranks are more than 5e7 rows",
                    pack.padded_tokens(), problem.cp));
  }
  CaseResult result;
  if (params_of_group(problem, pack, "ring.params", result).empty()) return result;
  const RingPlan plan = make_ring_plan(pack, problem.cp, problem.mask != "full", problem.window);
  add_table(plan, result);
  check_plan(plan, result);
  check_balance(plan, result);
  check_contributions(plan, result);
  mistrust_vacuous_slices(problem, result);
  if (pack.real_tokens() == 0) return result;
  check_arithmetic(problem, plan, Arithmetic::kDouble, Accumulation::kWide, result);
  check_arithmetic(problem, plan, Arithmetic::kFloat, Accumulation::kWide, result);
  for (Accumulation accumulation :
       {Accumulation::kWide, Accumulation::kRoundedPartials, Accumulation::kRounded}) {
    check_arithmetic(problem, plan, Arithmetic::kBf16, accumulation, result);
  }
  check_bits(problem, plan, result);
  return result;
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  const WindowPlan plan =
      tier == Tier::kSmoke ? WindowPlan{.windows = 1, .sequences = 3, .longest = 24}
      : tier == Tier::kCi  ? WindowPlan{.windows = 2, .sequences = 5, .longest = 72}
                           : WindowPlan{.windows = 8, .sequences = 8, .longest = 300};
  return window_cases("ring", sets, seed, plan, vary_attention);
}

}  // namespace

const Driver& ring_driver() {
  static const Driver driver{
      "ring",
      "the ring plan proved, and run in double, float and bf16 against the direct reference",
      {"lengths", "padded", "seed", "cp", "first-rank", "contract", "tp", "heads", "kv-heads",
       "dim", "value-dim", "mask", "window", "sink"},
      run,
      [](const Problem& problem, const Safetensors& file) {
        return judge_attention(problem, file, "ring");
      },
      gate_cases};
  return driver;
}

}  // namespace dyncp
