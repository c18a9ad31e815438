// Global batches into each rank's microbatches: lengths are gathered over ranks, every rank makes
// the plan, documents travel to the ranks of their CP group, and are padded, packed and sliced.
// Batch n depends on source, options and n alone; asking for it again gives the same bits.
// Lengths in tokens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reference/context.h"
#include "reference/schedule.h"
#include "runtime/document_source.h"
#include "runtime/microbatch.h"
#include "runtime/scheduler.h"
#include "runtime/transport.h"

namespace dyncp {

/// How sequences are laid out.
///   kThd   packed, on the CP groups that a scheduler chooses
///   kBshd  batched: every sequence padded to max_length, on static CP groups of one size
enum class Layout { kThd, kBshd };

/// "thd" or "bshd".
std::string_view to_string(Layout layout);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Layout parse_layout(std::string_view name);

/// What becomes of a document longer than max_length: its first max_length tokens are kept, or the
/// batch is refused.
enum class Overlong { kTruncate, kRefuse };

/// "truncate" or "refuse".
std::string_view to_string(Overlong overlong);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Overlong parse_overlong(std::string_view name);

struct DataOptions {
  Layout layout = Layout::kThd;
  const Scheduler* scheduler = nullptr;  // thd only, where it must be given
  int cp = 1;                            // thd: smallest CP size; bshd: the CP size
  std::int64_t max_tokens_per_rank = 1;
  std::int64_t global_batch = 1;  // documents
  std::int64_t max_length = 0;    // longest sequence; 0 = what fits on all ranks together
  Overlong overlong = Overlong::kTruncate;
  GroupPolicy group_policy = GroupPolicy::kAligned;
  Contract contract = Contract::kV1;
  std::uint64_t seed = 1;  // of the order of documents

  /// max_length, or what stands for 0: the longest sequence that fits on all ranks when padded.
  std::int64_t longest(int ranks) const;
};

/// Throws InvalidInput naming the option that is out of range or does not go with the others, or
/// Infeasible when a bshd sequence does not fit: see DataIterator.
void require_valid(const DataOptions& options, int ranks);

/// The documents of global batch n, cut to the longest sequence, in batch order: what all ranks of
/// `ranks` together train on. Throws InvalidInput, for a document that is refused too.
std::vector<Document> batch_documents(const DocumentSource& source, const DataOptions& options,
                                      int ranks, std::int64_t n);

/// Who runs what of one global batch. Ids are positions in the batch.
struct BatchPlan {
  ScheduleProblem problem;
  Schedule schedule;
};

/// The plan for sequences of these lengths, the same on every rank that asks.
/// thd: what the scheduler answers, with padding to multiples of 2 * CP size; empty sequences are
/// dropped. Throws Infeasible with the
/// scheduler's reason, or with the rule that its answer breaks (check_schedule).
/// bshd: sequences dealt in order over the groups, as many in a microbatch as max_tokens_per_rank
/// allows; an empty one keeps its row of padding.
BatchPlan make_batch_plan(const DataOptions& options, int ranks,
                          const std::vector<std::int64_t>& lengths);

/// One rank's part of a global batch.
struct RankBatch {
  std::vector<PackedMicrobatch> microbatches;  // in the order they run
  /// Number of each microbatch in the whole schedule: the same on all members of its group, which
  /// may run different numbers of microbatches when sequences run one at a time.
  std::vector<int> indices;
  // Of the whole batch, the same on every rank.
  std::map<int, std::int64_t> cp_sizes;  // CP size -> groups that ran, over all microbatches
  std::int64_t real_tokens = 0;
  std::int64_t padded_tokens = 0;
};

/// The documents as a batch of a single rank: CP off, one document a microbatch, no padding.
RankBatch single_rank_batch(const std::vector<Document>& documents);

class DataIterator {
 public:
  /// `transport` and `source` must outlive it. All ranks must be given equal options and sources.
  /// bshd: cp divides the ranks, the documents of a batch divide evenly over the groups, and
  /// max_length rounded up to 2 * cp fits in cp * max_tokens_per_rank. Throws as require_valid.
  DataIterator(Transport& transport, const DocumentSource& source, const DataOptions& options);

  /// This rank's part of global batch n. Collective: every rank must ask for the same n. Rank r
  /// reads documents r, r + ranks, ... of the batch from the source; the others come over the
  /// transport. A serial schedule gives one microbatch a sequence, a pack schedule one a group.
  /// Throws InvalidInput and Infeasible alike on all ranks, and TransportError: a rank whose plan
  /// differs from that of most ranks is the culprit.
  RankBatch batch(std::int64_t n) const;

  const DataOptions& options() const { return options_; }

 private:
  std::vector<std::int64_t> gather_lengths(const std::vector<std::int64_t>& indices) const;
  void require_agreement(const BatchPlan& plan, std::int64_t n) const;
  std::map<int, Document> exchange_documents(const BatchPlan& plan,
                                             const std::vector<std::int64_t>& indices) const;
  [[noreturn]] void give_up(const std::string& reason) const;

  Transport& transport_;
  const DocumentSource& source_;
  DataOptions options_;
};

}  // namespace dyncp
