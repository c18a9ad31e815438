// The judge gives no false alarm on what a correct ring records, and sees any one lost pair.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "properties/cases.h"
#include "properties/generators.h"
#include "properties/runtime/recording.h"
#include "runtime/attention_judge.h"

namespace dyncp {
namespace {

const DefaultCases kCases(60);

Arithmetic any_arithmetic() {
  return std::array{Arithmetic::kDouble, Arithmetic::kFloat, Arithmetic::kBf16,
                    Arithmetic::kFp16}[std::size_t(*genInt(0, 3))];
}

RC_GTEST_PROP(AttentionJudge, CleanRecordingsAreNeverAccused, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size, {60, 1, 4});
  const int kv_heads = *genInt(1, 2);
  const AttentionShape shape{kv_heads * *genInt(1, 2), kv_heads, *genInt(2, 24), *genInt(2, 24)};
  AttentionOptions options;
  options.causal = *genInt(0, 3) > 0;
  options.window = *genInt(0, 3) == 0 ? *genInt(0, 9) : -1;
  if (*genInt(0, 3) == 0) options.sink = make_sink(shape.heads, 3);
  const auto accumulation = std::array{Accumulation::kWide, Accumulation::kRoundedPartials,
                                       Accumulation::kRounded}[std::size_t(*genInt(0, 2))];
  const Recorded recorded = record(pack, size, any_arithmetic(), shape, options, accumulation,
                                   static_cast<std::uint64_t>(*genInt(1, 1 << 20)));
  WriteOptions write;
  write.tensors = {"o", "lse", "dq", "dk", "dv"};
  write.pack_order = *genInt(0, 1) == 1;
  if (*genInt(0, 1) == 1) write.rank = *genInt(0, size - 1);
  const CaseResult result = judge_file(to_file(recorded, "ring", write));
  if (!result.findings().empty()) RC_FAIL(text_of(result));
}

RC_GTEST_PROP(AttentionJudge, OneLostPairIsSeen, ()) {
  // A row that misses the key to which it gives most weight among those of other ranks.
  const int size = *genCpSizeAboveOne();
  const Pack pack = *genPack(size, {40, 1, 3});
  Recorded recorded = record(pack, size, any_arithmetic(), {1, 1, 8, 8});
  const RingPlan plan = recorded.plan();
  std::vector<std::pair<int, int>> places;
  for (int rank = 0; rank < size; ++rank) {
    for (int step = 1; step < size; ++step) {
      if (step_pairs(plan, rank, step) > 0) places.emplace_back(rank, step);
    }
  }
  RC_PRE(!places.empty());
  const auto [rank, step] =
      places[static_cast<std::size_t>(*genInt(0, static_cast<int>(places.size()) - 1))];
  RingPlan damaged = plan;
  Segment& segment = damaged.steps[std::size_t(rank)][std::size_t(step)].segments.front();
  // Only the last query of the segment loses its last key.
  Segment last = segment;
  --segment.qlen;
  last.q0 += last.qlen - 1;
  last.qlen = 1;
  --last.klen;
  damaged.steps[std::size_t(rank)][std::size_t(step)].segments.push_back(last);
  const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack, size, whole); };
  const RingForward lost = ring_forward(damaged, slice(recorded.input.q), slice(recorded.input.k),
                                        slice(recorded.input.v), recorded.ring_options());
  const HeadRows<double> before = recorded.result.output.lse;
  recorded.result.output.lse = unslice_pack(pack, size, lost.lse);
  recorded.result.output.o = unslice_pack(pack, size, lost.o);
  const std::int64_t row = zigzag_rows(pack, size, rank)[std::size_t(last.q0)];
  const double moved = std::fabs(before.at(0, row) - recorded.result.output.lse.at(0, row));
  // The smallest weight that single precision can miss: eight times what is allowed.
  RC_PRE(moved > 8 * 4e-6 * (1 + std::fabs(before.at(0, row))));
  const CaseResult result = judge_file(to_file(recorded, "ring"));
  RC_ASSERT(!message_of(result, "ring.lse").empty());
}

}  // namespace
}  // namespace dyncp
