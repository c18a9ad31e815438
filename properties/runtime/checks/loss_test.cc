// The loss driver: what it passes, what it mistrusts and why, and the faults it notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

Problem problem_of(std::vector<std::int64_t> lengths, int cp, const std::string& mask,
                   std::uint64_t seed = 1) {
  Problem problem;
  problem.driver = "loss";
  problem.lengths = std::move(lengths);
  problem.cp = cp;
  problem.loss_mask = mask;
  problem.seed = seed;
  return problem;
}

CaseResult run(const Problem& problem) { return loss_driver().run(problem); }

// The detail line that lists the faults that were put in and noticed.
std::string noticed(const CaseResult& result) {
  const std::string prefix = "faults put in and noticed: ";
  for (const std::string& line : result.details()) {
    if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
  }
  return "";
}

bool ran(const CaseResult& result, const std::string& check) {
  const auto& checks = result.checks_run();
  return std::find(checks.begin(), checks.end(), check) != checks.end();
}

// Empty, one token, below, at and above 2 * size, no multiples of it.
const std::vector<std::int64_t> kMixed = {0, 1, 7, 8, 9, 37, 0, 22};

TEST(LossDriver, PassesWithEverySizeAndMask) {
  for (int cp : {2, 3, 4, 5, 8}) {
    for (const char* mask : {"all", "random", "none", "one-rank"}) {
      const CaseResult result = run(problem_of(kMixed, cp, mask));
      EXPECT_EQ(result.status(), Status::kPassed) << cp << " " << mask << ": " << result.reason();
      for (const char* check : {"loss.labels", "loss.token_losses", "loss.inert", "loss.tokens",
                                "loss.mean", "loss.gradient", "loss.gradient_norm"}) {
        EXPECT_TRUE(ran(result, check)) << check;
      }
    }
  }
}

TEST(LossDriver, ReadsItsOptions) {
  Problem problem = problem_of({7, 3, 30}, 4, "random");
  problem.padded = {8, 16, 48};
  problem.first_rank = 5;
  problem.contract = Contract::kV2;
  problem.vocabulary = 3;
  EXPECT_EQ(run(problem).status(), Status::kPassed) << run(problem).reason();
  problem.padded = {8, 16, 44};
  EXPECT_THROW(run(problem), InvalidInput);
  problem.padded = {};
  problem.tensor_parallel = 3;
  EXPECT_EQ(run(problem).status(), Status::kPassed);
  for (const char* option : {"lengths", "padded", "seed", "cp", "first-rank", "contract", "tp",
                             "vocabulary", "loss-mask"}) {
    const auto& options = loss_driver().options;
    EXPECT_NE(std::find(options.begin(), options.end(), option), options.end()) << option;
  }
}

TEST(LossDriver, NoticesEveryFaultThatTheMaskCanShow) {
  const std::string common =
      "tokens-counted-twice, loss-times-cp, gradients-averaged, reported-vs-backward-scale, "
      "norm-after-clip, labels-rolled-after-slice";
  EXPECT_EQ(noticed(run(problem_of(kMixed, 4, "all"))),
            "local-mean, tokens-not-reduced, " + common);
  EXPECT_EQ(noticed(run(problem_of(kMixed, 3, "random"))),
            "local-mean, tokens-not-reduced, " + common);
  EXPECT_EQ(noticed(run(problem_of(kMixed, 4, "one-rank"))),
            "local-mean, empty-shard-nan, " + common);
  EXPECT_EQ(noticed(run(problem_of(kMixed, 4, "none"))),
            "empty-shard-nan, labels-rolled-after-slice");
}

TEST(LossDriver, EmptyRanksAndEmptyBatchesHaveTheirChecks) {
  EXPECT_TRUE(ran(run(problem_of(kMixed, 4, "one-rank")), "loss.empty_rank"));
  EXPECT_FALSE(ran(run(problem_of(kMixed, 4, "one-rank")), "loss.all_masked"));
  EXPECT_TRUE(ran(run(problem_of(kMixed, 4, "none")), "loss.all_masked"));
  EXPECT_FALSE(ran(run(problem_of(kMixed, 4, "all")), "loss.empty_rank"));
}

TEST(LossDriver, MistrustsCasesThatCannotShowAFault) {
  const auto mistrusted = [](const Problem& problem, const std::string& why) {
    const CaseResult result = run(problem);
    EXPECT_EQ(result.status(), Status::kMistrusted) << why;
    EXPECT_NE(result.reason().find(why), std::string::npos) << result.reason();
  };
  mistrusted(problem_of(kMixed, 1, "all"), "CP size 1");
  mistrusted(problem_of({}, 4, "all"), "no token of the pack is unmasked");
  mistrusted(problem_of({0, 1, 1, 0}, 4, "all"), "no token of the pack is unmasked");
  // Nine labels on three ranks, three each: the mean of local means is the mean.
  Problem even = problem_of({10}, 3, "all");
  even.padded = {18};
  mistrusted(even, "the case cannot show the fault local-mean");
  // A vocabulary of one: every loss is 0 whatever divides it.
  Problem trivial = problem_of(kMixed, 4, "all");
  trivial.vocabulary = 1;
  mistrusted(trivial, "the case cannot show the fault");
  // No token at all, and none asked for: only the labels could be wrong, and there are none.
  mistrusted(problem_of({0}, 8, "none"), "the case cannot show the fault labels-rolled");
}

TEST(LossDriver, RefusesBadProblemsByOneLine) {
  const auto refused = [](const Problem& problem, const std::string& expected) {
    try {
      run(problem);
      FAIL() << expected;
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  refused(problem_of(kMixed, 4, "most"), "--loss-mask is 'most'");
  Problem problem = problem_of(kMixed, 4, "all");
  problem.vocabulary = 0;
  refused(problem, "--vocabulary is 0");
  problem = problem_of({std::int64_t{1} << 30}, 4, "all");
  refused(problem, "at most");
}

TEST(LossDriver, RepeatsItself) {
  const Problem problem = problem_of(kMixed, 5, "random", 77);
  EXPECT_EQ(run(problem).details(), run(problem).details());
  EXPECT_NE(run(problem).details(), run(problem_of(kMixed, 5, "random", 78)).details());
}

// Sets as the gate gets them, with families that hold nothing but empty or one-token sequences.
std::vector<LengthSet> length_sets() {
  std::vector<LengthSet> sets = {{"empty set", {}},
                                 {"zeros", {0, 0, 0}},
                                 {"ones", {1, 1}},
                                 {"multiples", {64, 128, 64}},
                                 {"long", {100000, 3, 250000}}};
  for (const LengthFamily& family : length_families()) {
    sets.push_back({std::string(family.name), family.draw(40, 300, 1200, 9)});
  }
  return sets;
}

TEST(LossDriver, GateCasesAreDeterministicAndTrusted) {
  for (Tier tier : {Tier::kSmoke, Tier::kCi}) {
    const auto cases = loss_driver().gate_cases(tier, length_sets(), 3);
    EXPECT_EQ(cases, loss_driver().gate_cases(tier, length_sets(), 3));
    EXPECT_NE(cases, loss_driver().gate_cases(tier, length_sets(), 4));
    std::size_t other_first_ranks = 0, odd_sizes = 0;
    for (const Problem& problem : cases) {
      EXPECT_EQ(problem.driver, "loss");
      EXPECT_GT(problem.cp, 1);
      other_first_ranks += problem.first_rank != 0;
      odd_sizes += problem.cp % 2 == 1;
      if (tier != Tier::kSmoke) continue;
      const CaseResult result = run(problem);
      EXPECT_EQ(result.status(), Status::kPassed)
          << "cp " << problem.cp << " " << problem.loss_mask << " seed " << problem.seed << ": "
          << result.reason();
    }
    EXPECT_GT(other_first_ranks, 0u);
    EXPECT_GT(odd_sizes, 0u);
  }
}

}  // namespace
}  // namespace dyncp
