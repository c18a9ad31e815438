// A larger step than local search takes: the sequences of two blocks of ranks are dealt anew,
// optimally, by dynamic programming.
#pragma once

#include <random>

#include "runtime/schedulers/dyncp_local_search.h"

namespace dyncp::nested {

/// Random numbers by hand: the standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// 0..count-1. REQUIRES: count >= 1.
  int below(int count) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(count)); }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

/// Takes a block u on the heaviest path of `root`'s tree and a lighter block w beside it, small
/// enough together, and runs their sequences on them in the best way, packs a path unchanged.
/// Returns whether that relieved the heaviest path; else the plan is as before.
bool repartition(Plan& plan, int root, Random& random, Budget& budget);

}  // namespace dyncp::nested
