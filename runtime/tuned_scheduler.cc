// Which schedulers take a cost model, and how they are made with one.
#include "runtime/tuned_scheduler.h"

#include "runtime/schedulers/static_best.h"

namespace dyncp {

bool is_tunable(const Scheduler& scheduler) {
  return dynamic_cast<const DyncpScheduler*>(&scheduler) != nullptr ||
         dynamic_cast<const StaticBest*>(&scheduler) != nullptr;
}

std::shared_ptr<const Scheduler> tuned_scheduler(std::string_view name,
                                                 const DyncpOptions& options) {
  const Scheduler& registered = find_scheduler(name);
  if (dynamic_cast<const DyncpScheduler*>(&registered) != nullptr) {
    return std::make_shared<DyncpScheduler>(options);
  }
  if (dynamic_cast<const StaticBest*>(&registered) != nullptr) {
    return std::make_shared<StaticBest>(options.cost, options.barrier);
  }
  return {std::shared_ptr<const Scheduler>(), &registered};  // lives as long as the program
}

}  // namespace dyncp
