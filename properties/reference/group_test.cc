// The group table against a word-for-word formulation of its rule, for every domain of up to 64
// ranks, and golden tables of domains that are no power of two.
#include "reference/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr GroupPolicy kPolicies[] = {GroupPolicy::kAligned, GroupPolicy::kPow2AnySlice,
                                     GroupPolicy::kDivisors, GroupPolicy::kInterval};

// The rule, sentence by sentence and without the table's arithmetic.
bool exists_by_rule(int ranks, GroupPolicy policy, int min_cp, const CpGroup& group) {
  const auto is_power_of_two = [](int n) {
    int power = 1;
    while (power < n) power *= 2;
    return power == n;
  };
  // "plus the whole domain"
  if (group.first_rank == 0 && group.size == ranks) return true;
  const bool inside = group.first_rank >= 0 && group.size >= 1 && group.end_rank() <= ranks;
  if (!inside || group.size < min_cp) return false;
  // Slice number k of a size covers ranks k*size .. (k+1)*size - 1.
  bool aligned = false;
  for (int k = 0; k * group.size <= group.first_rank; ++k) {
    aligned = aligned || k * group.size == group.first_rank;
  }
  // The largest power of two that is at most the number of ranks.
  int largest = 1;
  while (2 * largest <= ranks) largest *= 2;
  switch (policy) {
    case GroupPolicy::kAligned:
      return aligned && is_power_of_two(group.size) && group.size < largest;
    case GroupPolicy::kPow2AnySlice:
      return aligned && is_power_of_two(group.size) && group.size <= largest;
    case GroupPolicy::kDivisors:
      return aligned && ranks % group.size == 0;
    case GroupPolicy::kInterval:
      return true;
  }
  return false;
}

TEST(GroupTable, MatchesTheRuleInEveryDomain) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (GroupPolicy policy : kPolicies) {
      for (int min_cp : {1, 2, 3, ranks}) {
        if (min_cp > ranks) continue;
        const GroupTable table(ranks, policy, min_cp);
        std::vector<int> sizes;
        for (int size = 1; size <= ranks; ++size) {
          std::vector<int> firsts;
          for (int first = 0; first < ranks; ++first) {
            const CpGroup group{first, size};
            const bool expected = exists_by_rule(ranks, policy, min_cp, group);
            ASSERT_EQ(table.exists(group), expected)
                << ranks << " ranks, " << to_string(policy) << ", " << to_string(group);
            if (expected) firsts.push_back(first);
          }
          ASSERT_EQ(table.first_ranks(size), firsts)
              << ranks << " ranks, " << to_string(policy) << ", size " << size;
          ASSERT_EQ(table.has_size(size), !firsts.empty());
          if (!firsts.empty()) sizes.push_back(size);
        }
        ASSERT_EQ(table.sizes(), sizes) << ranks << " ranks, " << to_string(policy);
      }
    }
  }
}

TEST(GroupTable, NothingOutsideTheDomainExists) {
  for (GroupPolicy policy : kPolicies) {
    const GroupTable table(12, policy);
    for (const CpGroup& group :
         {CpGroup{-1, 2}, CpGroup{-4, 4}, CpGroup{12, 1}, CpGroup{11, 2}, CpGroup{0, 13},
          CpGroup{0, 0}, CpGroup{3, -1}, CpGroup{0, 1 << 30}, CpGroup{1 << 30, 1 << 30}}) {
      EXPECT_FALSE(table.exists(group)) << to_string(policy) << " " << to_string(group);
    }
    EXPECT_TRUE(table.first_ranks(0).empty());
    EXPECT_TRUE(table.first_ranks(13).empty());
    EXPECT_FALSE(table.has_size(-1));
  }
}

TEST(GroupTable, NeedIsTheSmallestSizeThatHolds) {
  for (int ranks : {1, 2, 3, 5, 6, 8, 12, 16, 24}) {
    for (GroupPolicy policy : kPolicies) {
      for (int min_cp : {1, 2}) {
        if (min_cp > ranks) continue;
        const GroupTable table(ranks, policy, min_cp);
        for (std::int64_t max_tokens : {1, 7, 16}) {
          for (std::int64_t length = 0; length <= ranks * max_tokens + 20; ++length) {
            // By trying every size: `length` tokens over `size` ranks, at most max_tokens each.
            std::optional<int> expected;
            for (int size = 1; size <= ranks && !expected; ++size) {
              if (table.has_size(size) && size * max_tokens >= length) expected = size;
            }
            ASSERT_EQ(table.need(length, max_tokens), expected)
                << ranks << " ranks, " << to_string(policy) << ", length " << length << ", at most "
                << max_tokens;
          }
        }
      }
    }
  }
}

TEST(GroupTable, GoldenDomainOfSix) {
  const GroupTable aligned(6, GroupPolicy::kAligned);
  EXPECT_EQ(aligned.sizes(), (std::vector<int>{1, 2, 6}));
  EXPECT_EQ(aligned.first_ranks(2), (std::vector<int>{0, 2, 4}));
  EXPECT_FALSE(aligned.exists({0, 4}));  // what the upstream schedulers ask for
  EXPECT_FALSE(aligned.exists({1, 2}));
  EXPECT_EQ(aligned.need(3 * 256, 256), 6);
  EXPECT_EQ(aligned.need(6 * 256, 256), 6);
  EXPECT_EQ(aligned.need(6 * 256 + 1, 256), std::nullopt);
  const GroupTable any(6, GroupPolicy::kPow2AnySlice);
  EXPECT_EQ(any.sizes(), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(any.first_ranks(4), std::vector<int>{0});
  EXPECT_EQ(GroupTable(6, GroupPolicy::kDivisors).sizes(), (std::vector<int>{1, 2, 3, 6}));
  EXPECT_EQ(GroupTable(6, GroupPolicy::kInterval).sizes(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST(GroupTable, GoldenDomainOfTwelve) {
  const GroupTable aligned(12, GroupPolicy::kAligned);
  EXPECT_EQ(aligned.sizes(), (std::vector<int>{1, 2, 4, 12}));
  EXPECT_EQ(aligned.first_ranks(4), (std::vector<int>{0, 4, 8}));
  EXPECT_EQ(aligned.need(5, 1), 12);
  const GroupTable any(12, GroupPolicy::kPow2AnySlice);
  EXPECT_EQ(any.sizes(), (std::vector<int>{1, 2, 4, 8, 12}));
  EXPECT_EQ(any.first_ranks(8), std::vector<int>{0});
  EXPECT_EQ(GroupTable(12, GroupPolicy::kDivisors).sizes(), (std::vector<int>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(GroupTable(12, GroupPolicy::kAligned, 3).sizes(), (std::vector<int>{4, 12}));
  EXPECT_EQ(GroupTable(12, GroupPolicy::kAligned, 5).sizes(), std::vector<int>{12});
}

TEST(GroupTable, GoldenDomainOfEight) {
  const GroupTable aligned(8, GroupPolicy::kAligned);
  EXPECT_EQ(aligned.sizes(), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(aligned.first_ranks(4), (std::vector<int>{0, 4}));
  EXPECT_EQ(GroupTable(1, GroupPolicy::kAligned).sizes(), std::vector<int>{1});
  EXPECT_EQ(GroupTable(2, GroupPolicy::kAligned).sizes(), (std::vector<int>{1, 2}));
  EXPECT_EQ(GroupTable(3, GroupPolicy::kAligned).sizes(), (std::vector<int>{1, 3}));
}

TEST(GroupTable, BadInputIsNamed) {
  EXPECT_THROW(GroupTable(0, GroupPolicy::kAligned), InvalidInput);
  EXPECT_THROW(GroupTable(-8, GroupPolicy::kAligned), InvalidInput);
  EXPECT_THROW(GroupTable(kMaxRanks + 1, GroupPolicy::kAligned), InvalidInput);
  EXPECT_THROW(GroupTable(8, GroupPolicy::kAligned, 0), InvalidInput);
  EXPECT_THROW(GroupTable(8, GroupPolicy::kAligned, 9), InvalidInput);
  EXPECT_NO_THROW(GroupTable(kMaxRanks, GroupPolicy::kInterval));
  for (GroupPolicy policy : kPolicies) EXPECT_EQ(parse_group_policy(to_string(policy)), policy);
  EXPECT_THROW(parse_group_policy("any"), InvalidInput);
  EXPECT_EQ(to_string(CpGroup{3, 1}), "rank 3 (size 1)");
  EXPECT_EQ(to_string(CpGroup{2, 4}), "ranks 2..5 (size 4)");
}

}  // namespace
}  // namespace dyncp
