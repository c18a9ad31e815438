// Two small hash functions: one that spreads a number over 64 bits, one that names a stretch of
// bytes. Both are fixed for ever: recorded fingerprints and drawn contents depend on them.
#pragma once

#include <cstdint>
#include <string_view>

namespace dyncp {

/// A bijection of 64-bit numbers under which neighbours become unrelated (the finaliser of Steele,
/// Lea and Flood's SplitMix generator, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t spread_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

/// FNV-1a of the bytes, going on from `before`. Not for adversaries: for noticing that two things
/// differ.
constexpr std::uint64_t digest(std::string_view bytes, std::uint64_t before = 0xcbf29ce484222325U) {
  for (const char byte : bytes) {
    before = (before ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  }
  return before;
}

}  // namespace dyncp
