// Sorting of the sequences and the constants of each group size (formulas: reference/cost.h).
#include "runtime/schedulers/dyncp_instance.h"

#include <string>

#include "reference/error.h"
#include "reference/lower_bound.h"

namespace dyncp::nested {

Instance::Instance(const ScheduleProblem& problem, const CostModel& cost)
    : problem_(problem),
      cost_(cost),
      table_(problem.group_table()),
      serial_(problem.execution == Execution::kSerial),
      max_count_(serial_ ? std::numeric_limits<int>::max()
                         : problem.max_sequences.value_or(std::numeric_limits<int>::max())) {
  for (int size : table_.sizes()) {
    const bool slow = size > cost.fast_domain;
    const double c0 = slow ? cost.slow_c0 : cost.c0;
    const double c1 = slow ? cost.slow_c1 : cost.c1;
    Terms terms;
    terms.size = size;
    if (problem.padding == Padding::kGroup) {
      terms.padding = padding_multiple(size, problem.tensor_parallel);
    }
    terms.capacity = static_cast<double>(problem.max_tokens_per_rank) * size;
    terms.per_square = cost.a / size;
    terms.per_token = cost.b / size;
    terms.ring = (size - 1) * c0;
    terms.ring_token = (size - 1) * c1 / size;
    terms.hidden = cost.hidden * cost.a / size;
    terms_.push_back(terms);
  }

  for (std::size_t id = 0; id < problem.lengths.size(); ++id) {
    if (problem.lengths[id] > 0) ids_.push_back(static_cast<int>(id));
  }
  std::sort(ids_.begin(), ids_.end(), [&](int a, int b) {
    const std::int64_t length_a = problem.lengths[static_cast<std::size_t>(a)];
    const std::int64_t length_b = problem.lengths[static_cast<std::size_t>(b)];
    return length_a != length_b ? length_a > length_b : a < b;
  });
  for (int id : ids_) {
    const std::int64_t length = problem.padding == Padding::kGlobal
                                    ? problem.padded_length(id, 1)
                                    : problem.lengths[static_cast<std::size_t>(id)];
    lengths_.push_back(static_cast<double>(length));
  }
  int level = levels() - 1;
  for (int item = 0; item < items(); ++item) {
    const auto fits_on = [&](int l) { return load(item, l).tokens <= capacity(l); };
    if (!fits_on(levels() - 1)) {
      throw Infeasible("sequence " + std::to_string(id(item)) + " of " +
                       std::to_string(problem.lengths[static_cast<std::size_t>(id(item))]) +
                       " tokens does not fit on " + std::to_string(ranks()) + " ranks of " +
                       std::to_string(problem.max_tokens_per_rank) + " tokens");
    }
    while (level > 0 && fits_on(level - 1)) --level;  // shorter items never need more ranks
    first_level_.push_back(level);
  }
  fewest_microbatches_ = static_cast<int>(
      std::min<std::int64_t>(dyncp::fewest_microbatches(problem), std::numeric_limits<int>::max()));
}

}  // namespace dyncp::nested
