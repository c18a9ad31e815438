// Where training documents come from: synthetic ones with given lengths, and text files as bytes.
// A source is an indexed set of documents that never changes; global batch n is a choice of indices
// that depends on source size, seed, n and batch size alone - not on ranks, and not on what was
// asked before. Lengths in tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/microbatch.h"

namespace dyncp {

/// Immutable; may be read by several threads.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;

  /// One line for people: "1024 synthetic documents of 6..768 tokens".
  virtual std::string description() const = 0;

  /// Number of documents, at least 1.
  virtual std::int64_t documents() const = 0;

  /// Tokens of a document. REQUIRES: 0 <= index < documents().
  virtual std::int64_t length(std::int64_t index) const = 0;

  /// The document itself. REQUIRES: 0 <= index < documents().
  virtual Document document(std::int64_t index) const = 0;

  /// Differs, for all practical purposes, between sources that differ in any document.
  virtual std::uint64_t fingerprint() const = 0;
};

/// What synthetic documents look like.
struct SyntheticOptions {
  std::uint64_t seed = 1;
  std::int64_t vocabulary = 256;
  /// Each document starts with a prompt of 0..3/4 of its tokens that does not count, as in
  /// supervised fine-tuning.
  bool masked_prompts = false;
};

/// One document for each length. The token at a position depends on seed, document and position
/// alone. Contents can be learned: a document steps through the vocabulary by 1..4, drawn at each
/// position, so that a perfect model reaches ln 4 = 1.386 nats a token.
/// Throws InvalidInput: no lengths, a length out of range, vocabulary outside 1..2^31.
std::unique_ptr<DocumentSource> synthetic_source(std::vector<std::int64_t> lengths,
                                                 const SyntheticOptions& options);

/// Limits of a corpus of text files.
struct CorpusLimits {
  std::int64_t longest_file = std::int64_t{1} << 20;  // bytes; larger files are passed over
  std::int64_t total = std::int64_t{1} << 28;         // bytes of all files together
  std::int64_t files = 100'000;
};

/// The text files below `directory`, in order of path, one token a byte (vocabulary 256). Passed
/// over: names that begin with '.', folders called "build", links, empty files, files that hold a
/// zero byte (no text), files above longest_file. Without `lengths` each file is a document; with
/// them, document i is the next lengths[i] bytes of the files laid end to end, from the start again
/// where they end.
/// Throws InvalidInput: no directory, a file that cannot be read, no text in it, above the limits, a
/// length out of range.
std::unique_ptr<DocumentSource> corpus_source(const std::string& directory,
                                              std::vector<std::int64_t> lengths = {},
                                              const CorpusLimits& limits = {});

/// The corpus used when the user names none: the source tree that the fixtures lie in, or the
/// fixtures alone where there is no source tree (an installed dyncp). Throws as fixtures_directory.
std::string default_corpus_directory();

/// Documents of global batch n, in batch order: entries n * size .. n * size + size - 1 of an
/// endless list that goes through the source in a new random order in every pass.
/// Throws InvalidInput unless documents >= 1, n >= 0, 1 <= size <= 2^20 and n * size < 2^62.
std::vector<std::int64_t> global_batch(std::int64_t documents, std::uint64_t seed, std::int64_t n,
                                       std::int64_t size);

}  // namespace dyncp
