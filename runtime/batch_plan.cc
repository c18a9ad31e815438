// Options of the data pipeline, and who runs what of a global batch.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/data_iterator.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

// Rows that every bshd sequence is padded to.
std::int64_t bshd_length(const DataOptions& options, int ranks) {
  return round_up(options.longest(ranks), padding_multiple(options.cp, 1));
}

Schedule deal_batched(const DataOptions& options, int ranks, int sequences) {
  const int groups = ranks / options.cp;
  const std::int64_t fitting =
      options.max_tokens_per_rank * options.cp / bshd_length(options, ranks);
  const auto in_group = static_cast<int>(std::min<std::int64_t>(sequences / groups, fitting));
  Schedule schedule;
  for (int first = 0; first < sequences; first += groups * in_group) {
    const int here = std::min(in_group, (sequences - first) / groups);
    Microbatch microbatch;
    for (int g = 0; g < groups; ++g) {
      Assignment assignment{{g * options.cp, options.cp}, {}};
      for (int j = 0; j < here; ++j) assignment.sequences.push_back(first + g * here + j);
      microbatch.push_back(std::move(assignment));
    }
    schedule.microbatches.push_back(std::move(microbatch));
  }
  return schedule;
}

}  // namespace

std::string_view to_string(Layout layout) { return layout == Layout::kThd ? "thd" : "bshd"; }

Layout parse_layout(std::string_view name) {
  for (const Layout layout : {Layout::kThd, Layout::kBshd}) {
    if (name == to_string(layout)) return layout;
  }
  throw InvalidInput("unknown layout " + quote(name) + ": expected thd or bshd");
}

std::string_view to_string(Overlong overlong) {
  return overlong == Overlong::kTruncate ? "truncate" : "refuse";
}

Overlong parse_overlong(std::string_view name) {
  for (const Overlong overlong : {Overlong::kTruncate, Overlong::kRefuse}) {
    if (name == to_string(overlong)) return overlong;
  }
  throw InvalidInput("cannot treat over-long documents by " + quote(name) +
                     ": expected truncate or refuse");
}

std::int64_t DataOptions::longest(int ranks) const {
  if (max_length > 0) return max_length;
  // Rounded down to the padding multiple of the whole domain.
  return max_tokens_per_rank / 2 * 2 * ranks;
}

void require_valid(const DataOptions& options, int ranks) {
  const auto require = [](bool held, const std::string& what) {
    if (!held) throw InvalidInput(what);
  };
  require(ranks >= 1 && ranks <= kMaxRanks,
          fmt::format("there are {} ranks, expected 1..{}", ranks, kMaxRanks));
  require(
      options.max_tokens_per_rank >= 2 && options.max_tokens_per_rank <= kMaxSequenceLength,
      fmt::format("the most tokens a rank are {}, expected 2..2^40", options.max_tokens_per_rank));
  require(options.global_batch >= 1 && options.global_batch <= (1 << 20),
          fmt::format("the global batch has {} documents, expected 1..2^20", options.global_batch));
  require(options.max_length >= 0, fmt::format("the longest sequence is {} tokens, expected 0 or "
                                               "more",
                                               options.max_length));
  require(options.longest(ranks) <= kMaxSequenceLength,
          fmt::format("the longest sequence would have {} tokens, expected at most 2^40",
                      options.longest(ranks)));
  require(options.cp >= 1 && options.cp <= ranks,
          fmt::format("the CP size is {}, expected 1..{} (the ranks)", options.cp, ranks));
  if (options.layout == Layout::kThd) {
    require(options.scheduler != nullptr, "the thd layout needs a scheduler");
    return;
  }
  require(ranks % options.cp == 0,
          fmt::format("bshd: the CP size {} does not divide the {} ranks", options.cp, ranks));
  const int groups = ranks / options.cp;
  require(options.global_batch % groups == 0,
          fmt::format("bshd: a global batch of {} documents does not divide evenly over {} groups "
                      "of {} ranks",
                      options.global_batch, groups, options.cp));
  const std::int64_t length = bshd_length(options, ranks);
  if (length > options.max_tokens_per_rank * options.cp) {
    throw Infeasible(fmt::format(
        "bshd: a sequence padded to {} tokens does not fit on {} ranks at {} tokens a rank", length,
        options.cp, options.max_tokens_per_rank));
  }
}

BatchPlan make_batch_plan(const DataOptions& options, int ranks,
                          const std::vector<std::int64_t>& lengths) {
  require_valid(options, ranks);
  BatchPlan plan;
  plan.problem.lengths = lengths;
  plan.problem.ranks = ranks;
  plan.problem.max_tokens_per_rank = options.max_tokens_per_rank;
  plan.problem.min_cp = options.cp;
  plan.problem.group_policy = options.group_policy;
  plan.problem.padding = Padding::kGroup;
  if (options.layout == Layout::kBshd) {
    plan.schedule = deal_batched(options, ranks, static_cast<int>(lengths.size()));
    return plan;
  }
  plan.problem.execution = options.scheduler->execution();
  if (std::all_of(lengths.begin(), lengths.end(), [](std::int64_t l) { return l == 0; })) {
    return plan;  // nothing to run
  }
  plan.schedule = options.scheduler->schedule(plan.problem);
  const std::vector<Violation> violations = check_schedule(plan.problem, plan.schedule);
  if (!violations.empty()) {
    throw Infeasible(fmt::format("scheduler {} answered an invalid schedule, {}: {}",
                                 options.scheduler->name(), to_string(violations.front().rule),
                                 violations.front().sentence));
  }
  return plan;
}

}  // namespace dyncp
