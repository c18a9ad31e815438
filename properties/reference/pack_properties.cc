// Packs of arbitrary sequences: boundaries are prefix sums, and padding only ever adds.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "properties/generators.h"
#include "reference/pack.h"

namespace dyncp {
namespace {

RC_GTEST_PROP(PackProperties, BoundariesArePrefixSums, ()) {
  const Pack pack = *genPack(*genCpSize());
  const auto count = static_cast<std::size_t>(pack.sequences());
  RC_ASSERT(pack.cu_seqlens().size() == count + 1);
  RC_ASSERT(pack.cu_seqlens_padded().size() == count + 1);
  RC_ASSERT(pack.cu_seqlens().front() == 0);
  RC_ASSERT(pack.cu_seqlens_padded().front() == 0);
  std::int64_t longest = 0;
  for (std::size_t s = 0; s < count; ++s) {
    const int index = static_cast<int>(s);
    RC_ASSERT(pack.cu_seqlens()[s + 1] - pack.cu_seqlens()[s] == pack.real_length(index));
    RC_ASSERT(pack.cu_seqlens_padded()[s + 1] - pack.cu_seqlens_padded()[s] ==
              pack.padded_length(index));
    RC_ASSERT(pack.first_row(index) == pack.cu_seqlens_padded()[s]);
    RC_ASSERT(pack.cu_seqlens()[s] <= pack.cu_seqlens_padded()[s]);
    longest = std::max(longest, pack.padded_length(index));
  }
  RC_ASSERT(pack.max_padded_length() == longest);
  RC_ASSERT(pack.real_tokens() == pack.cu_seqlens().back());
  RC_ASSERT(pack.padded_tokens() == pack.cu_seqlens_padded().back());
}

RC_GTEST_PROP(PackProperties, PaddedToIsTheSmallestThatRuns, ()) {
  const auto lengths = *genLengths({.min_count = 0});
  const std::int64_t multiple = *rc::gen::inRange<std::int64_t>(1, 40);
  const Pack pack = Pack::padded_to(lengths, multiple);
  RC_ASSERT(pack.sequences() == static_cast<int>(lengths.size()));
  for (int s = 0; s < pack.sequences(); ++s) {
    RC_ASSERT(pack.real_length(s) == lengths[static_cast<std::size_t>(s)]);
    RC_ASSERT(pack.padded_length(s) % multiple == 0);
    RC_ASSERT(pack.padded_length(s) >= pack.real_length(s));
    RC_ASSERT(pack.padded_length(s) - pack.real_length(s) < multiple);
  }
}

RC_GTEST_PROP(PackProperties, EqualPacksAreThoseOfEqualSequences, ()) {
  const Pack pack = *genPack(2);
  std::vector<Sequence> sequences;
  for (int s = 0; s < pack.sequences(); ++s) sequences.push_back(pack.sequence(s));
  RC_ASSERT(Pack(sequences) == pack);
  if (!sequences.empty()) {
    // Same padded layout, one real token more or less: another pack.
    Sequence& last = sequences.back();
    RC_PRE(last.padded_length > 0);
    last.real_length += last.real_length < last.padded_length ? 1 : -1;
    RC_ASSERT(!(Pack(sequences) == pack));
  }
}

}  // namespace
}  // namespace dyncp
