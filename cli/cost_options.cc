// Names of the options and of their values.
#include "cli/cost_options.h"

#include <vector>

#include "reference/error.h"
#include "runtime/cost_file.h"
#include "runtime/files.h"
#include "runtime/problem.h"

namespace dyncp {
namespace {

Barrier parse_barrier(const std::string& name) {
  if (name == "none") return Barrier::kNone;
  if (name == "microbatch") return Barrier::kMicrobatch;
  throw InvalidInput("unknown barrier " + quote(name) + ": expected none or microbatch");
}

}  // namespace

void CostOptions::add_options(CLI::App& command) {
  command
      .add_option("--cost", cost,
                  "time model: flat, two-tier, quadratic, or a JSON file such as those of "
                  "fixtures/cost (docs/scheduling.md)")
      ->type_name("NAME|FILE (flat)");
  command
      .add_option("--barrier", barrier,
                  "none, or microbatch: all ranks wait for each other after every microbatch")
      ->type_name("(none)");
  command.add_option("--effort", effort, "how long dyncp searches: fast, default or best")
      ->type_name("(default)");
}

DyncpOptions CostOptions::parse() const {
  return {cost_model_from_option(cost), parse_barrier(barrier), parse_effort(effort)};
}

std::string CostOptions::words() const {
  const CostOptions defaults;
  std::vector<std::string> words;
  if (cost != defaults.cost) words.insert(words.end(), {"--cost", cost});
  if (barrier != defaults.barrier) words.insert(words.end(), {"--barrier", barrier});
  if (effort != defaults.effort) words.insert(words.end(), {"--effort", effort});
  return join_words(words);
}

}  // namespace dyncp
