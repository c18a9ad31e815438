// Judges slices that another implementation recorded (docs/candidates.md). One or more of:
//
//   rows               [rows] per rank: the padded row of the whole pack that each local row is
//   X and X_global     [rows, ...] per rank and [padded tokens, ...]: any payload before and after
//                      slicing; X_global is the same for all ranks
//   labels and tokens_global  (without labels_global) next-token labels, shifted before slicing
//   real_lengths       [sequences] per rank: real tokens the rank counts of each sequence
//   cu_seqlens, cu_seqlens_padded  [sequences + 1]: as the attention gets them, whole pack
//
// With "ranks": "all" the tensors per rank are stacked: [size, rows, ...].
#pragma once

#include "runtime/check.h"

namespace dyncp {

/// Throws InvalidInput when none of the tensors above is there, or one is misshapen.
CaseResult judge_zigzag(const Problem& problem, const Safetensors& file);

}  // namespace dyncp
