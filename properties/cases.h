// How many cases a RapidCheck executable runs, and draws that do not depend on RapidCheck's size.
#pragma once

#include <rapidcheck.h>
#include <stdlib.h>

#include <string>

namespace dyncp {

/// Define one at namespace scope to run `cases` cases a property (RapidCheck's own default is 100)
/// unless RC_PARAMS says otherwise.
struct DefaultCases {
  explicit DefaultCases(int cases) {
    setenv("RC_PARAMS", ("max_success=" + std::to_string(cases)).c_str(), 0);
  }
};

/// Uniform over [low, high]; rc::gen::inRange alone starts with small values only.
template <typename Integer>
rc::Gen<Integer> uniform(Integer low, Integer high) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Integer>(low, high + 1));
}

}  // namespace dyncp
