// The drivers of `dyncp check`, in the order of the data flow.
#include <fmt/format.h>

#include "reference/error.h"
#include "runtime/check.h"
#include "runtime/files.h"

namespace dyncp {

const std::vector<const Driver*>& drivers() {
  static const std::vector<const Driver*> all = {&schedule_driver(), &zigzag_driver(),
                                                 &rope_driver(),     &attention_driver(),
                                                 &ring_driver(),     &loss_driver()};
  return all;
}

const Driver& find_driver(std::string_view name) {
  std::string known;
  for (const Driver* driver : drivers()) {
    if (driver->name == name) return *driver;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", driver->name);
  }
  throw InvalidInput(fmt::format("unknown driver {}: expected {}", quote(name), known));
}

}  // namespace dyncp
