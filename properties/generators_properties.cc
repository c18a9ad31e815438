// Are the generators what they promise? A generator that draws only multiples of 2*size, only
// groups at rank 0 or only one family would make every other property vacuous, so the variety is
// counted here, over a fixed seed; and everything a value shrinks to has to be legal.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "properties/generators.h"
#include "reference/context.h"

namespace dyncp {
namespace {

constexpr int kDraws = 4000;

// `count` values of a generator, from one fixed seed.
template <typename T>
std::vector<T> sample(const rc::Gen<T>& generator, int count = kDraws) {
  std::vector<T> values;
  rc::Random random(20260117);
  for (int i = 0; i < count; ++i) values.push_back(generator(random.split(), i % 101).value());
  return values;
}

// Calls visit for values reached by shrinking: every first-level shrink, and one random path down.
template <typename T, typename Visit>
void visit_shrinks(const rc::Gen<T>& generator, Visit visit) {
  rc::Random random(7);
  for (int i = 0; i < 60; ++i) {
    rc::Shrinkable<T> current = generator(random.split(), i % 101);
    for (int depth = 0; depth < 12; ++depth) {
      std::vector<rc::Shrinkable<T>> shrinks;
      auto all = current.shrinks();
      for (auto next = all.next(); next; next = all.next()) {
        visit(next->value());
        shrinks.push_back(*next);
      }
      if (shrinks.empty()) break;
      current = shrinks[random.split().next() % shrinks.size()];
    }
  }
}

// A value that satisfies `fails` and none of whose shrinks does.
template <typename T, typename Fails>
T minimal(const rc::Gen<T>& generator, Fails fails) {
  rc::Random random(99);
  for (int i = 0; i < 1000; ++i) {
    rc::Shrinkable<T> current = generator(random.split(), 100);
    if (!fails(current.value())) continue;
    for (bool smaller = true; smaller;) {
      smaller = false;
      auto all = current.shrinks();
      for (auto next = all.next(); next && !smaller; next = all.next()) {
        if (!fails(next->value())) continue;
        current = *next;
        smaller = true;
      }
    }
    return current.value();
  }
  ADD_FAILURE() << "no value of 1000 satisfies the condition";
  return generator(random, 100).value();
}

TEST(GenLengths, StaysInsideItsBounds) {
  for (const LengthBounds bounds : {LengthBounds{}, LengthBounds{9, 0, 4}, LengthBounds{1, 3, 3}}) {
    const auto legal = [&](const std::vector<std::int64_t>& lengths) {
      ASSERT_GE(static_cast<int>(lengths.size()), bounds.min_count);
      ASSERT_LE(static_cast<int>(lengths.size()), bounds.max_count);
      for (std::int64_t length : lengths) {
        ASSERT_GE(length, 0);
        ASSERT_LE(length, bounds.max_length);
      }
    };
    for (const auto& lengths : sample(genLengths(bounds))) legal(lengths);
    visit_shrinks(genLengths(bounds), legal);
  }
}

TEST(GenLengths, MostListsHoldNonMultiplesOfTwiceTheSize) {
  for (int size : kGeneratedCpSizes) {
    int with_non_multiple = 0;
    for (const auto& lengths : sample(genLengths())) {
      with_non_multiple += std::any_of(lengths.begin(), lengths.end(),
                                       [&](std::int64_t l) { return l % (2 * size) != 0; });
    }
    EXPECT_GT(with_non_multiple, kDraws * 8 / 10) << "size " << size;
  }
}

TEST(GenLengths, EveryResidueOfTwiceTheSizeOccurs) {
  for (int size : kGeneratedCpSizes) {
    std::map<std::int64_t, int> seen;
    for (const auto& lengths : sample(genLengths())) {
      for (std::int64_t length : lengths) ++seen[length % (2 * size)];
    }
    ASSERT_EQ(static_cast<int>(seen.size()), 2 * size);
    for (const auto& [residue, times] : seen) EXPECT_GT(times, 20) << residue << " of " << size;
  }
}

TEST(GenLengths, EdgesAndMixturesOccur) {
  int empty_sequence = 0, one_token = 0, all_empty = 0, constant = 0, longest = 0, full = 0;
  int ratio_above_10 = 0;
  for (const auto& lengths : sample(genLengths())) {
    const auto has = [&](std::int64_t value) {
      return std::find(lengths.begin(), lengths.end(), value) != lengths.end();
    };
    empty_sequence += has(0);
    one_token += has(1);
    longest += has(LengthBounds{}.max_length);
    all_empty += std::all_of(lengths.begin(), lengths.end(), [](auto l) { return l == 0; });
    const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
    constant += lengths.size() > 1 && *low == *high;
    ratio_above_10 += *high > 10 * std::max<std::int64_t>(1, *low);
    full += static_cast<int>(lengths.size()) == LengthBounds{}.max_count;
  }
  EXPECT_GT(empty_sequence, kDraws / 10);
  EXPECT_GT(one_token, kDraws / 10);
  EXPECT_GT(all_empty, 5);
  EXPECT_LT(all_empty, kDraws / 20);
  EXPECT_GT(constant, kDraws / 20);
  EXPECT_GT(longest, kDraws / 20);
  EXPECT_GT(ratio_above_10, kDraws / 4);
  EXPECT_GT(full, kDraws / 20);
}

TEST(GenLengths, ShrinksToTheSmallestCounterexample) {
  const auto some_above_17 = [](const std::vector<std::int64_t>& lengths) {
    return std::any_of(lengths.begin(), lengths.end(), [](auto l) { return l > 17; });
  };
  EXPECT_EQ(minimal(genLengths(), some_above_17), (std::vector<std::int64_t>{18}));
  const auto three = [](const std::vector<std::int64_t>& lengths) { return lengths.size() >= 3; };
  EXPECT_EQ(minimal(genLengths(), three), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(GenCpSize, EverySizeIsDrawnAndOnlyThose) {
  std::map<int, int> seen;
  for (int size : sample(genCpSize())) ++seen[size];
  ASSERT_EQ(seen.size(), kGeneratedCpSizes.size());
  for (int size : kGeneratedCpSizes) EXPECT_GT(seen[size], kDraws / 12) << size;
  for (int size : sample(genCpSizeAboveOne())) ASSERT_GT(size, 1);
  EXPECT_EQ(minimal(genCpSize(), [](int) { return true; }), 1);
  EXPECT_EQ(minimal(genCpSizeAboveOne(), [](int) { return true; }), 2);
}

TEST(GenGroup, StartsAtRankZeroOnlySometimes) {
  int at_zero = 0, aligned = 0;
  std::set<int> sizes;
  for (const CpGroup& group : sample(genGroup())) {
    at_zero += group.first_rank == 0;
    aligned += group.first_rank % group.size == 0;
    sizes.insert(group.size);
    // Legal means that a context can be made of it, on every member.
    ASSERT_EQ(CpContext(group, group.end_rank() - 1).size(), group.size);
  }
  EXPECT_EQ(sizes.size(), kGeneratedCpSizes.size());
  EXPECT_GT(at_zero, kDraws / 5);
  EXPECT_LT(at_zero, kDraws / 2);
  EXPECT_GT(aligned, kDraws / 2);
  EXPECT_LT(aligned, kDraws * 9 / 10);
  visit_shrinks(genGroup(), [](const CpGroup& group) {
    ASSERT_GE(group.first_rank, 0);
    ASSERT_GE(group.size, 1);
  });
  EXPECT_EQ(minimal(genGroup(), [](const CpGroup&) { return true; }), (CpGroup{0, 1}));
}

TEST(GenPack, IsDivisibleSometimesWithMorePaddingThanNeeded) {
  for (int size : kGeneratedCpSizes) {
    for (int tensor_parallel : {1, 2}) {
      const std::int64_t multiple = padding_multiple(size, tensor_parallel);
      int padded_more = 0, with_padding = 0, padded_empty = 0;
      const auto legal = [&](const Pack& pack) {
        ASSERT_NO_THROW(require_divisible(pack, size));
        for (int i = 0; i < pack.sequences(); ++i) {
          ASSERT_EQ(pack.padded_length(i) % multiple, 0);
          ASSERT_LE(pack.padded_length(i), round_up(pack.real_length(i), multiple) + 2 * multiple);
        }
      };
      const auto packs = sample(genPack(size, {}, tensor_parallel), 1000);
      for (const Pack& pack : packs) {
        legal(pack);
        bool more = false, empty = false;
        for (int i = 0; i < pack.sequences(); ++i) {
          more |= pack.padded_length(i) > round_up(pack.real_length(i), multiple);
          empty |= pack.real_length(i) == 0 && pack.padded_length(i) > 0;
        }
        padded_more += more;
        padded_empty += empty;
        with_padding += pack.real_tokens() < pack.padded_tokens();
      }
      EXPECT_GT(padded_more, 100);
      EXPECT_LT(padded_more, 400);
      EXPECT_GT(padded_empty, 10);
      EXPECT_GT(with_padding, 800);
      visit_shrinks(genPack(size, {}, tensor_parallel), legal);
    }
  }
}

TEST(FillPadding, TouchesPaddingRowsAndNoOther) {
  for (int size : kGeneratedCpSizes) {
    for (const Pack& pack : sample(genPack(size), 100)) {
      Tensor<double> whole(pack.padded_tokens(), 2, 3, 1.0);
      fill_padding(whole, pack);
      std::int64_t real_rows = 0;
      for (std::int64_t row = 0; row < whole.rows; ++row) {
        // A row is real when some sequence's real part holds it.
        bool real = false;
        for (int i = 0; i < pack.sequences(); ++i) {
          const std::int64_t j = row - pack.first_row(i);
          real |= j >= 0 && j < pack.real_length(i);
        }
        real_rows += real;
        for (int h = 0; h < 2; ++h) {
          for (int d = 0; d < 3; ++d) ASSERT_EQ(std::isnan(whole.at(row, h, d)), !real);
        }
      }
      ASSERT_EQ(real_rows, pack.real_tokens());
      // Filling a slice gives the slice of the filled pack.
      for (int rank = 0; rank < size; ++rank) {
        Tensor<double> slice(pack.padded_tokens() / size, 2, 3, 1.0);
        fill_padding(slice, pack, size, rank);
        const Tensor<double> expected = gather(whole, zigzag_rows(pack, size, rank));
        ASSERT_TRUE(slice.same_shape(expected));
        for (std::size_t k = 0; k < slice.data.size(); ++k) {
          ASSERT_EQ(std::isnan(slice.data[k]), std::isnan(expected.data[k]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace dyncp
