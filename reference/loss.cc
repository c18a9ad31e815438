#include "reference/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/error.h"

namespace dyncp {
namespace {

void require_logits(const Tensor<double>& logits, const LossTargets& targets) {
  if (logits.heads != 1) {
    throw InvalidInput("logits have " + std::to_string(logits.heads) +
                       " heads, expected the shape [rows, 1, vocabulary]");
  }
  require_valid(targets, logits.rows, logits.dim);
}

const double* row_of(const Tensor<double>& logits, std::int64_t row) {
  return logits.data.data() + logits.offset(row, 0, 0);
}

}  // namespace

void require_valid(const LossTargets& targets, std::int64_t rows, int vocabulary) {
  if (targets.rows() != rows || static_cast<std::int64_t>(targets.mask.size()) != rows) {
    throw InvalidInput(std::to_string(targets.labels.size()) + " labels and " +
                       std::to_string(targets.mask.size()) + " mask entries given for " +
                       std::to_string(rows) + " rows");
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (targets.mask[r] > 1) {
      throw InvalidInput("mask of row " + std::to_string(row) + " is " +
                         std::to_string(targets.mask[r]) + ", expected 0 or 1");
    }
    const std::int64_t label = targets.labels[r];
    if (targets.counts(row) && (label < 0 || label >= vocabulary)) {
      throw InvalidInput("label of row " + std::to_string(row) + " is " + std::to_string(label) +
                         ", expected 0.." + std::to_string(vocabulary - 1) + " or " +
                         std::to_string(targets.ignore));
    }
  }
}

LossSum combine(const std::vector<LossSum>& parts) {
  LossSum total;
  for (const LossSum& part : parts) {
    total.sum += part.sum;
    total.tokens += part.tokens;
  }
  return total;
}

double reported_loss(const LossSum& total) {
  return total.tokens == 0 ? 0.0 : total.sum / static_cast<double>(total.tokens);
}

double log_sum_exp(const double* values, int count) {
  double maximum = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    if (std::isnan(values[i])) return values[i];
    maximum = std::max(maximum, values[i]);
  }
  if (std::isinf(maximum)) return maximum;
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += std::exp(values[i] - maximum);
  return maximum + std::log(sum);
}

std::vector<double> token_losses(const Tensor<double>& logits, const LossTargets& targets) {
  require_logits(logits, targets);
  std::vector<double> losses(static_cast<std::size_t>(logits.rows), 0.0);
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    // Selected, not multiplied by the mask: 0 times NaN is NaN.
    if (!targets.counts(row)) continue;
    const auto r = static_cast<std::size_t>(row);
    const double* x = row_of(logits, row);
    losses[r] = log_sum_exp(x, logits.dim) - x[targets.labels[r]];
  }
  return losses;
}

LossSum loss_sum(const Tensor<double>& logits, const LossTargets& targets) {
  const std::vector<double> losses = token_losses(logits, targets);
  LossSum total;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    if (!targets.counts(row)) continue;
    total.sum += losses[static_cast<std::size_t>(row)];
    ++total.tokens;
  }
  return total;
}

Tensor<double> loss_gradient(const Tensor<double>& logits, const LossTargets& targets) {
  require_logits(logits, targets);
  Tensor<double> gradient(logits.rows, 1, logits.dim);
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    if (!targets.counts(row)) continue;
    const double* x = row_of(logits, row);
    const double lse = log_sum_exp(x, logits.dim);
    for (int v = 0; v < logits.dim; ++v) gradient.at(row, 0, v) = std::exp(x[v] - lse);
    const auto label = static_cast<int>(targets.labels[static_cast<std::size_t>(row)]);
    gradient.at(row, 0, label) -= 1.0;
  }
  return gradient;
}

NamedGradients combine(const std::vector<NamedGradients>& parts) {
  if (parts.empty()) return {};
  NamedGradients total = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part) {
    const auto refuse = [part](const std::string& what) {
      throw InvalidInput("gradients of part " + std::to_string(part) + ": " + what);
    };
    if (parts[part].size() != total.size()) {
      refuse(std::to_string(parts[part].size()) + " parameters, expected the " +
             std::to_string(total.size()) + " of part 0");
    }
    for (auto& [name, sum] : total) {
      const auto found = parts[part].find(name);
      if (found == parts[part].end()) {
        refuse("parameter " + name + " of part 0 is missing");
      } else if (found->second.size() != sum.size()) {
        refuse("parameter " + name + " has " + std::to_string(found->second.size()) +
               " elements, expected " + std::to_string(sum.size()));
      }
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += found->second[i];
    }
  }
  return total;
}

NamedGradients normalise(const NamedGradients& gradients_of_sum, std::int64_t tokens) {
  if (tokens < 0) {
    throw InvalidInput("number of tokens is " + std::to_string(tokens) + ", expected 0 or more");
  }
  const auto divisor = static_cast<double>(std::max<std::int64_t>(tokens, 1));
  NamedGradients result = gradients_of_sum;
  for (auto& [name, gradient] : result) {
    for (double& g : gradient) g /= divisor;
  }
  return result;
}

double gradient_norm(const NamedGradients& gradients) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    for (double g : gradient) squares += g * g;
  }
  return std::sqrt(squares);
}

ReducedLoss reduce_loss(const std::vector<RankLoss>& ranks) {
  std::vector<LossSum> losses;
  std::vector<NamedGradients> gradients;
  for (const RankLoss& rank : ranks) {
    losses.push_back(rank.loss);
    gradients.push_back(rank.gradients);
  }
  const LossSum total = combine(losses);
  ReducedLoss result;
  result.loss = reported_loss(total);
  result.tokens = total.tokens;
  result.gradients = normalise(combine(gradients), total.tokens);
  result.gradient_norm = gradient_norm(result.gradients);
  return result;
}

std::vector<double> central_differences(
    const std::function<double(const std::vector<double>&)>& function, std::vector<double> point,
    double step) {
  std::vector<double> derivatives;
  derivatives.reserve(point.size());
  for (double& x : point) {
    const double here = x;
    x = here + step;
    const double above = x;
    const double value_above = function(point);
    x = here - step;
    const double below = x;
    const double value_below = function(point);
    x = here;
    // The step that was really taken: here + step is rounded.
    derivatives.push_back((value_above - value_below) / (above - below));
  }
  return derivatives;
}

double reordering_bound(std::int64_t terms, double sum_of_magnitudes) {
  const double nu = static_cast<double>(terms) * std::ldexp(1.0, -53);
  return 2 * nu / (1 - nu) * sum_of_magnitudes;
}

}  // namespace dyncp
