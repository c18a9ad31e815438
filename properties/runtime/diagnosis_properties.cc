// Hypotheses of wrong rows: the closed forms agree with the specification where it is defined, every
// hypothesis has the rows it announces, and the best explanation is what was injected.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "properties/generators.h"
#include "reference/rope.h"
#include "reference/zigzag.h"
#include "runtime/diagnosis.h"

namespace dyncp {
namespace {

using Rows = std::vector<std::int64_t>;

RC_GTEST_PROP(DiagnosisProperties, ClosedFormsAgreeWithTheSpecification, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const std::int64_t rows = pack.padded_tokens() / size;
  const Rows& cu = pack.cu_seqlens_padded();
  for (int rank = 0; rank < size; ++rank) {
    RC_ASSERT(slice_by_formula(cu, size, rank, rows) == zigzag_rows(pack, size, rank));
    RC_ASSERT(positions_by_formula(cu, size, rank, rows, false) ==
              rope_positions(pack, size, rank));
    RC_ASSERT(positions_by_formula(cu, size, rank, rows, true) ==
              rope_positions_packed_table(pack, size, rank));
  }
}

std::vector<Hypothesis> draw_hypotheses(const Pack& pack, int size, int rank) {
  switch (*genInt(0, 2)) {
    case 0:
      return slice_hypotheses(pack, size, rank);
    case 1:
      return position_hypotheses(pack, size, rank, false);
    default:
      return position_hypotheses(pack, size, rank, true);
  }
}

RC_GTEST_PROP(DiagnosisProperties, EveryHypothesisHasTheRowsItAnnounces, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const int rank = *genInt(0, size - 1);
  for (const Hypothesis& hypothesis : draw_hypotheses(pack, size, rank)) {
    RC_ASSERT(static_cast<std::int64_t>(hypothesis.values().size()) == hypothesis.rows);
    RC_ASSERT(!hypothesis.name.empty());
  }
}

// What a hypothesis generates is explained in full, by it or by one that gives the same rows.
RC_GTEST_PROP(DiagnosisProperties, AnInjectedHypothesisIsFound, ()) {
  const int size = *genCpSize();
  const Pack pack = *genPack(size);
  const int rank = *genInt(0, size - 1);
  const std::vector<Hypothesis> hypotheses = draw_hypotheses(pack, size, rank);
  const Hypothesis& injected = hypotheses[*rc::gen::inRange<std::size_t>(0, hypotheses.size())];
  const Rows got = injected.values();
  RC_PRE(!got.empty());
  JudgedRows judged{injected.rows, {}, {}, [&got](std::int64_t row, std::int64_t value) {
                      return got[static_cast<std::size_t>(row)] == value;
                    }};
  // Some rows count as right, as where right and wrong agree.
  const std::int64_t stride = *genInt(2, 5);
  for (std::int64_t row = 0; row < injected.rows; ++row) {
    (row % stride == 1 ? judged.right : judged.wrong).push_back(row);
  }
  const auto explanation = best_explanation(judged, hypotheses);
  RC_ASSERT(explanation.has_value());
  RC_ASSERT(explanation->complete);
  RC_ASSERT(explanation->wrong_explained == static_cast<std::int64_t>(judged.wrong.size()));
  const auto named = std::find_if(hypotheses.begin(), hypotheses.end(), [&](const Hypothesis& h) {
    return h.name == explanation->name && h.values() == got;
  });
  RC_ASSERT(named != hypotheses.end());
}

RC_GTEST_PROP(DiagnosisProperties, CommonOffsetIsFoundAndNothingElse, ()) {
  const std::int64_t offset = *genInt(1, 50);
  const int count = *genInt(1, 20);
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (int i = 0; i < count; ++i) pairs.emplace_back(i * i, i * i - offset);
  RC_ASSERT(common_offset(pairs) == -offset);
  for (int i = 0; i <= count; ++i) pairs.emplace_back(0, 100 + i);  // all different, and more
  RC_ASSERT(!common_offset(pairs).has_value() || 2 * count >= static_cast<int>(pairs.size()));
  RC_ASSERT(!common_offset({}).has_value());
  RC_ASSERT(!common_offset({{4, 4}}).has_value());
}

TEST(Diagnosis, NothingIsExplainedByAMinority) {
  const Pack pack({{16, 16}, {8, 8}});
  const Rows other = zigzag_rows(pack, 4, 2);
  Rows got(other.size(), -1);
  got[0] = other[0];
  got[1] = other[1];
  JudgedRows judged{static_cast<std::int64_t>(got.size()),
                    {0, 1, 2, 3, 4, 5},
                    {},
                    [&got](std::int64_t row, std::int64_t value) {
                      return got[static_cast<std::size_t>(row)] == value;
                    }};
  EXPECT_FALSE(best_explanation(judged, slice_hypotheses(pack, 4, 1)).has_value());
  EXPECT_EQ(describe(std::nullopt, 6), "; no known mistake explains the wrong rows");
}

}  // namespace
}  // namespace dyncp
