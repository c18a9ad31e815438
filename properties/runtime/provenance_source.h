// Documents whose every token says where it comes from, so that a test can tell what became of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/document_source.h"

namespace dyncp {

/// Token j of document i is i * kProvenanceStride + j + 1 (never 0, the token of padding); whether
/// it counts is a hash of both.
inline constexpr std::int64_t kProvenanceStride = std::int64_t{1} << 20;

inline bool provenance_counts(std::int64_t index, std::int64_t position) {
  return (index * 7 + position * position + position / 3) % 3 != 0;
}

class ProvenanceSource : public DocumentSource {
 public:
  explicit ProvenanceSource(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {}

  std::string description() const override { return "documents that know where they come from"; }
  std::int64_t documents() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t index) const override {
    return lengths_[static_cast<std::size_t>(index)];
  }
  Document document(std::int64_t index) const override {
    Document document;
    for (std::int64_t j = 0; j < length(index); ++j) {
      document.tokens.push_back(index * kProvenanceStride + j + 1);
      document.loss_mask.push_back(provenance_counts(index, j) ? 1 : 0);
    }
    return document;
  }
  std::uint64_t fingerprint() const override { return lengths_.size(); }

 private:
  std::vector<std::int64_t> lengths_;
};

}  // namespace dyncp
