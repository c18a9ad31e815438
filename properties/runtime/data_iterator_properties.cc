// The data pipeline over thread ranks: every token of every document reaches exactly one rank, with
// its label, position and mask, whatever lengths, scheduler, layout and number of ranks.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/generators.h"
#include "properties/runtime/provenance_source.h"
#include "reference/error.h"
#include "reference/loss.h"
#include "reference/schedule_check.h"
#include "runtime/data_iterator.h"
#include "runtime/thread_transport.h"

namespace dyncp {
namespace {

// What every rank got of one batch.
std::vector<RankBatch> run_pipeline(int ranks, const DocumentSource& source,
                                    const DataOptions& options, std::int64_t n) {
  std::vector<RankBatch> batches(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, {}, [&](Transport& transport) {
    const DataIterator iterator(transport, source, options);
    batches[static_cast<std::size_t>(transport.rank())] = iterator.batch(n);
  });
  return batches;
}

// One row of a document, as a rank holds it.
struct Row {
  std::int64_t label = 0;
  bool counts = false;
};

// Checks every row of a rank's batch by itself and collects the real ones by (document, position).
void collect(const RankBatch& batch, std::map<std::pair<std::int64_t, std::int64_t>, Row>& rows) {
  for (const PackedMicrobatch& microbatch : batch.microbatches) {
    const auto total = static_cast<std::size_t>(microbatch.params.total_tokens());
    RC_ASSERT(microbatch.tokens.size() == total);
    RC_ASSERT(microbatch.labels.size() == total);
    RC_ASSERT(microbatch.positions.size() == total);
    RC_ASSERT(microbatch.loss_mask.size() == total);
    for (std::size_t row = 0; row < total; ++row) {
      const std::int64_t token = microbatch.tokens[row];
      if (token == 0) {
        RC_ASSERT(microbatch.labels[row] == kIgnoreLabel);
        RC_ASSERT(microbatch.loss_mask[row] == 0);
        continue;
      }
      const std::int64_t document = (token - 1) / kProvenanceStride;
      const std::int64_t position = (token - 1) % kProvenanceStride;
      RC_ASSERT(microbatch.positions[row] == position);
      const bool is_new =
          rows.try_emplace({document, position},
                           Row{microbatch.labels[row], microbatch.loss_mask[row] != 0})
              .second;
      RC_ASSERT(is_new);
    }
  }
}

// The rows that the batch must have, made from the source alone.
void require_all_rows(const std::vector<RankBatch>& batches, const DocumentSource& source,
                      const DataOptions& options, std::int64_t n) {
  std::map<std::pair<std::int64_t, std::int64_t>, Row> rows;
  for (const RankBatch& batch : batches) collect(batch, rows);
  const int ranks = static_cast<int>(batches.size());
  std::size_t expected = 0;
  for (std::int64_t index :
       global_batch(source.documents(), options.seed, n, options.global_batch)) {
    const std::int64_t kept = std::min(source.length(index), options.longest(ranks));
    expected += static_cast<std::size_t>(kept);
    for (std::int64_t j = 0; j < kept; ++j) {
      const auto found = rows.find({index, j});
      RC_ASSERT(found != rows.end());
      const bool last = j + 1 == kept;
      const std::int64_t label = last ? kIgnoreLabel : index * kProvenanceStride + j + 2;
      RC_ASSERT(found->second.label == label);
      RC_ASSERT(found->second.counts == (!last && provenance_counts(index, j)));
    }
  }
  RC_ASSERT(rows.size() == expected);
  for (const RankBatch& batch : batches) {
    RC_ASSERT(batch.real_tokens == static_cast<std::int64_t>(expected));
    RC_ASSERT(batch.padded_tokens >= batch.real_tokens);
    RC_ASSERT(batch.cp_sizes == batches.front().cp_sizes);
  }
}

// A source with as many documents as a batch has, so that provenance is unique in the batch.
struct Setting {
  std::vector<std::int64_t> lengths;
  DataOptions options;
  int ranks = 1;
};

Setting draw_setting() {
  Setting setting;
  setting.ranks = *genInt(1, 8);
  setting.options.max_tokens_per_rank = *genInt(2, 60);
  const std::int64_t longest = setting.options.longest(setting.ranks);
  // Some documents longer than the longest sequence: they are cut.
  setting.lengths = *genLengths({.max_length = longest + 5, .min_count = 1, .max_count = 24});
  setting.options.global_batch = static_cast<std::int64_t>(setting.lengths.size());
  setting.options.seed = *rc::gen::arbitrary<std::uint64_t>();
  return setting;
}

RC_GTEST_PROP(DataIterator, EveryTokenReachesOneRankUnderEveryScheduler, ()) {
  Setting setting = draw_setting();
  const auto& all = schedulers();
  const Scheduler* scheduler =
      all[static_cast<std::size_t>(*genInt(0, static_cast<int>(all.size()) - 1))];
  setting.options.scheduler = scheduler;
  const ProvenanceSource source(setting.lengths);
  const std::int64_t n = *genInt(0, 3);
  std::vector<RankBatch> batches;
  try {
    batches = run_pipeline(setting.ranks, source, setting.options, n);
  } catch (const Infeasible&) {
    // Schedulers may refuse; dyncp's own schedules whatever fits the domain.
    RC_ASSERT(scheduler->name() != "dyncp");
    RC_TAG("refused by " + std::string(scheduler->name()));
    return;
  }
  require_all_rows(batches, source, setting.options, n);
  std::string sizes;
  for (const auto& [size, groups] : batches.front().cp_sizes) sizes += " " + std::to_string(size);
  RC_TAG("CP sizes" + sizes);
}

RC_GTEST_PROP(DataIterator, EveryTokenReachesOneRankBatched, ()) {
  Setting setting = draw_setting();
  std::vector<int> divisors;
  for (int size = 1; size <= setting.ranks; ++size) {
    if (setting.ranks % size == 0) divisors.push_back(size);
  }
  setting.options.layout = Layout::kBshd;
  setting.options.cp = *rc::gen::elementOf(divisors);
  setting.options.max_length = setting.options.max_tokens_per_rank / 2 * 2 * setting.options.cp;
  setting.lengths.resize(static_cast<std::size_t>(
      round_up(setting.options.global_batch, setting.ranks / setting.options.cp)));
  setting.options.global_batch = static_cast<std::int64_t>(setting.lengths.size());
  const ProvenanceSource source(setting.lengths);
  const auto batches = run_pipeline(setting.ranks, source, setting.options, 1);
  require_all_rows(batches, source, setting.options, 1);
  for (const RankBatch& batch : batches) {
    RC_ASSERT(batch.microbatches.size() == batches.front().microbatches.size());
    for (const PackedMicrobatch& microbatch : batch.microbatches) {
      RC_ASSERT(microbatch.params.local_cp_size() == setting.options.cp);
      for (int s = 0; s < microbatch.params.pack().sequences(); ++s) {
        RC_ASSERT(microbatch.params.pack().padded_length(s) == setting.options.max_length);
      }
    }
  }
}

bool same(const PackedMicrobatch& a, const PackedMicrobatch& b) {
  return a.params.pack() == b.params.pack() && a.params.context() == b.params.context() &&
         a.sequence_ids == b.sequence_ids && a.tokens == b.tokens && a.labels == b.labels &&
         a.positions == b.positions && a.loss_mask == b.loss_mask;
}

RC_GTEST_PROP(DataIterator, AskingAgainGivesTheSameBatch, ()) {
  Setting setting = draw_setting();
  setting.options.scheduler = &find_scheduler("dyncp");
  const ProvenanceSource source(setting.lengths);
  std::vector<int> same_bits(static_cast<std::size_t>(setting.ranks), 0);
  run_thread_ranks(setting.ranks, {}, [&](Transport& transport) {
    const DataIterator iterator(transport, source, setting.options);
    const RankBatch first = iterator.batch(2);
    iterator.batch(0);
    const RankBatch again = iterator.batch(2);
    same_bits[static_cast<std::size_t>(transport.rank())] =
        std::equal(first.microbatches.begin(), first.microbatches.end(), again.microbatches.begin(),
                   again.microbatches.end(), same);
  });
  RC_ASSERT(same_bits == std::vector<int>(static_cast<std::size_t>(setting.ranks), 1));
}

// Members of a group run the same packs in the same order and under the same number, also where
// other groups run fewer or more sequences one at a time.
RC_GTEST_PROP(DataIterator, MembersOfAGroupRunTheSamePacks, ()) {
  Setting setting = draw_setting();
  setting.options.scheduler = &find_scheduler(*rc::gen::element("dyncp", "megatron-balanced"));
  const ProvenanceSource source(setting.lengths);
  std::vector<RankBatch> batches;
  try {
    batches = run_pipeline(setting.ranks, source, setting.options, 0);
  } catch (const Infeasible&) {
    RC_DISCARD("refused");
  }
  for (const RankBatch& mine : batches) {
    RC_ASSERT(mine.indices.size() == mine.microbatches.size());
    RC_ASSERT(std::adjacent_find(mine.indices.begin(), mine.indices.end(),
                                 std::greater_equal<>()) == mine.indices.end());
    for (std::size_t m = 0; m < mine.microbatches.size(); ++m) {
      const PackedMicrobatch& microbatch = mine.microbatches[m];
      const CpContext& context = microbatch.params.context();
      for (int member = 0; context.cp_on() && member < context.size(); ++member) {
        const RankBatch& other = batches[static_cast<std::size_t>(context.global_rank(member))];
        const auto index = std::find(other.indices.begin(), other.indices.end(), mine.indices[m]);
        RC_ASSERT(index != other.indices.end());
        const PackedMicrobatch& same =
            other.microbatches[static_cast<std::size_t>(index - other.indices.begin())];
        RC_ASSERT(same.sequence_ids == microbatch.sequence_ids);
        RC_ASSERT(same.params.pack() == microbatch.params.pack());
        RC_ASSERT(same.params.context().rank() == member);
      }
    }
  }
}

// What the pipeline yields together is what a reader without ranks sees.
RC_GTEST_PROP(DataIterator, TheBatchDoesNotDependOnRanks, ()) {
  const std::vector<std::int64_t> lengths =
      *genLengths({.max_length = 50, .min_count = 1, .max_count = 12});
  const ProvenanceSource source(lengths);
  DataOptions options;
  options.global_batch = *genInt(1, 20);
  options.max_length = *genInt(1, 50);
  options.max_tokens_per_rank = 60;
  options.scheduler = &find_scheduler("dyncp");
  const auto one = batch_documents(source, options, 1, 5);
  const auto eight = batch_documents(source, options, 8, 5);
  RC_ASSERT(one.size() == static_cast<std::size_t>(options.global_batch));
  for (std::size_t i = 0; i < one.size(); ++i) {
    RC_ASSERT(one[i].tokens == eight[i].tokens);
    RC_ASSERT(one[i].loss_mask == eight[i].loss_mask);
  }
}

}  // namespace
}  // namespace dyncp
