// Which CP group a rank is in, by size, and that collections do not see each other.
#include "runtime/group_collection.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

// The message of the InvalidInput that `call` throws.
template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(GroupCollection, NamesTheGroupOfEachRankAndSize) {
  for (int rank = 0; rank < 8; ++rank) {
    const GroupCollection groups(8, GroupPolicy::kAligned, rank);
    for (int size : {2, 4, 8}) {
      const CpGroup expected{rank - rank % size, size};
      EXPECT_EQ(groups.group_of_size(size), expected);
      EXPECT_EQ(groups.context_of_size(size), CpContext(expected, rank));
    }
  }
}

TEST(GroupCollection, SizeOneHasAGroupUnderContractV2Only) {
  const GroupCollection groups(4, GroupPolicy::kAligned, 3);
  EXPECT_EQ(groups.group_of_size(1), std::nullopt);
  EXPECT_EQ(groups.group_of_size(1, Contract::kV2), (CpGroup{3, 1}));
  EXPECT_FALSE(groups.context_of_size(1).cp_on());
}

TEST(GroupCollection, RefusesWhatDoesNotExist) {
  const GroupCollection aligned(6, GroupPolicy::kAligned, 5);
  EXPECT_EQ(refusal_of([&] { aligned.group_of_size(4); }),
            "CP size 4 does not exist in this group collection of 6 ranks: its sizes are 1, 2, 6");
  EXPECT_THROW(aligned.group_of_size(0), InvalidInput);
  EXPECT_THROW(aligned.group_of_size(-2), InvalidInput);
  const GroupCollection any_slice(6, GroupPolicy::kPow2AnySlice, 5);
  EXPECT_EQ(refusal_of([&] { any_slice.group_of_size(4); }), "rank 5 is in no CP group of size 4");
  const GroupCollection interval(4, GroupPolicy::kInterval, 1);
  EXPECT_EQ(refusal_of([&] { interval.group_of_size(2); }),
            "CP size 2 does not say which group: rank 1 is in ranks 0..1 (size 2) and in ranks "
            "1..2 (size 2)");
  EXPECT_EQ(interval.group_of_size(4), (CpGroup{0, 4}));
  EXPECT_THROW(GroupCollection(4, GroupPolicy::kAligned, 4), InvalidInput);
  EXPECT_THROW(GroupCollection(4, GroupPolicy::kAligned, -1), InvalidInput);
}

TEST(GroupCollection, RefusesContextsOfOthers) {
  const GroupCollection groups(8, GroupPolicy::kAligned, 5);
  groups.require_mine(CpContext(), "module");
  groups.require_mine(CpContext({4, 4}, 5), "module");
  EXPECT_EQ(refusal_of([&] {
              groups.require_mine(CpContext({4, 4}, 6), "module");
            }),
            "module: ranks 4..7 (size 4) is seen from rank 6, this is rank 5");
  EXPECT_EQ(refusal_of([&] {
              groups.require_mine(CpContext({3, 4}, 5), "module");
            }),
            "module: no CP group of ranks 3..6 (size 4) exists in this group collection of 8 ranks "
            "(policy aligned)");
}

TEST(GroupCollection, TwoInOneProcessDoNotSeeEachOther) {
  const GroupCollection first(8, GroupPolicy::kAligned, 6);
  const GroupCollection second(6, GroupPolicy::kDivisors, 3);
  EXPECT_EQ(first.group_of_size(4), (CpGroup{4, 4}));
  EXPECT_EQ(second.group_of_size(3), (CpGroup{3, 3}));
  EXPECT_THROW(first.group_of_size(3), InvalidInput);
  EXPECT_THROW(second.group_of_size(4), InvalidInput);
  EXPECT_THROW(second.require_mine(first.context_of_size(4), "module"), InvalidInput);
  EXPECT_THROW(first.require_mine(second.context_of_size(3), "module"), InvalidInput);
}

}  // namespace
}  // namespace dyncp
