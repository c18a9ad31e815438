#include "runtime/document_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/digest.h"

namespace dyncp {
namespace {

std::string range_of(const std::vector<std::int64_t>& lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return fmt::format("{}..{} tokens", *shortest, *longest);
}

// A number from 0..bound-1 that the two keys decide. The bias of the remainder is below 2^-32 for
// the bounds used here.
std::int64_t draw(std::uint64_t key, std::uint64_t counter, std::int64_t bound) {
  return static_cast<std::int64_t>(spread_bits(key ^ spread_bits(counter)) %
                                   static_cast<std::uint64_t>(bound));
}

class SyntheticSource : public DocumentSource {
 public:
  SyntheticSource(std::vector<std::int64_t> lengths, const SyntheticOptions& options)
      : lengths_(std::move(lengths)), options_(options) {
    require_valid_lengths(lengths_);
    if (lengths_.empty()) throw InvalidInput("synthetic documents: no lengths were given");
    if (options_.vocabulary < 1 || options_.vocabulary > (std::int64_t{1} << 31)) {
      throw InvalidInput(fmt::format("synthetic documents: vocabulary is {}, expected 1..2^31",
                                     options_.vocabulary));
    }
  }

  std::string description() const override {
    return fmt::format("{} synthetic documents of {}", lengths_.size(), range_of(lengths_));
  }

  std::int64_t documents() const override { return static_cast<std::int64_t>(lengths_.size()); }

  std::int64_t length(std::int64_t index) const override {
    return lengths_[static_cast<std::size_t>(index)];
  }

  Document document(std::int64_t index) const override {
    const std::uint64_t key = spread_bits(options_.seed) + static_cast<std::uint64_t>(index);
    const std::int64_t count = length(index);
    Document document;
    document.tokens.reserve(static_cast<std::size_t>(count));
    std::int64_t token = draw(key, 0, options_.vocabulary);
    for (std::int64_t i = 0; i < count; ++i) {
      document.tokens.push_back(token);
      const std::int64_t step = 1 + draw(key, static_cast<std::uint64_t>(i) + 2, 4);
      token = (token + step) % options_.vocabulary;
    }
    if (options_.masked_prompts) {
      const std::int64_t prompt = draw(key, 1, count / 4 * 3 + 1);
      document.loss_mask.assign(static_cast<std::size_t>(count), 1);
      std::fill_n(document.loss_mask.begin(), prompt, std::uint8_t{0});
    }
    return document;
  }

  std::uint64_t fingerprint() const override {
    std::uint64_t value = digest(fmt::format("synthetic {} {} {}", options_.seed,
                                             options_.vocabulary, options_.masked_prompts));
    for (const std::int64_t length : lengths_) value = digest(fmt::format(" {}", length), value);
    return value;
  }

 private:
  std::vector<std::int64_t> lengths_;
  SyntheticOptions options_;
};

// A permutation of 0..count-1 that `key` decides, one value at a time: four Feistel rounds over the
// smallest even number of bits that holds the values, repeated until the value is in range.
std::int64_t permuted(std::int64_t value, std::int64_t count, std::uint64_t key) {
  const int half = (std::bit_width(static_cast<std::uint64_t>(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto word = static_cast<std::uint64_t>(value);
  do {
    std::uint64_t left = word >> half;
    std::uint64_t right = word & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (spread_bits(key ^ spread_bits(4 * right + round)) & mask);
      left = right;
      right = mixed;
    }
    word = left << half | right;
  } while (word >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(word);
}

}  // namespace

std::unique_ptr<DocumentSource> synthetic_source(std::vector<std::int64_t> lengths,
                                                 const SyntheticOptions& options) {
  return std::make_unique<SyntheticSource>(std::move(lengths), options);
}

std::vector<std::int64_t> global_batch(std::int64_t documents, std::uint64_t seed, std::int64_t n,
                                       std::int64_t size) {
  if (documents < 1) throw InvalidInput("a global batch needs a source with documents");
  if (size < 1 || size > (std::int64_t{1} << 20)) {
    throw InvalidInput(fmt::format("the global batch has {} documents, expected 1..2^20", size));
  }
  if (n < 0 || n >= (std::int64_t{1} << 62) / size) {
    throw InvalidInput(fmt::format("there is no global batch {}", n));
  }
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(size));
  for (std::int64_t entry = n * size; entry < (n + 1) * size; ++entry) {
    const std::uint64_t pass = static_cast<std::uint64_t>(entry / documents);
    indices.push_back(
        permuted(entry % documents, documents, spread_bits(seed) ^ spread_bits(~pass)));
  }
  return indices;
}

}  // namespace dyncp
