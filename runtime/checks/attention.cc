// Placeholder until the driver exists.
#include "runtime/check.h"

namespace dyncp {

const Driver& attention_driver() {
  static const Driver driver{"attention", "", {}, nullptr, nullptr, nullptr};
  return driver;
}

}  // namespace dyncp
