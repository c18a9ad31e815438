// A dense row-major tensor: the only container the reference computes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dyncp {

/// [rows, heads, dim], dim fastest. Rows are tokens of a pack, whole or one rank's slice.
template <typename T>
struct Tensor {
  std::int64_t rows = 0;
  int heads = 0;
  int dim = 0;
  std::vector<T> data;

  Tensor() = default;
  Tensor(std::int64_t rows_in, int heads_in, int dim_in, T fill = T())
      : rows(rows_in),
        heads(heads_in),
        dim(dim_in),
        data(static_cast<std::size_t>(rows_in) * static_cast<std::size_t>(heads_in) *
                 static_cast<std::size_t>(dim_in),
             fill) {}

  std::size_t offset(std::int64_t row, int head, int d) const {
    return (static_cast<std::size_t>(row) * static_cast<std::size_t>(heads) +
            static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(dim) +
           static_cast<std::size_t>(d);
  }
  T& at(std::int64_t row, int head, int d) { return data[offset(row, head, d)]; }
  const T& at(std::int64_t row, int head, int d) const { return data[offset(row, head, d)]; }

  bool same_shape(const Tensor& other) const {
    return rows == other.rows && heads == other.heads && dim == other.dim;
  }
  bool operator==(const Tensor&) const = default;
};

}  // namespace dyncp
