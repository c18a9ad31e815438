// Per-token loss: values known in closed form, one test per refused input, and the wrong
// normalisations on the textbook case that shows each.
#include "reference/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fixtures/wrong/normalisation.h"
#include "reference/error.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// A few operations on values of order 1 to 10.
constexpr double kRoundoff = 16 * std::numeric_limits<double>::epsilon();

Tensor<double> logits_of(const std::vector<std::vector<double>>& rows) {
  Tensor<double> logits(static_cast<std::int64_t>(rows.size()), 1,
                        static_cast<int>(rows.front().size()));
  logits.data.clear();
  for (const auto& row : rows) logits.data.insert(logits.data.end(), row.begin(), row.end());
  return logits;
}

TEST(LogSumExp, ClosedForms) {
  const std::vector<double> thirds = {std::log(1.0), std::log(3.0), std::log(4.0)};
  EXPECT_NEAR(log_sum_exp(thirds.data(), 3), std::log(8.0), kRoundoff);
  const std::vector<double> huge = {1e308, 1e308};
  EXPECT_EQ(log_sum_exp(huge.data(), 2), 1e308);
  const std::vector<double> tiny = {-1e308, -1e308};
  EXPECT_EQ(log_sum_exp(tiny.data(), 2), -1e308);
  const std::vector<double> shifted = {1000.0, 1000.0 + std::log(2.0)};
  EXPECT_NEAR(log_sum_exp(shifted.data(), 2), 1000.0 + std::log(3.0), 1000 * kRoundoff);
}

TEST(LogSumExp, InfiniteAndUndefinedValues) {
  EXPECT_EQ(log_sum_exp(nullptr, 0), -kInfinity);
  const std::vector<double> none = {-kInfinity, -kInfinity};
  EXPECT_EQ(log_sum_exp(none.data(), 2), -kInfinity);
  const std::vector<double> one = {-kInfinity, 2.0, -kInfinity};
  EXPECT_EQ(log_sum_exp(one.data(), 3), 2.0);
  const std::vector<double> all = {1.0, kInfinity, kInfinity};
  EXPECT_EQ(log_sum_exp(all.data(), 3), kInfinity);
  for (std::size_t at = 0; at < 3; ++at) {
    std::vector<double> values = {-kInfinity, kInfinity, -kInfinity};
    values[at] = kNaN;
    EXPECT_TRUE(std::isnan(log_sum_exp(values.data(), 3))) << at;
  }
}

TEST(Loss, ClosedForms) {
  // Softmax of (0, ln 3) is (1/4, 3/4).
  const Tensor<double> logits = logits_of({{0, std::log(3.0)}, {0, std::log(3.0)}, {5, 5}});
  const LossTargets targets{{0, 1, 1}, {1, 1, 1}};
  const std::vector<double> losses = token_losses(logits, targets);
  EXPECT_NEAR(losses[0], std::log(4.0), kRoundoff);
  EXPECT_NEAR(losses[1], std::log(4.0 / 3.0), kRoundoff);
  EXPECT_NEAR(losses[2], std::log(2.0), kRoundoff);
  const LossSum total = loss_sum(logits, targets);
  EXPECT_EQ(total.tokens, 3);
  EXPECT_EQ(total.sum, losses[0] + losses[1] + losses[2]);
  EXPECT_EQ(reported_loss(total), total.sum / 3);
  const Tensor<double> gradient = loss_gradient(logits, targets);
  EXPECT_NEAR(gradient.at(0, 0, 0), 0.25 - 1, kRoundoff);
  EXPECT_NEAR(gradient.at(0, 0, 1), 0.75, kRoundoff);
  EXPECT_NEAR(gradient.at(1, 0, 0), 0.25, kRoundoff);
  EXPECT_NEAR(gradient.at(1, 0, 1), 0.75 - 1, kRoundoff);
}

TEST(Loss, RowsThatDoNotCountAreExactlyZeroWhateverTheyHold) {
  const Tensor<double> logits = logits_of(
      {{kNaN, 1}, {kInfinity, -kInfinity}, {0, std::log(3.0)}, {kNaN, kNaN}, {1e308, -1e308}});
  // Masked rows may carry labels that are out of range; an ignored label may be unmasked.
  const LossTargets targets{{0, 77, 0, kIgnoreLabel, -5}, {0, 0, 1, 1, 0}};
  const std::vector<double> losses = token_losses(logits, targets);
  const Tensor<double> gradient = loss_gradient(logits, targets);
  for (std::int64_t row : {0, 1, 3, 4}) {
    EXPECT_EQ(losses[static_cast<std::size_t>(row)], 0.0) << row;
    EXPECT_EQ(gradient.at(row, 0, 0), 0.0) << row;
    EXPECT_EQ(gradient.at(row, 0, 1), 0.0) << row;
  }
  const LossSum total = loss_sum(logits, targets);
  EXPECT_EQ(total.tokens, 1);
  EXPECT_NEAR(total.sum, std::log(4.0), kRoundoff);
}

TEST(Loss, InfiniteLogitsThatCount) {
  // A forbidden class costs nothing when it is not the label, and everything when it is.
  const Tensor<double> logits = logits_of({{2.0, -kInfinity}, {2.0, -kInfinity}});
  const std::vector<double> losses = token_losses(logits, {{0, 1}, {1, 1}});
  EXPECT_EQ(losses[0], 0.0);
  EXPECT_EQ(losses[1], kInfinity);
  EXPECT_EQ(loss_gradient(logits, {{0, 1}, {1, 0}}).at(0, 0, 1), 0.0);
}

TEST(Loss, NothingUnmaskedGivesExactZeros) {
  const Tensor<double> logits = logits_of({{1, 2}, {kNaN, 3}});
  const LossTargets targets{{0, 1}, {0, 0}};
  const LossSum total = loss_sum(logits, targets);
  EXPECT_EQ(total, LossSum());
  EXPECT_EQ(reported_loss(total), 0.0);
  const ReducedLoss reduced =
      reduce_loss({{total, {{"logits", loss_gradient(logits, targets).data}}}});
  EXPECT_EQ(reduced.gradients.at("logits"), std::vector<double>(4, 0.0));
  EXPECT_EQ(reduced.gradient_norm, 0.0);
  // A leak is not hidden by the empty batch.
  EXPECT_TRUE(std::isnan(normalise({{"w", {kNaN}}}, 0).at("w")[0]));
}

TEST(Loss, NoRows) {
  const Tensor<double> logits(0, 1, 3);
  EXPECT_EQ(loss_sum(logits, {}), LossSum());
  EXPECT_EQ(loss_gradient(logits, {}).rows, 0);
  EXPECT_EQ(combine(std::vector<LossSum>()), LossSum());
  EXPECT_EQ(gradient_norm({}), 0.0);
}

TEST(Loss, RefusedInput) {
  const Tensor<double> logits = logits_of({{0, 1}, {2, 3}});
  EXPECT_THROW(loss_sum(logits, {{0}, {1}}), InvalidInput);
  EXPECT_THROW(loss_sum(logits, {{0, 1}, {1}}), InvalidInput);
  EXPECT_THROW(loss_sum(logits, {{0, 2}, {1, 1}}), InvalidInput);
  EXPECT_THROW(loss_sum(logits, {{0, -1}, {1, 1}}), InvalidInput);
  EXPECT_THROW(loss_sum(logits, {{0, 1}, {1, 2}}), InvalidInput);
  EXPECT_THROW(loss_gradient(Tensor<double>(2, 2, 1), {{0, 0}, {1, 1}}), InvalidInput);
  EXPECT_THROW(token_losses(logits, {{0}, {1}}), InvalidInput);
  EXPECT_THROW(normalise({}, -1), InvalidInput);
  EXPECT_THROW(combine(std::vector<NamedGradients>{{{"a", {1}}}, {{"b", {1}}}}), InvalidInput);
  EXPECT_THROW(combine(std::vector<NamedGradients>{{{"a", {1}}}, {{"a", {1, 2}}}}), InvalidInput);
  EXPECT_THROW(combine(std::vector<NamedGradients>{{{"a", {1}}}, {{"a", {1}}, {"b", {}}}}),
               InvalidInput);
}

TEST(Loss, NormIsOverEveryElementOfEveryParameterOnce) {
  EXPECT_EQ(gradient_norm({{"a", {3, 0}}, {"b", {4}}, {"empty", {}}}), 5.0);
  EXPECT_EQ(gradient_norm({{"a", {-2, 2}}, {"b", {2, -2}}}), 4.0);
}

TEST(Loss, CentralDifferencesOfAQuadraticAreExact) {
  const auto f = [](const std::vector<double>& x) { return x[0] * x[0] + 3 * x[0] * x[1]; };
  EXPECT_EQ(central_differences(f, {2, 5}, 0.5), (std::vector<double>{19, 6}));
}

// The example of MLM#7513: four tokens on two ranks, one against three unmasked.
const std::vector<RankLoss> kUneven = {{{2.0, 1}, {{"w", {1.0, -1.0}}}},
                                       {{3.0, 3}, {{"w", {2.0, 4.0}}}}};

TEST(Loss, OneDivisionByTheGlobalCount) {
  const ReducedLoss right = reduce_loss(kUneven);
  EXPECT_EQ(right.loss, 1.25);
  EXPECT_EQ(right.tokens, 4);
  EXPECT_EQ(right.gradients.at("w"), (std::vector<double>{0.75, 0.75}));
  EXPECT_EQ(right.gradient_norm, std::sqrt(1.125));
}

TEST(WrongNormalisations, EachDiffersWhereItShould) {
  const ReducedLoss right = reduce_loss(kUneven);
  EXPECT_EQ(wrong::local_mean(kUneven).loss, 1.5);
  EXPECT_EQ(wrong::tokens_not_reduced(kUneven).loss, 3.0);
  EXPECT_EQ(wrong::tokens_counted_twice(kUneven).tokens, 8);
  EXPECT_EQ(wrong::tokens_counted_twice(kUneven).loss, right.loss / 2);
  EXPECT_EQ(wrong::loss_times_cp(kUneven).loss, right.loss);
  EXPECT_EQ(wrong::loss_times_cp(kUneven).gradients.at("w")[0], 2 * right.gradients.at("w")[0]);
  EXPECT_EQ(wrong::gradients_averaged(kUneven).gradient_norm, right.gradient_norm / 2);
  EXPECT_EQ(wrong::reported_scaled_like_backward(kUneven).loss, 2 * right.loss);
  EXPECT_EQ(wrong::norm_after_clip(kUneven).gradients, right.gradients);
  EXPECT_EQ(wrong::norm_after_clip(kUneven).gradient_norm, right.gradient_norm / 2);

  const std::vector<RankLoss> one_empty = {{{2.0, 1}, {{"w", {1.0}}}}, {{0.0, 0}, {{"w", {0.0}}}}};
  EXPECT_TRUE(std::isnan(wrong::empty_shard_nan(one_empty).loss));
  EXPECT_TRUE(std::isnan(wrong::empty_shard_nan(one_empty).gradients.at("w")[0]));
  // All unmasked tokens on one of two ranks: half of the right gradient, a quarter with four.
  EXPECT_EQ(wrong::local_mean(one_empty).gradients.at("w")[0], 0.5);
}

TEST(WrongNormalisations, RolledLabelsAreWrongAtTheEndOfEachChunk) {
  // One sequence of 8 tokens 10..17 on two ranks: rank 0 holds 0 1 6 7.
  const Pack pack = Pack::padded_to({8}, 4);
  const std::vector<std::int64_t> tokens = {10, 11, 12, 13, 14, 15, 16, 17};
  const auto rows = zigzag_rows(pack, 2, 0);
  const auto right = gather(shift_labels(pack, tokens), rows);
  EXPECT_EQ(right, (std::vector<std::int64_t>{11, 12, 17, kIgnoreLabel}));
  const auto rolled = wrong::labels_rolled_after_slice(
      gather(tokens, rows), local_boundaries(pack, 2), real_lengths_on_rank(pack, 2, 0));
  EXPECT_EQ(rolled, (std::vector<std::int64_t>{11, 16, 17, kIgnoreLabel}));
}

}  // namespace
}  // namespace dyncp
