// How two gradients (or other vectors) differ: by a factor, or by direction.
#pragma once

#include <vector>

namespace dyncp {

/// candidate = alpha * reference + rest, the rest orthogonal to reference. alpha far from 1 names a
/// scale fault (loss times CP size, wrong divisor); cosine below 1 a layout fault (other rows,
/// other labels).
struct ScaleFit {
  double alpha = 1;
  double cosine = 1;
};

/// The least-squares factor and the cosine of the angle. Both vectors zero: {1, 1}; one of them
/// zero: {0, 0}; any value not finite: {NaN, NaN}. Vectors are scaled by their largest magnitude
/// first, so neither squares that overflow nor squares that vanish mislead.
/// Throws InvalidInput when the sizes differ.
ScaleFit fit_scale(const std::vector<double>& reference, const std::vector<double>& candidate);

}  // namespace dyncp
