#include "runtime/schedule_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/chart_js.h"
#include "runtime/cost_file.h"
#include "runtime/report.h"
#include "runtime/timeline.h"

namespace dyncp {
namespace {

using nlohmann::json;

// Fisher-Yates with an explicit generator: the same on every platform.
template <typename T>
void shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<std::size_t>(random() % i)]);
  }
}

// One draw: lengths of the set in random order, with repetition when the set is too small.
std::vector<std::int64_t> draw(const LengthSet& set, std::size_t count, std::int64_t longest,
                               std::mt19937_64& random) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t length =
        set.lengths[static_cast<std::size_t>(random() % set.lengths.size())];
    lengths.push_back(std::min(length, longest));
  }
  return lengths;
}

// The longest length that still fits the whole domain after padding.
std::int64_t longest_that_fits(const ScheduleProblem& problem) {
  const std::int64_t capacity = problem.max_tokens_per_rank * problem.ranks;
  const std::int64_t multiple = problem.padding == Padding::kNone
                                    ? 1
                                    : padding_multiple(problem.ranks, problem.tensor_parallel);
  return capacity / multiple * multiple;
}

std::optional<Schedule> answer(const Scheduler& scheduler, const ScheduleProblem& problem) {
  try {
    return scheduler.schedule(problem);
  } catch (const Infeasible&) {
    return std::nullopt;
  }
}

ScheduleProblem with_execution(ScheduleProblem problem, const Scheduler& scheduler) {
  problem.execution = scheduler.execution();
  return problem;
}

// A scheduler that is compared, made for either objective.
struct Contender {
  std::shared_ptr<const Scheduler> event;    // no barrier
  std::shared_ptr<const Scheduler> barrier;  // the same object when the objective does not matter
};

Contender contender_of(const std::string& name, const CompareOptions& options) {
  Contender contender;
  contender.event = tuned_scheduler(name, {options.cost, Barrier::kNone, options.effort});
  contender.barrier = contender.event;
  if (is_tunable(*contender.event)) {
    contender.barrier = tuned_scheduler(name, {options.cost, Barrier::kMicrobatch, options.effort});
  }
  return contender;
}

CompareRow run_row(const CompareOptions& options, const LengthSet& set, int ranks,
                   const Contender& contender, const std::vector<ScheduleProblem>& draws) {
  const Scheduler& scheduler = *contender.event;
  CompareRow row;
  row.set = set.name;
  row.ranks = ranks;
  row.scheduler = scheduler.name();
  std::vector<double> event, barrier;
  std::mt19937_64 random(options.seed);
  for (const ScheduleProblem& drawn : draws) {
    const ScheduleProblem problem = with_execution(drawn, scheduler);
    ++row.draws;
    const std::optional<Schedule> schedule = answer(scheduler, problem);
    const std::optional<Schedule> with_meetings =
        contender.barrier == contender.event ? schedule : answer(*contender.barrier, problem);
    if (!schedule || !with_meetings) {
      ++row.refused;
      continue;
    }
    std::vector<Violation> violations = check_schedule(problem, *schedule);
    if (violations.empty()) violations = check_schedule(problem, *with_meetings);
    if (!violations.empty()) {
      if (row.invalid++ == 0) row.first_violation = violations.front().sentence;
      continue;
    }
    const ScheduleQuality quality =
        schedule_quality(problem, *schedule, options.cost, Barrier::kNone);
    const double with_barrier =
        simulated_makespan(problem, *with_meetings, options.cost, Barrier::kMicrobatch);
    if (quality.lower_bound > 0) {
      event.push_back(quality.makespan / quality.lower_bound);
      barrier.push_back(with_barrier / quality.lower_bound);
    }
    row.mean_makespan += quality.makespan;
    row.idle_share += quality.idle_share;
    row.padding_waste += quality.padding_waste;
    row.microbatches += quality.microbatches;
    // A few draws are enough to tell whether order or repetition matters.
    if (event.size() > 5) continue;
    row.deterministic = row.deterministic && answer(scheduler, problem) == schedule;
    ScheduleProblem shuffled = problem;
    shuffle(shuffled.lengths, random);
    const std::optional<Schedule> other = answer(scheduler, shuffled);
    if (other && check_schedule(shuffled, *other).empty() && quality.makespan > 0) {
      const double makespan = simulated_makespan(shuffled, *other, options.cost, Barrier::kNone);
      row.order_sensitivity =
          std::max(row.order_sensitivity, std::abs(makespan / quality.makespan - 1));
    }
  }
  const int valid = row.draws - row.refused - row.invalid;
  if (valid > 0) {
    row.mean_makespan /= valid;
    row.idle_share /= valid;
    row.padding_waste /= valid;
    row.microbatches /= valid;
  }
  row.over_bound = spread_of(std::move(event));
  row.over_bound_barrier = spread_of(std::move(barrier));
  return row;
}

std::string conditions(const CompareOptions& options) {
  const ScheduleProblem& p = options.prototype;
  return fmt::format(
      "{} tokens a rank, padding {}, group policy {}, min_cp {}, tensor_parallel {}, "
      "microbatch_multiple {}; {}, seed {}; cost model {}, effort {} (simulated, not measured)",
      p.max_tokens_per_rank, to_string(p.padding), to_string(p.group_policy), p.min_cp,
      p.tensor_parallel, p.microbatch_multiple,
      options.sequences_per_rank == 0 ? "each set as one batch"
                                      : fmt::format("{} draws of {} sequences a rank",
                                                    options.draws, options.sequences_per_rank),
      options.seed, options.cost_name, to_string(options.effort));
}

constexpr std::string_view kMeaning =
    "bound = makespan / lower bound (1 = cannot be better): median, 99th percentile, worst; "
    "barrier = the same when all ranks meet after each microbatch, of a schedule made for that "
    "where "
    "the scheduler can (dyncp, static-best); order = most by which shuffling the input changed the "
    "makespan.";

// Where the best dynamic schedule gains less than 1 % over the best static one.
std::vector<std::string> no_gain_lines(const Comparison& comparison) {
  std::vector<std::string> lines;
  for (const CompareRow& fixed : comparison.rows) {
    if (fixed.scheduler != "static-best" || fixed.mean_makespan <= 0) continue;
    const CompareRow* best = nullptr;
    for (const CompareRow& row : comparison.rows) {
      const bool same = row.set == fixed.set && row.ranks == fixed.ranks;
      const bool is_static = row.scheduler == "static-best" || row.scheduler == "static-packing";
      // Means over different draws cannot be compared.
      const bool comparable = row.refused + row.invalid == 0 && fixed.refused + fixed.invalid == 0;
      if (!same || is_static || !comparable || row.mean_makespan <= 0) continue;
      if (best == nullptr || row.mean_makespan < best->mean_makespan) best = &row;
    }
    if (best == nullptr) continue;
    const double gain = fixed.mean_makespan / best->mean_makespan;
    const std::string place =
        fmt::format("{}, {} ranks: dynamic CP ({})", fixed.set, fixed.ranks, best->scheduler);
    if (gain < 1) {
      lines.push_back(fmt::format("{} is {:.1f} % slower than the best static CP", place,
                                  (1 / gain - 1) * 100));
    } else if (gain < 1.01) {
      lines.push_back(fmt::format("{} gains {:.1f} % over the best static CP: next to nothing",
                                  place, (gain - 1) * 100));
    }
  }
  return lines;
}

json row_to_json(const CompareRow& row) {
  const auto spread = [](const Spread& s) {
    return json{{"p50", s.p50}, {"p99", s.p99}, {"worst", s.worst}};
  };
  return {{"set", row.set},
          {"ranks", row.ranks},
          {"scheduler", row.scheduler},
          {"draws", row.draws},
          {"refused", row.refused},
          {"invalid", row.invalid},
          {"first_violation", row.first_violation},
          {"makespan_over_bound", spread(row.over_bound)},
          {"makespan_over_bound_barrier", spread(row.over_bound_barrier)},
          {"mean_makespan_us", row.mean_makespan},
          {"idle_share", row.idle_share},
          {"padding_waste", row.padding_waste},
          {"microbatches", row.microbatches},
          {"order_sensitivity", row.order_sensitivity},
          {"deterministic", row.deterministic}};
}

constexpr std::string_view kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>dyncp: schedulers compared</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
th:first-child, td:first-child, th:nth-child(3), td:nth-child(3) { text-align: left; white-space: nowrap; }
tr.first td { border-top: 2px solid color-mix(in srgb, currentColor 50%, transparent); }
.bad { color: #c0392b; font-weight: 600; }
.chart { height: 22rem; }
figure { margin: 1.5rem 0; }
</style></head><body>
)";

}  // namespace

Comparison compare_schedulers(const CompareOptions& options) {
  if (options.schedulers.empty()) throw InvalidInput("no scheduler to compare");
  if (options.sets.empty()) throw InvalidInput("no lengths to compare schedulers on");
  if (options.ranks.empty()) throw InvalidInput("no rank domain to compare schedulers on");
  if (options.draws < 1) throw InvalidInput("--draws must be at least 1");
  std::vector<Contender> chosen;
  for (const std::string& name : options.schedulers) chosen.push_back(contender_of(name, options));

  Comparison comparison;
  comparison.options = options;
  for (const LengthSet& set : options.sets) {
    if (set.lengths.empty()) throw InvalidInput("length set " + set.name + " is empty");
    for (const int ranks : options.ranks) {
      ScheduleProblem problem = options.prototype;
      problem.ranks = ranks;
      require_valid(problem);
      const std::int64_t longest = longest_that_fits(problem);
      std::mt19937_64 random(options.seed);
      std::vector<ScheduleProblem> draws;
      const int count = options.sequences_per_rank == 0 ? 1 : options.draws;
      for (int i = 0; i < count; ++i) {
        if (options.sequences_per_rank == 0) {
          problem.lengths = set.lengths;
          for (std::int64_t& length : problem.lengths) length = std::min(length, longest);
        } else {
          problem.lengths = draw(set, static_cast<std::size_t>(options.sequences_per_rank * ranks),
                                 longest, random);
        }
        draws.push_back(problem);
      }
      for (const Contender& contender : chosen) {
        const Scheduler* scheduler = contender.event.get();
        comparison.rows.push_back(run_row(options, set, ranks, contender, draws));
        if (&set != &options.sets.front() || ranks != options.ranks.front()) continue;
        const ScheduleProblem first = with_execution(draws.front(), *scheduler);
        const std::optional<Schedule> schedule = answer(*scheduler, first);
        if (!schedule || !check_schedule(first, *schedule).empty()) continue;
        comparison.timelines += fmt::format(
            "<figure><figcaption><b>{}</b>: first draw of {} on {} ranks</figcaption>{}</figure>\n",
            escape_markup(scheduler->name()), escape_markup(set.name), ranks,
            gantt_svg(first, *schedule, options.cost, Barrier::kNone));
      }
    }
  }
  return comparison;
}

std::string format_comparison(const Comparison& comparison) {
  std::string text = conditions(comparison.options) + "\n\n";
  std::size_t set_width = 4;
  for (const CompareRow& row : comparison.rows) set_width = std::max(set_width, row.set.size());
  text += fmt::format("{:<{}} {:>5}  {:<23} {:>6} {:>6} {:>6} {:>8} {:>6} {:>6} {:>6} {:>6}  {}\n",
                      "set", set_width, "ranks", "scheduler", "bound", "p99", "worst", "barrier",
                      "idle%", "pad%", "mb", "order%", "notes");
  std::pair<std::string, int> previous{"", 0};
  for (const CompareRow& row : comparison.rows) {
    const std::pair<std::string, int> here{row.set, row.ranks};
    if (here != previous && !previous.first.empty()) text += '\n';
    previous = here;
    std::string notes;
    const auto note = [&](const std::string& part) { notes += (notes.empty() ? "" : "; ") + part; };
    if (row.invalid > 0) {
      note(fmt::format("{} of {} INVALID, first: {}", row.invalid, row.draws, row.first_violation));
    }
    if (row.refused > 0) note(fmt::format("{} of {} refused", row.refused, row.draws));
    if (!row.deterministic) note("NOT DETERMINISTIC");
    if (row.draws == row.refused + row.invalid) {
      text += fmt::format(
          "{:<{}} {:>5}  {:<23} {:>6} {:>6} {:>6} {:>8} {:>6} {:>6} {:>6} {:>6}  {}\n", row.set,
          set_width, row.ranks, row.scheduler, "-", "-", "-", "-", "-", "-", "-", "-", notes);
      continue;
    }
    text += fmt::format(
        "{:<{}} {:>5}  {:<23} {:>6.3f} {:>6.3f} {:>6.3f} {:>8.3f} {:>6.1f} {:>6.1f} {:>6.1f} "
        "{:>6.1f}  "
        "{}\n",
        row.set, set_width, row.ranks, row.scheduler, row.over_bound.p50, row.over_bound.p99,
        row.over_bound.worst, row.over_bound_barrier.p50, row.idle_share * 100,
        row.padding_waste * 100, row.microbatches, row.order_sensitivity * 100, notes);
  }
  text += "\n" + std::string(kMeaning) + "\n";
  for (const std::string& line : no_gain_lines(comparison)) text += line + "\n";
  return text;
}

std::string comparison_to_json(const Comparison& comparison) {
  json rows = json::array();
  for (const CompareRow& row : comparison.rows) rows.push_back(row_to_json(row));
  return json{{"conditions", conditions(comparison.options)},
              {"cost_model", comparison.options.cost_name},
              {"cost_parameters", json::parse(print_cost_model(comparison.options.cost))},
              {"rows", std::move(rows)},
              {"no_gain", no_gain_lines(comparison)}}
             .dump(2) +
         "\n";
}

std::string comparison_to_html(const Comparison& comparison) {
  std::string page(kPageHead);
  page += "<h1>Schedulers compared</h1>\n<p>" + escape_markup(conditions(comparison.options)) +
          ".</p>\n<p>" + escape_markup(kMeaning) + "</p>\n";
  page +=
      "<table><thead><tr><th>set</th><th>ranks</th><th>scheduler</th><th>bound</th><th>p99</th>"
      "<th>worst</th><th>barrier</th><th>idle %</th><th>padding %</th><th>microbatches</th>"
      "<th>order %</th><th>refused</th><th>invalid</th></tr></thead><tbody>\n";
  std::pair<std::string, int> previous{"", 0};
  json labels = json::array(), series = json::object();
  for (const CompareRow& row : comparison.rows) {
    const std::pair<std::string, int> here{row.set, row.ranks};
    const bool first = here != previous;
    previous = here;
    if (first) labels.push_back(fmt::format("{}, {} ranks", row.set, row.ranks));
    const bool none = row.draws == row.refused + row.invalid;
    series[row.scheduler].push_back(none ? json() : json(row.over_bound.p50));
    const auto number = [&](double value, int digits) {
      return none ? std::string("-") : fmt::format("{:.{}f}", value, digits);
    };
    page += fmt::format(
        "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{} title=\"{}\">{}</td></tr>\n",
        first ? " class=\"first\"" : "", escape_markup(row.set), row.ranks,
        escape_markup(row.scheduler), number(row.over_bound.p50, 3), number(row.over_bound.p99, 3),
        number(row.over_bound.worst, 3), number(row.over_bound_barrier.p50, 3),
        number(row.idle_share * 100, 1), number(row.padding_waste * 100, 1),
        number(row.microbatches, 1), number(row.order_sensitivity * 100, 1), row.refused,
        row.invalid > 0 ? " class=\"bad\"" : "", escape_markup(row.first_violation), row.invalid);
  }
  page += "</tbody></table>\n";
  for (const std::string& line : no_gain_lines(comparison))
    page += "<p>" + escape_markup(line) + ".</p>\n";
  if (!chart_js().empty()) {
    json datasets = json::array();
    int hue = 215;
    for (const auto& [name, values] : series.items()) {
      datasets.push_back({{"label", name},
                          {"data", values},
                          {"backgroundColor", fmt::format("hsl({} 55% 48%)", hue % 360)}});
      hue += 67;
    }
    const json chart = {
        {"type", "bar"},
        {"data", {{"labels", labels}, {"datasets", datasets}}},
        {"options",
         {{"animation", false},
          {"maintainAspectRatio", false},
          {"plugins", {{"title", {{"display", true}, {"text", "makespan / lower bound, median"}}}}},
          {"scales", {{"y", {{"min", 1}}}}}}}};
    // "</" inside a script element would end it.
    std::string data = chart.dump();
    for (std::size_t at = data.find("</"); at != std::string::npos; at = data.find("</", at + 3)) {
      data.replace(at, 2, "<\\/");
    }
    page +=
        "<figure class=\"chart\"><canvas id=\"bound\" role=\"img\" aria-label=\"Bar chart of the "
        "table's bound column\"></canvas></figure>\n<script>";
    page += chart_js();
    page +=
        "</script>\n<script>Chart.defaults.color = matchMedia('(prefers-color-scheme: dark)')"
        ".matches ? '#ddd' : '#333'; new Chart(document.getElementById('bound'), " +
        data + ");</script>\n";
  }
  page += "<h2>Timelines</h2>\n" + comparison.timelines + "</body></html>\n";
  return page;
}

}  // namespace dyncp
