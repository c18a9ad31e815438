// Cost models by name or from a small JSON file, so that a user can calibrate the judge of schedules
// to his own machine. The file is one object with any of the fields of CostModel; what it leaves out
// keeps the default:
//   {"comment": "H100, 32 heads", "a": 5.7e-5, "b": 1.87, "c0": 50, "c1": 0.035, "hidden": 0.8,
//    "d": 75, "fast_domain": 8, "slow_c0": 100, "slow_c1": 0.245}
#pragma once

#include <string>
#include <string_view>

#include "reference/cost.h"

namespace dyncp {

/// Parses such an object. `origin` names the source in errors. Throws InvalidInput with origin, key,
/// what was found and what was expected: no object, a key that is none of the model's, a value that
/// is no number or below 0, hidden above 1, fast_domain that is no integer of at least 1.
CostModel parse_cost_model(std::string_view text, const std::string& origin);

/// What parse_cost_model reads back to the same model.
std::string print_cost_model(const CostModel& cost);

/// The value of --cost: flat, two-tier, quadratic, or the path of a file. Throws InvalidInput.
CostModel cost_model_from_option(const std::string& value);

}  // namespace dyncp
