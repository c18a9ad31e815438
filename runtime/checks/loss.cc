// The loss driver: per-token cross entropy of a pack that is sharded over a CP group against the
// same pack in one piece. Labels are shifted before slicing; every rank computes its sum, its
// number of unmasked tokens and the gradients of its sum; these are added and divided once.
//
// A case has hidden states [rows, 1, kHidden] (NaN in padding), a head with weight
// [vocabulary, kHidden] and bias [vocabulary], and logits = hidden * weight^T + bias: enough that
// parameter gradients are sums over tokens, as in training. Tokens, counts, labels, per-token
// losses and zeros are compared exactly; sums within the roundoff of another summation order.
//
// Each case also runs the wrong normalisations of fixtures/wrong through the same comparison. One
// that the comparison does not notice means that the case cannot show that fault: MISTRUSTED.
// The judge of recorded tensors is in loss_candidate.cc.
#include "reference/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/wrong/normalisation.h"
#include "reference/error.h"
#include "reference/scale_fit.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"
#include "runtime/check.h"
#include "runtime/checks/loss_candidate.h"

namespace dyncp {
namespace {

constexpr int kHidden = 8;
constexpr double kUnit = 0x1p-53;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Logits of one case, all ranks together, stay below 1 GiB.
constexpr std::int64_t kMostLogits = std::int64_t{1} << 27;

double draw(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;  // [-1, 1)
}

enum class MaskMode { kAll, kRandom, kNone, kOneRank };

MaskMode parse_mask_mode(const std::string& name) {
  if (name == "all") return MaskMode::kAll;
  if (name == "random") return MaskMode::kRandom;
  if (name == "none") return MaskMode::kNone;
  if (name == "one-rank") return MaskMode::kOneRank;
  throw InvalidInput("--loss-mask is '" + name + "', expected all, random, none or one-rank");
}

struct Head {
  std::vector<double> weight;  // [vocabulary, kHidden]
  std::vector<double> bias;    // [vocabulary]
};

struct Case {
  int size = 1;
  MaskMode mode = MaskMode::kAll;
  Pack pack;
  std::vector<std::int64_t> tokens;             // [rows], padding included
  LossTargets targets;                          // [rows]
  std::vector<std::vector<std::int64_t>> rows;  // rows of the pack that each rank holds
  Tensor<double> hidden;                        // [rows, 1, kHidden]
  Head head;
};

Case make_targets(const Problem& problem) {
  Case c;
  c.size = problem.cp;
  c.mode = parse_mask_mode(problem.loss_mask);
  if (problem.vocabulary < 1) {
    throw InvalidInput(fmt::format("--vocabulary is {}, expected 1 or more", problem.vocabulary));
  }
  c.pack = problem.pack();
  const std::int64_t rows = c.pack.padded_tokens();
  if (rows > kMostLogits / problem.vocabulary) {
    throw InvalidInput(fmt::format("{} tokens times a vocabulary of {}: expected at most {} logits",
                                   rows, problem.vocabulary, kMostLogits));
  }
  const CpGroup group{problem.first_rank, problem.cp};
  const bool has_group = problem.cp > 1 || problem.contract == Contract::kV2;
  for (int rank = 0; rank < problem.cp; ++rank) {
    const PackedSeqParams params(c.pack, problem.cp,
                                 has_group ? std::optional(group) : std::nullopt,
                                 problem.first_rank + rank, problem.contract);
    c.rows.push_back(zigzag_rows(c.pack, params.context().size(), params.context().rank()));
  }
  std::mt19937_64 random(problem.seed);
  for (std::int64_t row = 0; row < rows; ++row) {
    c.tokens.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(problem.vocabulary)));
  }
  c.targets.labels = shift_labels(c.pack, c.tokens);
  c.targets.mask.assign(static_cast<std::size_t>(rows), 0);

  std::vector<bool> may_count(static_cast<std::size_t>(rows), c.mode != MaskMode::kNone);
  if (c.mode == MaskMode::kOneRank) {
    std::vector<int> with_labels;
    for (int rank = 0; rank < c.size; ++rank) {
      const auto labels = gather(c.targets.labels, c.rows[static_cast<std::size_t>(rank)]);
      if (std::any_of(labels.begin(), labels.end(),
                      [](std::int64_t label) { return label != kIgnoreLabel; })) {
        with_labels.push_back(rank);
      }
    }
    may_count.assign(static_cast<std::size_t>(rows), false);
    if (!with_labels.empty()) {
      const int only = with_labels[problem.seed % with_labels.size()];
      for (std::int64_t row : c.rows[static_cast<std::size_t>(only)]) {
        may_count[static_cast<std::size_t>(row)] = true;
      }
    }
  }
  for (int s = 0; s < c.pack.sequences(); ++s) {
    // A different share in each sequence, so that ranks differ too.
    const std::uint64_t share = c.mode == MaskMode::kRandom ? 1 + random() % 7 : 8;
    for (std::int64_t j = 0; j < c.pack.real_length(s); ++j) {
      const auto row = static_cast<std::size_t>(c.pack.first_row(s) + j);
      const bool drawn = random() % 8 < share;
      if (may_count[row] && drawn) c.targets.mask[row] = 1;
    }
  }
  return c;
}

Case make_case(const Problem& problem) {
  Case c = make_targets(problem);
  std::mt19937_64 random(problem.seed ^ 0x9e3779b97f4a7c15u);
  c.hidden = Tensor<double>(c.pack.padded_tokens(), 1, kHidden, kNaN);
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < c.pack.real_length(s); ++j) {
      for (int d = 0; d < kHidden; ++d) c.hidden.at(c.pack.first_row(s) + j, 0, d) = draw(random);
    }
  }
  const auto vocabulary = static_cast<std::size_t>(problem.vocabulary);
  for (std::size_t i = 0; i < vocabulary * kHidden; ++i) c.head.weight.push_back(2 * draw(random));
  for (std::size_t v = 0; v < vocabulary; ++v) c.head.bias.push_back(draw(random));
  return c;
}

Tensor<double> logits_of(const Tensor<double>& hidden, const Head& head) {
  const auto vocabulary = static_cast<int>(head.bias.size());
  Tensor<double> logits(hidden.rows, 1, vocabulary);
  for (std::int64_t row = 0; row < hidden.rows; ++row) {
    for (int v = 0; v < vocabulary; ++v) {
      double sum = head.bias[static_cast<std::size_t>(v)];
      for (int d = 0; d < kHidden; ++d) {
        const std::size_t i = static_cast<std::size_t>(v) * kHidden + static_cast<std::size_t>(d);
        sum += hidden.at(row, 0, d) * head.weight[i];
      }
      logits.at(row, 0, v) = sum;
    }
  }
  return logits;
}

// What one rank, or the whole pack as one rank, contributes; with it the sums of magnitudes from
// which the bounds are derived.
struct Share {
  RankLoss loss;
  std::vector<double> token_losses;
  double loss_magnitude = 0;
  NamedGradients gradient_magnitudes;
};

Share share_of(const Tensor<double>& hidden, const Head& head, const LossTargets& targets) {
  const Tensor<double> logits = logits_of(hidden, head);
  const Tensor<double> logit_gradient = loss_gradient(logits, targets);
  Share share;
  share.token_losses = token_losses(logits, targets);
  share.loss.loss = loss_sum(logits, targets);
  for (double loss : share.token_losses) share.loss_magnitude += std::abs(loss);
  std::vector<double> weight(head.weight.size(), 0.0), bias(head.bias.size(), 0.0);
  std::vector<double> weight_magnitude = weight, bias_magnitude = bias;
  for (std::int64_t row = 0; row < hidden.rows; ++row) {
    // A gradient of exactly 0 times a hidden state of NaN would be NaN: such rows are left out.
    if (!targets.counts(row)) continue;
    for (std::size_t v = 0; v < bias.size(); ++v) {
      const double g = logit_gradient.at(row, 0, static_cast<int>(v));
      bias[v] += g;
      bias_magnitude[v] += std::abs(g);
      for (int d = 0; d < kHidden; ++d) {
        const std::size_t i = v * kHidden + static_cast<std::size_t>(d);
        const double product = g * hidden.at(row, 0, d);
        weight[i] += product;
        weight_magnitude[i] += std::abs(product);
      }
    }
  }
  share.loss.gradients = {{"head.bias", bias}, {"head.weight", weight}};
  share.gradient_magnitudes = {{"head.bias", bias_magnitude}, {"head.weight", weight_magnitude}};
  return share;
}

// The whole pack in one piece, and by how much another summation order may differ from it.
struct Expected {
  ReducedLoss values;
  double loss_bound = 0;
  NamedGradients gradient_bounds;
  double norm_bound = 0;
};

Expected expected_from(const Share& whole, int size) {
  Expected expected;
  expected.values = reduce_loss({whole.loss});
  const std::int64_t terms = whole.loss.loss.tokens + size;
  const auto divisor = static_cast<double>(std::max<std::int64_t>(whole.loss.loss.tokens, 1));
  // Each side divides once and rounds once.
  expected.loss_bound = reordering_bound(terms, whole.loss_magnitude) / divisor +
                        2 * kUnit * std::abs(expected.values.loss);
  double squares = 0;
  std::int64_t elements = 0;
  for (const auto& [name, magnitudes] : whole.gradient_magnitudes) {
    std::vector<double>& bounds = expected.gradient_bounds[name];
    for (std::size_t i = 0; i < magnitudes.size(); ++i, ++elements) {
      bounds.push_back(reordering_bound(terms, magnitudes[i]) / divisor +
                       2 * kUnit * std::abs(expected.values.gradients.at(name)[i]));
      squares += bounds.back() * bounds.back();
    }
  }
  // Triangle inequality, plus the roundoff of either norm.
  expected.norm_bound = std::sqrt(squares) * (1 + 4 * kUnit) +
                        reordering_bound(elements + 2, expected.values.gradient_norm);
  return expected;
}

struct Difference {
  std::string check;
  std::string message;
};

// NaN is never within a bound.
bool within(double got, double expected, double bound) { return std::abs(got - expected) <= bound; }

// The checks loss.tokens, loss.mean, loss.gradient and loss.gradient_norm; at most one entry each.
std::vector<Difference> differences(const Expected& expected, const ReducedLoss& got, int size) {
  std::vector<Difference> found;
  const ReducedLoss& right = expected.values;
  if (got.tokens != right.tokens) {
    found.push_back({"loss.tokens", fmt::format("{} unmasked tokens over the {} ranks, expected {}",
                                                got.tokens, size, right.tokens)});
  }
  if (!within(got.loss, right.loss, expected.loss_bound)) {
    found.push_back({"loss.mean", fmt::format("loss {:.17g} over the {} ranks, expected {:.17g} "
                                              "within {:.2g}",
                                              got.loss, size, right.loss, expected.loss_bound)});
  }
  std::string worst;
  double worst_excess = 0;
  std::vector<double> flat_right, flat_got;
  for (const auto& [name, gradient] : right.gradients) {
    const std::vector<double>& other = got.gradients.at(name);
    flat_right.insert(flat_right.end(), gradient.begin(), gradient.end());
    flat_got.insert(flat_got.end(), other.begin(), other.end());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double bound = expected.gradient_bounds.at(name)[i];
      if (within(other[i], gradient[i], bound)) continue;
      const double difference = std::abs(other[i] - gradient[i]);
      if (worst.empty() || difference > worst_excess || std::isnan(difference)) {
        worst_excess = difference;
        worst = fmt::format("gradient of {} element {} is {:.17g}, expected {:.17g} within {:.2g}",
                            name, i, other[i], gradient[i], bound);
      }
    }
  }
  if (!worst.empty()) {
    const ScaleFit fit = fit_scale(flat_right, flat_got);
    found.push_back({"loss.gradient", fmt::format("{}; all gradients: {:.6g} times the expected "
                                                  "ones, cosine {:.6g}, CP size {}",
                                                  worst, fit.alpha, fit.cosine, size)});
  }
  if (!within(got.gradient_norm, right.gradient_norm, expected.norm_bound)) {
    found.push_back({"loss.gradient_norm",
                     fmt::format("pre-clip gradient norm {:.17g}, expected {:.17g} within {:.2g}",
                                 got.gradient_norm, right.gradient_norm, expected.norm_bound)});
  }
  return found;
}

LossTargets gather_targets(const LossTargets& targets, const std::vector<std::int64_t>& rows) {
  return {gather(targets.labels, rows), gather(targets.mask, rows), targets.ignore};
}

// First row of the pack, of the given rank, whose label is not the next token of its sequence.
std::optional<Difference> wrong_label(const Case& c, int rank,
                                      const std::vector<std::int64_t>& labels) {
  const ZigzagLayout layout{c.size};
  std::size_t local = 0;
  for (int s = 0; s < c.pack.sequences(); ++s) {
    const std::int64_t length = c.pack.padded_length(s);
    for (std::int64_t i = 0; i < layout.local_length(length); ++i, ++local) {
      const std::int64_t position = layout.global_index(length, rank, i);
      const bool last = position + 1 >= c.pack.real_length(s);
      const std::int64_t next =
          last ? kIgnoreLabel
               : c.tokens[static_cast<std::size_t>(c.pack.first_row(s) + position + 1)];
      if (labels[local] != next) {
        return Difference{"loss.labels",
                          fmt::format("rank {}, sequence {}, position {}: label {}, expected {}",
                                      rank, s, position, labels[local], next)};
      }
    }
  }
  return std::nullopt;
}

// Sets NaN in every row that does not count, and an absurd label in every masked one.
void poison(const Case& c, Tensor<double>& hidden, LossTargets& targets) {
  for (std::int64_t row = 0; row < c.targets.rows(); ++row) {
    if (c.targets.counts(row)) continue;
    for (int d = 0; d < kHidden; ++d) hidden.at(row, 0, d) = kNaN;
    const auto r = static_cast<std::size_t>(row);
    if (targets.mask[r] == 0) targets.labels[r] = std::numeric_limits<std::int64_t>::max();
  }
}

bool all_zero(const NamedGradients& gradients) {
  return std::all_of(gradients.begin(), gradients.end(), [](const auto& parameter) {
    return std::all_of(parameter.second.begin(), parameter.second.end(),
                       [](double g) { return g == 0.0; });
  });
}

std::string_view expected_check(std::string_view fault) {
  if (fault == "tokens-counted-twice") return "loss.tokens";
  if (fault == "loss-times-cp" || fault == "gradients-averaged") return "loss.gradient";
  if (fault == "norm-after-clip") return "loss.gradient_norm";
  return "loss.mean";
}

// Whether a case of this mask mode is built to show the fault.
bool is_shown(std::string_view fault, MaskMode mode, bool some_rank_is_empty) {
  if (fault == "empty-shard-nan") return some_rank_is_empty;
  if (mode == MaskMode::kNone) return false;
  return !(fault == "tokens-not-reduced" && mode == MaskMode::kOneRank);
}

void run_negative_controls(const Case& c, const Expected& expected,
                           const std::vector<RankLoss>& ranks, CaseResult& result) {
  const bool some_rank_is_empty = std::any_of(
      ranks.begin(), ranks.end(), [](const RankLoss& rank) { return rank.loss.tokens == 0; });
  std::string noticed;
  const auto record = [&](std::string_view fault, bool was_noticed) {
    if (was_noticed) {
      noticed += fmt::format("{}{}", noticed.empty() ? "" : ", ", fault);
    } else {
      result.mistrust(fmt::format("the case cannot show the fault {}", fault));
    }
  };
  for (const wrong::Normalisation& control : wrong::normalisations()) {
    if (!is_shown(control.name, c.mode, some_rank_is_empty)) continue;
    const auto found = differences(expected, control.reduce(ranks), c.size);
    record(control.name, std::any_of(found.begin(), found.end(), [&](const Difference& d) {
             return d.check == expected_check(control.name);
           }));
  }
  bool roll_noticed = false;
  for (int rank = 0; rank < c.size; ++rank) {
    const auto labels = wrong::labels_rolled_after_slice(
        gather(c.tokens, c.rows[static_cast<std::size_t>(rank)]), local_boundaries(c.pack, c.size),
        real_lengths_on_rank(c.pack, c.size, rank));
    roll_noticed = roll_noticed || wrong_label(c, rank, labels).has_value();
  }
  record("labels-rolled-after-slice", roll_noticed);
  result.detail("faults put in and noticed: " + (noticed.empty() ? "none" : noticed));
}

CaseResult run(const Problem& problem) {
  CaseResult result;
  const Case c = make_case(problem);
  if (c.size == 1) {
    result.mistrust("with CP size 1 the rank holds the whole pack: nothing is sharded");
  }
  const Share whole = share_of(c.hidden, c.head, c.targets);
  const Expected expected = expected_from(whole, c.size);
  if (expected.values.tokens == 0 && c.mode != MaskMode::kNone) {
    result.mistrust("no token of the pack is unmasked");
  }

  Tensor<double> poisoned_hidden = c.hidden;
  LossTargets poisoned_targets = c.targets;
  poison(c, poisoned_hidden, poisoned_targets);

  std::vector<RankLoss> ranks;
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < c.targets.rows(); ++row) counted += c.targets.counts(row);
  for (int rank = 0; rank < c.size; ++rank) {
    const auto& rows = c.rows[static_cast<std::size_t>(rank)];
    const LossTargets targets = gather_targets(c.targets, rows);
    const Share share = share_of(gather(c.hidden, rows), c.head, targets);
    ranks.push_back(share.loss);

    const auto label = wrong_label(c, rank, targets.labels);
    result.expect("loss.labels", Kind::kSlice, !label, [&] { return label->message; });

    const auto expected_losses = gather(whole.token_losses, rows);
    const auto wrong_row = std::mismatch(share.token_losses.begin(), share.token_losses.end(),
                                         expected_losses.begin());
    result.expect(
        "loss.token_losses", Kind::kLoss, wrong_row.first == share.token_losses.end(), [&] {
          const auto local = static_cast<std::size_t>(wrong_row.first - share.token_losses.begin());
          return fmt::format(
              "rank {}, local row {} (row {} of the pack): loss {:.17g}, expected the "
              "same bits as in one piece, {:.17g}",
              rank, local, rows[local], *wrong_row.first, *wrong_row.second);
        });

    const Share poisoned =
        share_of(gather(poisoned_hidden, rows), c.head, gather_targets(poisoned_targets, rows));
    result.expect(
        "loss.inert", Kind::kPadding,
        poisoned.loss.loss == share.loss.loss && poisoned.loss.gradients == share.loss.gradients,
        [&] {
          return fmt::format(
              "rank {}: NaN and other labels in rows that do not count change the loss "
              "sum from {:.17g} to {:.17g}, or the gradients",
              rank, share.loss.loss.sum, poisoned.loss.loss.sum);
        });
    if (share.loss.loss.tokens == 0) {
      result.expect("loss.empty_rank", Kind::kLoss,
                    share.loss.loss.sum == 0.0 && all_zero(share.loss.gradients), [&] {
                      return fmt::format(
                          "rank {} has no unmasked token but a loss sum of {:.17g} and a gradient "
                          "norm of {:.17g}, expected exactly 0",
                          rank, share.loss.loss.sum, gradient_norm(share.loss.gradients));
                    });
    }
    result.detail(fmt::format("rank {}: {} rows, {} unmasked tokens, loss sum {:.6f}",
                              problem.first_rank + rank, rows.size(), share.loss.loss.tokens,
                              share.loss.loss.sum));
  }

  const ReducedLoss reduced = reduce_loss(ranks);
  result.expect("loss.tokens", Kind::kLoss, expected.values.tokens == counted, [&] {
    return fmt::format("{} unmasked tokens in one piece, expected {}", expected.values.tokens,
                       counted);
  });
  const auto found = differences(expected, reduced, c.size);
  for (const char* check : {"loss.tokens", "loss.mean", "loss.gradient", "loss.gradient_norm"}) {
    const auto difference = std::find_if(found.begin(), found.end(),
                                         [&](const Difference& d) { return d.check == check; });
    result.expect(check, Kind::kLoss, difference == found.end(),
                  [&] { return difference->message; });
  }
  if (counted == 0) {
    result.expect(
        "loss.all_masked", Kind::kLoss,
        reduced.loss == 0.0 && all_zero(reduced.gradients) && reduced.gradient_norm == 0.0, [&] {
          return fmt::format(
              "no token is unmasked but the loss is {:.17g} and the gradient norm "
              "{:.17g}, expected exactly 0",
              reduced.loss, reduced.gradient_norm);
        });
  }
  result.detail(fmt::format("loss {:.6f} over {} tokens, pre-clip gradient norm {:.6f}",
                            reduced.loss, reduced.tokens, reduced.gradient_norm));
  if (c.size > 1) run_negative_controls(c, expected, ranks, result);
  return result;
}

CaseResult judge(const Problem& problem, const Safetensors& file) {
  return judge_loss(problem, read_candidate(file).rank, file);
}

// Whether the targets of a case let every fault show that its mask mode is built for. A cheap test
// before a case enters the gate; run() finds out for certain.
bool shows_faults(const Problem& problem) {
  const Case c = make_targets(problem);
  std::vector<std::int64_t> tokens;
  bool chunk_end_has_next = false;
  for (int rank = 0; rank < c.size; ++rank) {
    const auto& rows = c.rows[static_cast<std::size_t>(rank)];
    const LossTargets targets = gather_targets(c.targets, rows);
    tokens.push_back(0);
    for (std::int64_t row = 0; row < targets.rows(); ++row) tokens.back() += targets.counts(row);
    const auto rolled =
        wrong::labels_rolled_after_slice(gather(c.tokens, rows), local_boundaries(c.pack, c.size),
                                         real_lengths_on_rank(c.pack, c.size, rank));
    chunk_end_has_next = chunk_end_has_next || wrong_label(c, rank, rolled).has_value();
  }
  if (c.mode == MaskMode::kNone) return chunk_end_has_next;
  const auto with_tokens =
      std::count_if(tokens.begin(), tokens.end(), [](std::int64_t count) { return count > 0; });
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  return chunk_end_has_next && *least != *most &&
         with_tokens >= (c.mode == MaskMode::kOneRank ? 1 : 2);
}

std::vector<Problem> gate_cases(Tier tier, const std::vector<LengthSet>& sets, std::uint64_t seed) {
  struct Scale {
    int sequences;         // in a pack
    std::int64_t longest;  // tokens: documents are cut there, as at a context length
    std::vector<int> sizes;
  };
  const Scale scale = tier == Tier::kSmoke ? Scale{4, 256, {2, 3}}
                      : tier == Tier::kCi  ? Scale{8, 2048, {2, 3, 4, 8}}
                                           : Scale{32, 8192, {2, 3, 4, 5, 8, 16}};
  const std::vector<std::string> masks = {"random", "all", "one-rank", "none"};
  std::vector<Problem> cases;
  std::mt19937_64 random(seed);
  const auto add = [&](const std::vector<std::int64_t>& lengths, int size, const std::string& mask,
                       int first_rank) {
    Problem problem;
    problem.driver = "loss";
    problem.lengths = lengths;
    problem.cp = size;
    problem.loss_mask = mask;
    problem.first_rank = first_rank;
    // A set of only empty sequences has no label: one sequence is added that every rank takes part
    // in. Another seed may unmask what the first one masked.
    for (int attempt = 0; attempt < 8; ++attempt) {
      problem.seed = 1 + random() % 1000000;
      if (shows_faults(problem)) break;
      if (attempt == 3) problem.lengths.push_back(4 * size + 3);
    }
    cases.push_back(problem);
  };
  std::size_t turn = 0;
  for (const LengthSet& set : sets) {
    if (set.lengths.empty()) continue;
    for (int size : scale.sizes) {
      std::vector<std::int64_t> lengths;
      std::size_t at = random() % set.lengths.size();
      for (int i = 0; i < scale.sequences; ++i, at = (at + 1) % set.lengths.size()) {
        lengths.push_back(std::min(set.lengths[at], scale.longest));
      }
      add(lengths, size, masks[turn % masks.size()], static_cast<int>(turn % 3) * size);
      ++turn;
    }
  }
  // Shapes that real documents seldom have: empty, one token, around 2 * size.
  for (int size : scale.sizes) {
    for (const std::string& mask : masks) {
      const std::int64_t chunks = std::int64_t{2} * size;
      add({0, 1, chunks - 1, chunks + 1, 0, chunks, 2 * chunks + size + 2}, size, mask, 1);
    }
  }
  return cases;
}

}  // namespace

const Driver& loss_driver() {
  static const Driver driver{
      "loss",
      "per-token loss of a sharded pack: labels, sums, counts, one normalisation, masks, gradients",
      {"lengths", "padded", "seed", "cp", "first-rank", "contract", "tp", "vocabulary",
       "loss-mask"},
      run,
      judge,
      gate_cases};
  return driver;
}

}  // namespace dyncp
