// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& zigzag_driver() {
  static const Driver driver{"zigzag", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
