// Reading recorded attention tensors: every accepted shape gives the same verdict, every other is
// refused in one clear line.
#include "runtime/attention_judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "properties/runtime/recording.h"
#include "reference/error.h"

namespace dyncp {
namespace {

const Pack kPack = Pack::padded_to({19, 7, 0, 1}, 8);

Recorded clean(int size = 4, Arithmetic arithmetic = Arithmetic::kBf16) {
  return record(kPack, size, arithmetic);
}

WriteOptions everything() {
  WriteOptions write;
  write.tensors = {"o", "lse", "dq", "dk", "dv"};
  return write;
}

std::string refusal(const Safetensors& file) {
  try {
    (void)judge_file(file);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AttentionJudge, CleanRecordingsPassInEveryShapeAndFormat) {
  for (Arithmetic arithmetic :
       {Arithmetic::kDouble, Arithmetic::kFloat, Arithmetic::kBf16, Arithmetic::kFp16}) {
    const Recorded recorded = clean(4, arithmetic);
    for (bool pack_order : {true, false}) {
      WriteOptions write = everything();
      write.pack_order = pack_order;
      const CaseResult result = judge_file(to_file(recorded, "ring", write));
      EXPECT_EQ(result.status(), Status::kPassed) << text_of(result);
      EXPECT_EQ(result.checks_run(),
                (std::vector<std::string>{"ring.lse_layout", "ring.o", "ring.lse",
                                          "ring.padding_zero", "ring.dq", "ring.dk", "ring.dv"}));
    }
    for (int rank = 0; rank < 4; ++rank) {
      WriteOptions write = everything();
      write.rank = rank;
      const CaseResult result = judge_file(to_file(recorded, "ring", write));
      EXPECT_EQ(result.status(), Status::kPassed) << text_of(result);
    }
    WriteOptions alone = everything();
    alone.rank = 0;
    const CaseResult one = judge_file(to_file(clean(1, arithmetic), "attention", alone));
    EXPECT_EQ(one.status(), Status::kPassed) << text_of(one);
  }
}

TEST(AttentionJudge, RoundedAccumulationPassesToo) {
  for (int size : {2, 4}) {
    for (Accumulation accumulation : {Accumulation::kRoundedPartials, Accumulation::kRounded}) {
      const Recorded recorded = record(Pack::padded_to({119, 7}, 8), size, Arithmetic::kBf16,
                                       {4, 2, 16, 16}, {}, accumulation);
      const CaseResult result = judge_file(to_file(recorded, "ring", everything()));
      EXPECT_EQ(result.status(), Status::kPassed) << text_of(result);
    }
  }
}

TEST(AttentionJudge, OptionsReachTheReference) {
  for (const AttentionOptions& options :
       {AttentionOptions{false, -1, 0, {}}, AttentionOptions{true, 3, 0, {}},
        AttentionOptions{true, -1, 0, {1, 0.5, -1, 0}}}) {
    const Recorded recorded = record(kPack, 2, Arithmetic::kFloat, {4, 2, 8, 4}, options);
    const CaseResult result = judge_file(to_file(recorded, "ring", everything()));
    EXPECT_EQ(result.status(), Status::kPassed) << text_of(result);
  }
}

TEST(AttentionJudge, OneRankNeedsOnlyItsQueriesForForwardAndDq) {
  WriteOptions write;
  write.rank = 2;
  write.tensors = {"o", "lse", "dq"};
  Safetensors file = to_file(clean(), "ring", write);
  EXPECT_EQ(file.tensors["q"].shape[0], 10);
  EXPECT_EQ(judge_file(file).status(), Status::kPassed) << text_of(judge_file(file));
  // The wrong rows of another rank are not looked at.
  file.tensors["o"].values[0] += 1;
  const CaseResult result = judge_file(file);
  EXPECT_EQ(result.findings().size(), 1U);
  EXPECT_NE(result.reason().find("sequence 0 position 6 (rank 2)"), std::string::npos)
      << result.reason();
}

TEST(AttentionJudge, WhatIsRecordedIsWhatIsChecked) {
  WriteOptions write;
  write.tensors = {"lse"};
  EXPECT_EQ(judge_file(to_file(clean(), "ring", write)).checks_run(),
            (std::vector<std::string>{"ring.lse_layout", "ring.lse"}));
  write.tensors = {"dv"};
  EXPECT_EQ(judge_file(to_file(clean(), "ring", write)).checks_run(),
            (std::vector<std::string>{"ring.padding_zero", "ring.dv"}));
}

TEST(AttentionJudge, MistrustsWhatCannotFail) {
  Recorded zero = clean();
  for (double& value : zero.input.v.data) value = 0;
  for (double& value : zero.result.output.o.data) value = 0;
  EXPECT_EQ(judge_file(to_file(zero, "ring")).status(), Status::kMistrusted);
  EXPECT_EQ(judge_file(to_file(record(Pack({{0, 8}}), 4, Arithmetic::kFloat), "ring")).status(),
            Status::kMistrusted);
  EXPECT_EQ(judge_file(to_file(record(Pack({{16, 16}}), 4, Arithmetic::kFloat), "ring")).status(),
            Status::kMistrusted);
}

TEST(AttentionJudge, RefusesWhatItCannotRead) {
  const Safetensors good = to_file(clean(), "ring", everything());
  const auto refuse = [&](auto damage) {
    Safetensors file = good;
    damage(file);
    return refusal(file);
  };
  using File = Safetensors;
  EXPECT_EQ(refuse([](File&) {}), "accepted");
  EXPECT_NE(refuse([](File& f) { f.tensors.erase("v"); }).find("v"), std::string::npos);
  EXPECT_EQ(refuse([](File& f) {
              f.tensors["o"].shape = {4, 5, 8, 16};
              f.tensors["o"].values.resize(4 * 5 * 8 * 16);
            }),
            "tensor o has shape [4, 5, 8, 16], expected [40, heads, dim] (the pack) or [4, 10, "
            "heads, dim] (all slices)");
  EXPECT_EQ(refuse([](File& f) { f.tensors["o"].dtype = "I32"; }),
            "tensor o has dtype I32, expected F64, F32, F16 or BF16");
  EXPECT_EQ(refuse([](File& f) { f.tensors["lse"].dtype = "BF16"; }),
            "tensor lse has dtype BF16, expected F32 or F64: LSE in 16 bits says too little");
  EXPECT_EQ(refuse([](File& f) { f.tensors["q"].values[3] = std::nan(""); }),
            "tensor q: position 0 of sequence 0 is nan, and with such an input nothing can be "
            "compared");
  EXPECT_EQ(refuse([](File& f) {
              for (const char* name : {"o", "lse", "dq", "dk", "dv"}) f.tensors.erase(name);
            }),
            "the file has none of o, lse, dq, dk and dv: nothing to judge");
  EXPECT_EQ(refuse([](File& f) {
              f.tensors["lse"].shape = {4, 20, 2};
            }),
            "tensor lse has shape [4, 20, 2], expected [4, 40] (the pack) or [4, 4, 10] (all "
            "slices)");
  EXPECT_NE(refuse([](File& f) { f.tensors.erase("do"); }).find("do"), std::string::npos);
  EXPECT_EQ(refuse([](File& f) { f.tensors["dq"] = f.tensors["dk"]; }),
            "tensor dq has 2 heads of 16, expected 4 of 16");
}

TEST(AttentionJudge, OneRankAloneIsNotEnoughForKeys) {
  WriteOptions write;
  write.rank = 1;
  Safetensors file = to_file(clean(), "ring", write);
  file.tensors["k"] = file.tensors["q"];
  EXPECT_EQ(refusal(file),
            "k and v are those of rank 1 alone: its queries see keys of every rank, expected [40, "
            "heads, dim] or [4, 10, heads, dim]");
  write.tensors = {"dq"};
  file = to_file(clean(), "ring", write);
  file.tensors["dk"] = file.tensors["dq"];
  EXPECT_EQ(refusal(file),
            "dk and dv need q and do of all ranks, but those of rank 1 alone were recorded");
}

}  // namespace
}  // namespace dyncp
