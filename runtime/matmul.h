// Matrix products on the host, in float and double, made to be vectorised and to give the same bits
// on every machine: no term of a sum ever moves.
//
// Order of summation: the depth is cut into runs of kMatmulRun terms; the products of a run are
// summed from first to last in T, and each run's sum is added to the result in T. An element of
// the result is therefore off by at most gamma(n) sum |left right| (+ the result before), with
// n = min(depth, kMatmulRun) + runs; its bits depend on its own row and column alone, not on the
// other rows and columns.
#pragma once

#include <cstdint>

namespace dyncp {

/// Terms that are summed before the running result is touched.
inline constexpr std::int64_t kMatmulRun = 64;

/// A matrix somewhere in memory: element (r, c) is data[r * row_stride + c * column_stride].
template <typename T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  T& at(std::int64_t row, std::int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
  MatrixView transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// A row-major matrix without gaps.
template <typename T>
MatrixView<T> dense(T* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, columns, 1};
}

/// result += left right. left [m, depth], right [depth, n], result [m, n] with column_stride 1.
/// Throws std::logic_error when the shapes do not fit. REQUIRES: result overlaps neither input.
void multiply_add(const MatrixView<const float>& left, const MatrixView<const float>& right,
                  const MatrixView<float>& result);
void multiply_add(const MatrixView<const double>& left, const MatrixView<const double>& right,
                  const MatrixView<double>& result);

}  // namespace dyncp
