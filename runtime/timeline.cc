#include "runtime/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

namespace dyncp {
namespace {

struct Bar {
  const Assignment* assignment;
  ScheduledPack pack;
  std::int64_t tokens;  // per rank, padded
};

std::vector<Bar> bars_of(const ScheduleProblem& problem, const Schedule& schedule,
                         const CostModel& cost, Barrier barrier) {
  std::vector<Bar> bars;
  for (const ScheduledPack& pack : simulate_schedule(problem, schedule, cost, barrier)) {
    const Assignment& assignment = schedule.microbatches[static_cast<std::size_t>(pack.microbatch)]
                                                        [static_cast<std::size_t>(pack.assignment)];
    std::int64_t tokens = 0;
    for (const int id : assignment.sequences) {
      tokens += problem.padded_length(id, assignment.group.size);
    }
    bars.push_back({&assignment, pack, tokens / assignment.group.size});
  }
  return bars;
}

// Ids of a group, the first dozen in full.
std::string ids_of(const Assignment& assignment) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(assignment.sequences.size(), kShown); ++i) {
    text += fmt::format("{}{}", i ? " " : "", assignment.sequences[i]);
  }
  if (assignment.sequences.size() > kShown) {
    text += fmt::format(" and {} more", assignment.sequences.size() - kShown);
  }
  return text;
}

// A hue a CP size: size 1 blue, then by powers of two towards red. Dark enough for white text.
std::string colour_of(int size) {
  const int step = std::bit_width(static_cast<unsigned>(size)) - 1;
  return fmt::format("hsl({} 60% 38%)", (215 + 50 * step) % 360);
}

}  // namespace

std::string gantt_svg(const ScheduleProblem& problem, const Schedule& schedule,
                      const CostModel& cost, Barrier barrier) {
  constexpr int kMostRanks = 128, kLeft = 64, kWidth = 900, kTop = 8, kAxis = 28;
  const std::vector<Bar> bars = bars_of(problem, schedule, cost, barrier);
  const int ranks = std::min(problem.ranks, kMostRanks);
  const int row = ranks <= 16 ? 22 : (ranks <= 64 ? 12 : 6);
  double makespan = 0;
  for (const Bar& bar : bars) makespan = std::max(makespan, bar.pack.end);
  const double scale = makespan > 0 ? kWidth / makespan : 0;
  const int height = kTop + ranks * row + kAxis;

  std::string svg = fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {} {}\" width=\"100%\" font-family=\"sans-serif\" "
      "font-size=\"11\"><title>Timeline of {} microbatches on {} ranks, simulated</title>\n",
      kLeft + kWidth + 12, height, schedule.microbatches.size(), problem.ranks);
  for (int rank = 0; rank < ranks; rank += std::max(1, 12 / row + (row < 12))) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"currentColor\">rank {}</text>\n",
        kLeft - 6, kTop + rank * row + std::min(row, 14), rank);
  }
  for (const Bar& bar : bars) {
    const CpGroup& group = bar.assignment->group;
    if (group.first_rank >= ranks) continue;
    const double x = kLeft + bar.pack.start * scale;
    const double width = std::max(0.5, (bar.pack.end - bar.pack.start) * scale);
    const int shown = std::min(group.size, ranks - group.first_rank);
    svg += fmt::format(
        "<g><title>microbatch {}, CP size {}, {} sequences ({}), {} tokens a rank, {:.0f} to "
        "{:.0f} "
        "us</title><rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
        "stroke=\"#fff\" stroke-width=\"0.6\"/>",
        bar.pack.microbatch, group.size, bar.assignment->sequences.size(), ids_of(*bar.assignment),
        bar.tokens, bar.pack.start, bar.pack.end, x, kTop + group.first_rank * row, width,
        shown * row, colour_of(group.size));
    if (width > 30 && shown * row >= 12) {
      svg +=
          fmt::format("<text x=\"{:.2f}\" y=\"{}\" fill=\"#fff\" text-anchor=\"middle\">{}</text>",
                      x + width / 2, kTop + group.first_rank * row + shown * row / 2 + 4,
                      fmt::format("CP{}", group.size));
    }
    svg += "</g>\n";
  }
  const int axis = kTop + ranks * row + 16;
  for (int tick = 0; tick <= 4; ++tick) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"currentColor\">{:.1f} ms</text>\n",
        kLeft + kWidth * tick / 4, axis, tick == 0 ? "start" : (tick == 4 ? "end" : "middle"),
        makespan * tick / 4 / 1000);
  }
  svg += "</svg>\n";
  if (problem.ranks > ranks) {
    svg += fmt::format("<p>The first {} of {} ranks.</p>\n", ranks, problem.ranks);
  }
  return svg;
}

std::string chrome_trace(const ScheduleProblem& problem, const Schedule& schedule,
                         const CostModel& cost, Barrier barrier) {
  using nlohmann::json;
  json events = json::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", 0},
                    {"args", {{"name", "simulated schedule"}}}});
  for (int rank = 0; rank < problem.ranks; ++rank) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
  }
  for (const Bar& bar : bars_of(problem, schedule, cost, barrier)) {
    const CpGroup& group = bar.assignment->group;
    for (int rank = group.first_rank; rank < group.end_rank(); ++rank) {
      events.push_back({{"name", fmt::format("CP{}", group.size)},
                        {"cat", "pack"},
                        {"ph", "X"},
                        {"pid", 0},
                        {"tid", rank},
                        {"ts", bar.pack.start},
                        {"dur", bar.pack.end - bar.pack.start},
                        {"args",
                         {{"microbatch", bar.pack.microbatch},
                          {"first_rank", group.first_rank},
                          {"cp_size", group.size},
                          {"sequences", bar.assignment->sequences},
                          {"tokens_per_rank", bar.tokens}}}});
    }
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace dyncp
