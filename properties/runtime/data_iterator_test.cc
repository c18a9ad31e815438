// The data pipeline's refusals, and what happens when ranks disagree.
#include "runtime/data_iterator.h"

#include <gtest/gtest.h>

#include <string>

#include "properties/runtime/provenance_source.h"
#include "reference/error.h"
#include "runtime/thread_transport.h"

namespace dyncp {
namespace {

DataOptions thd(std::string_view scheduler, std::int64_t max_tokens, std::int64_t global_batch) {
  DataOptions options;
  options.scheduler = &find_scheduler(scheduler);
  options.max_tokens_per_rank = max_tokens;
  options.global_batch = global_batch;
  return options;
}

std::vector<RankBatch> run_all(int ranks, const DocumentSource& source,
                               const DataOptions& options) {
  std::vector<RankBatch> batches(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, {}, [&](Transport& transport) {
    batches[static_cast<std::size_t>(transport.rank())] =
        DataIterator(transport, source, options).batch(0);
  });
  return batches;
}

template <typename Error>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(DataIterator, MixesCpSizes) {
  const ProvenanceSource source({64, 30, 30, 16, 16, 8, 8});
  const auto batches = run_all(4, source, thd("dyncp", 16, 7));
  EXPECT_GT(batches[0].cp_sizes.size(), 1U);
}

TEST(DataIterator, SerialExecutionRunsOneSequenceAMicrobatch) {
  const ProvenanceSource source({64, 30, 30, 16, 16, 8, 8, 5, 3});
  for (const RankBatch& batch : run_all(4, source, thd("megatron-balanced", 16, 9))) {
    EXPECT_FALSE(batch.microbatches.empty());
    for (const PackedMicrobatch& microbatch : batch.microbatches) {
      EXPECT_EQ(microbatch.sequence_ids.size(), 1U);
    }
  }
}

TEST(DataIterator, ABatchOfEmptyDocumentsHasNoMicrobatch) {
  const ProvenanceSource source({0, 0, 0});
  for (const RankBatch& batch : run_all(2, source, thd("dyncp", 16, 3))) {
    EXPECT_TRUE(batch.microbatches.empty());
    EXPECT_EQ(batch.real_tokens, 0);
  }
}

TEST(DataIterator, EmptyDocumentsKeepTheirRowsWhenBatched) {
  const ProvenanceSource source({0, 3, 0, 0});
  DataOptions options = thd("dyncp", 16, 4);
  options.layout = Layout::kBshd;
  options.cp = 2;
  options.max_length = 8;
  const auto batches = run_all(2, source, options);
  ASSERT_EQ(batches[0].microbatches.size(), 1U);
  EXPECT_EQ(batches[0].microbatches[0].params.pack().padded_tokens(), 32);
  EXPECT_EQ(batches[0].real_tokens, 3);
}

TEST(DataIterator, RefusesOverlongDocumentsOnEveryRankAlike) {
  const ProvenanceSource source({5, 6, 7, 200});
  DataOptions options = thd("dyncp", 16, 4);
  options.max_length = 100;
  options.overlong = Overlong::kRefuse;
  EXPECT_EQ(message_of<InvalidInput>([&] { run_all(2, source, options); }),
            "document 3 has 200 tokens and the longest sequence is 100: refused, as was asked");
  options.overlong = Overlong::kTruncate;
  options.max_length = 20;
  EXPECT_EQ(run_all(2, source, options)[0].real_tokens, 5 + 6 + 7 + 20);
}

TEST(DataIterator, RefusesASequenceThatFitsNowhere) {
  const ProvenanceSource source({5, 200});
  DataOptions options = thd("dyncp", 16, 2);
  options.max_length = 300;
  message_of<Infeasible>([&] { run_all(2, source, options); });
}

TEST(DataIterator, RefusesOptionsThatDoNotGoTogether) {
  DataOptions options = thd("dyncp", 16, 6);
  options.scheduler = nullptr;
  EXPECT_EQ(message_of<InvalidInput>([&] { require_valid(options, 4); }),
            "the thd layout needs a scheduler");
  options.layout = Layout::kBshd;
  options.cp = 3;
  EXPECT_EQ(message_of<InvalidInput>([&] { require_valid(options, 4); }),
            "bshd: the CP size 3 does not divide the 4 ranks");
  options.cp = 1;
  EXPECT_EQ(message_of<InvalidInput>([&] { require_valid(options, 4); }),
            "bshd: a global batch of 6 documents does not divide evenly over 4 groups of 1 ranks");
  options.cp = 2;
  options.max_length = 33;
  EXPECT_EQ(message_of<Infeasible>([&] { require_valid(options, 4); }),
            "bshd: a sequence padded to 36 tokens does not fit on 2 ranks at 16 tokens a rank");
  options.max_tokens_per_rank = 1;
  EXPECT_EQ(message_of<InvalidInput>([&] { require_valid(options, 4); }),
            "the most tokens a rank are 1, expected 2..2^40");
}

// Puts everything on the whole domain, the sequences in reverse on one call in `ranks`.
class Dissenter : public Scheduler {
 public:
  explicit Dissenter(bool reversed) : reversed_(reversed) {}
  std::string_view name() const override { return "dissenter"; }
  std::string_view summary() const override { return "for this test"; }
  Execution execution() const override { return Execution::kPack; }
  Schedule schedule(const ScheduleProblem& problem) const override {
    Assignment all{{0, problem.ranks}, {}};
    for (int id = 0; id < static_cast<int>(problem.lengths.size()); ++id) {
      all.sequences.push_back(id);
    }
    if (reversed_) std::reverse(all.sequences.begin(), all.sequences.end());
    return {{{all}}};
  }

 private:
  bool reversed_;
};

TEST(DataIterator, NamesTheRankWithAnotherPlan) {
  const ProvenanceSource source({8, 6, 4});
  const Dissenter usual(false);
  const Dissenter other(true);
  for (int dissenter : {0, 2, 3}) {
    try {
      run_thread_ranks(4, {}, [&](Transport& transport) {
        DataOptions options = thd("dyncp", 16, 3);
        options.scheduler = transport.rank() == dissenter ? &other : &usual;
        DataIterator(transport, source, options).batch(0);
      });
      FAIL() << "the run went on";
    } catch (const TransportError& error) {
      EXPECT_EQ(error.culprit_rank(), dissenter);
      const std::string text = error.what();
      EXPECT_EQ(text.find("rank " + std::to_string(dissenter) +
                          " gave up: its plan of global batch 0 is "),
                0U)
          << text;
      EXPECT_NE(text.find("the plan of 3 of 4 ranks is"), std::string::npos) << text;
    }
  }
}

// Puts two sequences on ranks 1 and 2, a group that does not exist.
class Misaligned : public Scheduler {
 public:
  std::string_view name() const override { return "misaligned"; }
  std::string_view summary() const override { return "for this test"; }
  Execution execution() const override { return Execution::kPack; }
  Schedule schedule(const ScheduleProblem&) const override {
    return {{{{{0, 1}, {0}}, {{1, 2}, {1}}, {{3, 1}, {2}}}}};
  }
};

TEST(DataIterator, RefusesAnInvalidSchedule) {
  const ProvenanceSource source({8, 6, 4});
  const Misaligned scheduler;
  DataOptions options = thd("dyncp", 16, 3);
  options.scheduler = &scheduler;
  const std::string message = message_of<Infeasible>([&] { run_all(4, source, options); });
  EXPECT_EQ(message.find("scheduler misaligned answered an invalid schedule, group-aligned: "), 0U)
      << message;
}

}  // namespace
}  // namespace dyncp
