// Norms of any power p >= 1, (sum |x|^p)^(1/p): the terms of the sum, each relative to the largest element so that
// nothing leaves the range, and the root. The arithmetic is in pairs of f64 and uses +, -, *, / and fma alone, so that
// every device has the same bits.
// In the path: the reduce pass of Statistic::kPowerSum, on the CPU and in CUDA.
// Accuracy: a norm is as well conditioned as its elements. A relative error of a term reaches the norm divided by p, so
// that the 2^-55 of Log2 and Exp2 are small beside the rounding of y.
// Standard headers only, because device code includes this file. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_POWER_SUM_H_
#define NORMD_KERNELS_POWER_SUM_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/pairs.h"

namespace normd {

// 2^exponent. REQUIRES: -1022 <= exponent <= 1023.
NORMD_HOST_DEVICE inline double PowerOfTwo(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// The binary logarithm of x. REQUIRES: x is a normal number, 0 < x < 2^1022.
NORMD_HOST_DEVICE inline DoublePair Log2(DoublePair x) {
  // x = 2^exponent * m, m within a factor of sqrt(2) of 1; there log(m) = 2 atanh(s), s = (m - 1) / (m + 1).
  int64_t exponent = static_cast<int64_t>(std::bit_cast<uint64_t>(x.hi) >> 52) - 1023;
  double scale = PowerOfTwo(-exponent);
  if (x.hi * scale > 0x1.6a09e667f3bcdp+0) {
    ++exponent;
    scale /= 2;
  }
  const DoublePair m = {x.hi * scale, x.lo * scale};
  const DoublePair above = Add(m, {-1, 0});
  const DoublePair sum = Add(m, {1, 0});
  const double q = above.hi / sum.hi;
  const double rest = std::fma(-q, sum.hi, above.hi) + (above.lo - q * sum.lo);
  const DoublePair s = Renormalise(q, rest / sum.hi);
  // atanh(s) = s (1 + z / 3 + z^2 / 5 + ...), z = s^2 <= 0.03: eleven terms reach 2^-60.
  const double z = s.hi * s.hi;
  double series = 1.0 / 23;
  series = std::fma(series, z, 1.0 / 21);
  series = std::fma(series, z, 1.0 / 19);
  series = std::fma(series, z, 1.0 / 17);
  series = std::fma(series, z, 1.0 / 15);
  series = std::fma(series, z, 1.0 / 13);
  series = std::fma(series, z, 1.0 / 11);
  series = std::fma(series, z, 1.0 / 9);
  series = std::fma(series, z, 1.0 / 7);
  series = std::fma(series, z, 1.0 / 5);
  series = std::fma(series, z, 1.0 / 3);
  const DoublePair atanh = Renormalise(s.hi, std::fma(s.hi, series * z, s.lo));
  constexpr DoublePair kTwoLog2E = {0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55};
  return Add({static_cast<double>(exponent), 0}, Multiply(atanh, kTwoLog2E));
}

// 2 to the power of x. REQUIRES: |x| <= 1000.
NORMD_HOST_DEVICE inline DoublePair Exp2(DoublePair x) {
  constexpr double kToInteger = 0x1.8p+52;  // added and subtracted again, it rounds to an integer
  const double whole = (x.hi + kToInteger) - kToInteger;
  const DoublePair fraction = TwoSum(x.hi - whole, x.lo);
  // e^w, |w| <= log(2) / 2: fifteen terms reach 2^-60.
  constexpr DoublePair kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  const DoublePair w = Multiply(fraction, kLn2);
  double series = 1.0 / 1307674368000;
  series = std::fma(series, w.hi, 1.0 / 87178291200);
  series = std::fma(series, w.hi, 1.0 / 6227020800);
  series = std::fma(series, w.hi, 1.0 / 479001600);
  series = std::fma(series, w.hi, 1.0 / 39916800);
  series = std::fma(series, w.hi, 1.0 / 3628800);
  series = std::fma(series, w.hi, 1.0 / 362880);
  series = std::fma(series, w.hi, 1.0 / 40320);
  series = std::fma(series, w.hi, 1.0 / 5040);
  series = std::fma(series, w.hi, 1.0 / 720);
  series = std::fma(series, w.hi, 1.0 / 120);
  series = std::fma(series, w.hi, 1.0 / 24);
  series = std::fma(series, w.hi, 1.0 / 6);
  series = std::fma(series, w.hi, 1.0 / 2);
  const DoublePair sum = TwoSum(1, w.hi);
  const DoublePair power = Renormalise(sum.hi, sum.lo + std::fma(w.hi * w.hi, series, w.lo));
  const double scale = PowerOfTwo(static_cast<int64_t>(whole));
  return {power.hi * scale, power.lo * scale};
}

// (|x| / largest)^p, at most 1. Terms under 2^-160 count as 0 beside the term of the largest element, which is 1 (a
// group has at most 2^60 elements). The low part of the largest element must not count, or a large p would leave no
// term at all. REQUIRES: x is finite, |x.hi| <= largest, largest > 0, p >= 1.
NORMD_HOST_DEVICE inline DoublePair PowerTerm(DoublePair x, double largest, double p) {
  if (std::abs(x.hi) >= largest) return {1, 0};
  const DoublePair ratio = Divide(x.hi < 0 ? Negate(x) : x, largest);
  if (ratio.hi < 0x1p-160) return {0, 0};  // p is at least 1
  if (ratio.hi > 1 || (ratio.hi == 1 && ratio.lo >= 0)) return {1, 0};
  const DoublePair log = Log2(ratio);
  const double high = p * log.hi;
  if (high < -160) return {0, 0};
  return Exp2(Renormalise(high, std::fma(p, log.lo, std::fma(p, log.hi, -high))));
}

// The p-th root of a sum of terms, of which at least one is 1; 0 for a sum of 0, which has no terms. REQUIRES: sum <=
// 2^60, p >= 1.
NORMD_HOST_DEVICE inline DoublePair PowerRoot(DoublePair sum, double p) {
  return sum.hi > 0 ? Exp2(Divide(Log2(sum), p)) : DoublePair{0, 0};
}

}  // namespace normd

#endif  // NORMD_KERNELS_POWER_SUM_H_
