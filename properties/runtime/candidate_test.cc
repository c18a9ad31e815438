// Headers of recorded tensors: they round-trip, every malformed one gets one clear line, and tensors
// are cut by rank.
#include "runtime/candidate.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace dyncp {
namespace {

Safetensors with_header(const std::string& header) {
  return {{{std::string(kCandidateKey), header}}, {}};
}

TEST(CandidateHeader, ReadsTheDocumentedForm) {
  const Candidate c = read_candidate(with_header(
      R"({"version": 1, "check": "rope", "lengths": [7, 3, 0], "padded": [16, 8, 0],
          "size": 4, "rank": 1, "first_rank": 8, "contract": "v2", "positions": "packed",
          "yarn": {"original_max_positions": 32768, "mscale": 0.707},
          "options": {"rope-base": 500000, "kv_heads": 1, "pairing": "interleaved",
                      "yarn-scale": 4.5}})"));
  EXPECT_EQ(c.problem.driver, "rope");
  EXPECT_EQ(c.problem.lengths, (std::vector<std::int64_t>{7, 3, 0}));
  EXPECT_EQ(c.problem.padded, (std::vector<std::int64_t>{16, 8, 0}));
  EXPECT_EQ(c.problem.cp, 4);
  EXPECT_EQ(c.rank, 1);
  EXPECT_EQ(c.problem.first_rank, 8);
  EXPECT_EQ(c.problem.contract, Contract::kV2);
  EXPECT_TRUE(c.packed_positions);
  EXPECT_EQ(c.yarn, (YarnScaling{.scale = 4.5, .original_max_positions = 32768, .mscale = 0.707}));
  EXPECT_EQ(c.problem.rope_base, 500000.0);
  EXPECT_EQ(c.problem.kv_heads, 1);
  EXPECT_EQ(c.problem.pairing, "interleaved");
  EXPECT_EQ(read_candidate(with_header(candidate_header(c))), c);
}

TEST(CandidateHeader, LeavesOutWhatHasADefault) {
  const Candidate c = read_candidate(
      with_header(R"({"version":1,"check":"zigzag","lengths":[5],"size":2,"ranks":"all"})"));
  EXPECT_FALSE(c.rank.has_value());
  EXPECT_TRUE(c.problem.padded.empty());
  EXPECT_EQ(c.problem.first_rank, 0);
  EXPECT_EQ(c.problem.contract, Contract::kV1);
  EXPECT_FALSE(c.packed_positions);
  EXPECT_EQ(c.yarn, YarnScaling{});
  EXPECT_EQ(read_candidate(with_header(candidate_header(c))), c);
}

TEST(CandidateHeader, OptionsOfEveryDriverThatTakesTensors) {
  for (const char* header :
       {R"({"version":1,"check":"attention","lengths":[5],"size":1,"rank":0,
            "options":{"heads":8,"mask":"full","window":-1}})",
        R"({"version":1,"check":"loss","lengths":[5],"size":2,"rank":0,"options":{"tp":2}})"}) {
    const Candidate c = read_candidate(with_header(header));
    EXPECT_EQ(read_candidate(with_header(candidate_header(c))), c);
  }
}

TEST(CandidateHeader, MalformedHeadersAreNamed) {
  const auto refused = [](const std::string& header, const std::string& part) {
    try {
      read_candidate(with_header(header));
      ADD_FAILURE() << "accepted " << header;
    } catch (const InvalidInput& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(part), std::string::npos) << header << "\n" << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  };
  EXPECT_THROW(read_candidate(Safetensors{}), InvalidInput);
  refused("", "not valid JSON");
  refused("{\"version\": 1", "not valid JSON");
  refused("[1]", "not a JSON object");
  const auto header = [](const std::string& fields) {
    return R"({"version":1,"check":"rope","lengths":[5],"size":2,"rank":0)" + fields + "}";
  };
  EXPECT_NO_THROW(read_candidate(with_header(header(""))));
  refused(header(R"(,"sizes":3)"), "unknown field 'sizes'");
  refused(R"({"check":"rope","lengths":[5],"size":2,"rank":0})", "no field 'version'");
  refused(R"({"version":1,"lengths":[5],"size":2,"rank":0})", "no field 'check'");
  refused(R"({"version":1,"check":"rope","size":2,"rank":0})", "no field 'lengths'");
  refused(R"({"version":1,"check":"rope","lengths":[5],"rank":0})", "no field 'size'");
  refused(R"({"version":2,"check":"rope","lengths":[5],"size":2,"rank":0})", "version is 2");
  refused(R"({"version":1,"check":"schedule","lengths":[5],"size":2,"rank":0})",
          "check is 'schedule'");
  refused(R"({"version":1,"check":7,"lengths":[5],"size":2,"rank":0})", "check is 7");
  refused(R"({"version":1,"check":"rope","lengths":5,"size":2,"rank":0})", "lengths is no list");
  refused(R"({"version":1,"check":"rope","lengths":[5,-1],"size":2,"rank":0})", "lengths[1] is -1");
  refused(R"({"version":1,"check":"rope","lengths":[5.5],"size":2,"rank":0})", "lengths[0] is 5.5");
  refused(R"({"version":1,"check":"rope","lengths":[18446744073709551615],"size":2,"rank":0})",
          "lengths[0] is 18446744073709551615");
  refused(R"({"version":1,"check":"rope","lengths":[5],"size":0,"rank":0})", "size is 0");
  refused(R"({"version":1,"check":"rope","lengths":[5],"size":2})", "either rank");
  refused(header(R"(,"ranks":"all")"), "either rank");
  refused(R"({"version":1,"check":"rope","lengths":[5],"size":2,"ranks":"both"})", "ranks is");
  refused(R"({"version":1,"check":"rope","lengths":[5],"size":2,"rank":2})",
          "rank is 2, expected a rank inside the CP group, 0..1");
  refused(R"({"version":1,"check":"rope","lengths":[5],"size":2,"rank":-1})", "rank is -1");
  refused(header(R"(,"first_rank":"a")"), "first_rank is \"a\"");
  refused(header(R"(,"contract":"v3")"), "unknown contract 'v3'");
  refused(header(R"(,"positions":"other")"), "positions is 'other'");
  refused(R"({"version":1,"check":"zigzag","lengths":[5],"size":2,"rank":0,"positions":"packed"})",
          "positions belongs to check rope");
  refused(R"({"version":1,"check":"zigzag","lengths":[5],"size":2,"rank":0,"yarn":{}})",
          "yarn belongs to check rope");
  refused(header(R"(,"yarn":{"factor":2})"), "yarn has no field 'factor'");
  refused(header(R"(,"yarn":{"mscale":"x"})"), "yarn.mscale is \"x\"");
  refused(header(R"(,"options":[])"), "options is no object");
  refused(header(R"(,"options":{"vocabulary":7})"), "check rope reads no option 'vocabulary'");
  refused(header(R"(,"options":{"nonsense":7})"), "check rope reads no option 'nonsense'");
  refused(header(R"(,"options":{"cp":2})"), "a field of the header itself");
  refused(header(R"(,"options":{"dim":null})"), "option dim is null");
  refused(header(R"(,"options":{"dim":-4})"), "--dim '-4'");
  refused(header(R"(,"options":{"pairing":"neox"})"), "--pairing 'neox'");
  refused(header(R"(,"padded":[8,8])"), "2 padded lengths for 1 lengths");
  refused(header(R"(,"padded":[4])"), "padded length 4");
  refused(header(R"(,"padded":[6])"), "no multiple of 2*size = 4");
  refused(R"({"version":1,"check":"rope","lengths":[67108864,67108864],"size":2,"rank":0})",
          "padded tokens, more than");
}

TEST(CandidateTensors, AreCutByRank) {
  Safetensors file;
  file.tensors["one"] = {"F64", {2, 1, 3}, {0, 1, 2, 3, 4, 5}};
  file.tensors["batched"] = {"F64", {1, 2, 1, 3}, {0, 1, 2, 3, 4, 5}};
  file.tensors["stacked"] = {"F64", {2, 1, 3}, {0, 1, 2, 3, 4, 5}};
  file.tensors["fours"] = {"F64", {2, 2, 1, 1}, {0, 1, 2, 3}};
  Candidate c;
  c.problem.cp = 2;
  c.rank = 1;
  for (const char* name : {"one", "batched"}) {
    const auto parts = recorded_rows(c, file, name, 2);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].rank, 1);
    EXPECT_EQ(parts[0].rows, 2);
    EXPECT_EQ(parts[0].width, 3);
    EXPECT_EQ(parts[0].row(1)[2], 5.0);
    const auto tensors = recorded_tensors(c, file, name, 2);
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_EQ(tensors[0].heads, 1);
    EXPECT_EQ(tensors[0].at(1, 0, 1), 4.0);
  }
  EXPECT_THROW(recorded_rows(c, file, "one", 1), InvalidInput);
  EXPECT_THROW(recorded_rows(c, file, "absent", 2), InvalidInput);
  EXPECT_THROW(recorded_tensors(c, file, "one", 3), InvalidInput);
  c.rank = std::nullopt;
  const auto parts = recorded_rows(c, file, "stacked", 1);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].rank, 1);
  EXPECT_EQ(parts[1].rows, 1);
  EXPECT_EQ(parts[1].row(0)[0], 3.0);
  EXPECT_EQ(recorded_tensors(c, file, "fours", 2)[1].at(1, 0, 0), 3.0);
  c.problem.cp = 3;
  EXPECT_THROW(recorded_rows(c, file, "stacked", 1), InvalidInput);
}

TEST(CandidateTensors, IntegersAndPrecision) {
  EXPECT_EQ(to_integers("x", {0.0, -3.0}), (std::vector<std::int64_t>{0, -3}));
  EXPECT_THROW(to_integers("x", {0.5}), InvalidInput);
  EXPECT_THROW(to_integers("x", {std::numeric_limits<double>::quiet_NaN()}), InvalidInput);
  EXPECT_THROW(to_integers("x", {0x1p60}), InvalidInput);
  EXPECT_EQ(rope_precision("x", {"BF16", {}, {}}).unit, 0x1p-8);
  EXPECT_EQ(rope_precision("x", {"F64", {}, {}}).angle_unit, 0x1p-53);
  EXPECT_THROW(rope_precision("x", {"I32", {}, {}}), InvalidInput);
}

}  // namespace
}  // namespace dyncp
