#include "runtime/data_iterator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "reference/error.h"
#include "runtime/digest.h"
#include "runtime/pack_documents.h"
#include "runtime/schedule_format.h"

namespace dyncp {
namespace {

Document read_document(const DocumentSource& source, std::int64_t index, std::int64_t longest) {
  Document document = source.document(index);
  const auto keep = static_cast<std::size_t>(longest);
  if (document.tokens.size() > keep) document.tokens.resize(keep);
  if (document.loss_mask.size() > keep) document.loss_mask.resize(keep);
  return document;
}

// The length that the pipeline gives a document. Throws InvalidInput when it refuses it.
std::int64_t kept_length(const DataOptions& options, int ranks, std::int64_t index,
                         std::int64_t length) {
  const std::int64_t longest = options.longest(ranks);
  if (length > longest && options.overlong == Overlong::kRefuse) {
    throw InvalidInput(fmt::format(
        "document {} has {} tokens and the longest sequence is {}: refused, as was asked", index,
        length, longest));
  }
  return std::min(length, longest);
}

// A document on its way: tokens, then one mask byte a token.
void append_document(const Document& document, std::vector<std::byte>& message) {
  const std::span<const std::byte> tokens = as_bytes_of(document.tokens);
  message.insert(message.end(), tokens.begin(), tokens.end());
  for (std::size_t i = 0; i < document.tokens.size(); ++i) {
    const bool counts = document.loss_mask.empty() || document.loss_mask[i] != 0;
    message.push_back(static_cast<std::byte>(counts));
  }
}

std::size_t message_bytes(std::int64_t length) {
  return static_cast<std::size_t>(length) * (sizeof(std::int64_t) + 1);
}

Document take_document(const std::byte* message, std::int64_t length) {
  const auto count = static_cast<std::size_t>(length);
  Document document;
  document.tokens.resize(count);
  document.loss_mask.resize(count);
  if (count == 0) return document;
  std::memcpy(document.tokens.data(), message, count * sizeof(std::int64_t));
  std::memcpy(document.loss_mask.data(), message + count * sizeof(std::int64_t), count);
  return document;
}

// The ids that `rank` runs, ascending.
std::set<int> ids_of_rank(const Schedule& schedule, int rank) {
  std::set<int> ids;
  for (const Microbatch& microbatch : schedule.microbatches) {
    for (const Assignment& assignment : microbatch) {
      if (!assignment.group.contains(rank)) continue;
      ids.insert(assignment.sequences.begin(), assignment.sequences.end());
    }
  }
  return ids;
}

// Which of these plans most ranks have; of equally common ones the one of the lowest rank.
std::uint64_t most_common(const std::vector<std::uint64_t>& plans) {
  const auto count = [&plans](std::uint64_t plan) {
    return std::count(plans.begin(), plans.end(), plan);
  };
  return *std::max_element(plans.begin(), plans.end(),
                           [&](std::uint64_t a, std::uint64_t b) { return count(a) < count(b); });
}

}  // namespace

std::vector<Document> batch_documents(const DocumentSource& source, const DataOptions& options,
                                      int ranks, std::int64_t n) {
  std::vector<Document> documents;
  for (const std::int64_t index :
       global_batch(source.documents(), options.seed, n, options.global_batch)) {
    const std::int64_t kept = kept_length(options, ranks, index, source.length(index));
    documents.push_back(read_document(source, index, kept));
  }
  return documents;
}

RankBatch single_rank_batch(const std::vector<Document>& documents) {
  RankBatch batch;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const int id = static_cast<int>(i);
    const auto length = static_cast<std::int64_t>(documents[i].tokens.size());
    batch.microbatches.push_back(pack_documents({{id, &documents[i], length}}, {0, 1}, 0));
    batch.indices.push_back(id);
    ++batch.cp_sizes[1];
    batch.real_tokens += length;
    batch.padded_tokens += length;
  }
  return batch;
}

DataIterator::DataIterator(Transport& transport, const DocumentSource& source,
                           const DataOptions& options)
    : transport_(transport), source_(source), options_(options) {
  require_valid(options_, transport_.ranks());
}

RankBatch DataIterator::batch(std::int64_t n) const {
  const int ranks = transport_.ranks();
  const int rank = transport_.rank();
  const std::vector<std::int64_t> indices =
      global_batch(source_.documents(), options_.seed, n, options_.global_batch);
  const BatchPlan plan = make_batch_plan(options_, ranks, gather_lengths(indices));
  require_agreement(plan, n);
  const std::map<int, Document> documents = exchange_documents(plan, indices);

  const std::int64_t batched =
      round_up(options_.longest(ranks), padding_multiple(options_.cp, 1));  // bshd
  const auto padded_length = [&](int id, int size) {
    return options_.layout == Layout::kBshd ? batched : plan.problem.padded_length(id, size);
  };
  RankBatch batch;
  for (const std::int64_t length : plan.problem.lengths) batch.real_tokens += length;
  int next_index = 0;
  for (const Microbatch& microbatch : plan.schedule.microbatches) {
    const int index = next_index;
    for (const Assignment& assignment : microbatch) {
      const CpGroup& group = assignment.group;
      const bool packed = plan.problem.execution == Execution::kPack;
      const int runs = packed ? 1 : static_cast<int>(assignment.sequences.size());
      next_index = std::max(next_index, index + runs);
      ++batch.cp_sizes[group.size];
      for (int id : assignment.sequences) batch.padded_tokens += padded_length(id, group.size);
      if (!group.contains(rank)) continue;
      std::vector<PackEntry> entries;
      for (int id : assignment.sequences) {
        entries.push_back({id, &documents.at(id), padded_length(id, group.size)});
      }
      for (int run = 0; run < runs; ++run) {
        const std::vector<PackEntry> here =
            packed ? entries : std::vector<PackEntry>{entries[static_cast<std::size_t>(run)]};
        batch.microbatches.push_back(pack_documents(here, group, rank, options_.contract));
        batch.indices.push_back(index + run);
      }
    }
  }
  return batch;
}

std::vector<std::int64_t> DataIterator::gather_lengths(
    const std::vector<std::int64_t>& indices) const {
  const auto ranks = static_cast<std::size_t>(transport_.ranks());
  std::vector<std::int64_t> mine;
  for (auto i = static_cast<std::size_t>(transport_.rank()); i < indices.size(); i += ranks) {
    mine.push_back(source_.length(indices[i]));
  }
  const auto gathered = transport_.all_gather(as_bytes_of(mine), {.what = "lengths"});
  std::vector<std::vector<std::int64_t>> shares;
  for (std::size_t r = 0; r < ranks; ++r) {
    shares.push_back(from_bytes<std::int64_t>(gathered[r]));
    const std::size_t expected = (indices.size() + ranks - 1 - r) / ranks;
    if (shares.back().size() != expected) {
      give_up(fmt::format("rank {} holds {} documents of the global batch, expected {}", r,
                          shares.back().size(), expected));
    }
  }
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    lengths.push_back(
        kept_length(options_, transport_.ranks(), indices[i], shares[i % ranks][i / ranks]));
  }
  return lengths;
}

void DataIterator::require_agreement(const BatchPlan& plan, std::int64_t n) const {
  const std::vector<std::uint64_t> mine = {
      digest(schedule_to_json(plan.problem, plan.schedule).dump())};
  std::vector<std::uint64_t> plans;
  for (const auto& bytes : transport_.all_gather(as_bytes_of(mine), {.what = "plan"})) {
    plans.push_back(from_bytes<std::uint64_t>(bytes).at(0));
  }
  const std::uint64_t common = most_common(plans);
  if (std::all_of(plans.begin(), plans.end(), [&](std::uint64_t p) { return p == common; })) return;
  const auto agreeing = std::count(plans.begin(), plans.end(), common);
  if (mine[0] != common) {
    give_up(
        fmt::format("its plan of global batch {} is {:016x}, the plan of {} of {} ranks is "
                    "{:016x}",
                    n, mine[0], agreeing, plans.size(), common));
  }
  // The rank that differs ends the run; this one waits to be told.
  transport_.barrier({.what = "plan differs"});
  throw std::logic_error("a rank with another plan went on");
}

std::map<int, Document> DataIterator::exchange_documents(
    const BatchPlan& plan, const std::vector<std::int64_t>& indices) const {
  const int ranks = transport_.ranks();
  const int rank = transport_.rank();
  const auto length_of = [&plan](int id) {
    return plan.problem.lengths[static_cast<std::size_t>(id)];
  };
  std::map<int, Document> mine;
  for (int id = rank; id < static_cast<int>(indices.size()); id += ranks) {
    mine.emplace(id, read_document(source_, indices[static_cast<std::size_t>(id)], length_of(id)));
  }
  std::vector<std::vector<std::byte>> outgoing(static_cast<std::size_t>(ranks));
  for (int to = 0; to < ranks; ++to) {
    for (int id : ids_of_rank(plan.schedule, to)) {
      if (id % ranks == rank) append_document(mine.at(id), outgoing[static_cast<std::size_t>(to)]);
    }
  }
  const auto incoming = transport_.all_to_all(outgoing, {.what = "documents"});
  std::map<int, Document> documents;
  std::vector<std::size_t> taken(incoming.size(), 0);
  for (int id : ids_of_rank(plan.schedule, rank)) {
    const auto from = static_cast<std::size_t>(id % ranks);
    const std::size_t bytes = message_bytes(length_of(id));
    if (taken[from] + bytes > incoming[from].size()) {
      give_up(fmt::format("rank {} sent {} bytes of documents, too few for sequence {}", from,
                          incoming[from].size(), id));
    }
    documents.emplace(id, take_document(incoming[from].data() + taken[from], length_of(id)));
    taken[from] += bytes;
  }
  for (std::size_t from = 0; from < incoming.size(); ++from) {
    if (taken[from] == incoming[from].size()) continue;
    give_up(fmt::format("rank {} sent {} bytes of documents, {} of them were not expected", from,
                        incoming[from].size(), incoming[from].size() - taken[from]));
  }
  return documents;
}

void DataIterator::give_up(const std::string& reason) const {
  transport_.abort(reason);
  throw TransportError(transport_.rank(),
                       fmt::format("rank {} gave up: {}", transport_.rank(), reason));
}

}  // namespace dyncp
