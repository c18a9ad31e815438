// Judges recorded attention tensors (drivers attention and ring). docs/numerics.md has the bounds.
//
// Tensors (sequence rows are the pack's padded rows; size and rank are the header's):
//   q, k, v      inputs; k and v always of all ranks
//   o, lse       results; at least one of o, lse, dq, dk, dv
//   do           cotangent of o, with dq, dk, dv
//   dq, dk, dv   gradients; dk and dv need q and do of all ranks
//   sink         [heads], with the option sink
// Shapes: one rank [rows, heads, dim]; all ranks' slices [size, rows, heads, dim]; the whole pack in
// pack order [tokens, heads, dim]. lse accordingly with [heads, rows]. A trailing 1 of lse and a
// leading batch dimension of 1 are dropped.
#pragma once

#include <string>

#include "runtime/attention_diagnosis.h"
#include "runtime/check.h"
#include "runtime/safetensors.h"

namespace dyncp {

/// A recording and what its file says about precision.
struct RecordedAttention {
  AttentionRecording recording;
  AttentionPrecision precision;
  bool lse_transposed = false;  // the array had the shape [rows, heads]
};

/// Throws InvalidInput for missing or misshapen tensors, inputs that are not finite on real rows,
/// and recordings too large for naive loops.
RecordedAttention read_attention(const Safetensors& file);

/// Checks "<driver>.o", ".lse", ".lse_layout", ".dq", ".dk", ".dv" and ".padding_zero".
CaseResult judge_attention(const Problem& problem, const Safetensors& file,
                           const std::string& driver);

/// The same on a recording that is at hand.
void judge_recording(const RecordedAttention& recorded, const std::string& driver,
                     CaseResult& result);

}  // namespace dyncp
