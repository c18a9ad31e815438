// The built-in schedulers by name. A new one is one include, one object and one line here.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "reference/error.h"
#include "runtime/scheduler.h"
#include "runtime/schedulers/dyncp.h"
#include "runtime/schedulers/megatron_balanced.h"
#include "runtime/schedulers/megatron_packing_aware.h"
#include "runtime/schedulers/static_best.h"
#include "runtime/schedulers/static_packing.h"

namespace dyncp {

const std::vector<const Scheduler*>& schedulers() {
  static const StaticPacking static_packing;
  static const StaticBest static_best;
  static const MegatronBalanced megatron_balanced;
  static const MegatronPackingAware megatron_packing_aware;
  static const DyncpScheduler own;
  static const std::vector<const Scheduler*> all = {
      &static_packing, &static_best, &megatron_balanced, &megatron_packing_aware, &own};
  return all;
}

const Scheduler& find_scheduler(std::string_view name) {
  const std::string_view wanted = name == "dp_balanced" ? "static-packing" : name;
  std::string known;
  for (const Scheduler* scheduler : schedulers()) {
    if (scheduler->name() == wanted) return *scheduler;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", scheduler->name());
  }
  throw InvalidInput(fmt::format(
      "unknown scheduler '{}': expected {} or dp_balanced (static-packing)", name, known));
}

}  // namespace dyncp
