#include "runtime/cp_binding.h"

#include <string>

#include "reference/error.h"

namespace dyncp {

CpBinding::CpBinding(CpModule& module, const CpContext& context) : module_(module) {
  if (module.bound()) {
    throw InvalidInput("R3: the module is bound to a microbatch of CP size " +
                       std::to_string(module.context().size()) +
                       " already; its binding must end before the next one");
  }
  module.bound_ = context;
}

CpBinding::~CpBinding() { module_.bound_.reset(); }

}  // namespace dyncp
