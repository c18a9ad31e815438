// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& schedule_driver() {
  static const Driver driver{"schedule", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
