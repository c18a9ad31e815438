// The header of candidates: any text is read or refused in one line, and a header that was read
// survives writing.
#include "properties/fuzz/fuzz.h"
#include "runtime/candidate.h"

using dyncp::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dyncp::Safetensors file;
  file.metadata[std::string(dyncp::kCandidateKey)] = dyncp::as_text(data, size);
  const auto candidate = dyncp::attempt([&] { return dyncp::read_candidate(file); });
  if (!candidate) return 0;
  require(!candidate->rank || (*candidate->rank >= 0 && *candidate->rank < candidate->problem.cp),
          "the rank is in the group");
  require(candidate->problem.pack().padded_tokens() <= dyncp::kMaxCandidateTokens,
          "the pack is within its limit");
  file.metadata[std::string(dyncp::kCandidateKey)] = dyncp::candidate_header(*candidate);
  require(dyncp::read_candidate(file) == *candidate, "a header survives writing");
  return 0;
}
