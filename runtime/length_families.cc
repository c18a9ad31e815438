// Families of sequence lengths: parametric distributions, edge cases, and approximations of
// published shapes. Everything is derived by hand from std::mt19937_64, whose numbers the standard
// fixes; std::*_distribution differs between standard libraries and is not used. Two machines can
// differ only where their std::exp, log and pow differ in the last bit at an integer boundary.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string>

#include "reference/error.h"
#include "reference/sequence.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

using Lengths = std::vector<std::int64_t>;

// The random values a family is made of.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}

  // 0..bound-1, every value equally likely. REQUIRES: bound >= 1.
  std::int64_t below(std::int64_t bound) {
    const auto n = static_cast<std::uint64_t>(bound);
    const std::uint64_t accepted = ~std::uint64_t{0} / n * n;
    std::uint64_t value = engine_();
    while (value >= accepted) value = engine_();
    return static_cast<std::int64_t>(value % n);
  }

  // low..high. REQUIRES: low <= high.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }

  // Inside (0, 1), never an end.
  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }

  // Standard normal, by Box and Muller's method (the second value of each pair is not used).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  double lognormal(double median, double sigma) { return median * std::exp(sigma * normal()); }

  // Pareto with exponent alpha cut off at `high` (not piled up there), by inversion.
  double bounded_pareto(double alpha, double low, double high) {
    const double mass = 1.0 - std::pow(low / high, alpha);
    return low * std::pow(1.0 - uniform() * mass, -1.0 / alpha);
  }

 private:
  std::mt19937_64 engine_;
};

// The token count of a real value: whole tokens, at least 1, at most `limit`.
std::int64_t tokens(double value, std::int64_t limit) {
  if (!(value < static_cast<double>(limit))) return limit;
  return std::min(limit, std::max<std::int64_t>(1, static_cast<std::int64_t>(value)));
}

// What is drawn: `count` lengths on the scale of `unit` tokens, none above `limit` tokens.
struct Request {
  std::int64_t count;
  std::int64_t unit;
  std::int64_t limit;

  double scale() const { return static_cast<double>(unit); }
};

// request.count lengths, each by next(index), cut off at the limit.
template <typename Next>
Lengths draw_each(const Request& request, Next next) {
  Lengths lengths;
  lengths.reserve(static_cast<std::size_t>(request.count));
  for (std::int64_t i = 0; i < request.count; ++i) {
    const std::int64_t length = next(i);
    lengths.push_back(std::clamp<std::int64_t>(length, 0, request.limit));
  }
  return lengths;
}

Lengths lognormal(Draws& draws, const Request& request) {
  const double sigma = 1.5;
  const double median = 0.5 * request.scale() * std::exp(-0.5 * sigma * sigma);
  return draw_each(
      request, [&](std::int64_t) { return tokens(draws.lognormal(median, sigma), request.limit); });
}

Lengths pareto(Draws& draws, const Request& request) {
  return draw_each(request, [&](std::int64_t) {
    return tokens(draws.bounded_pareto(0.8, request.scale() / 16.0, request.scale() * 16.0),
                  request.limit);
  });
}

Lengths bimodal(Draws& draws, const Request& request) {
  return draw_each(request, [&](std::int64_t) {
    const bool book = draws.below(20) == 0;
    return book ? draws.between(2 * request.unit, 8 * request.unit)
                : draws.between(1, std::max<std::int64_t>(1, request.unit / 2));
  });
}

Lengths constant(Draws& draws, const Request& request) {
  const std::int64_t length = draws.between(1, 2 * request.unit);
  return draw_each(request, [&](std::int64_t) { return length; });
}

Lengths uniform(Draws& draws, const Request& request) {
  const std::int64_t high = std::max<std::int64_t>(1, std::min(4 * request.unit, request.limit));
  return draw_each(request, [&](std::int64_t) { return draws.between(1, high); });
}

Lengths powers_of_two(Draws& draws, const Request& request) {
  const std::int64_t high = std::min(8 * request.unit, request.limit);
  int exponents = 1;
  while ((std::int64_t{1} << exponents) <= high) ++exponents;
  return draw_each(request, [&](std::int64_t) {
    const std::int64_t power = std::int64_t{1} << draws.below(exponents);
    return power + draws.between(-1, 1);
  });
}

Lengths capacity(Draws& draws, const Request& request) {
  const std::int64_t most = std::clamp<std::int64_t>(request.limit / request.unit, 1, 8);
  return draw_each(request, [&](std::int64_t) {
    const std::int64_t full = request.unit * draws.between(1, most);
    return full + draws.between(-1, 1);
  });
}

Lengths residues(Draws& draws, const Request& request) {
  // Successive integers hold every residue of every modulus; beyond 4 units they start again at 0.
  const std::int64_t values = std::min(4 * request.unit, request.limit) + 1;
  const std::int64_t start = draws.below(values);
  return draw_each(request, [&](std::int64_t i) { return (start + i) % values; });
}

Lengths zeros_and_ones(Draws& draws, const Request& request) {
  return draw_each(request, [&](std::int64_t) { return draws.below(2); });
}

// A lognormal body and, for a share of the sequences, a Pareto tail from one unit to 256 units.
struct Shape {
  double median;      // of the body, units
  double sigma;       // of the body's logarithm
  double tail_share;  // of the sequences
  double tail_alpha;  // exponent
};

Lengths draw_shape(const Shape& shape, Draws& draws, const Request& request) {
  const double unit = request.scale();
  return draw_each(request, [&](std::int64_t) {
    const bool tail = draws.uniform() < shape.tail_share;
    return tokens(tail ? draws.bounded_pareto(shape.tail_alpha, unit, 256.0 * unit)
                       : draws.lognormal(shape.median * unit, shape.sigma),
                  request.limit);
  });
}

Lengths github_like(Draws& draws, const Request& request) {
  return draw_shape({0.2, 1.4, 0.04, 0.9}, draws, request);
}

Lengths commoncrawl_like(Draws& draws, const Request& request) {
  return draw_shape({0.16, 1.1, 0.01, 1.2}, draws, request);
}

Lengths wikipedia_like(Draws& draws, const Request& request) {
  return draw_shape({0.12, 0.9, 0.0, 1.0}, draws, request);
}

void require_between(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  throw InvalidInput(std::string(what) + " is " + std::to_string(value) + ": expected " +
                     std::to_string(low) + ".." + std::to_string(high));
}

// The function a table entry points to: checks the request, then draws.
template <Lengths (*family)(Draws&, const Request&)>
Lengths checked(std::int64_t count, std::int64_t unit, std::int64_t limit, std::uint64_t seed) {
  require_between("the number of lengths to draw", count, 0, kMaxLengths);
  require_between("the unit of the lengths to draw", unit, 1, kMaxSequenceLength);
  require_between("the limit of the lengths to draw", limit, 0, kMaxSequenceLength);
  Draws draws(seed);
  return family(draws, {count, unit, limit});
}

}  // namespace

const std::vector<LengthFamily>& length_families() {
  static const std::vector<LengthFamily> families = {
      {"lognormal", "mean 0.5 units, sigma 1.5, cut off at the limit: the usual model of SFT data",
       checked<lognormal>},
      {"pareto", "heavy tail: Pareto with exponent 0.8 between 1/16 and 16 units", checked<pareto>},
      {"bimodal", "chat and books: 95% uniform up to 1/2 unit, 5% uniform in 2..8 units",
       checked<bimodal>},
      {"constant", "one length for all, drawn from 1..2 units", checked<constant>},
      {"uniform", "every length in 1..4 units equally likely", checked<uniform>},
      {"powers-of-two", "2^k - 1, 2^k and 2^k + 1 up to 8 units", checked<powers_of_two>},
      {"capacity", "k units - 1, k units and k units + 1 for k in 1..8", checked<capacity>},
      {"residues", "successive integers: every residue of every 2*size among 2*size neighbours",
       checked<residues>},
      {"zeros-and-ones", "empty and one-token sequences", checked<zeros_and_ones>},
      {"github-like",
       "parametric approximation, not data: lognormal body (median 0.2 units, sigma 1.4), 4% "
       "Pareto "
       "tail (exponent 0.9); heavier than commoncrawl-like, as published figures show",
       checked<github_like>},
      {"commoncrawl-like",
       "parametric approximation, not data: lognormal body (median 0.16 units, sigma 1.1), 1% "
       "Pareto tail (exponent 1.2)",
       checked<commoncrawl_like>},
      {"wikipedia-like",
       "parametric approximation, not data: lognormal (median 0.12 units, sigma 0.9), light tail",
       checked<wikipedia_like>},
  };
  return families;
}

const LengthFamily& find_length_family(std::string_view name) {
  std::string known;
  for (const LengthFamily& family : length_families()) {
    if (family.name == name) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw InvalidInput("unknown family of lengths '" + std::string(name) + "': expected one of " +
                     known);
}

}  // namespace dyncp
