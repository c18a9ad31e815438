#include "runtime/plugin_loader.h"

#include <dlfcn.h>

#include <optional>
#include <utility>

#include "reference/error.h"
#include "runtime/plugin/dyncp/scheduler_plugin.h"

namespace dyncp {

struct SchedulerPlugin::Functions {
  void* library = nullptr;
  decltype(&dyncp_plugin_abi) abi = nullptr;
  decltype(&dyncp_plugin_name) name = nullptr;
  decltype(&dyncp_plugin_schedule) schedule = nullptr;

  Functions() = default;
  ~Functions() {
    if (library != nullptr) dlclose(library);
  }
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;
};

namespace {

template <typename Function>
void look_up(void* library, const std::string& path, const char* name, Function& target) {
  target = reinterpret_cast<Function>(dlsym(library, name));
  if (target == nullptr) throw InvalidInput("plugin " + path + " has no function " + name);
}

// What the plugin has said so far.
struct Answer {
  Schedule schedule;
  std::optional<std::string> refusal;
  bool group_outside_microbatch = false;
};

Answer& answer_of(void* handle) { return *static_cast<Answer*>(handle); }

void begin_microbatch(void* handle) { answer_of(handle).schedule.microbatches.emplace_back(); }

void add_group(void* handle, std::int32_t first_rank, std::int32_t size, const std::int32_t* ids,
               std::int64_t count) {
  Answer& answer = answer_of(handle);
  if (answer.schedule.microbatches.empty()) {
    answer.group_outside_microbatch = true;
    return;
  }
  answer.schedule.microbatches.back().push_back({CpGroup{first_rank, size}, {ids, ids + count}});
}

void refuse(void* handle, const char* reason) {
  answer_of(handle).refusal = reason != nullptr ? reason : "no reason given";
}

}  // namespace

SchedulerPlugin::SchedulerPlugin(const std::string& path) {
  auto functions = std::make_shared<Functions>();
  // A path without a slash would be searched for among the system's libraries.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  functions->library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) {
    const char* why = dlerror();
    throw InvalidInput("plugin " + path + " cannot be loaded: " + (why ? why : "unknown reason"));
  }
  look_up(functions->library, path, "dyncp_plugin_abi", functions->abi);
  look_up(functions->library, path, "dyncp_plugin_name", functions->name);
  look_up(functions->library, path, "dyncp_plugin_schedule", functions->schedule);
  if (functions->abi() != DYNCP_PLUGIN_ABI) {
    throw InvalidInput("plugin " + path + " was built for interface version " +
                       std::to_string(functions->abi()) + "; this is version " +
                       std::to_string(DYNCP_PLUGIN_ABI));
  }
  functions_ = std::move(functions);
}

std::string SchedulerPlugin::name() const {
  const char* name = functions_->name();
  return name != nullptr ? name : "unnamed plugin";
}

ScheduleAnswer SchedulerPlugin::ask(const ScheduleProblem& problem) const {
  std::vector<std::int64_t> padded;
  if (problem.padding != Padding::kGroup) {
    for (int i = 0; i < static_cast<int>(problem.lengths.size()); ++i) {
      padded.push_back(problem.padded_length(i, 1));
    }
  }
  const std::string execution(to_string(problem.execution));
  const std::string group_policy(to_string(problem.group_policy));
  const std::string padding(to_string(problem.padding));
  dyncp_problem request{};
  request.struct_size = sizeof request;
  request.sequences = static_cast<std::int64_t>(problem.lengths.size());
  request.real = problem.lengths.data();
  request.padded = problem.padding != Padding::kGroup ? padded.data() : nullptr;
  request.max_tokens_per_rank = problem.max_tokens_per_rank;
  request.ranks = problem.ranks;
  request.min_cp = problem.min_cp;
  request.tensor_parallel = problem.tensor_parallel;
  request.microbatch_multiple = problem.microbatch_multiple;
  request.max_sequences = problem.max_sequences.value_or(0);
  request.execution = execution.c_str();
  request.group_policy = group_policy.c_str();
  request.padding = padding.c_str();

  Answer answer;
  const dyncp_answer sink{sizeof(dyncp_answer), &answer, begin_microbatch, add_group, refuse};
  const std::int32_t code = functions_->schedule(&request, &sink);
  if (code != 0) {
    return SchedulerFailure{SchedulerFailure::Kind::kCrash,
                            "the plugin returned " + std::to_string(code)};
  }
  if (answer.group_outside_microbatch) {
    return SchedulerFailure{SchedulerFailure::Kind::kMalformed,
                            "the plugin added a group before the first begin_microbatch"};
  }
  if (answer.refusal) return Refusal{*answer.refusal};
  return std::move(answer.schedule);
}

}  // namespace dyncp
