// A real, small training run for tests: softmax regression in float, its batches split over ranks, its
// sums reduced over them, with the faults of the loss class. What a judge of logs says about it can
// therefore be held against what was done, and nothing here knows how the judge works.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/metrics_log.h"

namespace dyncp {

enum class TrainingFault {
  kNone,
  kLossTimesCp,        // the differentiated loss is multiplied by the ranks
  kGradientsAveraged,  // gradients are averaged over ranks instead of summed
  kOnePercent,         // every gradient is 1 % too large
  kReportedScaled,     // only the logged loss is multiplied by the ranks
  kLocalMean,          // each rank divides by its own count, and the quotients are averaged
  kTokensNotReduced,   // each rank divides by its own count, and the quotients are added
  kDroppedShard,       // one rank's sums and counts are lost
  kDroppedSum,         // one rank's sums are lost, its count is not
  kDoubleClip,         // the norm is taken from a gradient that was clipped already
  kNanShard            // from the middle on, one rank's loss is NaN
};

struct TrainingSetup {
  std::uint64_t data_seed = 1;        // batches
  std::uint64_t assignment_seed = 1;  // which rank runs which sequence, and the order of reduction
  int ranks = 4;
  int steps = 40;
  int sequences = 12;  // of a step
  bool adam = false;
  double clip = 1e9;  // gradient norm
  TrainingFault fault = TrainingFault::kNone;
};

/// What a run logs, step by step from 1.
struct TrainingRun {
  std::vector<double> loss, gradient_norm, tokens;
};

class SmallTraining {
 public:
  explicit SmallTraining(const TrainingSetup& setup)
      : setup_(setup), data_(setup.data_seed), assignment_(setup.assignment_seed) {
    std::mt19937_64 random(7);
    for (float& parameter : parameters_)
      parameter = 0.3F * std::normal_distribution<float>()(random);
  }

  TrainingRun run() {
    TrainingRun log;
    for (int step = 1; step <= setup_.steps; ++step) one_step(step, log);
    return log;
  }

 private:
  static constexpr int kFeatures = 6, kClasses = 5, kParameters = kFeatures * kClasses;
  using Parameters = std::array<float, kParameters>;

  struct Token {
    std::array<float, kFeatures> x;
    int label;
  };
  struct Shard {
    float loss = 0;
    std::int64_t tokens = 0;
    Parameters gradient{};
  };

  // Sequences of 0 to 39 tokens; labels mostly follow a fixed rule, so that there is something to learn.
  std::vector<std::vector<Token>> draw_batch() {
    std::vector<std::vector<Token>> batch(static_cast<std::size_t>(setup_.sequences));
    std::normal_distribution<float> normal;
    for (auto& sequence : batch) {
      sequence.resize(data_() % 40);
      const float hard = std::uniform_real_distribution<float>(0.2F, 2.0F)(data_);
      for (Token& token : sequence) {
        for (float& x : token.x) x = hard * normal(data_);
        int best = 0;
        float most = -1e9F;
        for (int c = 0; c < kClasses; ++c) {
          const float score =
              token.x[static_cast<std::size_t>(c)] + 0.5F * token.x[5] * static_cast<float>(c % 2);
          if (score > most) {
            most = score;
            best = c;
          }
        }
        token.label = data_() % 5 == 0 ? static_cast<int>(data_() % kClasses) : best;
      }
    }
    return batch;
  }

  void add_token(const Token& token, Shard& shard) const {
    std::array<float, kClasses> logits{};
    float most = -1e30F;
    for (std::size_t c = 0; c < kClasses; ++c) {
      for (std::size_t f = 0; f < kFeatures; ++f)
        logits[c] += parameters_[c * kFeatures + f] * token.x[f];
      most = std::max(most, logits[c]);
    }
    float sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    const auto label = static_cast<std::size_t>(token.label);
    shard.loss += most + std::log(sum) - logits[label];
    ++shard.tokens;
    for (std::size_t c = 0; c < kClasses; ++c) {
      const float slope = std::exp(logits[c] - most) / sum - (c == label ? 1.0F : 0.0F);
      for (std::size_t f = 0; f < kFeatures; ++f)
        shard.gradient[c * kFeatures + f] += slope * token.x[f];
    }
  }

  void one_step(int step, TrainingRun& log) {
    const auto ranks = static_cast<std::size_t>(setup_.ranks);
    std::vector<Shard> shards(ranks);
    const auto batch = draw_batch();
    std::vector<std::size_t> order(batch.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), assignment_);
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Token& token : batch[order[i]]) add_token(token, shards[assignment_() % ranks]);
    }
    std::shuffle(shards.begin(), shards.end(), assignment_);

    using Fault = TrainingFault;
    const Fault fault = setup_.fault;
    if (fault == Fault::kDroppedShard) shards.pop_back();
    std::int64_t tokens = 0;
    for (const Shard& shard : shards) tokens += shard.tokens;
    if (fault == Fault::kDroppedSum) shards.pop_back();
    if (fault == Fault::kNanShard && step > setup_.steps / 2) shards[0].loss = std::nanf("");
    const bool own_count = fault == Fault::kLocalMean || fault == Fault::kTokensNotReduced;
    float loss = 0;
    Parameters gradient{};
    for (const Shard& shard : shards) {
      const std::int64_t count = own_count ? shard.tokens : tokens;
      const float divisor = static_cast<float>(std::max<std::int64_t>(1, count)) *
                            (fault == Fault::kLocalMean ? static_cast<float>(shards.size()) : 1.0F);
      loss += shard.loss / divisor;
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += shard.gradient[i] / divisor;
    }
    float factor = 1;
    if (fault == Fault::kLossTimesCp) factor = static_cast<float>(ranks);
    if (fault == Fault::kGradientsAveraged) factor = 1 / static_cast<float>(ranks);
    if (fault == Fault::kOnePercent) factor = 1.01F;
    for (float& g : gradient) g *= factor;

    float norm = norm_of(gradient);
    const auto clip = static_cast<float>(setup_.clip);
    const auto clip_once = [&] {
      if (norm <= clip) return;
      for (float& g : gradient) g *= clip / norm;
    };
    clip_once();
    if (fault == Fault::kDoubleClip) {
      norm = norm_of(gradient);
      clip_once();
    }
    update(step, gradient);
    log.loss.push_back(static_cast<double>(
        fault == Fault::kReportedScaled ? loss * static_cast<float>(ranks) : loss));
    log.gradient_norm.push_back(static_cast<double>(norm));
    log.tokens.push_back(static_cast<double>(tokens));
  }

  static float norm_of(const Parameters& gradient) {
    float squares = 0;
    for (const float g : gradient) squares += g * g;
    return std::sqrt(squares);
  }

  void update(int step, const Parameters& gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (!setup_.adam) {
        parameters_[i] -= 0.05F * gradient[i];
        continue;
      }
      first_[i] = 0.9F * first_[i] + 0.1F * gradient[i];
      second_[i] = 0.95F * second_[i] + 0.05F * gradient[i] * gradient[i];
      const float mean = first_[i] / (1 - std::pow(0.9F, static_cast<float>(step)));
      const float square = second_[i] / (1 - std::pow(0.95F, static_cast<float>(step)));
      parameters_[i] -= 0.01F * mean / (std::sqrt(square) + 1e-8F);
    }
  }

  TrainingSetup setup_;
  std::mt19937_64 data_, assignment_;
  Parameters parameters_{}, first_{}, second_{};
};

/// The run of a setup.
inline TrainingRun train(const TrainingSetup& setup) { return SmallTraining(setup).run(); }

/// The run as a log whose numbers were written in full.
inline MetricsLog as_log(const TrainingRun& run, const std::string& path, bool with_tokens = true) {
  LogBuilder builder;
  const int loss = builder.metric("loss"), norm = builder.metric("grad_norm");
  const int tokens = builder.metric("tokens");
  for (std::size_t i = 0; i < run.loss.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    builder.add_binary(loss, step, run.loss[i], 0x1p-23);
    builder.add_binary(norm, step, run.gradient_norm[i], 0x1p-23);
    if (with_tokens) builder.add_binary(tokens, step, run.tokens[i], 0);
  }
  MetricsLog log = std::move(builder).finish();
  log.path = path;
  log.format = "JSON lines";
  return log;
}

}  // namespace dyncp
