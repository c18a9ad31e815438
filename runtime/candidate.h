// Tensors that another implementation recorded, and the header that says what they are.
// A candidate is a safetensors file whose metadata has one key, "dyncp", holding JSON text:
//
//   {"version": 1, "check": "rope", "lengths": [7, 3, 0], "padded": [16, 8, 0],
//    "size": 4, "rank": 1, "first_rank": 0, "contract": "v1", "options": {"rope-base": 10000}}
//
//   version     1
//   check       zigzag | rope | attention | ring | loss: the driver that judges the file
//   lengths     real lengths of the pack, in tokens
//   padded      padded lengths; left out: multiples of 2*size*tp
//   size        of the CP group
//   rank        the CP rank (0..size-1, not the global rank) whose tensors these are; or instead
//   ranks       "all": the tensors of all ranks, in the form the driver's page asks for
//   first_rank  global rank of the group's first member; left out: 0
//   contract    "v1" or "v2"; left out: v1
//   positions   rope only: "restarting" (left out) or "packed": entry cu_seqlens_padded[s] + j of
//               one table for the whole pack
//   yarn        rope only: original_max_positions, beta_fast, beta_slow, mscale, mscale_all_dim
//   options     options of the problem grammar that the driver reads, without the dashes in front
//
// docs/candidates.md names the tensors of each driver.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/rope.h"
#include "reference/tensor.h"
#include "runtime/problem.h"
#include "runtime/safetensors.h"

namespace dyncp {

/// The metadata key of the header.
inline constexpr std::string_view kCandidateKey = "dyncp";

/// Most padded tokens of a candidate's pack.
inline constexpr std::int64_t kMaxCandidateTokens = std::int64_t{1} << 26;

/// A parsed header.
struct Candidate {
  Problem problem;          // problem.driver is the header's check
  std::optional<int> rank;  // CP rank; nothing for "ranks": "all"
  bool packed_positions = false;
  YarnScaling yarn;  // scale is problem.yarn_scale
  bool operator==(const Candidate&) const = default;
};

/// Reads the header of a file. Throws InvalidInput, one line that names the field: no header, no
/// JSON, unknown or missing field, wrong type, value out of range, an option the driver does not
/// read, padded lengths that are no multiples of 2*size, more than kMaxCandidateTokens.
Candidate read_candidate(const Safetensors& file);

/// The JSON text of a header, which read_candidate reads back as the same value.
std::string candidate_header(const Candidate& candidate);

/// One rank's part of a recorded tensor: rows of a flat payload.
struct RecordedRows {
  int rank = 0;  // CP rank
  std::int64_t rows = 0;
  std::int64_t width = 1;      // values per row
  std::vector<double> values;  // [rows, width]

  const double* row(std::int64_t index) const { return values.data() + index * width; }
};

/// The tensor `name`, cut by rank. One rank: [rows, ...] or [1, rows, ...]; all ranks:
/// [size, rows, ...] or [size, 1, rows, ...]. A leading 1 is taken as a batch dimension when the
/// tensor has `trailing` dimensions more behind the row dimension. The number of rows is whatever
/// was recorded. Throws InvalidInput naming the tensor, its shape and what was expected.
std::vector<RecordedRows> recorded_rows(const Candidate& candidate, const Safetensors& file,
                                        const std::string& name, int trailing);

/// The tensor `name`, [rows, heads, dim] with `rows` rows on every rank, in rank order (one entry
/// unless "ranks" is "all"). Throws InvalidInput.
std::vector<Tensor<double>> recorded_tensors(const Candidate& candidate, const Safetensors& file,
                                             const std::string& name, std::int64_t rows);

/// `values` as integers. Throws InvalidInput naming tensor and row of the first that is none.
std::vector<std::int64_t> to_integers(const std::string& name, const std::vector<double>& values);

/// Unit roundoff and half the smallest subnormal of a floating-point dtype; angles are taken to be
/// made in float unless the dtype is F64. Throws InvalidInput for an integer dtype.
RopePrecision rope_precision(const std::string& name, const NamedTensor& tensor);

/// The shape as "[2, 3, 4]".
std::string shape_text(const NamedTensor& tensor);

}  // namespace dyncp
