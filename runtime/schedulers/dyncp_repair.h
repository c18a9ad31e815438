// Makes a plan valid: the same number of packs on every path, a multiple of microbatch_multiple.
//
// Repair lemma. If the children of a node carry unequal numbers of packs, take one pack off every
// child at the maximum (where a child has none of its own, one off each of its children, and so on)
// and merge them into one pack on the parent: those children keep their number, the others gain
// one. The merged pack has at most the sum of the capacities, which is the parent's; so any plan
// becomes uniform with K packs a path. As long as K is below the number of sequences some pack can
// be split, after such a merge if need be, so every K' in K..n is reached. Limits that a merge can
// break (max_sequences, and padding that grows with the group) need the second way:
//
// Fill lemma. On a tree of halves, p packs whose sizes sum to P M with p >= M can always be placed
// with exactly M on every path: in order of size every block so far carries equal numbers on all
// its paths, and while slots are left some block of the size has room. While the sum is below P M,
// the smallest size divides what is missing, and the smallest pack can be doubled (a pack fits on
// every larger group). So a partition into packs yields a schedule of M microbatches if and only if
// the least sizes of the packs sum to at most P M.
#pragma once

#include "runtime/schedulers/dyncp_plan.h"

namespace dyncp::nested {

/// By the repair lemma, splitting and moving sequences before merging. In a forest every tree gets
/// exactly one pack a path. False (and the plan is left
/// somewhere in between) when a limit forbids a merge or there are too few sequences.
bool repair(Plan& plan);

/// One pack to place: its items and the lowest level it may run on.
struct LoosePack {
  std::vector<int> items;
  int level = 0;
};

/// By the fill lemma: widens and splits `packs` as needed and places them, largest groups first, on
/// the least loaded nodes, in at least `microbatches` microbatches. False when the tree is not one
/// of halves or no admissible number of microbatches holds them.
bool place_by_size(Plan& plan, std::vector<LoosePack> packs, int microbatches);

}  // namespace dyncp::nested
