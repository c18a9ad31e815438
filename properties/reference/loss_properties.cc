// Per-token loss: gradients against finite differences, exact tokens and bounded sums over any
// partition of the rows, and rows that do not count leaving no trace.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "fixtures/wrong/normalisation.h"
#include "reference/loss.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

constexpr double kUnit = 0x1p-53;

double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;  // [-1, 1)
}

struct Case {
  Tensor<double> logits;
  LossTargets targets;
};

// Rows that do not count hold NaN, infinities and labels out of range.
Case draw_case(std::int64_t rows, int vocabulary, double scale) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Case result{Tensor<double>(rows, 1, vocabulary), {}};
  const double junk[] = {std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(), 1e308};
  const auto sparsity = *rc::gen::inRange<std::uint64_t>(1, 5);
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool masked = random() % sparsity != 0;
    const bool ignored = random() % 7 == 0;
    const auto label = static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary));
    result.targets.mask.push_back(masked ? 0 : 1);
    result.targets.labels.push_back(ignored ? kIgnoreLabel : masked ? label - 1000 : label);
    for (int v = 0; v < vocabulary; ++v) {
      result.logits.at(row, 0, v) =
          result.targets.counts(row) ? scale * uniform(random) : junk[random() % 4];
    }
  }
  return result;
}

RC_GTEST_PROP(LossProperties, GradientIsThatOfTheSum, ()) {
  const auto rows = *rc::gen::inRange<std::int64_t>(0, 5);
  const auto vocabulary = *rc::gen::inRange(1, 7);
  const Case c = draw_case(rows, vocabulary, 3.0);
  const double step = 0x1p-17;
  const auto f = [&](const std::vector<double>& data) {
    Tensor<double> logits = c.logits;
    logits.data = data;
    return loss_sum(logits, c.targets).sum;
  };
  const Tensor<double> gradient = loss_gradient(c.logits, c.targets);
  const std::vector<double> numeric = central_differences(f, c.logits.data, step);
  // The third derivative of log-sum-exp in one logit is p(1-p)(1-2p), below 0.1. A row's loss is at
  // most 6 + log(6) and is computed to about (vocabulary + 10) units; rows add up.
  const double values = 8.0 * static_cast<double>(rows);
  const double bound =
      0.1 * step * step / 6 + (vocabulary + 10 + static_cast<double>(rows)) * kUnit * values / step;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int v = 0; v < vocabulary; ++v) {
      const std::size_t i = gradient.offset(row, 0, v);
      if (c.targets.counts(row)) {
        RC_ASSERT(std::abs(gradient.data[i] - numeric[i]) <= bound);
      } else {
        RC_ASSERT(gradient.data[i] == 0.0);
      }
    }
  }
}

RC_GTEST_PROP(LossProperties, GradientOfARowSumsToZero, ()) {
  const auto vocabulary = *rc::gen::inRange(1, 40);
  const Case c = draw_case(*rc::gen::inRange<std::int64_t>(0, 12), vocabulary, 40.0);
  const Tensor<double> gradient = loss_gradient(c.logits, c.targets);
  for (std::int64_t row = 0; row < c.logits.rows; ++row) {
    double sum = 0;
    for (int v = 0; v < vocabulary; ++v) sum += gradient.at(row, 0, v);
    // exp(x - lse) carries the absolute errors of lse (|lse| <= 44) and of the difference (<= 84)
    // as relative ones; the softmax sums to 1.
    RC_ASSERT(std::abs(sum) <= (3 * vocabulary + 160) * kUnit);
  }
}

RC_GTEST_PROP(LossProperties, LogSumExpIsBetweenMaximumAndMaximumPlusLogCount, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const auto count = *rc::gen::inRange(1, 50);
  const double scale = *rc::gen::element(1.0, 100.0, 1e300);
  std::vector<double> values;
  double maximum = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    values.push_back(scale * uniform(random));
    maximum = std::max(maximum, values.back());
  }
  const double lse = log_sum_exp(values.data(), count);
  const double slack = 4 * kUnit * (std::abs(maximum) + std::log(count) + 1);
  RC_ASSERT(lse >= maximum);
  RC_ASSERT(lse <= maximum + std::log(static_cast<double>(count)) + slack);
}

RC_GTEST_PROP(LossProperties, LossDoesNotChangeWhenAllLogitsShift, ()) {
  Case c = draw_case(*rc::gen::inRange<std::int64_t>(0, 12), *rc::gen::inRange(1, 20), 8.0);
  const std::vector<double> before = token_losses(c.logits, c.targets);
  const double shift = *rc::gen::element(-512.0, 64.0, 1024.0);
  for (double& x : c.logits.data) x += shift;
  const std::vector<double> after = token_losses(c.logits, c.targets);
  for (std::size_t row = 0; row < before.size(); ++row) {
    // Each shifted logit is rounded once, and so is lse: units of |x| + |shift|.
    RC_ASSERT(std::abs(before[row] - after[row]) <= 4 * kUnit * (std::abs(shift) + 16));
  }
}

// One pack on a CP group of any size, mixed lengths, sequences shorter than 2 * size included.
RC_GTEST_PROP(LossProperties, RanksAddUpToTheWhole, ()) {
  const int size = *rc::gen::element(1, 2, 3, 4, 5, 8);
  const auto lengths =
      *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 40));
  const Pack pack = Pack::padded_to(lengths, padding_multiple(size, 1));
  const Case c = draw_case(pack.padded_tokens(), *rc::gen::inRange(1, 20), 5.0);
  const std::vector<double> losses = token_losses(c.logits, c.targets);
  const Tensor<double> gradient = loss_gradient(c.logits, c.targets);
  double magnitude = 0;
  for (double loss : losses) magnitude += std::abs(loss);
  std::vector<LossSum> parts;
  for (int rank = 0; rank < size; ++rank) {
    const auto rows = zigzag_rows(pack, size, rank);
    const Tensor<double> logits = gather(c.logits, rows);
    const LossTargets targets{gather(c.targets.labels, rows), gather(c.targets.mask, rows)};
    parts.push_back(loss_sum(logits, targets));
    RC_ASSERT(token_losses(logits, targets) == gather(losses, rows));
    RC_ASSERT(loss_gradient(logits, targets) == gather(gradient, rows));
    if (parts.back().tokens == 0) RC_ASSERT(parts.back() == LossSum());
  }
  const LossSum whole = loss_sum(c.logits, c.targets);
  const LossSum total = combine(parts);
  RC_ASSERT(total.tokens == whole.tokens);
  RC_ASSERT(std::abs(total.sum - whole.sum) <= reordering_bound(whole.tokens + size, magnitude));
}

// Negative control of the bound: a sum that counts one term twice must break it.
RC_GTEST_PROP(LossProperties, ReorderingBoundHoldsAndIsNotVacuous, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const auto count = *rc::gen::inRange<std::size_t>(8, 200);
  std::vector<double> terms;
  for (std::size_t i = 0; i < count; ++i) terms.push_back(uniform(random));
  double forward = 0, backward = 0, magnitude = 0;
  for (std::size_t i = 0; i < count; ++i) {
    forward += terms[i];
    backward += terms[count - 1 - i];
    magnitude += std::abs(terms[i]);
  }
  const double bound = reordering_bound(static_cast<std::int64_t>(count), magnitude);
  RC_ASSERT(std::abs(forward - backward) <= bound);
  RC_ASSERT(bound < 1e-10);
  const double largest = *std::max_element(
      terms.begin(), terms.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  RC_ASSERT(std::abs(forward + largest - backward) > bound);
}

RC_GTEST_PROP(LossProperties, ReductionDoesNotDependOnTheAssignment, ()) {
  // Integers in doubles: sums are exact in any order, so equality is exact as well.
  const auto tokens = *rc::gen::inRange<std::size_t>(0, 30);
  const auto first_ranks = *rc::gen::inRange<std::size_t>(1, 9);
  const auto second_ranks = *rc::gen::inRange<std::size_t>(1, 9);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const NamedGradients zero = {{"a", {0, 0}}, {"b", {0}}};
  std::vector<RankLoss> first(first_ranks, {{}, zero}), second(second_ranks, {{}, zero});
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto loss = static_cast<double>(random() % 1000);
    for (RankLoss* rank : {&first[random() % first_ranks], &second[random() % second_ranks]}) {
      rank->loss.sum += loss;
      rank->loss.tokens += 1;
      rank->gradients["a"][0] += loss - 500;
      rank->gradients["a"][1] += 2 * loss;
      rank->gradients["b"][0] -= loss;
    }
  }
  const ReducedLoss a = reduce_loss(first), b = reduce_loss(second);
  RC_ASSERT(a.loss == b.loss);
  RC_ASSERT(a.tokens == b.tokens);
  RC_ASSERT(a.gradients == b.gradients);
  RC_ASSERT(a.gradient_norm == b.gradient_norm);
  // Negative control: the local mean does depend on it, unless chance evens the ranks out.
  const double wrong_a = wrong::local_mean(first).loss, wrong_b = wrong::local_mean(second).loss;
  RC_CLASSIFY(wrong_a != wrong_b, "local mean tells the assignments apart");
}

RC_GTEST_PROP(LossProperties, NormIsTheRootOfTheSumOfSquares, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  NamedGradients gradients;
  long double squares = 0;
  const auto parameters = *rc::gen::inRange(0, 5);
  int count = 0;
  for (int p = 0; p < parameters; ++p) {
    std::vector<double>& gradient = gradients["p" + std::to_string(p)];
    const auto size = *rc::gen::inRange(0, 20);
    for (int i = 0; i < size; ++i, ++count) {
      gradient.push_back(uniform(random));
      squares += static_cast<long double>(gradient.back()) * gradient.back();
    }
  }
  const double norm = gradient_norm(gradients);
  RC_ASSERT(std::abs(norm - static_cast<double>(std::sqrt(squares))) <= (count + 2) * kUnit * norm);
  // Scaling by a power of two is exact, so a factor of the CP size shows in the last bit.
  RC_ASSERT(gradient_norm(wrong::scaled(gradients, 4.0)) == 4.0 * norm);
}

}  // namespace
}  // namespace dyncp
