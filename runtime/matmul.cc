// A register-blocked product: kRows rows times one 64-byte piece of a row at a time.
#include "runtime/matmul.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

// Compiled once for each kind of vector unit; the loader picks. -ffp-contract=off keeps the bits
// the same in all of them. The sanitizers cannot run the loader's choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DYNCP_EVERY_VECTOR_UNIT __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DYNCP_EVERY_VECTOR_UNIT
#endif

namespace dyncp {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kPieceBytes = 64;

template <typename T>
struct Piece {
  using Vector __attribute__((vector_size(kPieceBytes))) = T;
  static constexpr std::int64_t kColumns = kPieceBytes / static_cast<std::int64_t>(sizeof(T));
};

/// `height` rows (at most kRows) times one piece of columns, over one run of the depth.
template <typename T, std::int64_t height>
[[gnu::always_inline]] inline void piece_kernel(const T* left, std::int64_t row_stride,
                                                std::int64_t column_stride, const T* right,
                                                std::int64_t right_stride, std::int64_t depth,
                                                T* result, std::int64_t result_stride) {
  using Vector = typename Piece<T>::Vector;
  Vector sum[height] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector b;
    std::memcpy(&b, right + k * right_stride, sizeof b);
    for (std::int64_t i = 0; i < height; ++i) {
      sum[i] += left[i * row_stride + k * column_stride] * b;
    }
  }
  for (std::int64_t i = 0; i < height; ++i) {
    Vector total;
    std::memcpy(&total, result + i * result_stride, sizeof total);
    total += sum[i];
    std::memcpy(result + i * result_stride, &total, sizeof total);
  }
}

/// right has column_stride 1.
template <typename T>
[[gnu::always_inline]] inline void multiply_add_kernel(const MatrixView<const T>& left,
                                                       const MatrixView<const T>& right,
                                                       const MatrixView<T>& result) {
  constexpr std::int64_t kColumns = Piece<T>::kColumns;
  const std::int64_t whole = right.columns / kColumns * kColumns;
  for (std::int64_t begin = 0; begin < left.columns; begin += kMatmulRun) {
    const std::int64_t depth = std::min(kMatmulRun, left.columns - begin);
    const T* left_run = left.data + begin * left.column_stride;
    const T* right_run = right.data + begin * right.row_stride;
    for (std::int64_t column = 0; column < whole; column += kColumns) {
      std::int64_t row = 0;
      for (; row + kRows <= left.rows; row += kRows) {
        piece_kernel<T, kRows>(left_run + row * left.row_stride, left.row_stride,
                               left.column_stride, right_run + column, right.row_stride, depth,
                               result.data + row * result.row_stride + column, result.row_stride);
      }
      for (; row < left.rows; ++row) {
        piece_kernel<T, 1>(left_run + row * left.row_stride, left.row_stride, left.column_stride,
                           right_run + column, right.row_stride, depth,
                           result.data + row * result.row_stride + column, result.row_stride);
      }
    }
    for (std::int64_t column = whole; column < right.columns; ++column) {
      for (std::int64_t row = 0; row < left.rows; ++row) {
        T sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += left_run[row * left.row_stride + k * left.column_stride] *
                 right_run[k * right.row_stride + column];
        }
        result.data[row * result.row_stride + column] += sum;
      }
    }
  }
}

DYNCP_EVERY_VECTOR_UNIT void run(const MatrixView<const float>& left,
                                 const MatrixView<const float>& right,
                                 const MatrixView<float>& result) {
  multiply_add_kernel<float>(left, right, result);
}

DYNCP_EVERY_VECTOR_UNIT void run(const MatrixView<const double>& left,
                                 const MatrixView<const double>& right,
                                 const MatrixView<double>& result) {
  multiply_add_kernel<double>(left, right, result);
}

template <typename T>
void checked_multiply_add(const MatrixView<const T>& left, const MatrixView<const T>& right,
                          const MatrixView<T>& result) {
  if (left.columns != right.rows || left.rows != result.rows || right.columns != result.columns ||
      result.column_stride != 1) {
    throw std::logic_error("multiply_add: the shapes of left, right and result do not fit");
  }
  if (right.column_stride == 1) {
    run(left, right, result);
    return;
  }
  std::vector<T> copy(static_cast<std::size_t>(right.rows * right.columns));
  const MatrixView<T> packed = dense(copy.data(), right.rows, right.columns);
  for (std::int64_t r = 0; r < right.rows; ++r) {
    for (std::int64_t c = 0; c < right.columns; ++c) packed.at(r, c) = right.at(r, c);
  }
  run(left, dense<const T>(copy.data(), right.rows, right.columns), result);
}

}  // namespace

void multiply_add(const MatrixView<const float>& left, const MatrixView<const float>& right,
                  const MatrixView<float>& result) {
  checked_multiply_add(left, right, result);
}

void multiply_add(const MatrixView<const double>& left, const MatrixView<const double>& right,
                  const MatrixView<double>& result) {
  checked_multiply_add(left, right, result);
}

}  // namespace dyncp
