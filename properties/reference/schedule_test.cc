// Rank lists of schedules, hostile ones included: a plug-in may name any group.
#include "reference/schedule.h"

#include <gtest/gtest.h>

#include <limits>

namespace dyncp {
namespace {

TEST(ToRankLists, EveryRankOfAGroupGetsItsList) {
  const Schedule schedule{{{{CpGroup{0, 2}, {5, 3}}, {CpGroup{3, 1}, {1}}}}};
  EXPECT_EQ(to_rank_lists(schedule, 4), (RankLists{{{5, 3}, {5, 3}, {}, {1}}}));
}

TEST(ToRankLists, GroupsAreCutOffAtTheDomainHoweverLarge) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  const Schedule beyond{{{{CpGroup{1, kHuge}, {7}}}}};
  EXPECT_EQ(to_rank_lists(beyond, 3), (RankLists{{{}, {7}, {7}}}));
  const Schedule outside{{{{CpGroup{kHuge, kHuge}, {7}}, {CpGroup{-5, 3}, {8}}}}};
  EXPECT_EQ(to_rank_lists(outside, 2), (RankLists{{{}, {}}}));
}

}  // namespace
}  // namespace dyncp
