// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& loss_driver() {
  static const Driver driver{"loss", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
