// `dyncp check-scheduler`: property search for a scheduler - built in, a program that speaks the
// line protocol, or a shared library. Prints what was tested, every broken rule with a minimal case
// and the command that repeats it, and one summary line. docs/check-scheduler.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <climits>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "cli/cost_options.h"
#include "reference/error.h"
#include "reference/optimum.h"
#include "runtime/external_scheduler.h"
#include "runtime/files.h"
#include "runtime/schedule_format.h"
#include "runtime/scheduler_protocol.h"
#include "runtime/scheduler_quality.h"
#include "runtime/scheduler_search.h"
#include "runtime/tuned_scheduler.h"

namespace dyncp {
namespace {

struct Options {
  std::string name;
  std::string exec;
  std::string plugin;
  double deadline_seconds = 30;
  std::string ranks = "8";
  SearchDomain domain;
  int max_sequences = 0;  // 0 = no limit
  std::string execution;  // empty = the scheduler's own
  std::string group_policy = "aligned";
  std::string padding = "none";
  SearchOptions search;
  CostOptions cost;
  QualityOptions quality;
  std::string json;
  bool progress = false;
};

int parse_int(std::string_view text, const std::string& option) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidInput(fmt::format("--ranks {}: expected a number or A..B", quote(option)));
  }
  return value;
}

void parse_ranks(const std::string& text, SearchDomain& domain) {
  const std::size_t dots = text.find("..");
  domain.min_ranks = parse_int(std::string_view(text).substr(0, dots), text);
  domain.max_ranks = dots == std::string::npos
                         ? domain.min_ranks
                         : parse_int(std::string_view(text).substr(dots + 2), text);
}

std::string single_quoted(std::string_view text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Who is asked, and how one question is repeated by hand.
struct Candidate {
  std::string title;
  Execution execution = Execution::kPack;
  AskScheduler ask;
  std::function<std::string(const ScheduleProblem&)> reproducer;
};

std::string own_path() {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw Unavailable("cannot find dyncp's own program file, which --plugin starts");
  path.resize(static_cast<std::size_t>(length));
  return path;
}

Candidate candidate_of(const Options& options, const DyncpOptions& tuning) {
  const int given = !options.name.empty() + !options.exec.empty() + !options.plugin.empty();
  if (given != 1) throw InvalidInput("check-scheduler needs one of NAME, --exec or --plugin");
  Candidate candidate;
  if (!options.name.empty()) {
    const auto scheduler = tuned_scheduler(options.name, tuning);
    candidate.title = fmt::format("{} - {}", scheduler->name(), scheduler->summary());
    candidate.execution = scheduler->execution();
    candidate.ask = [scheduler, ask = ask_scheduler(*scheduler)](const ScheduleProblem& problem) {
      return ask(problem);
    };
    const std::string words = is_tunable(*scheduler) ? options.cost.words() : "";
    candidate.reproducer = [scheduler, words](const ScheduleProblem& problem) {
      return fmt::format("dyncp schedule --scheduler {} {}{}{}", scheduler->name(), words,
                         words.empty() ? "" : " ",
                         schedule_options(problem, scheduler->execution()));
    };
    return candidate;
  }
  if (!(options.deadline_seconds > 0 && options.deadline_seconds <= 86400)) {
    throw InvalidInput(fmt::format("--deadline {}: expected more than 0 and at most 86400 seconds",
                                   options.deadline_seconds));
  }
  const std::chrono::milliseconds deadline(
      std::max<std::int64_t>(1, std::llround(options.deadline_seconds * 1000)));
  std::string command = options.exec;
  std::string shown = options.exec;
  candidate.title = options.exec;
  if (!options.plugin.empty()) {
    command = single_quoted(own_path()) + " serve --plugin " + single_quoted(options.plugin);
    shown = "dyncp serve --plugin " + single_quoted(options.plugin);
    candidate.title = options.plugin;
  }
  const auto external = std::make_shared<ExternalScheduler>(command, deadline);
  candidate.ask = [external](const ScheduleProblem& problem) { return external->ask(problem); };
  candidate.reproducer = [shown](const ScheduleProblem& problem) {
    return fmt::format("echo {} | {}", single_quoted(request_line(problem, 1)), shown);
  };
  return candidate;
}

std::string join(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::string_view name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string describe_domain(const SearchDomain& domain, const std::vector<int>& ranks) {
  std::string text =
      domain.min_ranks == domain.max_ranks
          ? counted(static_cast<std::size_t>(domain.min_ranks), "rank")
          : fmt::format("{}..{} ranks{} ({} domains)", ranks.front(), ranks.back(),
                        domain.power_of_two_only ? ", powers of two only" : "", ranks.size());
  text += fmt::format(", {} tokens a rank, {} execution, group policy {}, padding {}",
                      domain.max_tokens_per_rank, to_string(domain.execution),
                      to_string(domain.group_policy), to_string(domain.padding));
  if (domain.min_cp != 1) text += fmt::format(", min_cp {}", domain.min_cp);
  if (domain.tensor_parallel != 1) text += fmt::format(", tp {}", domain.tensor_parallel);
  if (domain.microbatch_multiple != 1) {
    text += fmt::format(", microbatch_multiple {}", domain.microbatch_multiple);
  }
  if (domain.max_sequences) text += fmt::format(", max_sequences {}", *domain.max_sequences);
  return text;
}

std::string print_finding(const SearchFinding& finding, const SearchReport& report,
                          const Candidate& candidate) {
  std::string families;
  for (const auto& [family, count] : finding.by_family) {
    families += fmt::format("{}{} {}/{}", families.empty() ? "" : ", ", family, count,
                            report.cases_by_family.at(family));
  }
  std::string text =
      fmt::format("\nFAILED {}: {} of {} cases (1 in {:.0f}), first in case {}\n  by family: {}\n",
                  finding.rule, finding.cases, report.cases,
                  static_cast<double>(report.cases) / static_cast<double>(finding.cases),
                  finding.first_case, families);
  text += fmt::format("  minimal: {} on {} (from {} on {})\n  {}\n  repeat: {}\n",
                      counted(finding.minimal.lengths.size(), "sequence"),
                      counted(static_cast<std::size_t>(finding.minimal.ranks), "rank"),
                      finding.found.lengths.size(), finding.found.ranks, finding.sentence,
                      candidate.reproducer(finding.minimal));
  return text;
}

std::string of(const Spread& spread) {
  return fmt::format("{:.3f} / {:.3f} / {:.3f}", spread.p50, spread.p99, spread.worst);
}

std::string print_quality(const QualityReport& quality, const Options& options,
                          const Candidate& candidate) {
  std::string text;
  if (quality.over_bound.count > 0) {
    text += fmt::format(
        "quality   p50 / p99 / worst of {} (cost model {}): makespan over lower bound {}; the same "
        "with a barrier after each microbatch {}\n",
        counted(quality.over_bound.count, "case"), options.cost.cost, of(quality.over_bound),
        of(quality.over_bound_barrier));
    text += fmt::format(
        "          means: idle {:.1f} % (with barriers {:.1f} %), padding {:.1f} %, {:.1f} "
        "microbatches\n",
        quality.idle_share.mean * 100, quality.idle_share_barrier.mean * 100,
        quality.padding_waste.mean * 100, quality.microbatches.mean);
    constexpr std::size_t kShort = 64;  // sequences; the JSON report has the longer ones
    if (quality.worst.lengths.size() <= kShort) {
      text += fmt::format("          worst: {}\n", candidate.reproducer(quality.worst));
    }
  }
  if (quality.order_change.count > 0) {
    text += fmt::format(
        "order     shuffled lengths changed the makespan of {} by {:.2f} % on average, {:.2f} % at "
        "most\n",
        counted(quality.order_change.count, "case"), quality.order_change.mean * 100,
        quality.order_change.worst * 100);
  }
  if (quality.over_optimum.count > 0) {
    text += fmt::format(
        "optimum   p50 / p99 / worst of {} of at most {} ranks and {} sequences: makespan over the "
        "true optimum {}; with barriers {}\n",
        counted(quality.over_optimum.count, "case"), kMaxOptimumRanks, kMaxOptimumSequences,
        of(quality.over_optimum), of(quality.over_optimum_barrier));
  }
  if (quality.stopped) text += "          pricing ended early, at an answer that failed\n";
  return text;
}

nlohmann::json quality_to_json(const QualityReport& quality, const Options& options) {
  const auto json = [](const Spread& spread) {
    return nlohmann::json{{"count", spread.count},
                          {"mean", spread.mean},
                          {"p50", spread.p50},
                          {"p99", spread.p99},
                          {"worst", spread.worst}};
  };
  return {
      {"cost_model", options.cost.cost},
      {"asked", quality.asked},
      {"makespan_over_bound", json(quality.over_bound)},
      {"worst", quality.over_bound.count > 0 ? problem_to_json(quality.worst) : nlohmann::json()},
      {"makespan_over_bound_barrier", json(quality.over_bound_barrier)},
      {"idle_share", json(quality.idle_share)},
      {"idle_share_barrier", json(quality.idle_share_barrier)},
      {"padding_waste", json(quality.padding_waste)},
      {"microbatches", json(quality.microbatches)},
      {"order_change", json(quality.order_change)},
      {"small_asked", quality.small_asked},
      {"makespan_over_optimum", json(quality.over_optimum)},
      {"makespan_over_optimum_barrier", json(quality.over_optimum_barrier)},
      {"stopped_early", quality.stopped}};
}

nlohmann::json report_to_json(const SearchReport& report, const Options& options,
                              const Candidate& candidate, const std::vector<int>& ranks) {
  nlohmann::json json;
  json["scheduler"] = options.name.empty() ? candidate.title : options.name;
  json["domain"] = {{"ranks", ranks},
                    {"max_tokens_per_rank", options.domain.max_tokens_per_rank},
                    {"min_cp", options.domain.min_cp},
                    {"tensor_parallel", options.domain.tensor_parallel},
                    {"microbatch_multiple", options.domain.microbatch_multiple},
                    {"max_sequences", nullptr},
                    {"execution", to_string(options.domain.execution)},
                    {"group_policy", to_string(options.domain.group_policy)},
                    {"padding", to_string(options.domain.padding)}};
  if (options.domain.max_sequences) {
    json["domain"]["max_sequences"] = *options.domain.max_sequences;
  }
  json["seed"] = options.search.seed;
  json["cases"] = report.cases;
  json["cases_by_family"] = report.cases_by_family;
  json["answered"] = report.answered;
  json["answered_with_groups"] = report.grouped;
  json["answered_with_mixed_sizes"] = report.mixed;
  json["refused_rightly"] = report.refused_rightly;
  json["refused_undecided"] = report.refused_undecided;
  json["questions"] = report.asks;
  json["stopped_early"] = report.stopped;
  json["mistrusted"] = report.mistrusted();
  json["findings"] = nlohmann::json::array();
  for (const SearchFinding& finding : report.findings) {
    json["findings"].push_back({{"rule", finding.rule},
                                {"cases", finding.cases},
                                {"by_family", finding.by_family},
                                {"first_case", finding.first_case},
                                {"sentence", finding.sentence},
                                {"minimal", problem_to_json(finding.minimal)},
                                {"found", problem_to_json(finding.found)},
                                {"repeat", candidate.reproducer(finding.minimal)}});
  }
  return json;
}

int check_scheduler(Options options) {
  const DyncpOptions tuning = options.cost.parse();
  const Candidate candidate = candidate_of(options, tuning);
  parse_ranks(options.ranks, options.domain);
  options.domain.execution =
      options.execution.empty() ? candidate.execution : parse_execution(options.execution);
  options.domain.group_policy = parse_group_policy(options.group_policy);
  options.domain.padding = parse_padding(options.padding);
  if (options.max_sequences < 0) throw InvalidInput("--max-sequences must be 0 (no limit) or more");
  if (options.max_sequences > 0) options.domain.max_sequences = options.max_sequences;
  if (options.progress) {
    options.search.progress = [cases = options.search.cases](std::int64_t done, std::size_t rules) {
      const std::int64_t step = std::max<std::int64_t>(1, cases / 100);
      if (done % step != 0 && done != cases) return;
      fmt::print(stderr, "\r{} of {} cases, {} broken rules{}", done, cases, rules,
                 done == cases ? "\n" : "");
      std::fflush(stderr);
    };
  }
  const CaseSource source(options.domain, options.search.seed);
  say("scheduler {}\n", candidate.title);
  say("domain    {}\n", describe_domain(options.domain, source.ranks()));
  say("families  {}\n", join(source.families()));

  const SearchReport report = search_scheduler(candidate.ask, options.domain, options.search);
  QualityReport quality;
  if (!report.stopped) {
    options.quality.seed = options.search.seed;
    options.quality.cost = tuning.cost;
    quality = measure_quality(candidate.ask, options.domain, options.quality);
  }

  say("answers   {} schedules ({} with a CP group above size 1, {} with mixed sizes), {} right "
      "refusals{}\n",
      report.answered, report.grouped, report.mixed, report.refused_rightly,
      report.refused_undecided > 0
          ? fmt::format(", {} refusals of instances nobody decided", report.refused_undecided)
          : std::string());
  std::size_t nondeterministic = 0;
  for (const SearchFinding& finding : report.findings) {
    if (finding.rule == "deterministic") nondeterministic = static_cast<std::size_t>(finding.cases);
  }
  say("repeated  asked twice, {} of {} gave one answer\n",
      report.cases - static_cast<std::int64_t>(nondeterministic),
      counted(static_cast<std::size_t>(report.cases), "case"));
  if (report.stopped) {
    say("stopped   after {} hangs, crashes and malformed answers\n",
        options.search.failures_at_most);
  }
  say("{}", print_quality(quality, options, candidate));
  for (const SearchFinding& finding : report.findings) {
    say("{}", print_finding(finding, report, candidate));
  }
  if (!options.json.empty()) {
    nlohmann::json json = report_to_json(report, options, candidate, source.ranks());
    json["quality"] = quality_to_json(quality, options);
    write_file(options.json, json.dump(1) + "\n");
  }
  const std::string mistrusted = report.mistrusted();
  const bool failed = !report.findings.empty();
  const std::string status = failed                ? "FAILED"
                             : !mistrusted.empty() ? "MISTRUSTED (" + mistrusted + ")"
                                                   : "PASSED";
  say("\ncheck-scheduler: cases:{} questions:{} broken-rules:{} seed:{} {}\n", report.cases,
      report.asks, report.findings.size(), options.search.seed, status);
  return failed || !mistrusted.empty() ? 1 : 0;
}

}  // namespace

void add_check_scheduler_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "check-scheduler", "Property-test a scheduler: built in, a program, or a shared library");
  command->add_option("name", options->name, "a built-in scheduler (dyncp list schedulers)");
  command->add_option("--exec", options->exec,
                      "a command that answers requests line by line (docs/check-scheduler.md)");
  command->add_option("--plugin", options->plugin, "a shared library with a scheduler");
  command->add_option("--deadline", options->deadline_seconds,
                      "seconds a program may take over an answer");
  command->add_option("--ranks", options->ranks, "rank domain: P, or A..B");
  command->add_flag("--power-of-two-only", options->domain.power_of_two_only,
                    "only rank domains that are powers of two");
  command->add_option("--max-tokens", options->domain.max_tokens_per_rank, "tokens per rank");
  command->add_option("--min-cp", options->domain.min_cp, "smallest CP size");
  command->add_option("--tp", options->domain.tensor_parallel, "tensor parallelism, for padding");
  command->add_option("--microbatch-multiple", options->domain.microbatch_multiple,
                      "microbatches come in multiples of this");
  command->add_option("--max-sequences", options->max_sequences,
                      "most sequences in a pack; 0 = no limit");
  command->add_option("--execution", options->execution,
                      "pack or serial; the scheduler's own when left out");
  command->add_option("--group-policy", options->group_policy,
                      "aligned, pow2-any-slice, divisors or interval");
  command->add_option("--padding", options->padding, "none, global or group");
  command->add_option("--families", options->domain.families, "of lengths; all when left out")
      ->delimiter(',');
  command->add_option("--cases", options->search.cases, "problems to draw");
  command->add_option("--seed", options->search.seed, "everything derives from it");
  command->add_flag("--shrink-max-tokens", options->search.shrink_max_tokens,
                    "shrink the tokens per rank too");
  options->cost.add_options(*command);
  command
      ->add_option("--quality-cases", options->quality.cases,
                   "cases whose schedules are also priced against lower bounds")
      ->type_name("(100)");
  command
      ->add_option("--optimum-cases", options->quality.small_cases,
                   "small cases whose schedules are priced against the true optimum")
      ->type_name("(50)");
  command->add_option("--json", options->json, "write the report to this file");
  command->add_flag("--progress", options->progress, "show progress on standard error");
  command->callback([options, &exit_code] { exit_code = check_scheduler(*options); });
}

}  // namespace dyncp
