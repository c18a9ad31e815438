// One tiny layer from lengths to gradients, built of reference pieces only: pack, zigzag slice,
// positions, RoPE, ring attention, logits, per-token loss, backward, reduction. The metamorphic
// properties run it in pairs of ways that must agree.
//
//   x = embedding[token]                                   [width]
//   q, k = rope(query x), rope(key x);  v = value x        [heads, dim], [kv_heads, dim /
//   value_dim] o = attention(q, k, v)                                 [heads, value_dim] logits =
//   head o + skip x                               [vocabulary]
//
// Gradients are those of the embedding table and of the head; query, key, value and skip are
// constants. Every tensor is double. Rows of padding hold RunOptions::padding (NaN unless said
// otherwise) from the embedding on.
//
// Fault puts one well-known mistake into the pipeline, under its name in the list of faults: the
// negative controls that show that each relation can fail.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/wrong/normalisation.h"
#include "reference/attention.h"
#include "reference/context.h"
#include "reference/loss.h"
#include "reference/ring.h"
#include "reference/rope.h"
#include "reference/zigzag.h"

namespace dyncp::pipeline {

enum class Fault {
  kNone,
  kSliceWholeBuffer,         // zigzag applied to the pack as one sequence
  kRopeBuildTimeGroup,       // positions of a group of size 1, whatever group runs
  kPositionOfFirstSequence,  // the first sequence's chunk length is used for all
  kCosSinCacheKey,           // positions are cached and the key lacks the group
  kStaleGroupAfterCp1,       // a CP1 microbatch keeps the larger group before it
  kRotateQueriesOnly,        // a position offset reaches the queries but not the keys
  kLabelsRolledAfterSlice,   // next-token labels are shifted inside the slice
  kPaddedAsReal,             // attention takes padded lengths for real ones
  kPadNanTimesZero,          // losses are masked by multiplication
  kCrossSequenceLeak,        // attention takes the pack for one sequence
  kLastDkvLost,              // the last rank never gets its dK/dV back
  kMaskIgnored,              // every labelled token counts
  kLocalMean,                // each rank divides by its own token count
  kLossTimesCp,              // gradients are multiplied by the number of ranks
  kTokensCountedTwice,       // the token count is reduced twice
  kSumNotDivided,            // the sum over tokens is taken for the mean
  kSequenceLost,             // the last sequence of a pack vanishes
  kOrderOfArrival,           // ranks are added up in another order in every run
};

struct Model {
  int vocabulary = 13;
  int width = 6;
  int heads = 2;
  int kv_heads = 1;
  int dim = 4;
  int value_dim = 3;
  RopeOptions rope{.rotary_dim = 4, .base = 100.0};
  std::vector<double> embedding;  // [vocabulary, width]
  std::vector<double> query;      // [heads * dim, width]
  std::vector<double> key;        // [kv_heads * dim, width]
  std::vector<double> value;      // [kv_heads * value_dim, width]
  std::vector<double> head;       // [vocabulary, heads * value_dim]
  std::vector<double> skip;       // [vocabulary, width]
};

/// Every weight in [-1, 1), derived from the seed.
inline Model make_model(std::uint64_t seed) {
  Model model;
  std::mt19937_64 random(seed);
  const auto fill = [&random](std::vector<double>& weights, int rows, int columns) {
    for (int i = 0; i < rows * columns; ++i) {
      weights.push_back(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
    }
  };
  fill(model.embedding, model.vocabulary, model.width);
  fill(model.query, model.heads * model.dim, model.width);
  fill(model.key, model.kv_heads * model.dim, model.width);
  fill(model.value, model.kv_heads * model.value_dim, model.width);
  fill(model.head, model.vocabulary, model.heads * model.value_dim);
  fill(model.skip, model.vocabulary, model.width);
  return model;
}

/// One sequence. Its labels are its next tokens, but for label_changes (position -> label).
struct Document {
  std::vector<std::int64_t> tokens;
  std::vector<std::uint8_t> mask;  // as long as tokens
  std::map<std::int64_t, std::int64_t> label_changes;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
};

/// One packed microbatch of one CP group. `documents` are indices into the batch, in pack order.
struct Placement {
  std::vector<int> documents;
  CpGroup group;
  int extra_multiples = 0;  // padding beyond what is needed, in multiples of 2 * group.size
};

struct RunOptions {
  bool causal = true;
  double padding = std::numeric_limits<double>::quiet_NaN();  // what padded rows hold
  std::int64_t padding_token = 0;
  std::vector<std::int64_t> position_shift;  // added to each document's positions; empty = 0
  Fault fault = Fault::kNone;
};

/// What one document saw, row by row in its own order: equal bits mean equal computation.
struct Trace {
  std::vector<double> losses;  // [length]
  std::vector<double> o;       // [length, heads, value_dim]
  std::vector<double> lse;     // [length, heads]
  std::vector<double> dq, dk, dv;
  bool operator==(const Trace&) const = default;
};

struct StepResult {
  LossSum total;                // over all ranks and microbatches, before any division
  ReducedLoss reduced;          // what the training step sees
  std::map<int, Trace> traces;  // by document
};

/// matrix [rows, columns] times vector.
inline std::vector<double> multiply(const std::vector<double>& matrix, const double* vector,
                                    int rows, int columns) {
  std::vector<double> result(static_cast<std::size_t>(rows), 0.0);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      result[static_cast<std::size_t>(r)] +=
          matrix[static_cast<std::size_t>(r * columns + c)] * vector[c];
    }
  }
  return result;
}

/// Adds transposed matrix [rows, columns] times vector to result [columns].
inline void add_transposed(const std::vector<double>& matrix, const double* vector, int rows,
                           int columns, double* result) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      result[c] += matrix[static_cast<std::size_t>(r * columns + c)] * vector[r];
    }
  }
}

/// One training process. It holds no state; `history_` exists for the faults that do.
class Worker {
 public:
  /// Runs the microbatches and reduces over all ranks of all of them.
  StepResult run(const Model& model, const std::vector<Document>& documents,
                 const std::vector<Placement>& placements, const RunOptions& options) {
    StepResult result;
    std::vector<RankLoss> ranks;
    for (const Placement& placement : placements) {
      for (RankLoss& rank : run_microbatch(model, documents, placement, options, result.traces)) {
        ranks.push_back(std::move(rank));
      }
    }
    if (options.fault == Fault::kOrderOfArrival && !ranks.empty()) {
      std::rotate(ranks.begin(),
                  ranks.begin() + static_cast<std::ptrdiff_t>(history_.runs++ % ranks.size()),
                  ranks.end());
    }
    for (const RankLoss& rank : ranks) result.total = combine({result.total, rank.loss});
    result.reduced = reduce(ranks, options.fault);
    return result;
  }

 private:
  struct History {
    std::size_t runs = 0;
    int last_size = 1;
    std::map<int, std::vector<std::int64_t>> positions;  // by rank
  };
  History history_;

  static ReducedLoss reduce(const std::vector<RankLoss>& ranks, Fault fault) {
    if (fault == Fault::kLocalMean) return wrong::local_mean(ranks);
    if (fault == Fault::kLossTimesCp) return wrong::loss_times_cp(ranks);
    if (fault == Fault::kTokensCountedTwice) return wrong::tokens_counted_twice(ranks);
    ReducedLoss result = reduce_loss(ranks);
    if (fault == Fault::kSumNotDivided) {
      const auto tokens = static_cast<double>(result.tokens);
      result.loss *= tokens;
      result.gradients = wrong::scaled(result.gradients, tokens);
      result.gradient_norm = gradient_norm(result.gradients);
    }
    return result;
  }

  // Position of every local row, [rank][row].
  std::vector<std::vector<std::int64_t>> positions_of(const Pack& pack, int size, Fault fault) {
    std::vector<std::vector<std::int64_t>> positions;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::int64_t> here;
      if (fault == Fault::kRopeBuildTimeGroup || fault == Fault::kPositionOfFirstSequence ||
          (fault == Fault::kStaleGroupAfterCp1 && size == 1 && history_.last_size > 1)) {
        const std::int64_t first = pack.sequences() > 0 ? pack.padded_length(0) : 0;
        for (int s = 0; s < pack.sequences(); ++s) {
          const std::int64_t rows = pack.padded_length(s) / size;
          for (std::int64_t i = 0; i < rows; ++i) {
            if (fault == Fault::kRopeBuildTimeGroup) {
              here.push_back(i);
            } else if (fault == Fault::kStaleGroupAfterCp1) {
              const ZigzagLayout stale{history_.last_size};
              here.push_back(stale.global_index(rows * stale.size, 0, i));
            } else {
              const bool front = i < ZigzagLayout{size}.front_length(pack.padded_length(s));
              const std::int64_t chunk = ZigzagLayout{size}.front_length(first);
              here.push_back(front ? rank * chunk + i : (2 * size - 2 - rank) * chunk + i);
            }
          }
        }
      } else {
        here = rope_positions(pack, size, rank);
      }
      if (fault == Fault::kCosSinCacheKey) {
        std::vector<std::int64_t>& cached = history_.positions[rank];
        if (cached.size() >= here.size()) {
          std::copy_n(cached.begin(), here.size(), here.begin());
        } else {
          cached = here;
        }
      }
      positions.push_back(std::move(here));
    }
    if (size > 1) history_.last_size = size;
    return positions;
  }

  std::vector<RankLoss> run_microbatch(const Model& model, const std::vector<Document>& documents,
                                       const Placement& placement, const RunOptions& options,
                                       std::map<int, Trace>& traces);
};

/// The pack of a placement, with tokens, labels and mask of all its rows.
struct PackedBatch {
  Pack pack;
  std::vector<std::int64_t> tokens;
  LossTargets targets;
};

inline PackedBatch pack_documents(const std::vector<Document>& documents,
                                  const std::vector<int>& order, int size, int extra_multiples,
                                  std::int64_t padding_token) {
  const std::int64_t multiple = padding_multiple(size, 1);
  std::vector<Sequence> sequences;
  for (int id : order) {
    const std::int64_t length = documents[static_cast<std::size_t>(id)].length();
    sequences.push_back({length, round_up(length, multiple) + extra_multiples * multiple});
  }
  PackedBatch batch;
  batch.pack = Pack(std::move(sequences));
  const auto rows = static_cast<std::size_t>(batch.pack.padded_tokens());
  batch.tokens.assign(rows, padding_token);
  batch.targets.mask.assign(rows, 0);
  for (int s = 0; s < batch.pack.sequences(); ++s) {
    const Document& document =
        documents[static_cast<std::size_t>(order[static_cast<std::size_t>(s)])];
    for (std::int64_t j = 0; j < document.length(); ++j) {
      const auto row = static_cast<std::size_t>(batch.pack.first_row(s) + j);
      batch.tokens[row] = document.tokens[static_cast<std::size_t>(j)];
      batch.targets.mask[row] = document.mask[static_cast<std::size_t>(j)];
    }
  }
  batch.targets.labels = shift_labels(batch.pack, batch.tokens);
  for (int s = 0; s < batch.pack.sequences(); ++s) {
    const Document& document =
        documents[static_cast<std::size_t>(order[static_cast<std::size_t>(s)])];
    for (const auto& [position, label] : document.label_changes) {
      batch.targets.labels[static_cast<std::size_t>(batch.pack.first_row(s) + position)] = label;
    }
  }
  return batch;
}

inline std::vector<RankLoss> Worker::run_microbatch(const Model& model,
                                                    const std::vector<Document>& documents,
                                                    const Placement& placement,
                                                    const RunOptions& options,
                                                    std::map<int, Trace>& traces) {
  const Fault fault = options.fault;
  const int size = placement.group.size;
  std::vector<int> order = placement.documents;
  if (fault == Fault::kSequenceLost && order.size() > 1) order.pop_back();
  const PackedBatch batch =
      pack_documents(documents, order, size, placement.extra_multiples, options.padding_token);
  const Pack& pack = batch.pack;
  const int width = model.width;
  const int q_size = model.heads * model.dim;
  const int k_size = model.kv_heads * model.dim;
  const int v_size = model.kv_heads * model.value_dim;
  const int o_size = model.heads * model.value_dim;

  // Slice: everything a rank holds of the batch.
  struct Rank {
    std::vector<std::int64_t> rows;  // of the pack
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> real_rows;  // local
    std::vector<std::int64_t> q_positions, k_positions;
    LossTargets targets;
    Tensor<double> x;  // [rows, 1, width]
  };
  std::vector<std::vector<std::int64_t>> positions = positions_of(pack, size, fault);
  std::vector<Rank> ranks;
  std::vector<Tensor<double>> q, k, v;
  for (int global = placement.group.first_rank; global < placement.group.end_rank(); ++global) {
    const CpContext context(placement.group, global);
    Rank rank;
    rank.rows = zigzag_rows(fault == Fault::kSliceWholeBuffer
                                ? Pack({Sequence{pack.padded_tokens(), pack.padded_tokens()}})
                                : pack,
                            context.size(), context.rank());
    rank.tokens = gather(batch.tokens, rank.rows);
    rank.targets = {gather(batch.targets.labels, rank.rows), gather(batch.targets.mask, rank.rows)};
    rank.q_positions = positions[static_cast<std::size_t>(context.rank())];
    rank.k_positions = rank.q_positions;
    const auto boundaries = local_boundaries(pack, size);
    const auto real = real_lengths_on_rank(pack, size, context.rank());
    for (std::size_t s = 0; s < real.size(); ++s) {
      for (std::int64_t i = 0; i < real[s]; ++i) rank.real_rows.push_back(boundaries[s] + i);
      if (options.position_shift.empty()) continue;
      const std::int64_t shift = options.position_shift[static_cast<std::size_t>(order[s])];
      for (std::int64_t row = boundaries[s]; row < boundaries[s + 1]; ++row) {
        rank.q_positions[static_cast<std::size_t>(row)] += shift;
        if (fault == Fault::kRotateQueriesOnly) continue;
        rank.k_positions[static_cast<std::size_t>(row)] += shift;
      }
    }
    if (fault == Fault::kLabelsRolledAfterSlice) {
      rank.targets.labels = wrong::labels_rolled_after_slice(rank.tokens, boundaries, real);
    }
    if (fault == Fault::kMaskIgnored) {
      for (std::int64_t row : rank.real_rows) rank.targets.mask[static_cast<std::size_t>(row)] = 1;
    }

    const auto rows = static_cast<std::int64_t>(rank.rows.size());
    rank.x = Tensor<double>(rows, 1, width, options.padding);
    for (std::int64_t row : rank.real_rows) {
      const auto token = static_cast<int>(rank.tokens[static_cast<std::size_t>(row)]);
      for (int d = 0; d < width; ++d) {
        rank.x.at(row, 0, d) = model.embedding[static_cast<std::size_t>(token * width + d)];
      }
    }
    const auto project = [&](const std::vector<double>& matrix, int heads, int dim) {
      Tensor<double> result(rows, heads, dim);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto y = multiply(matrix, &rank.x.at(row, 0, 0), heads * dim, width);
        std::copy(y.begin(), y.end(),
                  result.data.begin() + static_cast<std::ptrdiff_t>(result.offset(row, 0, 0)));
      }
      return result;
    };
    q.push_back(rope(project(model.query, model.heads, model.dim), rank.q_positions, model.rope));
    k.push_back(rope(project(model.key, model.kv_heads, model.dim), rank.k_positions, model.rope));
    v.push_back(project(model.value, model.kv_heads, model.value_dim));
    ranks.push_back(std::move(rank));
  }

  // Attention forward over the ring.
  Pack attention_pack = pack;
  if (fault == Fault::kPaddedAsReal) {
    std::vector<Sequence> all;
    for (int s = 0; s < pack.sequences(); ++s) {
      all.push_back({pack.padded_length(s), pack.padded_length(s)});
    }
    attention_pack = Pack(std::move(all));
  } else if (fault == Fault::kCrossSequenceLeak) {
    attention_pack = Pack({Sequence{pack.padded_tokens(), pack.padded_tokens()}});
  }
  const RingPlan plan = make_ring_plan(attention_pack, size, options.causal);
  const RingForward forward = ring_forward(plan, q, k, v, {});

  // Loss on every rank, and the gradient of its sum with respect to O.
  std::vector<RankLoss> result;
  std::vector<Tensor<double>> logit_gradients, d_o;
  std::vector<std::vector<double>> losses;
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const Rank& rank = ranks[at];
    const std::int64_t rows = rank.x.rows;
    Tensor<double> logits(rows, 1, model.vocabulary);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto from_o =
          multiply(model.head, &forward.o[at].at(row, 0, 0), model.vocabulary, o_size);
      const auto from_x = multiply(model.skip, &rank.x.at(row, 0, 0), model.vocabulary, width);
      for (int t = 0; t < model.vocabulary; ++t) {
        const auto i = static_cast<std::size_t>(t);
        logits.at(row, 0, t) = from_o[i] + from_x[i];
      }
    }
    losses.push_back(token_losses(logits, rank.targets));
    logit_gradients.push_back(loss_gradient(logits, rank.targets));
    RankLoss loss;
    loss.loss = loss_sum(logits, rank.targets);
    if (fault == Fault::kPadNanTimesZero) {
      LossTargets everything = rank.targets;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto i = static_cast<std::size_t>(row);
        if (everything.labels[i] == everything.ignore) everything.labels[i] = 0;
        everything.mask[i] = 1;
      }
      const auto unmasked = token_losses(logits, everything);
      loss.loss.sum = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        loss.loss.sum += unmasked[static_cast<std::size_t>(row)] * rank.targets.counts(row);
      }
    }
    std::vector<double> d_head(model.head.size(), 0.0);
    d_o.emplace_back(rows, model.heads, model.value_dim);
    // Rows that do not count have a gradient of exactly 0, and padded rows an O of exactly 0.
    for (std::int64_t row = 0; row < rows; ++row) {
      const double* g = &logit_gradients[at].at(row, 0, 0);
      const double* o = &forward.o[at].at(row, 0, 0);
      add_transposed(model.head, g, model.vocabulary, o_size, &d_o[at].at(row, 0, 0));
      for (int t = 0; t < model.vocabulary; ++t) {
        for (int d = 0; d < o_size; ++d)
          d_head[static_cast<std::size_t>(t * o_size + d)] += g[t] * o[d];
      }
    }
    loss.gradients = {{"embedding", std::vector<double>(model.embedding.size(), 0.0)},
                      {"head", std::move(d_head)}};
    result.push_back(std::move(loss));
  }

  // Attention backward over the ring, then back to the embedding.
  RingBackward backward = ring_backward(plan, q, k, v, forward, d_o, {});
  if (fault == Fault::kLastDkvLost && size > 1) {
    std::fill(backward.dk.back().data.begin(), backward.dk.back().data.end(), 0.0);
    std::fill(backward.dv.back().data.begin(), backward.dv.back().data.end(), 0.0);
  }
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const Rank& rank = ranks[at];
    const Tensor<double> dq = rope_backward(backward.dq[at], rank.q_positions, model.rope);
    const Tensor<double> dk = rope_backward(backward.dk[at], rank.k_positions, model.rope);
    std::vector<double>& d_embedding = result[at].gradients["embedding"];
    for (std::int64_t row : rank.real_rows) {
      const auto token = static_cast<int>(rank.tokens[static_cast<std::size_t>(row)]);
      double* d_x = d_embedding.data() + token * width;
      add_transposed(model.query, &dq.at(row, 0, 0), q_size, width, d_x);
      add_transposed(model.key, &dk.at(row, 0, 0), k_size, width, d_x);
      add_transposed(model.value, &backward.dv[at].at(row, 0, 0), v_size, width, d_x);
      add_transposed(model.skip, &logit_gradients[at].at(row, 0, 0), model.vocabulary, width, d_x);
    }
  }

  // Traces: each document's rows, collected from the ranks that hold them.
  const ZigzagLayout layout{size};
  const auto boundaries = local_boundaries(pack, size);
  for (int s = 0; s < pack.sequences(); ++s) {
    Trace& trace = traces[order[static_cast<std::size_t>(s)]];
    for (std::int64_t j = 0; j < pack.real_length(s); ++j) {
      const auto at = static_cast<std::size_t>(layout.rank_of(pack.padded_length(s), j));
      const std::int64_t row =
          boundaries[static_cast<std::size_t>(s)] + layout.local_index(pack.padded_length(s), j);
      const auto append = [row](std::vector<double>& to, const Tensor<double>& from) {
        const double* begin = &from.at(row, 0, 0);
        to.insert(to.end(), begin, begin + from.heads * from.dim);
      };
      trace.losses.push_back(losses[at][static_cast<std::size_t>(row)]);
      append(trace.o, forward.o[at]);
      append(trace.dq, backward.dq[at]);
      append(trace.dk, backward.dk[at]);
      append(trace.dv, backward.dv[at]);
      for (int h = 0; h < model.heads; ++h) trace.lse.push_back(forward.lse[at].at(h, row));
    }
  }
  return result;
}

/// A single fresh run.
inline StepResult run(const Model& model, const std::vector<Document>& documents,
                      const std::vector<Placement>& placements, const RunOptions& options = {}) {
  return Worker().run(model, documents, placements, options);
}

/// How far two correct runs over the same documents may lie apart, element by element: u * kappa
/// times the value that each quantity takes when every term of every sum is replaced by its
/// magnitude (first-order forward error analysis).
///   kappa counts roundings on the longest path: dot products over heads, widths, vocabulary and
///   keys, sums over rows and ranks, exp and log; an error of the scores enters P relatively, hence
///   the factor 1 + max|s|; one of a RoPE angle grows with the position.
struct Tolerance {
  double sum = 0;  // of LossSum::sum
  NamedGradients gradients_of_sum;
  std::map<int, std::vector<double>> losses;  // by document
};

inline Tolerance tolerance_of(const Model& model, const std::vector<Document>& documents,
                              const RunOptions& options, std::int64_t largest_shift = 0) {
  const auto magnitude = [](std::vector<double> values) {
    for (double& value : values) value = std::abs(value);
    return values;
  };
  const int width = model.width;
  const int o_size = model.heads * model.value_dim;
  const std::vector<double> head = magnitude(model.head), skip = magnitude(model.skip);
  const std::vector<double> query = magnitude(model.query), key = magnitude(model.key);
  const std::vector<double> value = magnitude(model.value);
  Tolerance bound;
  bound.gradients_of_sum = {{"embedding", std::vector<double>(model.embedding.size(), 0.0)},
                            {"head", std::vector<double>(model.head.size(), 0.0)}};
  std::int64_t rows = 0, longest = 0;
  double largest_score = 0;

  for (std::size_t id = 0; id < documents.size(); ++id) {
    const Document& document = documents[id];
    const std::int64_t n = document.length();
    rows += n;
    longest = std::max(longest, n);
    const PackedBatch batch = pack_documents(documents, {static_cast<int>(id)}, 1, 0, 0);
    // Plain forward pass of one document; batch may be padded to an even length.
    const auto padded = batch.pack.padded_tokens();
    Tensor<double> x(padded, 1, width), q(padded, model.heads, model.dim);
    Tensor<double> k(padded, model.kv_heads, model.dim), v(padded, model.kv_heads, model.value_dim);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto token = static_cast<int>(document.tokens[static_cast<std::size_t>(i)]);
      for (int d = 0; d < width; ++d) {
        x.at(i, 0, d) = model.embedding[static_cast<std::size_t>(token * width + d)];
      }
      const auto project = [&](const std::vector<double>& matrix, Tensor<double>& to) {
        const auto y = multiply(matrix, &x.at(i, 0, 0), to.heads * to.dim, width);
        std::copy(y.begin(), y.end(), &to.at(i, 0, 0));
      };
      project(model.query, q);
      project(model.key, k);
      project(model.value, v);
    }
    const auto positions = rope_positions(batch.pack, 1, 0);
    q = rope(q, positions, model.rope);
    k = rope(k, positions, model.rope);
    const double scale = 1 / std::sqrt(static_cast<double>(model.dim));

    // Magnitudes of O, logits, their gradients and dO; P is kept for the way back.
    Tensor<double> o(padded, model.heads, model.value_dim), o_real = o, d_o = o;
    Tensor<double> logits(padded, 1, model.vocabulary), logit_gradient = logits;
    std::vector<double> p(static_cast<std::size_t>(model.heads * n * n), 0.0);
    const auto p_at = [&](int h, std::int64_t i, std::int64_t j) -> double& {
      return p[static_cast<std::size_t>((h * n + i) * n + j)];
    };
    const int group = model.heads / model.kv_heads;
    std::vector<double> row_bound(static_cast<std::size_t>(n), 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t keys = options.causal ? i + 1 : n;
      for (int h = 0; h < model.heads; ++h) {
        std::vector<double> scores;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0, size = 0;
          for (int d = 0; d < model.dim; ++d) {
            const double product = scale * q.at(i, h, d) * k.at(j, h / group, d);
            score += product;
            size += std::abs(product);
          }
          scores.push_back(score);
          largest_score = std::max(largest_score, size);
        }
        const double lse = log_sum_exp(scores.data(), static_cast<int>(scores.size()));
        for (std::int64_t j = 0; j < keys; ++j) {
          p_at(h, i, j) = std::exp(scores[static_cast<std::size_t>(j)] - lse);
          for (int d = 0; d < model.value_dim; ++d) {
            o.at(i, h, d) += p_at(h, i, j) * std::abs(v.at(j, h / group, d));
            o_real.at(i, h, d) += p_at(h, i, j) * v.at(j, h / group, d);
          }
        }
      }
      std::vector<double> size_x;
      for (int d = 0; d < width; ++d) size_x.push_back(std::abs(x.at(i, 0, d)));
      const auto size_o = multiply(head, &o.at(i, 0, 0), model.vocabulary, o_size);
      const auto size_skip = multiply(skip, size_x.data(), model.vocabulary, width);
      const auto real_o = multiply(model.head, &o_real.at(i, 0, 0), model.vocabulary, o_size);
      const auto real_skip = multiply(model.skip, &x.at(i, 0, 0), model.vocabulary, width);
      double largest_logit = 0;
      for (int t = 0; t < model.vocabulary; ++t) {
        const auto e = static_cast<std::size_t>(t);
        logits.at(i, 0, t) = real_o[e] + real_skip[e];
        largest_logit = std::max(largest_logit, size_o[e] + size_skip[e]);
      }
      if (!batch.targets.counts(i)) continue;
      const auto label = batch.targets.labels[static_cast<std::size_t>(i)];
      const double lse = log_sum_exp(&logits.at(i, 0, 0), model.vocabulary);
      row_bound[static_cast<std::size_t>(i)] = 4 * largest_logit + std::abs(lse) + 8;
      for (int t = 0; t < model.vocabulary; ++t) {
        const double g = std::exp(logits.at(i, 0, t) - lse) + (t == label ? 1.0 : 0.0);
        logit_gradient.at(i, 0, t) = g * (1 + 2 * largest_logit);
      }
      add_transposed(head, &logit_gradient.at(i, 0, 0), model.vocabulary, o_size, &d_o.at(i, 0, 0));
      std::vector<double>& d_head = bound.gradients_of_sum["head"];
      for (int t = 0; t < model.vocabulary; ++t) {
        for (int d = 0; d < o_size; ++d) {
          d_head[static_cast<std::size_t>(t * o_size + d)] +=
              logit_gradient.at(i, 0, t) * (&o.at(i, 0, 0))[d];
        }
      }
    }

    // Magnitudes on the way back: |dS| <= P (F + E), as in the backward pass with every sign +.
    Tensor<double> dq(padded, model.heads, model.dim), dk(padded, model.kv_heads, model.dim);
    Tensor<double> dv(padded, model.kv_heads, model.value_dim);
    for (int h = 0; h < model.heads; ++h) {
      const int kh = h / group;
      for (std::int64_t i = 0; i < n; ++i) {
        double e = 0;
        for (int d = 0; d < model.value_dim; ++d) e += d_o.at(i, h, d) * o.at(i, h, d);
        const std::int64_t keys = options.causal ? i + 1 : n;
        for (std::int64_t j = 0; j < keys; ++j) {
          double f = 0;
          for (int d = 0; d < model.value_dim; ++d) {
            f += d_o.at(i, h, d) * std::abs(v.at(j, kh, d));
            dv.at(j, kh, d) += p_at(h, i, j) * d_o.at(i, h, d);
          }
          const double ds = scale * p_at(h, i, j) * (f + e);
          for (int d = 0; d < model.dim; ++d) {
            dq.at(i, h, d) += ds * std::abs(k.at(j, kh, d));
            dk.at(j, kh, d) += ds * std::abs(q.at(i, h, d));
          }
        }
      }
    }
    const auto unrotate = [&](const Tensor<double>& rotated) {
      Tensor<double> result = rotated;
      const int half = model.rope.rotary_dim / 2;
      for (std::int64_t i = 0; i < n; ++i) {
        for (int h = 0; h < rotated.heads; ++h) {
          for (int d = 0; d < half; ++d) {
            const double both = rotated.at(i, h, d) + rotated.at(i, h, d + half);
            result.at(i, h, d) = result.at(i, h, d + half) = both;
          }
        }
      }
      return result;
    };
    const Tensor<double> dq_before = unrotate(dq), dk_before = unrotate(dk);
    std::vector<double>& d_embedding = bound.gradients_of_sum["embedding"];
    for (std::int64_t i = 0; i < n; ++i) {
      const auto token = static_cast<int>(document.tokens[static_cast<std::size_t>(i)]);
      double* d_x = d_embedding.data() + token * width;
      add_transposed(query, &dq_before.at(i, 0, 0), model.heads * model.dim, width, d_x);
      add_transposed(key, &dk_before.at(i, 0, 0), model.kv_heads * model.dim, width, d_x);
      add_transposed(value, &dv.at(i, 0, 0), model.kv_heads * model.value_dim, width, d_x);
      add_transposed(skip, &logit_gradient.at(i, 0, 0), model.vocabulary, width, d_x);
    }
    for (double row : row_bound) bound.sum += row;
    bound.losses[static_cast<int>(id)] = std::move(row_bound);
  }

  const auto roundings = static_cast<double>(2 * rows + 2 * longest + model.vocabulary + 2 * width +
                                             o_size + 3 * model.dim + 64);
  const double kappa = 0x1p-53 * roundings * (1 + largest_score) *
                       (1 + static_cast<double>(longest + largest_shift) / 8);
  bound.sum *= kappa;
  bound.gradients_of_sum = wrong::scaled(bound.gradients_of_sum, kappa);
  for (auto& [id, losses] : bound.losses) {
    for (double& loss : losses) loss *= kappa;
  }
  return bound;
}

}  // namespace dyncp::pipeline
