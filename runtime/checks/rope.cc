// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& rope_driver() {
  static const Driver driver{"rope", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
