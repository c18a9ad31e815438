// RapidCheck generators of the vocabulary: lengths, CP sizes, CP groups, packs, and NaN in padding.
// What they draw is made of plain integers for which every value below the drawn one is legal too,
// so that a shrunk counterexample is always a legal case. Small by default (a pack of some hundred
// tokens), so that properties with quadratic work stay quick.
#pragma once

#include <rapidcheck.h>

#include <array>
#include <cstdint>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include "reference/group.h"
#include "reference/pack.h"
#include "reference/sequence.h"
#include "reference/tensor.h"
#include "reference/zigzag.h"
#include "runtime/lengths.h"

namespace dyncp {

// How RapidCheck prints counterexamples.
inline void showValue(const CpGroup& group, std::ostream& out) { out << to_string(group); }
inline void showValue(const Pack& pack, std::ostream& out) {
  out << "pack of (real/padded)";
  for (int i = 0; i < pack.sequences(); ++i) {
    out << ' ' << pack.real_length(i) << '/' << pack.padded_length(i);
  }
}

/// What genLengths draws. REQUIRES: 0 <= min_count <= max_count, max_count >= 1, max_length >= 1.
struct LengthBounds {
  std::int64_t max_length = 96;  // tokens
  int min_count = 1;             // sequences
  int max_count = 8;
};

/// min..max, every value equally likely whatever RapidCheck's size; shrinks towards min.
inline rc::Gen<int> genInt(int min, int max) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(min, max + 1));
}

/// Real lengths in tokens, each in 0..max_length: one of the families of runtime/lengths.h
/// (lognormal, heavy tail, bimodal, constant, uniform, powers of two and capacities -1/0/+1, every
/// residue, zeros and ones, ...) at a random unit, a quarter of the time with an empty or one-token
/// sequence put in. Shrinks by leaving sequences out, down to min_count, and by shortening them.
inline rc::Gen<std::vector<std::int64_t>> genLengths(LengthBounds bounds = {}) {
  using Lengths = std::vector<std::int64_t>;
  return [bounds](const rc::Random& random, int) {
    rc::Random source = random;
    const auto below = [&source](std::int64_t bound) {
      return static_cast<std::int64_t>(source.next() % static_cast<std::uint64_t>(bound));
    };
    const auto& families = length_families();
    const auto& family =
        families[static_cast<std::size_t>(below(static_cast<std::int64_t>(families.size())))];
    const std::int64_t count = bounds.min_count + below(bounds.max_count - bounds.min_count + 1);
    const std::int64_t unit = 1 + below(bounds.max_length);
    Lengths lengths = family.draw(count, unit, bounds.max_length, source.next());
    if (!lengths.empty() && below(4) == 0) {
      lengths[static_cast<std::size_t>(below(count))] = below(2);
    }
    return rc::shrinkable::shrinkRecur(std::move(lengths), [bounds](const Lengths& value) {
      const auto enough = [bounds](const Lengths& shrunk) {
        return shrunk.size() >= static_cast<std::size_t>(bounds.min_count);
      };
      return rc::seq::concat(rc::seq::filter(rc::shrink::removeChunks(value), enough),
                             rc::shrink::eachElement(value, [](std::int64_t length) {
                               return rc::shrink::towards<std::int64_t>(length, 0);
                             }));
    });
  };
}

/// The CP sizes that genCpSize draws: powers of two and odd ones.
inline constexpr std::array<int, 6> kGeneratedCpSizes = {1, 2, 3, 4, 5, 8};

/// One of kGeneratedCpSizes; shrinks towards 1.
inline rc::Gen<int> genCpSize() {
  return rc::gen::map(genInt(0, static_cast<int>(kGeneratedCpSizes.size()) - 1),
                      [](int i) { return kGeneratedCpSizes[static_cast<std::size_t>(i)]; });
}

/// Like genCpSize without size 1, for properties that are vacuous when CP is off.
inline rc::Gen<int> genCpSizeAboveOne() {
  return rc::gen::map(genInt(1, static_cast<int>(kGeneratedCpSizes.size()) - 1),
                      [](int i) { return kGeneratedCpSizes[static_cast<std::size_t>(i)]; });
}

/// `size` consecutive ranks that start at rank 0 in about one case of four, else at a multiple of
/// `size` (an aligned slice) or anywhere.
inline rc::Gen<CpGroup> genGroup(int size) {
  return rc::gen::map(rc::gen::pair(genInt(0, 7), genInt(0, 11)),
                      [size](const std::pair<int, int>& drawn) {
                        const auto [kind, place] = drawn;
                        if (kind < 2) return CpGroup{0, size};
                        return CpGroup{kind < 5 ? place * size : place, size};
                      });
}

/// A CP group of a size that genCpSize draws.
inline rc::Gen<CpGroup> genGroup() {
  return rc::gen::mapcat(genCpSize(), [](int size) { return genGroup(size); });
}

/// A pack that runs on `size` ranks with `tensor_parallel`: real lengths as genLengths draws them,
/// padded lengths multiples of 2*size*tensor_parallel, in about one pack of four with up to two
/// multiples more than needed behind a sequence (also behind an empty one).
/// REQUIRES: size >= 1, tensor_parallel >= 1.
inline rc::Gen<Pack> genPack(int size, LengthBounds bounds = {}, int tensor_parallel = 1) {
  // How many multiples more: the base-3 digits of one number, one a sequence, from the start again.
  const auto extra = rc::gen::map(genInt(0, 3), [](int kind) { return kind == 3; });
  return rc::gen::map(
      rc::gen::tuple(genLengths(bounds), extra, genInt(0, 80)),
      [size, tensor_parallel](const std::tuple<std::vector<std::int64_t>, bool, int>& drawn) {
        const auto& [lengths, padded_more, digits] = drawn;
        const std::int64_t multiple = padding_multiple(size, tensor_parallel);
        std::vector<Sequence> sequences;
        int rest = digits;
        for (std::int64_t length : lengths) {
          const std::int64_t more = padded_more ? rest % 3 : 0;
          sequences.push_back({length, round_up(length, multiple) + more * multiple});
          rest = rest / 3 > 0 ? rest / 3 : digits;
        }
        return Pack(std::move(sequences));
      });
}

/// Puts `value` into every padding row of a tensor over the whole pack.
/// REQUIRES: tensor.rows == pack.padded_tokens().
template <typename T>
void fill_padding(Tensor<T>& tensor, const Pack& pack,
                  T value = std::numeric_limits<T>::quiet_NaN()) {
  for (int i = 0; i < pack.sequences(); ++i) {
    for (std::int64_t j = pack.real_length(i); j < pack.padded_length(i); ++j) {
      for (int h = 0; h < tensor.heads; ++h) {
        for (int d = 0; d < tensor.dim; ++d) tensor.at(pack.first_row(i) + j, h, d) = value;
      }
    }
  }
}

/// Puts `value` into every padding row of one rank's zigzag slice.
/// REQUIRES: tensor.rows == pack.padded_tokens() / size, and the pack is divisible by 2*size.
template <typename T>
void fill_padding(Tensor<T>& tensor, const Pack& pack, int size, int rank,
                  T value = std::numeric_limits<T>::quiet_NaN()) {
  const auto boundaries = local_boundaries(pack, size);
  const auto real = real_lengths_on_rank(pack, size, rank);
  for (std::size_t i = 0; i < real.size(); ++i) {
    for (std::int64_t row = boundaries[i] + real[i]; row < boundaries[i + 1]; ++row) {
      for (int h = 0; h < tensor.heads; ++h) {
        for (int d = 0; d < tensor.dim; ++d) tensor.at(row, h, d) = value;
      }
    }
  }
}

}  // namespace dyncp
