// The data that dyncp ships: where it lies and the length sets in it.
#pragma once

#include <string>
#include <vector>

#include "runtime/check.h"

namespace dyncp {

/// The folder of the fixtures, the first of these: the environment variable DYNCP_FIXTURES, the
/// installed data beside the program (../share/dyncp/fixtures), the source tree it was built from.
/// Throws InvalidInput when DYNCP_FIXTURES names no directory, Unavailable when there is none.
std::string fixtures_directory();

/// Every length file of fixtures/lengths (.txt, .csv, .json, .jsonl), in order of names; a set is
/// called like its file without the ending. Of distributions the first 1024 lengths are drawn, with
/// seed 0. Throws like fixtures_directory and read_lengths.
std::vector<LengthSet> fixture_length_sets();

}  // namespace dyncp
