// Small models and microbatches for the tests of the GPT: documents with random tokens and masks,
// packed on one rank, padding filled with garbage that must never be read.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reference/loss.h"
#include "reference/zigzag.h"
#include "runtime/gpt_parameters.h"
#include "runtime/microbatch.h"

namespace dyncp::gpt_cases {

/// Every size different and odd where it may be, so that no two can be mixed up.
inline GptConfig tiny_config() {
  return {.layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .hidden = 10,
          .ffn = 14,
          .vocabulary = 11,
          .rope_base = 100.0};
}

/// Random tokens; about one mask in `masked_one_in` is 0 (0 = none is).
inline Document make_document(std::int64_t length, int vocabulary, int masked_one_in,
                              std::mt19937_64& random) {
  Document document;
  for (std::int64_t i = 0; i < length; ++i) {
    document.tokens.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocabulary)));
    document.loss_mask.push_back(masked_one_in == 0 ||
                                 random() % static_cast<std::uint64_t>(masked_one_in) != 0);
  }
  return document;
}

inline std::vector<Document> make_documents(const std::vector<std::int64_t>& lengths,
                                            int vocabulary, int masked_one_in, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Document> documents;
  for (std::int64_t length : lengths) {
    documents.push_back(make_document(length, vocabulary, masked_one_in, random));
  }
  return documents;
}

/// The documents behind one another on one rank, CP off, each padded to a multiple of `multiple`
/// tokens. Padding holds garbage: tokens, labels and positions out of range, mask 1.
inline PackedMicrobatch pack_on_one_rank(const std::vector<Document>& documents,
                                         std::int64_t multiple = 1) {
  std::vector<std::int64_t> lengths;
  for (const Document& document : documents) {
    lengths.push_back(static_cast<std::int64_t>(document.tokens.size()));
  }
  const Pack pack = Pack::padded_to(lengths, multiple);
  const auto rows = static_cast<std::size_t>(pack.padded_tokens());
  constexpr std::int64_t kGarbage = std::numeric_limits<std::int64_t>::min();
  PackedMicrobatch microbatch{
      PackedSeqParams(pack, 1, std::nullopt, 0), {},
      std::vector<std::int64_t>(rows, kGarbage), std::vector<std::int64_t>(rows, kGarbage),
      std::vector<std::int64_t>(rows, kGarbage), std::vector<std::uint8_t>(rows, 1)};
  for (int s = 0; s < pack.sequences(); ++s) {
    const Document& document = documents[static_cast<std::size_t>(s)];
    microbatch.sequence_ids.push_back(s);
    for (std::size_t j = 0; j < document.tokens.size(); ++j) {
      const std::size_t row = static_cast<std::size_t>(pack.first_row(s)) + j;
      const bool last = j + 1 == document.tokens.size();
      microbatch.tokens[row] = document.tokens[j];
      microbatch.labels[row] = last ? kIgnoreLabel : document.tokens[j + 1];
      microbatch.positions[row] = static_cast<std::int64_t>(j);
      microbatch.loss_mask[row] = document.loss_mask[j];
    }
  }
  return microbatch;
}

/// The values of every tensor by name, exactly.
template <typename T>
NamedGradients named_values(const GptParameters<T>& parameters) {
  NamedGradients named;
  for (const GptTensor& tensor : parameters.tensors()) {
    const auto values = parameters.tensor(tensor.name);
    named[tensor.name] = {values.begin(), values.end()};
  }
  return named;
}

}  // namespace dyncp::gpt_cases
