// Judges positions and rotations that another implementation recorded (docs/candidates.md). One or
// more of:
//
//   positions            [rows] per rank, of the kind that the header's "positions" says
//   X and X_rotated      [rows, heads, dim] per rank: before and after, X = q or k
//   X_rotated_grad and X_grad  the gradient that came in, and the one that went on
//
// Only real rows are judged. Rotations are held to rope_error_bound in the coarser of the two
// tensors' dtypes.
#pragma once

#include "reference/rope.h"
#include "runtime/check.h"

namespace dyncp {

/// The rotation a problem asks for on heads of `dim` dimensions: rotary_dim 0 is the whole head,
/// yarn_scale 1 is no YaRN.
RopeOptions rope_options(const Problem& problem, int dim);

/// Throws InvalidInput when none of the tensors above is there, one is misshapen, or an input holds
/// NaN or infinity in a real row.
CaseResult judge_rope(const Problem& problem, const Safetensors& file);

}  // namespace dyncp
