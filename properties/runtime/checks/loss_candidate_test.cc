// The judge of recorded losses: right records pass in float32 and float64, whole or by rank, in any
// storage; every common mistake is refused by the right check and called by its name.
#include "runtime/checks/loss_candidate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "fixtures/wrong/normalisation.h"
#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"

namespace dyncp {
namespace {

constexpr int kSize = 4;

Problem problem_of(std::vector<std::int64_t> lengths, int cp = kSize) {
  Problem problem;
  problem.driver = "loss";
  problem.lengths = std::move(lengths);
  problem.cp = cp;
  return problem;
}

const Problem kProblem = problem_of({13, 1, 0, 30, 7});

NamedTensor tensor_of(const std::string& dtype, std::vector<std::int64_t> shape,
                      std::vector<double> values) {
  return {dtype, std::move(shape), std::move(values)};
}

NamedTensor scalar(double value, const std::string& dtype = "F64") { return {dtype, {}, {value}}; }

template <typename T>
std::vector<double> doubles(const std::vector<T>& values) {
  return std::vector<double>(values.begin(), values.end());
}

// What a candidate holds before it writes its file.
struct Record {
  Pack pack;
  std::vector<std::int64_t> tokens;
  LossTargets targets;
  Tensor<double> logits;
};

// NaN logits in padding; masks of about half of the real tokens.
Record make_record(const Problem& problem, int vocabulary, double scale = 4,
                   const std::string& mask = "random") {
  std::mt19937_64 random(7);
  Record record;
  record.pack = problem.pack();
  const std::int64_t rows = record.pack.padded_tokens();
  record.logits = Tensor<double>(rows, 1, vocabulary, std::numeric_limits<double>::quiet_NaN());
  record.targets.mask.assign(static_cast<std::size_t>(rows), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    record.tokens.push_back(
        static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary)));
  }
  record.targets.labels = shift_labels(record.pack, record.tokens);
  for (int s = 0; s < record.pack.sequences(); ++s) {
    for (std::int64_t j = 0; j < record.pack.real_length(s); ++j) {
      const std::int64_t row = record.pack.first_row(s) + j;
      if (mask == "all" || (mask == "random" && random() % 3 != 0)) {
        record.targets.mask[static_cast<std::size_t>(row)] = 1;
      }
      for (int v = 0; v < vocabulary; ++v) {
        // Values that every storage type holds exactly.
        record.logits.at(row, 0, v) =
            scale / 64 * static_cast<double>(static_cast<std::int64_t>(random() % 129) - 64);
      }
    }
  }
  return record;
}

std::vector<RankLoss> rank_losses(const Record& record, int size) {
  std::vector<RankLoss> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const auto rows = zigzag_rows(record.pack, size, rank);
    const LossTargets targets{gather(record.targets.labels, rows),
                              gather(record.targets.mask, rows)};
    ranks.push_back({loss_sum(gather(record.logits, rows), targets), {}});
  }
  return ranks;
}

// A right file of the whole pack, or of the rows of one rank.
Safetensors file_of(const Record& record, const std::string& dtype = "F64",
                    std::optional<int> rank = {}, int size = kSize,
                    const std::string& gradient = "sum") {
  Record part = record;
  if (rank) {
    const auto rows = zigzag_rows(record.pack, size, *rank);
    part.tokens = gather(record.tokens, rows);
    part.targets = {gather(record.targets.labels, rows), gather(record.targets.mask, rows)};
    part.logits = gather(record.logits, rows);
  }
  const std::int64_t rows = part.logits.rows;
  const std::int64_t vocabulary = part.logits.dim;
  const LossSum total = loss_sum(part.logits, part.targets);
  Tensor<double> grad = loss_gradient(part.logits, part.targets);
  if (gradient == "mean") {
    for (double& g : grad.data) g /= static_cast<double>(std::max<std::int64_t>(1, total.tokens));
  }
  Safetensors file;
  file.tensors["logits"] = tensor_of(dtype, {rows, vocabulary}, part.logits.data);
  file.tensors["loss_per_token"] =
      tensor_of(dtype, {1, rows}, token_losses(part.logits, part.targets));
  file.tensors["labels"] = tensor_of("I64", {rows}, doubles(part.targets.labels));
  file.tensors["mask"] = tensor_of("BOOL", {rows}, doubles(part.targets.mask));
  file.tensors["token_ids"] = tensor_of("I32", {rows}, doubles(part.tokens));
  file.tensors["tokens"] = scalar(static_cast<double>(total.tokens), "I64");
  file.tensors["loss_sum"] = scalar(total.sum, dtype);
  file.tensors["loss"] = scalar(reported_loss(total), dtype);
  file.tensors["grad_logits"] = tensor_of(dtype, {rows, 1, vocabulary}, grad.data);
  return parse_safetensors(serialize_safetensors(file));  // rounds to the dtype
}

const Record kRecord = make_record(kProblem, 11);

void expect_finding(const CaseResult& result, const std::string& check, const std::string& text) {
  EXPECT_EQ(result.status(), Status::kFailed);
  const bool found =
      std::any_of(result.findings().begin(), result.findings().end(), [&](const Finding& finding) {
        return finding.check == check && finding.message.find(text) != std::string::npos;
      });
  std::string all;
  for (const Finding& finding : result.findings())
    all += finding.check + ": " + finding.message + "\n";
  EXPECT_TRUE(found) << "expected " << check << " with '" << text << "', found:\n" << all;
  EXPECT_EQ(all.find("\n\n"), std::string::npos);
}

CaseResult judge(const Safetensors& file, std::optional<int> rank = {}) {
  return judge_loss(kProblem, rank, file);
}

// The right file after `change`, which must be noticed by `check` with `text`.
void expect_noticed(const std::function<void(Safetensors&)>& change, const std::string& check,
                    const std::string& text, std::optional<int> rank = {}) {
  Safetensors file = file_of(kRecord, "F64", rank);
  change(file);
  expect_finding(judge(file, rank), check, text);
}

void scale(NamedTensor& tensor, double factor) {
  for (double& value : tensor.values) value *= factor;
}

TEST(LossCandidate, RightRecordsPassInEveryStorage) {
  for (const char* dtype : {"F64", "F32", "F16", "BF16"}) {
    for (const char* gradient : {"sum", "mean"}) {
      const CaseResult whole = judge(file_of(kRecord, dtype, {}, kSize, gradient));
      EXPECT_EQ(whole.status(), Status::kPassed) << dtype << ": " << whole.reason();
      for (const char* check : {"loss.inert", "loss.labels", "loss.token_losses", "loss.tokens",
                                "loss.sum", "loss.mean", "loss.gradient"}) {
        const auto& ran = whole.checks_run();
        EXPECT_NE(std::find(ran.begin(), ran.end(), check), ran.end()) << check;
      }
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const CaseResult part = judge(file_of(kRecord, dtype, rank), rank);
      EXPECT_EQ(part.status(), Status::kPassed) << dtype << " " << rank << ": " << part.reason();
    }
  }
}

// The same file with every tensor stacked by rank, as ranks dump them.
Safetensors stacked(const Safetensors& file, const Pack& pack, int size) {
  Safetensors result = file;
  for (auto& [name, tensor] : result.tensors) {
    if (tensor.values.size() == 1) continue;
    const auto rows = static_cast<std::size_t>(pack.padded_tokens());
    const std::size_t width = tensor.values.size() / rows;
    std::vector<double> values;
    for (int rank = 0; rank < size; ++rank) {
      for (std::int64_t row : zigzag_rows(pack, size, rank)) {
        for (std::size_t v = 0; v < width; ++v) {
          values.push_back(tensor.values[static_cast<std::size_t>(row) * width + v]);
        }
      }
    }
    tensor.values = values;
    tensor.shape = {size, 1, static_cast<std::int64_t>(rows) / size};
    if (name == "logits" || name == "grad_logits") {
      tensor.shape.push_back(static_cast<std::int64_t>(width));
    }
  }
  return result;
}

TEST(LossCandidate, TensorsStackedByRankAreTheSame) {
  Safetensors file = stacked(file_of(kRecord), kRecord.pack, kSize);
  EXPECT_EQ(judge(file).status(), Status::kPassed) << judge(file).reason();
  // Stacked in another order of ranks they are not.
  auto& losses = file.tensors["loss_per_token"].values;
  std::rotate(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(losses.size() / kSize),
              losses.end());
  expect_finding(judge(file), "loss.token_losses", "token losses are wrong");
}

TEST(LossCandidate, ScalarsOfEachRankAreJudgedByRank) {
  const std::vector<RankLoss> ranks = rank_losses(kRecord, kSize);
  const ReducedLoss reduced = reduce_loss(ranks);
  std::vector<double> tokens, sums, means(kSize, reduced.loss);
  for (const RankLoss& rank : ranks) {
    tokens.push_back(static_cast<double>(rank.loss.tokens));
    sums.push_back(rank.loss.sum);
  }
  Safetensors right = file_of(kRecord);
  right.tensors["tokens"] = tensor_of("I64", {kSize}, tokens);
  right.tensors["loss_sum"] = tensor_of("F64", {kSize}, sums);
  right.tensors["loss"] = tensor_of("F64", {kSize, 1}, means);
  EXPECT_EQ(judge(right).status(), Status::kPassed) << judge(right).reason();

  Safetensors file = right;
  file.tensors["tokens"].values.assign(kSize, static_cast<double>(reduced.tokens));
  expect_finding(judge(file), "loss.tokens", "on rank 2, expected");
  expect_finding(judge(file), "loss.tokens", "the count of all ranks");
  file = right;
  file.tensors["loss"].values[3] = reported_loss(ranks[3].loss);
  expect_finding(judge(file), "loss.mean", "the own mean of rank 3");
  file = right;
  file.tensors["loss_sum"].values[1] *= 4;
  expect_finding(judge(file), "loss.sum", "on rank 1");
}

TEST(LossCandidate, OddGroupsAndOtherPaddingPass) {
  for (int cp : {2, 3, 5, 8}) {
    Problem problem = problem_of({3, 2 * cp - 1, 2 * cp + 1, 0, 29}, cp);
    problem.padded = {4 * cp, 2 * cp, 6 * cp, 2 * cp, 30 * cp};
    const Record record = make_record(problem, 5);
    const CaseResult result = judge_loss(problem, {}, file_of(record));
    EXPECT_EQ(result.status(), Status::kPassed) << result.reason();
  }
}

// A candidate that computes everything in float, term after term: the worst usual arithmetic.
Safetensors float_file_of(const Record& record) {
  Safetensors file = file_of(record, "F32");
  auto& losses = file.tensors["loss_per_token"].values;
  auto& gradient = file.tensors["grad_logits"].values;
  float sum = 0;
  std::int64_t tokens = 0;
  for (std::int64_t row = 0; row < record.logits.rows; ++row) {
    if (!record.targets.counts(row)) continue;
    const auto r = static_cast<std::size_t>(row);
    const double* x = record.logits.data.data() + record.logits.offset(row, 0, 0);
    const auto maximum = static_cast<float>(*std::max_element(x, x + record.logits.dim));
    float exponentials = 0;
    for (int v = 0; v < record.logits.dim; ++v) {
      exponentials += std::exp(static_cast<float>(x[v]) - maximum);
    }
    const float lse = maximum + std::log(exponentials);
    const float loss = lse - static_cast<float>(x[record.targets.labels[r]]);
    losses[r] = loss;
    sum += loss;
    ++tokens;
    for (int v = 0; v < record.logits.dim; ++v) {
      float p = std::exp(static_cast<float>(x[v]) - lse);
      if (v == record.targets.labels[r]) p -= 1;
      gradient[record.logits.offset(row, 0, v)] = p;
    }
  }
  file.tensors["loss_sum"] = scalar(sum, "F32");
  file.tensors["loss"] = scalar(sum / static_cast<float>(tokens), "F32");
  return file;
}

TEST(LossCandidate, FloatArithmeticIsWithinTheBounds) {
  struct Shape {
    std::vector<std::int64_t> lengths;
    int vocabulary;
    double scale;
  };
  // Nearly equal logits and many classes: roundoff of the sum. Large ones: roundoff of exp.
  for (const Shape& shape : {Shape{kProblem.lengths, 3000, 1.0},
                             Shape{kProblem.lengths, 3000, 30.0}, Shape{{5}, 200000, 0.0625}}) {
    const Problem problem = problem_of(shape.lengths, 2);
    const Record record = make_record(problem, shape.vocabulary, shape.scale, "all");
    Safetensors file = float_file_of(record);
    const CaseResult result = judge_loss(problem, {}, file);
    EXPECT_EQ(result.status(), Status::kPassed) << result.reason();
    // The same record is too coarse for float64, and one part in 2000 is noticed even in float32.
    file.metadata["compute"] = "float64";
    EXPECT_EQ(judge_loss(problem, {}, file).status(), Status::kFailed);
    file.metadata.clear();
    scale(file.tensors["loss"], 1.0005);
    expect_finding(judge_loss(problem, {}, file), "loss.mean", "expected");
  }
}

TEST(LossCandidate, ScalesAreNamed) {
  const LossSum total = loss_sum(kRecord.logits, kRecord.targets);
  const auto mean = [](auto reduce) {
    return [reduce](Safetensors& file) {
      file.tensors["loss"] = scalar(reduce(rank_losses(kRecord, kSize)).loss);
    };
  };
  expect_noticed(mean(wrong::reported_scaled_like_backward), "loss.mean",
                 "the loss scaled by the CP size, 4");
  expect_noticed(mean(wrong::local_mean), "loss.mean", "the mean of the ranks' own means");
  expect_noticed(mean(wrong::tokens_not_reduced), "loss.mean", "the sum of the ranks' own means");
  expect_noticed(mean(wrong::tokens_counted_twice), "loss.mean", "divided by the CP size");
  expect_noticed([&](Safetensors& f) { f.tensors["loss"] = scalar(total.sum); }, "loss.mean",
                 "the sum over tokens, not divided");
  expect_noticed([&](Safetensors& f) { scale(f.tensors["loss"], 1 / std::log(2.0)); }, "loss.mean",
                 "base 2");
  expect_noticed([&](Safetensors& f) { scale(f.tensors["loss_sum"], 4); }, "loss.sum",
                 "scaled by the CP size");
  expect_noticed([&](Safetensors& f) { scale(f.tensors["loss_per_token"], 4); },
                 "loss.token_losses", "scaled by the CP size");
  expect_noticed([&](Safetensors& f) { scale(f.tensors["loss"], 1 + 1e-9); }, "loss.mean",
                 "expected");
}

TEST(LossCandidate, CountsAreNamed) {
  const double tokens = static_cast<double>(loss_sum(kRecord.logits, kRecord.targets).tokens);
  const auto count = [](double value) {
    return [value](Safetensors& file) { file.tensors["tokens"] = scalar(value, "I64"); };
  };
  expect_noticed(count(tokens * kSize), "loss.tokens", "once for every rank");
  expect_noticed(count(tokens * 2), "loss.tokens", "counted twice");
  expect_noticed(count(static_cast<double>(kRecord.pack.padded_tokens())), "loss.tokens",
                 "padding included");
  expect_noticed(count(tokens + 1), "loss.tokens", "expected");
  expect_noticed(count(tokens - 1), "loss.tokens", "expected", 1);
}

TEST(LossCandidate, EmptyShardNanIsNamed) {
  Problem problem = problem_of({3});  // two labels: ranks 2 and 3 have none
  const Record record = make_record(problem, 7, 4, "all");
  Safetensors file = file_of(record);
  const double loss = wrong::empty_shard_nan(rank_losses(record, kSize)).loss;
  ASSERT_TRUE(std::isnan(loss));
  file.tensors["loss"] = scalar(loss);
  expect_finding(judge_loss(problem, {}, file), "loss.mean", "0/0 on rank 2");
}

TEST(LossCandidate, GradientScalesAreNamed) {
  const auto gradient = [](double factor) {
    return [factor](Safetensors& file) {
      file.metadata["gradient"] = "sum";
      scale(file.tensors["grad_logits"], factor);
    };
  };
  expect_noticed(gradient(4), "loss.gradient", "a loss scaled by the CP size, 4");
  expect_noticed(gradient(0.25), "loss.gradient", "averaged over CP");
  expect_noticed(gradient(4), "loss.gradient", "a loss scaled by the CP size, 4", 2);
  expect_noticed(gradient(-1), "loss.gradient", "wrong sign");
  expect_noticed(gradient(std::numeric_limits<double>::quiet_NaN()), "loss.gradient", "not finite");
  // Without metadata too: four times either gradient is neither.
  expect_noticed([&](Safetensors& f) { scale(f.tensors["grad_logits"], 4); }, "loss.gradient",
                 "a loss scaled by the CP size, 4");
  expect_noticed(
      [&](Safetensors& f) {
        f = file_of(kRecord, "F64", {}, kSize, "mean");
        scale(f.tensors["grad_logits"], 4);
      },
      "loss.gradient", "a loss scaled by the CP size, 4");
}

TEST(LossCandidate, LocalMeansAreSeenInTheGradient) {
  const std::vector<RankLoss> ranks = rank_losses(kRecord, kSize);
  for (bool averaged : {true, false}) {
    Safetensors file = file_of(kRecord);
    auto& gradient = file.tensors["grad_logits"].values;
    for (int rank = 0; rank < kSize; ++rank) {
      const auto tokens = ranks[static_cast<std::size_t>(rank)].loss.tokens;
      for (std::int64_t row : zigzag_rows(kRecord.pack, kSize, rank)) {
        for (int v = 0; v < kRecord.logits.dim; ++v) {
          gradient[kRecord.logits.offset(row, 0, v)] /=
              static_cast<double>(std::max<std::int64_t>(tokens, 1)) * (averaged ? kSize : 1);
        }
      }
    }
    expect_finding(
        judge(file), "loss.gradient",
        averaged ? "the mean of the ranks' own means" : "the sum of the ranks' own means");
  }
}

TEST(LossCandidate, OneWrongRowIsNamed) {
  const auto rows = zigzag_rows(kRecord.pack, kSize, 2);
  // A row of rank 2 that counts.
  const std::int64_t row = *std::find_if(rows.begin(), rows.end(),
                                         [](std::int64_t r) { return kRecord.targets.counts(r); });
  const std::string name = "row " + std::to_string(row) + " (rank 2";
  expect_noticed(
      [&](Safetensors& f) {
        f.tensors["loss_per_token"].values[static_cast<std::size_t>(row)] += 1e-9;
      },
      "loss.token_losses", name);
  expect_noticed(
      [&](Safetensors& f) {
        f.tensors["grad_logits"].values[kRecord.logits.offset(row, 0, 3)] += 1e-9;
      },
      "loss.gradient", name);
  expect_noticed(
      [&](Safetensors& f) {
        f.tensors["loss_per_token"].values[static_cast<std::size_t>(row)] =
            std::numeric_limits<double>::quiet_NaN();
      },
      "loss.token_losses", name);
}

TEST(LossCandidate, RowsThatDoNotCountMustHaveNoGradientAndPaddingMustNotCount) {
  const auto first_row = [](auto wanted) {
    std::int64_t row = 0;
    while (!wanted(row)) ++row;
    return row;
  };
  const std::int64_t real = kRecord.pack.real_length(0);  // sequence 0 starts at row 0
  const std::int64_t masked = first_row(
      [&](std::int64_t r) { return kRecord.targets.mask[static_cast<std::size_t>(r)] == 0; });
  ASSERT_LT(masked, real - 1);
  const auto leak = [](std::int64_t row, double value) {
    return [row, value](Safetensors& file) {
      file.tensors["grad_logits"].values[kRecord.logits.offset(row, 0, 1)] = value;
    };
  };
  expect_noticed(leak(masked, 1e-300), "loss.inert", "does not count (masked)");
  expect_noticed(leak(real, 0.5), "loss.inert", "does not count (padding)");
  expect_noticed(leak(real, std::numeric_limits<double>::quiet_NaN()), "loss.inert", "padding");
  expect_noticed(
      [&](Safetensors& f) {
        f.tensors["mask"].values[static_cast<std::size_t>(real)] = 1;
        f.tensors["labels"].values[static_cast<std::size_t>(real)] = 0;
        f.tensors.erase("logits");
        f.tensors.erase("grad_logits");
      },
      "loss.inert", "is padding but its mask is 1");
}

TEST(LossCandidate, WrongLabelsAreNamed) {
  const auto with_labels = [](const Record& record, const std::vector<std::int64_t>& labels) {
    Record other = record;
    other.targets.labels = labels;
    for (std::size_t r = 0; r < labels.size(); ++r) {
      if (record.targets.labels[r] == kIgnoreLabel) other.targets.labels[r] = kIgnoreLabel;
    }
    return other;
  };
  const Record record = make_record(kProblem, 11, 4, "all");
  std::vector<std::int64_t> rolled = record.targets.labels;
  for (int rank = 0; rank < kSize; ++rank) {
    const auto rows = zigzag_rows(record.pack, kSize, rank);
    const auto local = wrong::labels_rolled_after_slice(
        gather(record.tokens, rows), local_boundaries(record.pack, kSize),
        real_lengths_on_rank(record.pack, kSize, rank));
    for (std::size_t i = 0; i < rows.size(); ++i)
      rolled[static_cast<std::size_t>(rows[i])] = local[i];
  }
  expect_finding(judge(file_of(with_labels(record, rolled))), "loss.labels",
                 "rolled after slicing");
  expect_finding(judge(file_of(with_labels(record, record.tokens))), "loss.labels", "not shifted");

  // One rank's file: only the pattern at the chunk ends tells, and it needs several sequences.
  Problem many = problem_of({40, 41, 42, 43, 44, 45, 46, 47});
  const Record text = make_record(many, 101, 4, "all");
  EXPECT_EQ(judge_loss(many, 0, file_of(text, "F64", 0)).status(), Status::kPassed);
  const auto rows = zigzag_rows(text.pack, kSize, 0);
  Safetensors file = file_of(text, "F64", 0);
  const auto local = wrong::labels_rolled_after_slice(gather(text.tokens, rows),
                                                      local_boundaries(text.pack, kSize),
                                                      real_lengths_on_rank(text.pack, kSize, 0));
  file.tensors["labels"].values = doubles(local);
  expect_finding(judge_loss(many, 0, file), "loss.labels", "rolled after slicing");
}

TEST(LossCandidate, MistrustsWhatCannotFail) {
  const auto mistrusted = [](const CaseResult& result, const std::string& why) {
    EXPECT_EQ(result.status(), Status::kMistrusted) << result.reason();
    EXPECT_NE(result.reason().find(why), std::string::npos) << result.reason();
  };
  Safetensors nothing = file_of(kRecord);
  for (const char* name : {"tokens", "loss", "loss_sum", "grad_logits", "loss_per_token"}) {
    nothing.tensors.erase(name);
  }
  mistrusted(judge(nothing), "nothing to judge");
  mistrusted(judge(file_of(make_record(kProblem, 11, 4, "none"))), "no row of the file counts");
  mistrusted(judge(file_of(make_record(kProblem, 1, 4, "all"))), "every token loss is 0");
  const Problem alone = problem_of({13, 7}, 1);
  mistrusted(judge_loss(alone, {}, file_of(make_record(alone, 11), "F64", {}, 1)), "CP size 1");
  const Problem four = problem_of({5, 1, 0});
  mistrusted(judge_loss(four, {}, file_of(make_record(four, 11, 4, "all"))), "as many tokens");
}

// By way of the driver: the header says which rows the file holds.
TEST(LossCandidate, TheHeaderSaysWhoseRowsTheyAre) {
  for (const std::optional<int> rank : {std::optional<int>(), std::optional<int>(2)}) {
    Safetensors file = file_of(kRecord, "F32", rank);
    file.metadata["dyncp"] = candidate_header({.problem = kProblem, .rank = rank, .yarn = {}});
    file.metadata["gradient"] = "sum";
    const Problem problem = read_candidate(file).problem;
    EXPECT_EQ(loss_driver().judge(problem, file).status(), Status::kPassed);
    scale(file.tensors["grad_logits"], 4);
    expect_finding(loss_driver().judge(problem, file), "loss.gradient", "the CP size, 4");
    // Another rank's header: the same shapes, other rows.
    if (!rank) continue;
    file = file_of(kRecord, "F32", 1);
    file.metadata["dyncp"] = candidate_header({.problem = kProblem, .rank = 3, .yarn = {}});
    EXPECT_EQ(loss_driver().judge(problem, file).status(), Status::kFailed);
  }
}

TEST(LossCandidate, RefusesBadFilesByOneLine) {
  const auto refused = [](const std::function<void(Safetensors&)>& change,
                          const std::string& expected, std::optional<int> rank = {}) {
    Safetensors file = file_of(kRecord, "F64", rank);
    change(file);
    try {
      judge(file, rank);
      FAIL() << expected;
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  };
  refused([](Safetensors& f) { f.tensors.erase("labels"); }, "no tensor \"labels\"");
  refused([](Safetensors& f) { f.tensors.erase("mask"); }, "no tensor \"mask\"");
  refused(
      [](Safetensors& f) {
        f.tensors.erase("logits");
        f.tensors.erase("loss_per_token");
      },
      "neither logits nor loss_per_token");
  refused([](Safetensors& f) { f.tensors.erase("logits"); }, "without logits");
  refused(
      [](Safetensors& f) {
        f.tensors["mask"].values[0] = 2;
        f.tensors["mask"].dtype = "U8";
      },
      "expected 0 or 1");
  refused([](Safetensors& f) { f.tensors["labels"] = f.tensors["loss_per_token"]; }, "integers");
  refused(
      [](Safetensors& f) {
        f.tensors["labels"].values[0] = 1000;
        f.tensors["mask"].values[0] = 1;
      },
      "label of row 0");
  refused([](Safetensors& f) { f.tensors["loss"] = f.tensors["labels"]; }, "expected 1");
  refused([](Safetensors& f) { f.tensors["logits"].shape = {11, 80}; }, "vocabulary]");
  refused([](Safetensors& f) { f.tensors["logits"] = f.tensors["labels"]; }, "vocabulary]");
  refused([](Safetensors& f) { f.metadata["gradient"] = "total"; }, "metadata gradient");
  refused([](Safetensors& f) { f.metadata["compute"] = "tf32"; }, "metadata compute");
  refused([](Safetensors& f) { f.metadata["gradient"] = "mean"; }, "number of all tokens", 1);
  // The file of another rank has the right number of rows, that of the whole pack has not.
  EXPECT_THROW(judge(file_of(kRecord), 1), InvalidInput);
}

}  // namespace
}  // namespace dyncp
