// Group tables of domains of any number of ranks: slices of one size are disjoint, need is minimal
// and monotonic, and every sequence that fits the domain fits some group.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "properties/generators.h"
#include "reference/group.h"

namespace dyncp {
namespace {

GroupPolicy draw_policy() {
  return *rc::gen::element(GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                           GroupPolicy::kDivisors, GroupPolicy::kInterval);
}

RC_GTEST_PROP(GroupProperties, SlicesOfOneSizeAreDisjointAndExist, ()) {
  const int ranks = *genInt(1, 600);
  const GroupPolicy policy = draw_policy();
  RC_PRE(policy != GroupPolicy::kInterval);
  const GroupTable table(ranks, policy);
  for (int size : table.sizes()) {
    int free = 0;
    for (int first : table.first_ranks(size)) {
      RC_ASSERT(first >= free);
      RC_ASSERT(first + size <= ranks);
      RC_ASSERT(table.exists({first, size}));
      RC_ASSERT(!table.exists({first + 1, size}) || size == 1);
      free = first + size;
    }
  }
}

// Frameworks make a subset of what the looser policies allow.
RC_GTEST_PROP(GroupProperties, AlignedGroupsExistUnderLooserPolicies, ()) {
  const int ranks = *genInt(1, 300);
  const int min_cp = *genInt(1, ranks);
  const GroupTable aligned(ranks, GroupPolicy::kAligned, min_cp);
  const GroupTable any(ranks, GroupPolicy::kPow2AnySlice, min_cp);
  const GroupTable interval(ranks, GroupPolicy::kInterval, min_cp);
  for (int size : aligned.sizes()) {
    for (int first : aligned.first_ranks(size)) {
      RC_ASSERT(any.exists({first, size}));
      RC_ASSERT(interval.exists({first, size}));
    }
  }
  RC_ASSERT(aligned.exists({0, ranks}));
}

RC_GTEST_PROP(GroupProperties, NeedIsMinimalAndMonotonic, ()) {
  const int ranks = *genInt(1, 600);
  const GroupTable table(ranks, draw_policy(), *genInt(1, ranks));
  const std::int64_t max_tokens = *rc::gen::inRange<std::int64_t>(1, 5000);
  const std::int64_t length = *rc::gen::inRange<std::int64_t>(0, (ranks + 2) * max_tokens);
  const auto size = table.need(length, max_tokens);
  // It is refused exactly when the whole domain cannot hold it.
  RC_ASSERT(size.has_value() == (length <= ranks * max_tokens));
  if (!size) return;
  RC_ASSERT(table.has_size(*size));
  RC_ASSERT(*size * max_tokens >= length);
  for (int smaller : table.sizes()) {
    RC_ASSERT(smaller >= *size || smaller * max_tokens < length);
  }
  if (length > 0) RC_ASSERT(*table.need(length - 1, max_tokens) <= *size);
  RC_ASSERT(*table.need(length, max_tokens + 1) <= *size);
}

}  // namespace
}  // namespace dyncp
