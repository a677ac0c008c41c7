// A sum of FixedPoint as a pair of f64, which decides nearly every rounding of it.
// In the path: kernels/exact_sums/nearest_moments.cc and the divisors of PowerNorm. A pure function, safe from any
// thread.
#ifndef NORMD_KERNELS_EXACT_SUMS_PAIR_OF_SUM_H_
#define NORMD_KERNELS_EXACT_SUMS_PAIR_OF_SUM_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/exact_sums/fixed_point.h"
#include "kernels/pairs.h"

namespace normd {

// The first 106 bits of a sum: less than 2^-105 of it is left out. A part beyond the range of f64 is Inf or 0.
template <int kLowest, int kWords>
DoublePair PairOfSum(const FixedPoint<kLowest, kWords>& sum) {
  auto words = sum.words();
  const bool is_negative = sum.IsNegative();
  if (is_negative) {
    uint64_t carry = 1;
    for (uint64_t& word : words) {
      word = ~word + carry;
      carry = carry != 0 && word == 0 ? 1 : 0;
    }
  }
  int top = kWords - 1;
  while (top > 0 && words[static_cast<size_t>(top)] == 0) --top;
  const auto word = [&](int i) { return i < 0 ? 0 : words[static_cast<size_t>(i)]; };
  if (word(top) == 0) return {0, 0};
  // The 128 bits from the leading one on, in two words.
  const int shift = std::countl_zero(word(top));
  const auto at = [&](int i) { return shift == 0 ? word(i) : word(i) << shift | word(i - 1) >> (64 - shift); };
  const uint64_t upper = at(top), lower = at(top - 1);
  const int exponent = kLowest + 64 * top - shift;  // of the last bit of `upper`
  const double hi = std::ldexp(static_cast<double>(upper >> 11), exponent + 11);
  const double lo = std::ldexp(static_cast<double>((upper & 0x7FF) << 42 | lower >> 22), exponent - 42);
  // The low part is up to an ulp of the high one: renormalised, it is half of one.
  const double nearest = hi + lo;
  const double rest = lo - (nearest - hi);
  return is_negative ? DoublePair{-nearest, -rest} : DoublePair{nearest, rest};
}

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_PAIR_OF_SUM_H_
