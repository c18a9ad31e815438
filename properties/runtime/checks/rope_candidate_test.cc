// Recorded positions and rotations: right files pass in every dtype, and every wrong position map
// or rotation, written here by itself, is named.
#include "runtime/checks/rope_candidate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/candidate.h"

namespace dyncp {
namespace {

using Positions = std::vector<std::int64_t>;

// Nearly full, so that mirror chunks hold real rows on every rank.
const Positions kLengths = {15, 8, 2, 0, 23};
const Positions kPadded = {16, 8, 16, 0, 24};
constexpr int kSize = 4;
constexpr std::int64_t kLocalRows = 16;

Candidate candidate(std::optional<int> rank, bool packed = false) {
  Candidate c;
  c.problem.driver = "rope";
  c.problem.lengths = kLengths;
  c.problem.padded = kPadded;
  c.problem.cp = kSize;
  c.problem.first_rank = 4;
  c.rank = rank;
  c.packed_positions = packed;
  return c;
}

Safetensors file_of(const Candidate& c, std::map<std::string, NamedTensor> tensors) {
  return {{{std::string(kCandidateKey), candidate_header(c)}}, std::move(tensors)};
}

CaseResult judge(const Safetensors& file) {
  const Safetensors read = parse_safetensors(serialize_safetensors(file));
  return judge_rope(read_candidate(read).problem, read);
}

// Named first, or as an equal: on one rank two mistakes can be the same array.
void expect_named(const CaseResult& result, const std::string& name) {
  ASSERT_EQ(result.status(), Status::kFailed) << name;
  const std::string& reason = result.reason();
  EXPECT_TRUE(reason.find("this looks like " + name) != std::string::npos ||
              reason.find(", or " + name) != std::string::npos)
      << "expected " << name << "\n"
      << reason;
}

void expect_complete(const CaseResult& result, const std::string& name) {
  expect_named(result, name);
  EXPECT_NE(result.reason().find("and every right one"), std::string::npos) << result.reason();
}

// ---- Position maps ----------------------------------------------------------------------------

// Position of every local row from (row within the sequence, local rows of the sequence, sequence).
template <typename Value>
Positions per_row(const Value& value, int size = kSize) {
  Positions positions;
  for (std::size_t s = 0; s < kPadded.size(); ++s) {
    const std::int64_t length = kPadded[s] / size;
    for (std::int64_t i = 0; i < length; ++i) positions.push_back(value(i, length, s));
  }
  return positions;
}

std::int64_t zigzag(std::int64_t i, std::int64_t length, int size, int rank) {
  const std::int64_t chunk = length / 2;
  if (size == 1) return i;
  return i < chunk ? rank * chunk + i : (2 * size - 1 - rank) * chunk + (i - chunk);
}

std::int64_t start(std::size_t sequence) {
  std::int64_t sum = 0;
  for (std::size_t s = 0; s < sequence; ++s) sum += kPadded[s];
  return sum;
}

Positions right_positions(int rank, bool packed = false) {
  return per_row([&](std::int64_t i, std::int64_t length, std::size_t s) {
    return zigzag(i, length, kSize, rank) + (packed ? start(s) : 0);
  });
}

struct Wrong {
  std::string name;
  Positions positions;
};

std::vector<Wrong> wrong_positions(int rank, bool packed) {
  std::vector<Wrong> all;
  const auto add = [&](const std::string& name, auto value) {
    all.push_back({name, per_row([&](std::int64_t i, std::int64_t length, std::size_t s) {
                     return value(i, length, s) + (packed ? start(s) : 0);
                   })});
  };
  using Int = std::int64_t;
  all.push_back({packed ? "restarting positions: the offset cu_seqlens_padded is missing"
                        : "packed-table positions",
                 right_positions(rank, !packed)});
  const int other = (rank + 1) % kSize;
  add("the positions of rank " + std::to_string(other),
      [&](Int i, Int length, std::size_t) { return zigzag(i, length, kSize, other); });
  add("positions that count the local rows, as if CP were off",
      [&](Int i, Int, std::size_t) { return i; });
  add("the first sequence's chunk size used for every sequence", [&](Int i, Int, std::size_t) {
    return i < 2 ? rank * 2 + i : 16 - (rank + 1) * 2 + (i - 2);
  });
  add("the first sequence's end used for every sequence", [&](Int i, Int length, std::size_t) {
    const Int chunk = length / 2;
    return i < chunk ? rank * chunk + i : 16 - (rank + 1) * chunk + (i - chunk);
  });
  add("contiguous positions", [&](Int i, Int length, std::size_t) { return rank * length + i; });
  add("the mirror chunk counted forward", [&](Int i, Int length, std::size_t) {
    const Int chunk = length / 2;
    return i < chunk ? rank * chunk + i : (kSize + rank) * chunk + (i - chunk);
  });
  add("the mirror chunk counted down from its end", [&](Int i, Int length, std::size_t) {
    const Int chunk = length / 2;
    return i < chunk ? rank * chunk + i : (2 * kSize - rank) * chunk - 1 - (i - chunk);
  });
  add("the mirror chunk one chunk too late", [&](Int i, Int length, std::size_t) {
    const Int chunk = length / 2;
    return i < chunk ? rank * chunk + i : (2 * kSize - rank) * chunk + (i - chunk);
  });
  add("the mirror chunk one chunk too early", [&](Int i, Int length, std::size_t) {
    const Int chunk = length / 2;
    return i < chunk ? rank * chunk + i : (2 * kSize - 2 - rank) * chunk + (i - chunk);
  });
  for (const int size : {2, 3, 8}) {
    const int r = size - 1;
    add("the positions of rank " + std::to_string(r) + " in a group of size " +
            std::to_string(size),
        [&](Int i, Int length, std::size_t) {
          const Int segment = length / 2;
          return i < segment ? r * segment + i : length * size - (r + 1) * segment + (i - segment);
        });
  }
  add("positions off by +5",
      [&](Int i, Int length, std::size_t) { return zigzag(i, length, kSize, rank) + 5; });
  if (!packed) {
    Positions whole;
    for (Int i = 0; i < kLocalRows; ++i) whole.push_back(zigzag(i, kLocalRows, kSize, rank));
    all.push_back({"one counter through the pack: zigzag of the whole buffer", whole});
  }
  return all;
}

NamedTensor integers(const Positions& values) {
  NamedTensor tensor;
  tensor.dtype = "I32";
  tensor.shape = {static_cast<std::int64_t>(values.size())};
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

TEST(RopeCandidate, RightPositionsPass) {
  for (const bool packed : {false, true}) {
    for (int rank = 0; rank < kSize; ++rank) {
      Positions positions = right_positions(rank, packed);
      const auto file = [&] {
        return file_of(candidate(rank, packed), {{"positions", integers(positions)}});
      };
      EXPECT_EQ(judge(file()).status(), Status::kPassed) << judge(file()).reason();
      // What padding rows hold is not judged: rank 0's last row of the first sequence is one.
      if (rank == 0) positions[3] = -9;
      EXPECT_EQ(judge(file()).status(), Status::kPassed) << judge(file()).reason();
      positions[0] += 1;
      EXPECT_EQ(judge(file()).status(), Status::kFailed);
    }
  }
}

TEST(RopeCandidate, EveryWrongPositionMapIsNamed) {
  for (const bool packed : {false, true}) {
    for (int rank = 0; rank < kSize; ++rank) {
      for (const Wrong& wrong : wrong_positions(rank, packed)) {
        // The maps that are right by accident on this rank.
        if (wrong.positions == right_positions(rank, packed)) continue;
        const CaseResult result =
            judge(file_of(candidate(rank, packed), {{"positions", integers(wrong.positions)}}));
        SCOPED_TRACE("rank " + std::to_string(rank) + (packed ? " packed" : " restarting"));
        expect_complete(result, wrong.name);
        ASSERT_FALSE(result.findings().empty());
        EXPECT_EQ(result.findings()[0].check, "rope.positions");
        EXPECT_EQ(result.findings()[0].kind, Kind::kPosition);
      }
    }
  }
}

TEST(RopeCandidate, AnotherGroupsArrayIsNamedByItsLength) {
  const Positions build_time = per_row(
      [](std::int64_t i, std::int64_t length, std::size_t) { return zigzag(i, length, 2, 1); }, 2);
  expect_named(judge(file_of(candidate(2), {{"positions", integers(build_time)}})),
               "the positions of rank 1 in a group of size 2");
  const Positions whole = per_row([](std::int64_t i, std::int64_t, std::size_t) { return i; }, 1);
  expect_named(judge(file_of(candidate(2), {{"positions", integers(whole)}})),
               "the positions of the whole pack, not sliced");
}

TEST(RopeCandidate, RealBoundariesAreNamed) {
  // Real lengths 16 and 8 in padded 24 and 12, on two ranks: halves of 4 and 2 rows by cu_seqlens.
  Candidate c = candidate(1);
  c.problem.cp = 2;
  c.problem.lengths = {16, 8};
  c.problem.padded = {24, 12};
  Positions positions;
  for (std::int64_t i = 0; i < 8; ++i) positions.push_back(zigzag(i, 8, 2, 1));
  // The last sequence takes the rows that are left over.
  for (std::int64_t i = 0; i < 10; ++i) positions.push_back(zigzag(i, 4, 2, 1));
  expect_named(judge(file_of(c, {{"positions", integers(positions)}})),
               "positions by cu_seqlens (real lengths) instead of cu_seqlens_padded");
}

// ---- Rotations --------------------------------------------------------------------------------

double to_float(double value) { return static_cast<double>(static_cast<float>(value)); }

double to_bits(double value, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

double exact(double value) { return value; }
double to_bf16(double value) { return to_bits(value, 8); }
double to_fp16(double value) { return to_bits(value, 11); }

struct Arithmetic {
  std::string dtype;
  double (*round)(double);
  double (*round_angle)(double);
};

const std::vector<Arithmetic> kArithmetics = {{"F64", exact, exact},
                                              {"F32", to_float, to_float},
                                              {"F16", to_fp16, to_float},
                                              {"BF16", to_bf16, to_float}};

Tensor<double> random_rows(const Arithmetic& arithmetic, int heads, int dim, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor<double> x(kLocalRows, heads, dim);
  for (double& value : x.data) {
    value = arithmetic.round(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  }
  return x;
}

NamedTensor tensor_of(const Tensor<double>& x, const std::string& dtype) {
  return {dtype, {x.rows, x.heads, x.dim}, x.data};
}

RopeOptions options_of(const Candidate& c, int dim) {
  RopeOptions options = rope_options(c.problem, dim);
  if (options.yarn) options.yarn = c.yarn;
  return options;
}

Safetensors rotated(const Candidate& c, const Arithmetic& a, const Positions& positions,
                    const RopeOptions& options, int heads = 2, int dim = 16) {
  const Tensor<double> q = random_rows(a, heads, dim, 11);
  const Tensor<double> y = rope_rounded(q, positions, options, a.round, a.round_angle);
  return file_of(c, {{"q", tensor_of(q, a.dtype)}, {"q_rotated", tensor_of(y, a.dtype)}});
}

TEST(RopeCandidate, RightRotationsPassInEveryDtype) {
  for (const Arithmetic& a : kArithmetics) {
    for (const bool packed : {false, true}) {
      for (int rank = 0; rank < kSize; ++rank) {
        Candidate c = candidate(rank, packed);
        if (rank == 1) c.problem.pairing = "interleaved";
        if (rank == 2) c.problem.rotary_dim = 12;
        if (rank == 3) {
          c.problem.yarn_scale = 8;
          c.yarn.scale = 8;
          c.yarn.original_max_positions = 32;
          c.yarn.mscale = 0.707;
        }
        const CaseResult result =
            judge(rotated(c, a, right_positions(rank, packed), options_of(c, 16)));
        EXPECT_EQ(result.status(), Status::kPassed)
            << a.dtype << " rank " << rank << ": " << result.reason();
      }
    }
  }
}

TEST(RopeCandidate, EveryWrongPositionMapIsNamedFromRotatedRows) {
  for (const Arithmetic& a : {kArithmetics.front(), kArithmetics.back()}) {
    for (int rank = 0; rank < kSize; ++rank) {
      const Candidate c = candidate(rank);
      for (const Wrong& wrong : wrong_positions(rank, false)) {
        if (wrong.positions == right_positions(rank)) continue;
        SCOPED_TRACE(a.dtype + " rank " + std::to_string(rank));
        const CaseResult result = judge(rotated(c, a, wrong.positions, options_of(c, 16)));
        expect_complete(result, wrong.name);
        ASSERT_FALSE(result.findings().empty());
        EXPECT_EQ(result.findings()[0].check, "rope.rotated");
      }
    }
  }
}

TEST(RopeCandidate, EveryWrongRotationIsNamed) {
  for (const Arithmetic& a : kArithmetics) {
    const Positions positions = right_positions(1);
    Candidate c = candidate(1);
    c.problem.yarn_scale = 8;
    c.yarn.scale = 8;
    c.yarn.original_max_positions = 16;
    const RopeOptions right = options_of(c, 16);
    RopeOptions wrong = right;
    wrong.pairing = Pairing::kInterleaved;
    expect_complete(judge(rotated(c, a, positions, wrong)), "interleaved pairing instead of half");
    wrong = right;
    wrong.yarn = std::nullopt;
    expect_complete(judge(rotated(c, a, positions, wrong)), "no YaRN");
    wrong = right;
    wrong.yarn->mscale = 0.0;
    expect_complete(judge(rotated(c, a, positions, wrong)), "YaRN without its concentration");
    wrong = right;
    wrong.rotary_dim = 8;
    expect_complete(judge(rotated(c, a, positions, wrong)), "rotary dimension 8 instead of 16");
    wrong = right;
    wrong.base = 1000000.0;
    expect_complete(judge(rotated(c, a, positions, wrong)), "base 1000000 instead of 10000");
    Positions negative = positions;
    for (std::int64_t& position : negative) position = -position;
    expect_complete(judge(rotated(c, a, negative, right)), "positions of the opposite sign");
    const Candidate plain = candidate(1);
    expect_complete(judge(rotated(plain, a, Positions(kLocalRows, 0), options_of(plain, 16))),
                    "rows that were not rotated");
    Candidate interleaved = candidate(1);
    interleaved.problem.pairing = "interleaved";
    expect_complete(judge(rotated(interleaved, a, positions, options_of(plain, 16))),
                    "half pairing instead of interleaved");
  }
}

TEST(RopeCandidate, Backward) {
  for (const Arithmetic& a : kArithmetics) {
    const Candidate c = candidate(2);
    const RopeOptions options = options_of(c, 16);
    const Positions positions = right_positions(2);
    Positions negative = positions;
    for (std::int64_t& position : negative) position = -position;
    const Tensor<double> g = random_rows(a, 2, 16, 5);
    // The transposed rotation is the rotation back.
    const auto file = [&](const Positions& turned) {
      const Tensor<double> dx = rope_rounded(g, turned, options, a.round, a.round_angle);
      return file_of(
          c, {{"k_rotated_grad", tensor_of(g, a.dtype)}, {"k_grad", tensor_of(dx, a.dtype)}});
    };
    EXPECT_EQ(judge(file(negative)).status(), Status::kPassed) << judge(file(negative)).reason();
    const CaseResult wrong = judge(file(positions));
    expect_complete(wrong, "positions of the opposite sign");
    EXPECT_EQ(wrong.findings()[0].check, "rope.backward");
  }
}

TEST(RopeCandidate, AllRanksStackedNameEachRank) {
  const Arithmetic& a = kArithmetics[3];
  const Candidate c = candidate(std::nullopt);
  NamedTensor q{a.dtype, {kSize, kLocalRows, 2, 16}, {}};
  NamedTensor y = q;
  for (int rank = 0; rank < kSize; ++rank) {
    const Tensor<double> x = random_rows(a, 2, 16, static_cast<std::uint64_t>(rank));
    // Ranks 1 and 2 take each other's positions.
    const int of = rank == 1 || rank == 2 ? 3 - rank : rank;
    const Tensor<double> rotated_rows =
        rope_rounded(x, right_positions(of), options_of(c, 16), a.round, a.round_angle);
    q.values.insert(q.values.end(), x.data.begin(), x.data.end());
    y.values.insert(y.values.end(), rotated_rows.data.begin(), rotated_rows.data.end());
  }
  const CaseResult result = judge(file_of(c, {{"q", q}, {"q_rotated", y}}));
  ASSERT_EQ(result.findings().size(), 2U);
  EXPECT_NE(result.findings()[0].message.find("rank 1: "), std::string::npos);
  EXPECT_NE(result.findings()[0].message.find("looks like the positions of rank 2"),
            std::string::npos)
      << result.findings()[0].message;
  EXPECT_NE(result.findings()[1].message.find("looks like the positions of rank 1"),
            std::string::npos);
}

TEST(RopeCandidate, OneWrongElementIsFoundAndPaddingIsNot) {
  const Arithmetic& a = kArithmetics[1];
  const Candidate c = candidate(0);
  Safetensors file = rotated(c, a, right_positions(0), options_of(c, 16));
  // Local row 3 of rank 0 is position 15 of a sequence of 15.
  for (std::size_t i = 0; i < 32; ++i) {
    file.tensors["q_rotated"].values[3 * 32 + i] = std::numeric_limits<double>::quiet_NaN();
    file.tensors["q"].values[3 * 32 + i] = std::numeric_limits<double>::infinity();
  }
  EXPECT_EQ(judge(file).status(), Status::kPassed) << judge(file).reason();
  Safetensors nan = file;
  nan.tensors["q_rotated"].values[1 * 32 + 31] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(judge(nan).reason().find("rank 0: 1 of"), std::string::npos) << judge(nan).reason();
  file.tensors["q_rotated"].values[1 * 32 + 31] += 1e-5;
  const CaseResult result = judge(file);
  EXPECT_EQ(result.status(), Status::kFailed);
  EXPECT_NE(
      result.reason().find("1 of 12 real rows of tensor q_rotated are wrong, the first is local "
                           "row 1 (sequence 0): expected position 1"),
      std::string::npos)
      << result.reason();
}

TEST(RopeCandidate, WhatShowsNothingIsMistrusted) {
  const Arithmetic& a = kArithmetics[3];
  const Candidate c = candidate(1);
  NamedTensor zeros{"BF16", {kLocalRows, 1, 16}, std::vector<double>(kLocalRows * 16, 0.0)};
  const CaseResult result = judge(file_of(c, {{"q", zeros}, {"q_rotated", zeros}}));
  EXPECT_EQ(result.status(), Status::kMistrusted);
  EXPECT_NE(result.reason().find("would fit the next position as well"), std::string::npos);
  Candidate off = candidate(0);
  off.problem.cp = 1;
  off.problem.padded = {};
  off.problem.lengths = {16};
  Positions counting;
  for (std::int64_t i = 0; i < 16; ++i) counting.push_back(i);
  EXPECT_EQ(judge(rotated(off, a, counting, options_of(off, 16))).status(), Status::kMistrusted);
}

TEST(RopeCandidate, MisshapenFilesAreRefused) {
  const Arithmetic& a = kArithmetics[1];
  const Candidate c = candidate(1);
  const Safetensors right = rotated(c, a, right_positions(1), options_of(c, 16));
  const auto refused = [&](const std::function<void(Safetensors&)>& damage, const char* part) {
    Safetensors file = right;
    damage(file);
    try {
      judge(file);
      ADD_FAILURE() << "accepted, expected a message with " << part;
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused([](Safetensors& f) { f.tensors.erase("q"); }, "nothing to judge");
  refused([](Safetensors& f) { f.tensors["q"].shape = {kLocalRows, 32}; }, "[16, 32]");
  refused([](Safetensors& f) { f.tensors["q"].shape = {8, 4, 16}; }, "8 rows");
  refused([](Safetensors& f) { f.tensors["q"].shape = {kLocalRows, 1, 32}; }, "expected the same");
  refused([](Safetensors& f) { f.tensors["q"].values[0] = std::nan(""); },
          "holds nan in real row 0");
  refused(
      [](Safetensors& f) {
        f.tensors["q"].dtype = "I32";
        for (double& value : f.tensors["q"].values) value = 1;
      },
      "dtype I32");
  refused(
      [&](Safetensors& f) {
        Candidate wide = c;
        wide.problem.rotary_dim = 32;
        f.metadata[std::string(kCandidateKey)] = candidate_header(wide);
      },
      "rotary-dim 32 is above the 16 dimensions");
}

}  // namespace
}  // namespace dyncp
