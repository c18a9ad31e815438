// Judges a loss that another implementation recorded. The file holds the rows of one rank, in that
// rank's zigzag order, or of all ranks: [size, rows, ...] in rank order, or [padded tokens, ...] in
// pack order.
//
//   logits          [rows, vocabulary]  what the loss was computed from     } at least
//   loss_per_token  [rows]              nats; rows that do not count: any   } one of the two
//   labels          [rows]              next token, -100 where there is none
//   mask            [rows]              0 or 1
//   token_ids       [rows]              input tokens; without them the labels are not judged
//   tokens          scalar or [size]    unmasked tokens of the file, or of each rank
//   loss_sum        scalar or [size]    nats, over the rows of the file, or of each rank
//   loss            scalar or [size]    nats per token as logged (by each rank): the mean over all
//                                       ranks, judged when the file holds all of them
//   grad_logits     [rows, vocabulary]  needs logits; of the sum, or of the mean over the tokens of
//                                       all ranks
//
// Extra dimensions of 1 are allowed. The vocabulary is that of the tensors. Two metadata keys stand
// beside the candidate header: "gradient" says "sum" or "mean", without it the nearer one is taken
// (the sum in a file of one rank); "compute" says "float32" or "float64", without it F64 logits
// mean float64 and everything else float32.
#pragma once

#include <optional>

#include "runtime/check.h"

namespace dyncp {

/// `rank` of the CP group, or nothing for a file with the whole pack. Uses lengths, padded, cp and
/// tp of the problem. Throws InvalidInput for missing or misshapen tensors, fractional labels, a
/// mask that is neither 0 nor 1, and unknown metadata values.
CaseResult judge_loss(const Problem& problem, std::optional<int> rank, const Safetensors& file);

}  // namespace dyncp
