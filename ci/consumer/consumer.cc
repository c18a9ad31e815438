// Schedules a batch with an installed dyncp and checks the result, from outside its source tree.
#include <dyncp/reference/schedule_check.h>
#include <dyncp/runtime/scheduler.h>

#include <cstdio>

int main() {
  dyncp::ScheduleProblem problem;
  problem.lengths = {4096, 1024, 1024, 512, 512, 512, 256, 256};
  problem.ranks = 8;
  problem.max_tokens_per_rank = 1024;
  const dyncp::Scheduler& scheduler = dyncp::find_scheduler(dyncp::kDefaultScheduler);
  const dyncp::Schedule schedule = scheduler.schedule(problem);
  for (const dyncp::Violation& violation : dyncp::check_schedule(problem, schedule)) {
    std::printf("%s\n", violation.sentence.c_str());
    return 1;
  }
  std::printf("%zu microbatches, valid\n", schedule.microbatches.size());
  return schedule.microbatches.empty();
}
