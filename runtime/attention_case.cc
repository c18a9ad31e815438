// Values by hashing their coordinates.
#include "runtime/attention_case.h"

#include <cmath>

namespace dyncp {
namespace {

/// One round of the SplitMix64 finaliser.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Four uniform 16-bit variables added: variance 1 after scaling by sqrt(3).
double bell(std::uint64_t bits) {
  double sum = 0;
  for (int part = 0; part < 4; ++part) {
    sum += (static_cast<double>((bits >> (16 * part)) & 0xffffu) + 0.5) / 32768.0 - 1.0;
  }
  return sum * std::sqrt(0.75);
}

Tensor<double> make_tensor(const Pack& pack, int heads, int dim, std::uint64_t seed,
                           std::uint64_t which, Format format, double padding,
                           const std::vector<int>& contents) {
  Tensor<double> tensor(pack.padded_tokens(), heads, dim, padding);
  for (int s = 0; s < pack.sequences(); ++s) {
    const auto identity =
        static_cast<std::uint64_t>(contents.empty() ? s : contents[static_cast<std::size_t>(s)]);
    const std::uint64_t sequence_seed = mix(mix(mix(seed) + which) + identity);
    for (std::int64_t i = 0; i < pack.real_length(s); ++i) {
      const std::uint64_t row_seed = mix(sequence_seed + static_cast<std::uint64_t>(i));
      for (int h = 0; h < heads; ++h) {
        const std::uint64_t head_seed = mix(row_seed + static_cast<std::uint64_t>(h));
        for (int d = 0; d < dim; ++d) {
          tensor.at(pack.first_row(s) + i, h, d) =
              round_to(format, bell(mix(head_seed + static_cast<std::uint64_t>(d))));
        }
      }
    }
  }
  return tensor;
}

}  // namespace

AttentionCase make_attention_case(const Pack& pack, const AttentionShape& shape,
                                  const AttentionOptions& options, std::uint64_t seed,
                                  Format format, double padding, const std::vector<int>& contents) {
  const auto make = [&](int heads, int dim, std::uint64_t which) {
    return make_tensor(pack, heads, dim, seed, which, format, padding, contents);
  };
  return {pack,
          options,
          make(shape.heads, shape.dim, 1),
          make(shape.kv_heads, shape.dim, 2),
          make(shape.kv_heads, shape.value_dim, 3),
          make(shape.heads, shape.value_dim, 4)};
}

std::vector<double> make_sink(int heads, std::uint64_t seed) {
  std::vector<double> sink;
  for (int h = 0; h < heads; ++h) {
    const std::uint64_t bits = mix(mix(mix(seed) + 5) + static_cast<std::uint64_t>(h));
    sink.push_back(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0);
  }
  return sink;
}

}  // namespace dyncp
