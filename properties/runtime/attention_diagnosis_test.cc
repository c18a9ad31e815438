// Every fault that the judge has a name for, put into a recording and recognised by that name.
#include "runtime/attention_diagnosis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "properties/runtime/recording.h"

namespace dyncp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Attention in plain loops over any set of pairs, for faults in masks, heads and scale.
struct Wrong {
  std::function<bool(std::int64_t query_row, std::int64_t key_row)> sees;
  double factor = 1;
  bool modulo_heads = false;
  double sinks = 1;
};

AttentionForward attend(const AttentionCase& c, const Wrong& wrong) {
  const double scale = wrong.factor * softmax_scale(c.options, c.q.dim);
  AttentionForward result{Tensor<double>(c.q.rows, c.q.heads, c.v.dim),
                          HeadRows<double>(c.q.heads, c.q.rows, -kInfinity)};
  for (int s = 0; s < c.pack.sequences(); ++s) {
    for (std::int64_t i = 0; i < c.pack.real_length(s); ++i) {
      const std::int64_t row = c.pack.first_row(s) + i;
      for (int h = 0; h < c.q.heads; ++h) {
        const int kv = wrong.modulo_heads ? h % c.k.heads : h / (c.q.heads / c.k.heads);
        double sum =
            c.options.sink.empty() ? 0 : wrong.sinks * std::exp(c.options.sink[std::size_t(h)]);
        for (std::int64_t key = 0; key < c.k.rows; ++key) {
          if (!wrong.sees(row, key)) continue;
          double score = 0;
          for (int d = 0; d < c.q.dim; ++d) score += c.q.at(row, h, d) * c.k.at(key, kv, d);
          const double p = std::exp(scale * score);
          sum += p;
          for (int d = 0; d < c.v.dim; ++d) result.o.at(row, h, d) += p * c.v.at(key, kv, d);
        }
        if (sum == 0) continue;
        for (int d = 0; d < c.v.dim; ++d) result.o.at(row, h, d) /= sum;
        result.lse.at(h, row) = std::log(sum);
      }
    }
  }
  return result;
}

AttentionForward rounded(AttentionForward result, Arithmetic arithmetic) {
  result.o = round_to(storage_format(arithmetic), result.o);
  for (double& lse : result.lse.data) lse = round_to(accumulator_format(arithmetic), lse);
  return result;
}

/// Sequence and position of a row.
struct Where {
  int sequence = 0;
  std::int64_t position = 0;
  bool real = true;
};

Where where(const Pack& pack, std::int64_t row) {
  for (int s = 0;; ++s) {
    const std::int64_t position = row - pack.first_row(s);
    if (position < pack.padded_length(s)) return {s, position, position < pack.real_length(s)};
  }
}

class Diagnosis : public testing::TestWithParam<Arithmetic> {
 protected:
  Pack pack_ = Pack::padded_to({53, 7, 0, 30, 1}, 8);

  Recorded clean(int size = 4, AttentionOptions options = {}) const {
    return record(pack_, size, GetParam(), {4, 2, 16, 16}, std::move(options));
  }

  /// The causal mask inside real tokens of one sequence.
  bool sees(std::int64_t query_row, std::int64_t key_row) const {
    const Where query = where(pack_, query_row), key = where(pack_, key_row);
    return query.sequence == key.sequence && key.real && key.position <= query.position;
  }

  /// Judges a forward recording with `wrong` computed in its place; whole pack on one device.
  std::string judge_wrong(const Wrong& wrong, AttentionOptions options = {}) const {
    Recorded recorded = record(pack_, 1, GetParam(), {4, 2, 16, 16}, std::move(options));
    recorded.result.output = rounded(attend(recorded.input, wrong), GetParam());
    return judged(recorded, "attention.lse", "attention");
  }

  std::string judged(const Recorded& recorded, const std::string& check,
                     const std::string& driver = "ring", WriteOptions write = {}) const {
    const CaseResult result = judge_file(to_file(recorded, driver, write));
    EXPECT_EQ(result.status(), Status::kFailed) << text_of(result);
    const std::string message = message_of(result, check);
    EXPECT_FALSE(message.empty()) << check << " did not fail: " << text_of(result);
    return message;
  }

  /// Partial results of every step of every rank, and how a ring merges them.
  struct Partials {
    std::vector<RingForward> steps;  // [step], all ranks
  };
  static RingForward one_step(const Recorded& recorded, int step,
                              const std::vector<Tensor<double>>& k,
                              const std::vector<Tensor<double>>& v) {
    RingPlan plan = recorded.plan();
    for (auto& steps : plan.steps) {
      for (int t = 0; t < plan.size; ++t) {
        if (t != step) steps[std::size_t(t)].segments.clear();
      }
    }
    RingOptions options = recorded.ring_options();
    options.arithmetic = Arithmetic::kDouble;
    options.sink.clear();
    return ring_forward(plan, slice_pack(recorded.input.pack, recorded.size, recorded.input.q), k,
                        v, options);
  }

  /// Merges the steps of rank `rank` with the given rule for which (step, row) pairs enter the LSE
  /// and which enter O, and writes the result into the recording.
  static void merge_rank(Recorded& recorded, const std::vector<RingForward>& steps, int rank,
                         const std::function<bool(int step, std::int64_t row)>& in_lse,
                         const std::function<bool(int step, std::int64_t row)>& in_o) {
    const auto rows = zigzag_rows(recorded.input.pack, recorded.size, rank);
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      for (int h = 0; h < recorded.input.q.heads; ++h) {
        double sum = 0;
        for (std::size_t t = 0; t < steps.size(); ++t) {
          if (in_lse(int(t), row)) sum += std::exp(steps[t].lse[r].at(h, row));
        }
        if (sum == 0) continue;
        const double lse = std::log(sum);
        recorded.result.output.lse.at(h, rows[i]) =
            round_to(accumulator_format(recorded.arithmetic), lse);
        for (int d = 0; d < recorded.input.v.dim; ++d) {
          double o = 0;
          for (std::size_t t = 0; t < steps.size(); ++t) {
            const double part = steps[t].lse[r].at(h, row);
            if (in_o(int(t), row) && part > -kInfinity) {
              o += std::exp(part - lse) * steps[t].o[r].at(row, h, d);
            }
          }
          recorded.result.output.o.at(rows[i], h, d) =
              round_to(storage_format(recorded.arithmetic), o);
        }
      }
    }
  }

  static std::vector<RingForward> all_steps(const Recorded& recorded) {
    const auto k = slice_pack(recorded.input.pack, recorded.size, recorded.input.k);
    const auto v = slice_pack(recorded.input.pack, recorded.size, recorded.input.v);
    std::vector<RingForward> steps;
    for (int t = 0; t < recorded.size; ++t) steps.push_back(one_step(recorded, t, k, v));
    return steps;
  }

  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
  }
};

TEST_P(Diagnosis, NextTokenVisible) {
  const std::string text = judge_wrong({[this](std::int64_t q, std::int64_t k) {
    return sees(q, k) || (k == q + 1 && where(pack_, k).real && sees(k, q));
  }});
  expect_contains(text, "looks like: the next token is visible (fits 40 of 40");
}

TEST_P(Diagnosis, DiagonalDropped) {
  // The first token of a sequence then sees nothing at all; it keeps its LSE of -inf.
  const std::string text =
      judge_wrong({[this](std::int64_t q, std::int64_t k) { return sees(q, k) && k != q; }});
  expect_contains(text, "looks like: the diagonal is dropped");
}

TEST_P(Diagnosis, NoCausalMask) {
  const std::string text = judge_wrong({[this](std::int64_t q, std::int64_t k) {
    return sees(q, k) || (where(pack_, k).real && sees(k, q));
  }});
  expect_contains(text, "looks like: no causal mask");
}

TEST_P(Diagnosis, CausalMaskThatWasNotAskedFor) {
  const std::string text = judge_wrong(
      {[this](std::int64_t q, std::int64_t k) { return sees(q, k); }}, {false, -1, 0, {}});
  expect_contains(text, "looks like: a causal mask where none was asked for");
}

TEST_P(Diagnosis, EarlierSequencesVisible) {
  const std::string text = judge_wrong(
      {[this](std::int64_t q, std::int64_t k) { return where(pack_, k).real && k <= q; }});
  expect_contains(text, "looks like: all earlier sequences of the pack are visible");
}

TEST_P(Diagnosis, TheSequenceBeforeVisible) {
  // In sequence 3 those are the keys of sequence 2, which is empty: nothing is wrong there.
  const std::string text = judge_wrong({[this](std::int64_t q, std::int64_t k) {
    return sees(q, k) ||
           (where(pack_, k).real && where(pack_, k).sequence + 1 == where(pack_, q).sequence);
  }});
  expect_contains(text, "looks like: the sequence before is visible");
}

TEST_P(Diagnosis, AllSequencesVisible) {
  const std::string text = judge_wrong({[this](std::int64_t q, std::int64_t k) {
    return sees(q, k) ||
           (where(pack_, k).real && where(pack_, k).sequence != where(pack_, q).sequence);
  }});
  expect_contains(text, "looks like: all sequences of the pack are visible");
}

TEST_P(Diagnosis, Window) {
  const AttentionOptions options{true, 5, 0, {}};
  const auto with_window = [this](std::int64_t window) {
    return Wrong{[this, window](std::int64_t q, std::int64_t k) {
      return sees(q, k) && (window < 0 || k >= q - window);
    }};
  };
  expect_contains(judge_wrong(with_window(-1), options), "looks like: the window is ignored");
  expect_contains(judge_wrong(with_window(6), options), "the window is one key too wide");
  expect_contains(judge_wrong(with_window(4), options), "the window is one key too narrow");
}

TEST_P(Diagnosis, Sink) {
  const AttentionOptions options{true, -1, 0, {0.5, -1, 2, 0}};
  const auto with_sinks = [this](double sinks) {
    return Wrong{[this](std::int64_t q, std::int64_t k) { return sees(q, k); }, 1, false, sinks};
  };
  expect_contains(judge_wrong(with_sinks(0), options), "looks like: the sink is left out");
  expect_contains(judge_wrong(with_sinks(2), options), "looks like: the sink is counted twice");
}

TEST_P(Diagnosis, WrongHeadMap) {
  const std::string text =
      judge_wrong({[this](std::int64_t q, std::int64_t k) { return sees(q, k); }, 1, true, 1});
  expect_contains(text, "looks like: query head h reads K/V head h mod 2 instead of h / 2");
}

TEST_P(Diagnosis, SoftmaxScale) {
  const auto scaled = [this](double factor) {
    return judge_wrong({[this](std::int64_t q, std::int64_t k) { return sees(q, k); }, factor});
  };
  expect_contains(scaled(1.01), "looks like: the softmax scale is 1.01 times the expected one");
  expect_contains(scaled(4), "the softmax scale is 4 (no division by sqrt(dim)) times");
  expect_contains(scaled(0.25), "(division by dim instead of sqrt(dim)) times");
  expect_contains(scaled(std::numbers::log2e), "(log2 e applied twice) times");
}

TEST_P(Diagnosis, LseFormats) {
  const auto changed = [this](auto change) {
    Recorded recorded = clean();
    for (double& lse : recorded.result.output.lse.data) {
      if (std::isfinite(lse)) lse = change(lse);
    }
    const CaseResult result = judge_file(to_file(recorded, "ring"));
    EXPECT_TRUE(message_of(result, "ring.o").empty());
    return message_of(result, "ring.lse");
  };
  expect_contains(changed([](double lse) { return lse * std::numbers::log2e; }),
                  "looks like: LSE in base 2");
  expect_contains(changed([](double lse) { return -lse; }), "looks like: LSE of the opposite sign");
}

TEST_P(Diagnosis, LseLayout) {
  // The right values in [rows, heads] order under the shape [heads, rows].
  for (bool pack_order : {true, false}) {
    WriteOptions write;
    write.pack_order = pack_order;
    Safetensors file = to_file(clean(), "ring", write);
    write.lse_transposed = true;
    file.tensors["lse"].values = to_file(clean(), "ring", write).tensors["lse"].values;
    expect_contains(message_of(judge_file(file), "ring.lse"),
                    "looks like: LSE stored as [rows, heads] and read as [heads, rows]");
  }
  // The same with an honest shape: named as a layout, and the values judged all the same.
  WriteOptions write;
  write.lse_transposed = true;
  const CaseResult result = judge_file(to_file(clean(), "ring", write));
  ASSERT_EQ(result.findings().size(), 1U) << text_of(result);
  EXPECT_EQ(result.findings()[0].check, "ring.lse_layout");
}

TEST_P(Diagnosis, RingStepLostOrTwice) {
  for (int rank : {0, 1, 3}) {
    for (int step = 0; step < 4; ++step) {
      Recorded recorded = clean();
      const auto steps = all_steps(recorded);
      const auto only_this = [&](int t, std::int64_t) { return t != step; };
      merge_rank(recorded, steps, rank, only_this, only_this);
      const std::string name =
          fmt::format("step {} (K/V of rank {}) is ", step, (rank - step + 4) % 4);
      const std::string text = judged(recorded, "ring.lse");
      expect_contains(text, name + "lost");
      expect_contains(text, fmt::format("on rank {} (fits", rank));

      Recorded twice = clean();
      RingPlan plan = twice.plan();
      auto& segments = plan.steps[std::size_t(rank)][std::size_t(step)].segments;
      const auto copy = segments;
      segments.insert(segments.end(), copy.begin(), copy.end());
      RingOptions options = twice.ring_options();
      const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
      const RingForward damaged = ring_forward(plan, slice(twice.input.q), slice(twice.input.k),
                                               slice(twice.input.v), options);
      twice.result.output.o = unslice_pack(pack_, 4, damaged.o);
      twice.result.output.lse = unslice_pack(pack_, 4, damaged.lse);
      expect_contains(judged(twice, "ring.lse"), name + "counted twice");
    }
  }
}

TEST_P(Diagnosis, StepLostOnEveryRank) {
  pack_ = Pack::padded_to({53, 7, 0, 30, 1}, 6);
  Recorded recorded = clean(3);
  const auto steps = all_steps(recorded);
  for (int rank = 0; rank < 3; ++rank) {
    const auto kept = [&](int t, std::int64_t) { return t != 1; };
    merge_rank(recorded, steps, rank, kept, kept);
  }
  const std::string text = judged(recorded, "ring.lse");
  for (int rank = 0; rank < 3; ++rank) {
    expect_contains(
        text, fmt::format("step 1 (K/V of rank {}) is lost on rank {}", (rank + 2) % 3, rank));
  }
}

TEST_P(Diagnosis, MirrorChunkNotMerged) {
  // Steps of later sources touch mirror rows alone. Their partial results enter O but not the LSE,
  // or neither.
  for (bool in_o : {true, false}) {
    Recorded recorded = clean();
    const auto steps = all_steps(recorded);
    for (int rank = 0; rank < 4; ++rank) {
      const auto lower = [rank](int t, std::int64_t) { return t <= rank; };
      merge_rank(recorded, steps, rank, lower,
                 [&](int t, std::int64_t row) { return in_o || lower(t, row); });
    }
    const std::string text = judged(recorded, "ring.lse");
    // On rank 2 one step comes from a later source: losing it is the same thing.
    expect_contains(text, in_o ? "the LSE of the mirror chunk is not merged in steps"
                               : "the mirror chunk is not merged at all in steps");
    expect_contains(text, "on ranks 0, 1");
  }
}

TEST_P(Diagnosis, StaleBuffer) {
  for (int other : {1, 3}) {
    Recorded recorded = clean();
    auto steps = all_steps(recorded);
    // On rank 3, step 2 reads what step `other` reads: rank 1 is replaced by rank 2 or 0.
    auto k = slice_pack(pack_, 4, recorded.input.k), v = slice_pack(pack_, 4, recorded.input.v);
    k[1] = k[std::size_t(3 - other)];
    v[1] = v[std::size_t(3 - other)];
    steps[2] = one_step(recorded, 2, k, v);
    const auto all = [](int, std::int64_t) { return true; };
    merge_rank(recorded, steps, 3, all, all);
    expect_contains(
        judged(recorded, "ring.lse"),
        fmt::format("step 2 reads the K/V of rank {} instead of rank 1: a receive "
                    "buffer is read {} on rank 3",
                    3 - other,
                    other == 1 ? "before the data has arrived" : "after it was overwritten"));
  }
}

TEST_P(Diagnosis, LowerTileReadsTheMirrorChunk) {
  // Padding keys of the mirror chunk would be NaN: full sequences.
  pack_ = Pack({{48, 48}, {16, 16}});
  Recorded recorded = clean();
  RingPlan plan = recorded.plan();
  for (Segment& segment : plan.steps[3][1].segments) segment.k0 += segment.klen;
  RingOptions options = recorded.ring_options();
  const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
  const RingForward damaged = ring_forward(plan, slice(recorded.input.q), slice(recorded.input.k),
                                           slice(recorded.input.v), options);
  recorded.result.output.o = unslice_pack(pack_, 4, damaged.o);
  recorded.result.output.lse = unslice_pack(pack_, 4, damaged.lse);
  expect_contains(judged(recorded, "ring.lse"),
                  "step 1 reads the mirror chunk of rank 2 instead of its front chunk on rank 3");
}

TEST_P(Diagnosis, FlooredRealLengths) {
  Recorded recorded = clean();
  RingPlan plan = recorded.plan();
  for (int rank = 0; rank < 4; ++rank) {
    for (int step = 0; step < 4; ++step) {
      auto& segments = plan.steps[std::size_t(rank)][std::size_t(step)].segments;
      segments.clear();
      for (int s = 0; s < pack_.sequences(); ++s) {
        const std::int64_t first = pack_.first_row(s) / 4, chunk = pack_.padded_length(s) / 8;
        const std::int64_t all = pack_.real_length(s) / 4, half = pack_.real_length(s) / 8;
        const int source = (rank - step + 4) % 4;
        if (source == rank) segments.push_back({first, all, first, all, true, 0, -1});
        if (source < rank) segments.push_back({first, all, first, half, false, 0, -1});
        if (source > rank) segments.push_back({first + chunk, half, first, all, false, 0, -1});
      }
    }
  }
  // What is padding by the exact count but real by the rounded one must be readable.
  Recorded readable = recorded;
  for (Tensor<double>* tensor : {&readable.input.k, &readable.input.v, &readable.input.q}) {
    for (double& value : tensor->data) value = std::isnan(value) ? 0 : value;
  }
  const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
  const RingForward damaged = ring_forward(plan, slice(readable.input.q), slice(readable.input.k),
                                           slice(readable.input.v), recorded.ring_options());
  recorded.input = readable.input;
  recorded.result.output.o = unslice_pack(pack_, 4, damaged.o);
  recorded.result.output.lse = unslice_pack(pack_, 4, damaged.lse);
  for (double& value : recorded.result.output.o.data) value = std::isnan(value) ? 0 : value;
  const std::string text = judged(recorded, "ring.lse");
  expect_contains(text, "real lengths per rank are rounded down");
}

TEST_P(Diagnosis, OneKeyMissing) {
  Recorded recorded = clean();
  RingPlan plan = recorded.plan();
  // Rank 3 sees of rank 1 the front chunk of sequence 0, positions 7..13: leave out the last.
  Segment& segment = plan.steps[3][2].segments[0];
  ASSERT_EQ(segment.klen, 7);
  --segment.klen;
  const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
  const RingForward damaged = ring_forward(plan, slice(recorded.input.q), slice(recorded.input.k),
                                           slice(recorded.input.v), recorded.ring_options());
  recorded.result.output.o = unslice_pack(pack_, 4, damaged.o);
  recorded.result.output.lse = unslice_pack(pack_, 4, damaged.lse);
  expect_contains(judged(recorded, "ring.lse"),
                  "looks like: key 13 of sequence 0 is missing on rank 3");
}

TEST_P(Diagnosis, OneKeyMissingInOneRow) {
  // The last row of a sequence does not see itself, all others do.
  const std::string text = judge_wrong(
      {[this](std::int64_t q, std::int64_t k) { return sees(q, k) && !(q == 52 && k == 52); }});
  expect_contains(text, "sequence 0 position 52 head 0");
}

TEST_P(Diagnosis, OneKeyTwice) {
  Recorded recorded = clean();
  RingPlan plan = recorded.plan();
  Segment again = plan.steps[3][2].segments[0];
  again.k0 += 2;
  again.klen = 1;
  plan.steps[3][2].segments.push_back(again);
  const auto slice = [&](const Tensor<double>& whole) { return slice_pack(pack_, 4, whole); };
  const RingForward damaged = ring_forward(plan, slice(recorded.input.q), slice(recorded.input.k),
                                           slice(recorded.input.v), recorded.ring_options());
  recorded.result.output.o = unslice_pack(pack_, 4, damaged.o);
  recorded.result.output.lse = unslice_pack(pack_, 4, damaged.lse);
  expect_contains(judged(recorded, "ring.lse"), "key 9 of sequence 0 is counted twice");
}

TEST_P(Diagnosis, NaN) {
  Recorded recorded = clean();
  for (int d = 0; d < 16; ++d) recorded.result.output.o.at(17, 1, d) = std::nan("");
  recorded.result.output.lse.at(1, 17) = std::nan("");
  expect_contains(judged(recorded, "ring.o"), "1 of 1 wrong rows are NaN");
}

TEST_P(Diagnosis, PaddingNotZero) {
  Recorded recorded = clean();
  recorded.result.output.o.at(55, 2, 3) = 0.5;
  const CaseResult result = judge_file(to_file(recorded, "ring"));
  ASSERT_EQ(result.findings().size(), 1U) << text_of(result);
  EXPECT_EQ(result.findings()[0].message,
            "o is not zero in 1 padding rows, the first is sequence 0 position 55 (rank 0)");
}

TEST_P(Diagnosis, UnknownFaultsAreSaidToBeUnknown) {
  Recorded recorded = clean();
  for (int d = 0; d < 16; ++d) recorded.result.output.o.at(17, 1, d) = 0;
  expect_contains(judged(recorded, "ring.o"), "no known fault fits");
}

// --- gradients -----------------------------------------------------------------------------------

/// Runs backward with a damaged plan, or with rules of its own, from the clean forward pass.
class GradientDiagnosis : public Diagnosis {
 protected:
  static RingBackward backward(const Recorded& recorded, const RingPlan& plan,
                               const RingForward& forward) {
    const Pack& pack = recorded.input.pack;
    const auto slice = [&](const Tensor<double>& whole) {
      return slice_pack(pack, recorded.size, whole);
    };
    return ring_backward(plan, slice(recorded.input.q), slice(recorded.input.k),
                         slice(recorded.input.v), forward, slice(recorded.input.d_o),
                         recorded.ring_options());
  }
  static RingForward forward_slices(const Recorded& recorded) {
    const Pack& pack = recorded.input.pack;
    RingForward forward;
    forward.o = slice_pack(pack, recorded.size, recorded.result.output.o);
    for (int r = 0; r < recorded.size; ++r) {
      forward.lse.push_back(
          gather(recorded.result.output.lse, zigzag_rows(pack, recorded.size, r)));
    }
    return forward;
  }
  static void put(Recorded& recorded, const RingBackward& gradients) {
    const Pack& pack = recorded.input.pack;
    recorded.result.gradients.dq = unslice_pack(pack, recorded.size, gradients.dq);
    recorded.result.gradients.dk = unslice_pack(pack, recorded.size, gradients.dk);
    recorded.result.gradients.dv = unslice_pack(pack, recorded.size, gradients.dv);
  }
  /// What single steps of single ranks contribute: all others removed from the plan, NaN to 0.
  static RingBackward only(const Recorded& recorded,
                           const std::function<bool(int rank, int step)>& kept) {
    RingPlan plan = recorded.plan();
    for (int rank = 0; rank < recorded.size; ++rank) {
      for (int step = 0; step < recorded.size; ++step) {
        if (!kept(rank, step)) {
          plan.steps[std::size_t(rank)][std::size_t(step)].segments.clear();
        }
      }
    }
    RingBackward result = backward(recorded, plan, forward_slices(recorded));
    for (auto* tensors : {&result.dq, &result.dk, &result.dv}) {
      for (auto& tensor : *tensors) {
        for (double& value : tensor.data) value = std::isnan(value) ? 0 : value;
      }
    }
    return result;
  }
  static WriteOptions gradients() {
    WriteOptions write;
    write.tensors = {"o", "lse", "dq", "dk", "dv"};
    return write;
  }
  std::string judged_gradient(const Recorded& recorded, const std::string& name) const {
    return judged(recorded, "ring." + name, "ring", gradients());
  }
};

TEST_P(GradientDiagnosis, CleanGradientsPass) {
  for (int size : {1, 2, 4}) {
    const CaseResult result = judge_file(to_file(clean(size), "ring", gradients()));
    EXPECT_TRUE(result.findings().empty()) << text_of(result);
  }
}

TEST_P(GradientDiagnosis, LostStep) {
  for (const auto& [rank, step] : {std::pair{3, 0}, {3, 2}, {1, 1}, {0, 2}}) {
    Recorded recorded = clean();
    put(recorded, only(recorded, [r = rank, t = step](int a, int b) { return a != r || b != t; }));
    const int source = (rank - step + 4) % 4;
    expect_contains(judged_gradient(recorded, "dq"),
                    fmt::format("the contribution of step {} (K/V of rank {}) is lost on rank {}",
                                step, source, rank));
    for (const char* name : {"dk", "dv"}) {
      expect_contains(judged_gradient(recorded, name),
                      fmt::format("the contribution of step {} (computed on rank {}) is lost on "
                                  "rank {}",
                                  step, rank, source));
    }
  }
}

TEST_P(GradientDiagnosis, AddedTwice) {
  Recorded recorded = clean();
  RingBackward all = only(recorded, [](int, int) { return true; });
  const RingBackward once = only(recorded, [](int a, int b) { return a == 3 && b == 1; });
  for (std::size_t i = 0; i < all.dq[3].data.size(); ++i) all.dq[3].data[i] += once.dq[3].data[i];
  for (std::size_t i = 0; i < all.dk[2].data.size(); ++i) all.dk[2].data[i] += once.dk[2].data[i];
  put(recorded, all);
  expect_contains(judged_gradient(recorded, "dq"),
                  "the contribution of step 1 (K/V of rank 2) is added twice on rank 3");
  expect_contains(judged_gradient(recorded, "dk"),
                  "the contribution of step 1 (computed on rank 3) is added twice on rank 2");
}

TEST_P(GradientDiagnosis, CopyInsteadOfAdd) {
  // Backward runs steps 3, 2, 1, 0. On rank 3, step 1 overwrites steps 3 and 2.
  Recorded recorded = clean();
  RingBackward all = only(recorded, [](int, int) { return true; });
  const RingBackward late = only(recorded, [](int a, int b) { return a == 3 && b <= 1; });
  all.dq[3] = late.dq[3];
  // Keys of rank 0: what rank 1 computes in step 1 overwrites what ranks 2 and 3 computed before.
  const RingBackward home = only(recorded, [](int, int b) { return b <= 1; });
  all.dk[0] = home.dk[0];
  all.dv[0] = home.dv[0];
  put(recorded, all);
  expect_contains(judged_gradient(recorded, "dq"),
                  "the contribution of step 1 (K/V of rank 2) overwrites what was accumulated "
                  "before it on rank 3");
  for (const char* name : {"dk", "dv"}) {
    expect_contains(judged_gradient(recorded, name),
                    "the contribution of step 1 (computed on rank 1) overwrites what was "
                    "accumulated before it on rank 0");
  }
}

TEST_P(GradientDiagnosis, PerStepLseAndO) {
  Recorded recorded = clean();
  // Each step's backward from that step's own forward results.
  const auto steps = all_steps(recorded);
  RingBackward sum = only(recorded, [](int, int) { return false; });
  for (int t = 0; t < 4; ++t) {
    RingPlan plan = recorded.plan();
    for (auto& rank_steps : plan.steps) {
      for (int other = 0; other < 4; ++other) {
        if (other != t) rank_steps[std::size_t(other)].segments.clear();
      }
    }
    RingForward forward = steps[std::size_t(t)];
    RingBackward part = backward(recorded, plan, forward);
    const auto add = [](std::vector<Tensor<double>>& to, const std::vector<Tensor<double>>& from) {
      for (std::size_t r = 0; r < to.size(); ++r) {
        for (std::size_t i = 0; i < to[r].data.size(); ++i) {
          if (!std::isnan(from[r].data[i])) to[r].data[i] += from[r].data[i];
        }
      }
    };
    add(sum.dq, part.dq);
    add(sum.dk, part.dk);
    add(sum.dv, part.dv);
  }
  put(recorded, sum);
  expect_contains(judged_gradient(recorded, "dq"),
                  "each step's backward uses the LSE and O of that step");
  expect_contains(judged_gradient(recorded, "dk"),
                  "each step's backward uses the LSE and O of that step");
  // dV does not depend on O.
  expect_contains(judged_gradient(recorded, "dv"), "each step's backward uses the LSE");
}

TEST_P(GradientDiagnosis, LastHopMissing) {
  Recorded recorded = clean();
  RingBackward all = only(recorded, [](int, int) { return true; });
  std::rotate(all.dk.begin(), all.dk.begin() + 1, all.dk.end());
  // Which padding rows are zero belongs to the rank, not to what travelled.
  put(recorded, all);
  expect_contains(judged_gradient(recorded, "dk"),
                  "the gradients of the next rank's keys: the last hop home is missing");
}

TEST_P(GradientDiagnosis, Factors) {
  const auto scaled = [this](double factor, const char* name) {
    Recorded recorded = clean();
    auto& gradients_of = recorded.result.gradients;
    for (double& value : (name[1] == 'q' ? gradients_of.dq : gradients_of.dv).data) {
      value *= factor;
    }
    return judged_gradient(recorded, name);
  };
  expect_contains(scaled(0.25, "dv"), "0.25 (divided by the CP size) times the expected gradient");
  expect_contains(scaled(-1, "dv"), "-1 (the opposite sign) times the expected gradient");
  expect_contains(scaled(1.5, "dq"), "1.5 times the expected gradient");
}

TEST_P(GradientDiagnosis, OneHeadOfTheGroup) {
  // K/V head kv serves query heads 2 kv and 2 kv + 1: zero the cotangent of the second.
  Recorded recorded = clean();
  Recorded half = recorded;
  for (std::int64_t row = 0; row < half.input.d_o.rows; ++row) {
    for (int h : {1, 3}) {
      for (int d = 0; d < 16; ++d) half.input.d_o.at(row, h, d) = 0;
    }
  }
  const RingBackward gradients_of = backward(half, half.plan(), forward_slices(half));
  recorded.result.gradients.dk = unslice_pack(pack_, 4, gradients_of.dk);
  expect_contains(judged_gradient(recorded, "dk"),
                  "only query head 0 of each group of 2 contributes");
}

INSTANTIATE_TEST_SUITE_P(Formats, Diagnosis,
                         testing::Values(Arithmetic::kDouble, Arithmetic::kFloat,
                                         Arithmetic::kBf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });
INSTANTIATE_TEST_SUITE_P(Formats, GradientDiagnosis,
                         testing::Values(Arithmetic::kDouble, Arithmetic::kFloat,
                                         Arithmetic::kBf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace dyncp
