#include "runtime/checks/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "reference/error.h"

namespace dyncp {

// About a minute of naive loops on one core.
constexpr double kMostWork = 3e10;

AttentionShape attention_shape(const Problem& problem) {
  if (problem.kv_heads < 1 || problem.heads % problem.kv_heads != 0) {
    throw InvalidInput(fmt::format("--kv-heads {}: expected a divisor of --heads {}",
                                   problem.kv_heads, problem.heads));
  }
  return {problem.heads, problem.kv_heads, problem.dim,
          problem.value_dim == 0 ? problem.dim : problem.value_dim};
}

AttentionOptions attention_options(const Problem& problem) {
  AttentionOptions options;
  options.causal = problem.mask != "full";
  options.window = problem.window;
  if (problem.sink) options.sink = make_sink(problem.heads, problem.seed);
  return options;
}

AttentionCase attention_case(const Problem& problem, const Pack& pack, Format format,
                             double padding, const std::vector<int>& contents) {
  AttentionOptions options = attention_options(problem);
  for (double& sink : options.sink) sink = round_to(format, sink);
  return make_attention_case(pack, attention_shape(problem), options, problem.seed, format, padding,
                             contents);
}

double attention_work(const Pack& pack, const AttentionShape& shape,
                      const AttentionOptions& options) {
  double pairs = 0;
  for (int s = 0; s < pack.sequences(); ++s) {
    const auto real = static_cast<double>(pack.real_length(s));
    double seen = options.causal ? real * (real + 1) / 2 : real * real;
    if (options.window >= 0) {
      const auto left = static_cast<double>(options.window) + 1;
      seen = std::min(seen, options.causal ? real * left : real * real);
    }
    pairs += seen;
  }
  return pairs * shape.heads * (static_cast<double>(shape.dim) + shape.value_dim);
}

void require_affordable(const Problem& problem, const Pack& pack, double passes) {
  const double work =
      passes * attention_work(pack, attention_shape(problem), attention_options(problem));
  const double elements = static_cast<double>(pack.padded_tokens()) * problem.heads *
                          std::max(problem.dim, problem.value_dim);
  if (work <= kMostWork && elements <= 1e8) return;
  throw InvalidInput(fmt::format(
      "check {} computes naive loops: this case needs {:.1e} multiply-adds on {} "
      "padded tokens, expected at most {:.0e}; shorten the sequences or use fewer heads",
      problem.driver, work, pack.padded_tokens(), kMostWork));
}

void vary_attention(Problem& problem, int number) {
  constexpr AttentionShape kShapes[] = {{4, 2, 16, 16}, {2, 2, 8, 8}, {6, 1, 8, 12}, {3, 3, 5, 3}};
  const AttentionShape& shape = kShapes[number % 4];
  problem.heads = shape.heads;
  problem.kv_heads = shape.kv_heads;
  problem.dim = shape.dim;
  problem.value_dim = shape.value_dim == shape.dim ? 0 : shape.value_dim;
  problem.mask = number % 6 == 5 ? "full" : "causal";
  problem.window = number % 5 == 3 ? 7 : -1;
  problem.sink = number % 7 == 4;
}

std::vector<int> contents_with(int sequences, int which, int changed) {
  std::vector<int> contents(static_cast<std::size_t>(sequences));
  std::iota(contents.begin(), contents.end(), 0);
  contents[static_cast<std::size_t>(which)] = changed;
  return contents;
}

int longest_sequence(const Pack& pack) {
  int longest = -1;
  for (int s = 0; s < pack.sequences(); ++s) {
    if (pack.real_length(s) > 0 &&
        (longest < 0 || pack.real_length(s) > pack.real_length(longest))) {
      longest = s;
    }
  }
  return longest;
}

}  // namespace dyncp
