// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& ring_driver() {
  static const Driver driver{"ring", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
