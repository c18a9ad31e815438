// The logs of fixtures/logs, read; and that nothing a log may hold is taken for something else. The
// expected numbers were written down when the logs were made, not taken from a reader.
#include "runtime/metrics_readers/read_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/metric_names.h"

namespace dyncp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

MetricsLog read_fixture(const std::string& name) {
  return read_metrics(std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/" + name);
}

void expect_series(const MetricsLog& log, const std::string& name,
                   const std::vector<std::int64_t>& steps, const std::vector<double>& values) {
  const Series* series = log.find(name);
  ASSERT_NE(series, nullptr) << name;
  EXPECT_EQ(series->steps, steps) << name;
  ASSERT_EQ(series->values.size(), values.size()) << name;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(series->values[i])) << name << " " << steps[i];
    } else {
      EXPECT_EQ(series->values[i], values[i]) << name << " " << steps[i];
    }
  }
}

TEST(ReadMetrics, MegatronWithARestartAndACutEnd) {
  const MetricsLog log = read_fixture("megatron_restart.log");
  EXPECT_EQ(log.format, "Megatron-LM console log");
  expect_series(log, "lm loss", {1, 2, 3, 4, 5}, {9.25, 9.125, 8.75, 8.625, 8.375});
  expect_series(log, "grad norm", {1, 2, 3, 4, 5}, {17.25, 16.5, 15.5, 14.75, 13.875});
  expect_series(log, "validation lm loss value", {2}, {9.0625});
  expect_series(log, "learning rate", {1, 2, 3, 4, 5, 6}, {1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5});
  EXPECT_EQ(log.restarts, 1);
  EXPECT_EQ(log.repeated_steps, 2);
  EXPECT_EQ(log.conflicts, 0);
  EXPECT_EQ(log.unreadable, 1);
  ASSERT_EQ(log.examples.size(), 1U);
  EXPECT_EQ(log.examples[0].number, log.lines);
  EXPECT_EQ(log.examples[0].text, " lm loss: 8.12");
  EXPECT_EQ(log.ranks, 0);
}

TEST(ReadMetrics, MegatronWithInterleavedRanks) {
  const MetricsLog log = read_fixture("megatron_ranks.log");
  EXPECT_EQ(log.format, "Megatron-LM console log");
  // Rank 0's last line was overwritten in the middle, so rank 1 has more values.
  EXPECT_EQ(log.ranks, 2);
  EXPECT_EQ(log.rank, 1);
  expect_series(log, "lm loss", {10, 20, 40}, {7.5, 7.3125, 7.125});
  expect_series(log, "grad norm", {10, 20, 30, 40}, {2.5, 2.375, kNan, kInfinity});
  expect_series(log, "number of nan iterations", {10, 20, 30, 40}, {0, 0, 1, 0});
  expect_series(log, "elapsed time per iteration (ms)", {10, 20, 30, 40}, {213, 214, 212.6, 212});
  EXPECT_EQ(log.rank_conflicts, 1);  // the loss of step 20
  EXPECT_EQ(log.unreadable, 1);
  EXPECT_EQ(log.restarts, 0);
}

TEST(ReadMetrics, MegatronGoldenValues) {
  const MetricsLog log = read_fixture("megatron_golden.json");
  EXPECT_EQ(log.format, "Megatron-LM golden values");
  expect_series(log, "lm loss", {1, 6, 11, 16}, {10.5, 10.25, 9.87513, kNan});
  expect_series(log, "num-zeros", {1, 6, 11, 16}, {120, 118, 131, 97});
  EXPECT_NEAR(log.find("lm loss")->resolution.unit_at(10), 1e-5, 1e-12);
}

TEST(ReadMetrics, MegatronGoldenValuesInTheirOlderForm) {
  const MetricsLog log = read_fixture("megatron_golden_list.json");
  EXPECT_EQ(log.format, "Megatron-LM golden values");
  expect_series(log, "lm loss", {0, 10, 20, 30}, {10.5, 10.24999, 9.875, 9.5});
}

TEST(ReadMetrics, VerlConsoleWithColoursAndACutEnd) {
  const MetricsLog log = read_fixture("verl_console.log");
  EXPECT_EQ(log.format, "verl console log");
  expect_series(log, "val-core/math/acc/mean@1", {0}, {0.125});
  expect_series(log, "actor/pg_loss", {1, 2, 3}, {0.0625, 0.03125, 0.015625});
  expect_series(log, "actor/grad_norm", {1, 2}, {0.5, 0.75});
  expect_series(log, "critic/score/mean", {1, 2}, {-0.25, 0});
  EXPECT_EQ(log.unreadable, 1);
}

TEST(ReadMetrics, VerlConsolePlain) {
  const MetricsLog log = read_fixture("verl_console_plain.log");
  EXPECT_EQ(log.format, "verl console log");
  expect_series(log, "train/loss", {1, 2, 3}, {2.125, 2.0, -0.5});
  expect_series(log, "train/grad_norm", {1, 2, 3}, {1.5, kInfinity, 1.25});
  expect_series(log, "train/lr(1e-3)", {1, 2, 3}, {0.001, 0.001, 0.001});
  expect_series(log, "val/loss", {3}, {2.25});
  EXPECT_EQ(log.unreadable, 0);
}

TEST(ReadMetrics, VerlFileLogger) {
  const MetricsLog log = read_fixture("verl_file.jsonl");
  EXPECT_EQ(log.format, "JSON lines");
  expect_series(log, "actor/pg_loss", {1, 2, 3}, {0.0625, kNan, 0.015625});
  expect_series(log, "actor/grad_norm", {1, 2, 3}, {0.5, 0.75, 0.875});
  EXPECT_EQ(log.find("note"), nullptr);
  EXPECT_EQ(log.unreadable, 0);
}

TEST(ReadMetrics, VerlFileLoggerCut) {
  const MetricsLog log = read_fixture("verl_file_cut.jsonl");
  expect_series(log, "actor/pg_loss", {1, 2}, {0.0625, 0.03125});
  EXPECT_EQ(log.unreadable, 1);
  ASSERT_EQ(log.examples.size(), 1U);
  EXPECT_EQ(log.examples[0].why, "the last line of the file is cut");
}

TEST(ReadMetrics, NemoStepLines) {
  const MetricsLog log = read_fixture("nemo_training.log");
  EXPECT_EQ(log.format, "NeMo step log");
  expect_series(log, "reduced_train_loss", {0, 1, 2, 3}, {11.02, 9.761, 9.21, kNan});
  expect_series(log, "val_loss", {2, 3}, {9.5, 9.5});
  // Four significant digits, trailing zeros left away.
  EXPECT_NEAR(log.find("reduced_train_loss")->resolution.unit_at(11.02), 0.01, 1e-9);
  EXPECT_NEAR(log.find("reduced_train_loss")->resolution.unit_at(9.21), 0.001, 1e-9);
}

TEST(ReadMetrics, NemoProgressBar) {
  const MetricsLog log = read_fixture("nemo_bar.log");
  EXPECT_EQ(log.format, "NeMo step log");
  expect_series(log, "reduced_train_loss", {0, 1, 2}, {10.5, 10.2, 9.9});
  expect_series(log, "consumed_samples", {0, 1, 2}, {4, 8, 12});
  EXPECT_EQ(log.conflicts, 0);
  EXPECT_EQ(log.unreadable, 0);
}

TEST(ReadMetrics, AutomodelStepLines) {
  const MetricsLog log = read_fixture("automodel.log");
  EXPECT_EQ(log.format, "NeMo step log");
  expect_series(log, "loss", {1, 2, 3, 4}, {2.5, 2.375, 2.25, 2.125});
  expect_series(log, "grad_norm", {1, 2, 3, 4}, {8.25, 7.5, 7.25, 7.0});
  expect_series(log, "num_label_tokens", {1, 2, 3, 4}, {21541, 29550, 19744, 25355});
  expect_series(log, "mem", {1, 2, 3, 4}, {24.9, 29.67, 24.46, 24.46});
  expect_series(log, "val loss", {2}, {2.4375});
  expect_series(log, "val chat loss", {2}, {2.625});
  EXPECT_EQ(log.repeated_steps, 1);
}

TEST(ReadMetrics, AutomodelTrainingJson) {
  const MetricsLog log = read_fixture("automodel_training.jsonl");
  EXPECT_EQ(log.format, "JSON lines");
  expect_series(log, "loss", {1, 2, 3}, {2.5, kNan, 2.25});
  expect_series(log, "grad_norm", {1, 2, 3}, {8.25, kInfinity, 7.25});
  EXPECT_EQ(log.find("timestamp"), nullptr);
}

TEST(ReadMetrics, Tables) {
  const MetricsLog log = read_fixture("table.csv");
  EXPECT_EQ(log.format, "CSV table");
  expect_series(log, "lm loss", {1, 2, 3}, {4.5, 4.25, kNan});
  expect_series(log, "grad norm, pre-clip", {1, 2}, {2.25, 2.5});
  EXPECT_EQ(log.find("comment"), nullptr);

  const MetricsLog wandb = read_fixture("wandb.csv");
  expect_series(wandb, "run-a - train/loss", {0, 1, 4}, {6.5, 6.25, 5.875});
  expect_series(wandb, "run-a - train/loss__MIN", {0, 1, 3}, {6.5, 6.25, 6.0});
  EXPECT_EQ(wandb.unreadable, 2);  // the short row, and the cut end
}

TEST(ReadMetrics, TensorBoardFloats) {
  const MetricsLog log = read_fixture("events.out.tfevents.1");
  EXPECT_EQ(log.format, "TensorBoard events");
  expect_series(log, "lm_loss", {1, 2, 3, 4, 5}, {9.5, 9.25, 9.0, 8.75, 8.5});
  expect_series(log, "grad-norm", {1, 2, 3, 4, 5}, {4.25, 4.0, kNan, 3.5, 3.25});
  EXPECT_EQ(log.unreadable, 0);
  ASSERT_NE(log.find("lm_loss"), nullptr);
  EXPECT_EQ(log.find("lm_loss")->resolution.unit_at(1.0), 0x1p-23);
}

TEST(ReadMetrics, TensorBoardTensorsAndACutEnd) {
  const MetricsLog log = read_fixture("events.out.tfevents.2");
  expect_series(log, "lm loss", {1, 2, 3}, {9.5, 9.25, 9.0});
  expect_series(log, "grad-norm", {1, 2, 3}, {4.25, 4.0, 3.75});
  EXPECT_EQ(log.find("text"), nullptr);
  EXPECT_EQ(log.find("many"), nullptr);
  EXPECT_EQ(log.unreadable, 1);
}

TEST(ReadMetrics, TensorBoardBytesThatAreDamaged) {
  std::string bytes =
      read_file(std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/events.out.tfevents.1");
  const std::size_t tag = bytes.find("lm_loss");
  ASSERT_NE(tag, std::string::npos);
  bytes[tag] ^= 1;
  const MetricsLog log = parse_metrics(bytes, "damaged");
  EXPECT_EQ(log.unreadable, 1);
  expect_series(log, "lm_loss", {2, 3, 4, 5}, {9.25, 9.0, 8.75, 8.5});
}

TEST(ReadMetrics, AFolderOfEventFiles) {
  const ScratchFolder folder;
  const std::string logs = std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/";
  folder.file("run/events.out.tfevents.1", read_file(logs + "events.out.tfevents.1"));
  folder.file("run/events.out.tfevents.2", read_file(logs + "events.out.tfevents.2"));
  const MetricsLog log = read_metrics(folder.path() + "/run");
  // The second file is the later run: its steps count.
  expect_series(log, "grad-norm", {1, 2, 3, 4, 5}, {4.25, 4.0, 3.75, 3.5, 3.25});
  EXPECT_EQ(log.restarts, 1);
  EXPECT_THROW(read_metrics(folder.path()), InvalidInput);
}

TEST(ReadMetrics, PatternsForAnythingElse) {
  const std::string path = std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/odd.log";
  EXPECT_THROW(read_metrics(path), InvalidInput);
  const MetricsLog log =
      read_metrics(path, {parse_metric_pattern("step=step ([0-9]+)"),
                          parse_metric_pattern("loss,grad_norm=loss=(\\S+) gn=(\\S+)")});
  EXPECT_EQ(log.format, "text, by --map");
  expect_series(log, "loss", {1, 2}, {3.5, 3.25});
  expect_series(log, "grad_norm", {1, 2}, {1.25, 1.0});  // the last line of step 2 counts
  EXPECT_EQ(log.unreadable, 1);
  // Without a pattern for the step, matching lines are counted.
  const MetricsLog counted = read_metrics(path, {parse_metric_pattern("gn=gn=(\\S+)")});
  expect_series(counted, "gn", {1, 2, 3}, {1.25, kNan, 1.0});
  // A known format that no pattern matches keeps its reader.
  EXPECT_EQ(read_metrics(std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/automodel.log",
                         {parse_metric_pattern("gn=gn=(\\S+)")})
                .format,
            "NeMo step log");
}

TEST(ReadMetrics, PatternsThatAreRefused) {
  for (const char* text : {"loss", "=x", "loss=(", "loss=x", "loss=(x)(y)", "a,,b=(x)(y)(z)"}) {
    EXPECT_THROW(parse_metric_pattern(text), InvalidInput) << text;
  }
}

TEST(ReadMetrics, NothingToReadIsAnError) {
  for (const char* text :
       {"", "\n\n", "hello\nworld\n", "{}", "{\"values\": 1}", "a,b\n", "1,2\n3,4\n"}) {
    EXPECT_THROW(parse_metrics(text, "x"), InvalidInput) << text;
  }
}

TEST(ReadMetrics, ALongPreambleIsPassed) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "loading shard of the dataset ...\n";
  text += " iteration 7/ 9 | lm loss: 1.5E+00 |\n";
  expect_series(parse_metrics(text, "x"), "lm loss", {7}, {1.5});
}

TEST(ReadMetrics, EveryPrefixOfALogIsReadAsFarAsItGoes) {
  const std::string text =
      read_file(std::string(DYNCP_SOURCE_DIR) + "/fixtures/logs/megatron_restart.log");
  const Series whole = *parse_metrics(text, "x").find("lm loss");
  const std::size_t first = text.find("| lm loss: 9.25");
  ASSERT_NE(first, std::string::npos);
  for (std::size_t length = first + 30; length < text.size(); length += 7) {
    const MetricsLog log = parse_metrics(text.substr(0, length), "x");
    const Series* series = log.find("lm loss");
    ASSERT_NE(series, nullptr) << length;
    // Values seen before the crash at step 4 are there until the restart replaces them.
    for (std::size_t i = 0; i < series->size(); ++i) {
      const double value = series->values[i];
      const bool before = value == 8.5 || value == 8.0;
      EXPECT_TRUE(before || value == whole.values[i]) << length << " " << value;
    }
  }
}

TEST(ReadMetrics, RanksAreRecognisedByTheirPrefixes) {
  const std::string record = "iteration 1/ 2 | lm loss: 1.5E+00 |\n";
  for (const auto& [prefix, rank] :
       std::vector<std::pair<std::string, int>>{{"[rank12]: ", 12},
                                                {"[default3]: [2031-02-03 04:05:06] ", 3},
                                                {"7: ", 7},
                                                {"[1,5]<stdout>: ", 5},
                                                {"[Rank 9 | Local Rank 1] INFO ", 9},
                                                {"", -1},
                                                {" [2031-02-03 04:05:06] ", -1},
                                                {"12:30:01 ", -1},
                                                {"(Worker pid=44) ", -1}}) {
    EXPECT_EQ(parse_metrics(prefix + record, "x").rank, rank) << prefix;
  }
}

TEST(ReadMetrics, TheSameStepTwiceInARowWithOtherValuesIsAConflict) {
  const MetricsLog log = parse_metrics(
      "iteration 1/ 2 | lm loss: 1.5E+00 |\niteration 1/ 2 | lm loss: 1.25E+00 |\n"
      "iteration 2/ 2 | lm loss: 1.0E+00 |\niteration 2/ 2 | lm loss: 1.0E+00 |\n",
      "x");
  EXPECT_EQ(log.conflicts, 1);
  EXPECT_EQ(log.repeated_steps, 2);
  expect_series(log, "lm loss", {1, 2}, {1.25, 1.0});
}

TEST(ReadMetrics, OurOwnLines) {
  const MetricsLog log =
      parse_metrics(R"({"step":1,"loss":2.5,"tokens":100,"grad_norm":0.5,"learning_rate":0.001,)"
                    R"("parameter_norms":{"head":1.5,"embedding":2.5},"cp_sizes":{"1":3,"4":1}})"
                    "\n",
                    "x");
  EXPECT_EQ(log.format, "JSON lines");
  expect_series(log, "loss", {1}, {2.5});
  expect_series(log, "parameter_norms/head", {1}, {1.5});
  expect_series(log, "cp_sizes/4", {1}, {1});
}

TEST(MetricNames, SpellingsOfOneThing) {
  for (const char* name : {"lm loss", "loss", "reduced_train_loss", "train/loss", "train_loss"}) {
    EXPECT_EQ(canonical_metric(name), "loss") << name;
  }
  for (const char* name : {"grad norm", "grad-norm", "grad_norm", "train/grad_norm"}) {
    EXPECT_EQ(canonical_metric(name), "grad_norm") << name;
  }
  EXPECT_EQ(canonical_metric("learning rate"), canonical_metric("learning-rate"));
  EXPECT_EQ(metric_role("actor/grad_norm"), MetricRole::kGradientNorm);
  EXPECT_EQ(metric_role("grad_norm_clipped"), MetricRole::kClippedNorm);
  EXPECT_EQ(metric_role("grad norm, pre-clip"), MetricRole::kGradientNorm);
  EXPECT_EQ(metric_role("loss scale"), MetricRole::kSetting);
  EXPECT_EQ(metric_role("loss-scale"), MetricRole::kSetting);
  EXPECT_EQ(metric_role("lm loss vs samples"), MetricRole::kTiming);
  EXPECT_EQ(metric_role("elapsed time per iteration (ms)"), MetricRole::kTiming);
  EXPECT_EQ(metric_role("num_label_tokens"), MetricRole::kTokens);
  EXPECT_EQ(metric_role("consumed tokens"), MetricRole::kSetting);
  EXPECT_EQ(metric_role("mtp_1 loss"), MetricRole::kLoss);
  EXPECT_EQ(metric_role("validation lm loss value"), MetricRole::kLoss);
  EXPECT_EQ(metric_role("parameter_norms/head"), MetricRole::kParameterNorm);
  EXPECT_EQ(metric_role("cp_sizes/4"), MetricRole::kSetting);
  EXPECT_EQ(metric_role("num zeros"), MetricRole::kOther);
}

}  // namespace
}  // namespace dyncp
