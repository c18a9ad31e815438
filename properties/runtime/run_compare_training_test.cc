// Real small training runs, judged: healthy runs agree, other data is called other data, and each
// fault of the loss class is called by its name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "properties/runtime/small_training.h"
#include "runtime/metrics_readers/read_metrics.h"
#include "runtime/run_compare.h"

namespace dyncp {
namespace {

RunCompareOptions float_options() {
  RunCompareOptions options;
  options.noise.precision = Format::kFloat;
  options.noise.layers = 1;
  options.noise.parameters = 30;
  return options;
}

// Setups of different sizes; `seed` decides all of it.
TrainingSetup random_setup(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  TrainingSetup setup;
  setup.data_seed = random();
  setup.assignment_seed = random();
  setup.ranks = std::array<int, 4>{2, 3, 4, 8}[random() % 4];
  setup.steps = 20 + static_cast<int>(random() % 60);
  setup.sequences = 4 + static_cast<int>(random() % 16);
  setup.adam = random() % 2 == 0;
  return setup;
}

RunComparison judge(const TrainingSetup& a, const TrainingSetup& b, bool with_tokens = true) {
  RunCompareOptions options = float_options();
  options.sizes.cp = a.ranks;
  return compare_runs(as_log(train(a), "a", with_tokens), as_log(train(b), "b", with_tokens), {},
                      options);
}

// The log as Megatron-LM prints it.
std::string megatron_text(const TrainingRun& run) {
  std::string text;
  for (std::size_t i = 0; i < run.loss.size(); ++i) {
    text += fmt::format(
        " iteration {:8d}/{:8d} | learning rate: 5.000E-02 | lm loss: {:.6E} | grad norm: {:.3f} "
        "|\n",
        i + 1, run.loss.size(), run.loss[i], run.gradient_norm[i]);
  }
  return text;
}

std::string told(const RunComparison& result) {
  return fmt::format("{} ({}): {}", to_string(result.verdict), to_string(result.difference),
                     result.sentence);
}

TEST(RunCompareTraining, AThousandHealthyPairsAgree) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const TrainingSetup a = random_setup(seed);
    TrainingSetup b = a;
    b.assignment_seed = ~seed;
    if (seed % 3 == 0) b.ranks = 1 + b.ranks % 4;  // other groups, too
    const RunComparison result = judge(a, b, seed % 2 == 0);
    ASSERT_EQ(result.verdict, RunVerdict::kAgree) << seed << " " << told(result);
  }
}

TEST(RunCompareTraining, RunsOnDifferentDataAreCalledThat) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const TrainingSetup a = random_setup(seed);
    TrainingSetup b = a;
    b.data_seed = ~seed;
    const RunComparison result = judge(a, b);
    ASSERT_EQ(result.verdict, RunVerdict::kDifferentData) << seed << " " << told(result);
  }
}

TEST(RunCompareTraining, DifferentDataWithoutTokenCountsNeverAgrees) {
  int called = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const TrainingSetup a = random_setup(seed);
    TrainingSetup b = a;
    b.data_seed = ~seed;
    const RunComparison result = judge(a, b, false);
    ASSERT_NE(result.verdict, RunVerdict::kAgree) << seed << " " << told(result);
    called += result.verdict == RunVerdict::kDifferentData ? 1 : 0;
  }
  EXPECT_GE(called, 285);
}

TEST(RunCompareTraining, OnePercentOfGradientScaleIsFoundInTwentySteps) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TrainingSetup a = random_setup(seed);
    a.steps = 20;
    TrainingSetup b = a;
    b.assignment_seed = ~seed;
    b.fault = TrainingFault::kOnePercent;
    const RunComparison result = judge(a, b);
    ASSERT_EQ(result.verdict, RunVerdict::kDiffer) << seed << " " << told(result);
  }
}

TEST(RunCompareTraining, OnePercentIsFoundInMegatronLogsWithTheModelForBf16) {
  int healthy = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    TrainingSetup a = random_setup(seed);
    a.steps = 20;
    a.adam = true;
    TrainingSetup b = a;
    b.assignment_seed = ~seed;
    const auto log = [](const TrainingSetup& setup, const char* path) {
      return parse_metrics(megatron_text(train(setup)), path);
    };
    RunComparison result = compare_runs(log(a, "a"), log(b, "b"), {}, {});
    ASSERT_EQ(result.verdict, RunVerdict::kAgree) << seed << " " << told(result);
    b.fault = TrainingFault::kOnePercent;
    result = compare_runs(log(a, "a"), log(b, "b"), {}, {});
    ASSERT_EQ(result.verdict, RunVerdict::kDiffer) << seed << " " << told(result);
    ASSERT_EQ(result.difference, RunDifference::kGradientScale) << seed << " " << told(result);
    ++healthy;
  }
  EXPECT_EQ(healthy, 100);
}

struct Named {
  TrainingFault fault;
  RunDifference difference;
  std::string word;  // in the sentence or among what is said first
};

TEST(RunCompareTraining, FaultsAreToldApartByName) {
  int ambiguous = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    TrainingSetup a = random_setup(seed);
    a.clip = median(train(a).gradient_norm);  // so that clipping happens, and not always
    const std::string ranks = fmt::format("CP ({})", a.ranks);
    const std::string inverse = fmt::format("1/CP (1/{})", a.ranks);
    for (const Named& named : std::vector<Named>{
             {TrainingFault::kLossTimesCp, RunDifference::kGradientScale, ranks},
             {TrainingFault::kGradientsAveraged, RunDifference::kGradientScale, inverse},
             {TrainingFault::kReportedScaled, RunDifference::kLossScale, ranks},
             {TrainingFault::kLocalMean, RunDifference::kLocalMean, "weighted"},
             {TrainingFault::kTokensNotReduced, RunDifference::kLocalMean, "own token count"},
             {TrainingFault::kDroppedShard, RunDifference::kDroppedShard, "missing in B"},
             {TrainingFault::kDroppedSum, RunDifference::kDroppedShard, "left out of the sum"},
             {TrainingFault::kDoubleClip, RunDifference::kNormAfterClip, "after clipping"},
             {TrainingFault::kNanShard, RunDifference::kNotFinite, "not finite"},
         }) {
      TrainingSetup b = a;
      b.assignment_seed = ~seed;
      b.fault = named.fault;
      const RunComparison result = judge(a, b);
      ASSERT_EQ(result.verdict, RunVerdict::kDiffer) << seed << " " << told(result);
      // With equal shares at the first step, quotients that are added are the number of ranks times
      // the mean there, and no log tells the two apart.
      if (named.fault == TrainingFault::kTokensNotReduced &&
          result.difference == RunDifference::kScale) {
        EXPECT_NE(result.sentence.find(ranks), std::string::npos) << seed << " " << told(result);
        ++ambiguous;
        continue;
      }
      ASSERT_EQ(result.difference, named.difference)
          << seed << " fault " << static_cast<int>(named.fault) << " " << told(result);
      EXPECT_NE(result.sentence.find(named.word), std::string::npos) << seed << " " << told(result);
    }
  }
  EXPECT_LE(ambiguous, 3);
}

TEST(RunCompareTraining, ControlRunsMeasureTheNoise) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const TrainingSetup a = random_setup(seed);
    std::vector<MetricsLog> controls;
    for (std::uint64_t i = 1; i <= 3; ++i) {
      TrainingSetup control = a;
      control.assignment_seed += i;
      controls.push_back(as_log(train(control), "control"));
    }
    TrainingSetup b = a;
    b.assignment_seed = ~seed;
    RunComparison result = compare_runs(as_log(train(a), "a"), as_log(train(b), "b"), controls, {});
    ASSERT_EQ(result.verdict, RunVerdict::kAgree) << seed << " " << told(result);
    EXPECT_NE(result.floor.find("3 control run(s)"), std::string::npos);
    b.fault = TrainingFault::kOnePercent;
    result = compare_runs(as_log(train(a), "a"), as_log(train(b), "b"), controls, {});
    ASSERT_EQ(result.verdict, RunVerdict::kDiffer) << seed << " " << told(result);
  }
}

}  // namespace
}  // namespace dyncp
