// Arithmetic on numbers of twice the width of an f64, each an unevaluated sum of two f64.
// In the path: the sums and divisors of f64 elements, on the CPU and in CUDA.
// Sources: Knuth (TwoSum), Dekker (Renormalise, the products), std::fma for exact products.
// Standard headers only, because device code includes this file. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_PAIRS_H_
#define NORMD_KERNELS_PAIRS_H_

#include <cmath>

#include "kernels/base/host_device.h"

namespace normd {

// The number hi + lo; |lo| is at most half an ulp of hi after Renormalise. The functions below use plain IEEE f64
// arithmetic and std::fma, so that they have the same bits everywhere.
struct DoublePair {
  double hi = 0, lo = 0;
};

// a + b exactly, as a pair. REQUIRES: |a| >= |b|, or a = 0.
NORMD_HOST_DEVICE inline DoublePair Renormalise(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}
// a + b exactly, for any a and b.
NORMD_HOST_DEVICE inline DoublePair TwoSum(double a, double b) {
  const double s = a + b;
  const double bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}
// a * b exactly.
NORMD_HOST_DEVICE inline DoublePair TwoProduct(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}
NORMD_HOST_DEVICE inline DoublePair Add(DoublePair a, DoublePair b) {
  const DoublePair s = TwoSum(a.hi, b.hi);
  return Renormalise(s.hi, s.lo + (a.lo + b.lo));
}
NORMD_HOST_DEVICE inline DoublePair Negate(DoublePair a) { return {-a.hi, -a.lo}; }
NORMD_HOST_DEVICE inline DoublePair Multiply(DoublePair a, DoublePair b) {
  const DoublePair p = TwoProduct(a.hi, b.hi);
  return Renormalise(p.hi, std::fma(a.hi, b.lo, std::fma(a.lo, b.hi, p.lo)));
}
// Drops the low part of a quotient or root whose high part is 0 or not finite: that low part would be NaN or Inf.
NORMD_HOST_DEVICE inline DoublePair WithoutLowIfSpecial(double hi, DoublePair p) {
  return std::isfinite(hi) && hi != 0 && std::isfinite(p.lo) ? p : DoublePair{hi, 0};
}
NORMD_HOST_DEVICE inline DoublePair Divide(DoublePair a, double b) {
  const double q = a.hi / b;
  const double r = std::fma(-q, b, a.hi) + a.lo;
  return WithoutLowIfSpecial(q, Renormalise(q, r / b));
}
NORMD_HOST_DEVICE inline DoublePair Reciprocal(DoublePair b) {
  const double q = 1.0 / b.hi;
  const double r = std::fma(-q, b.hi, 1.0) - q * b.lo;
  return WithoutLowIfSpecial(q, Renormalise(q, q * r));
}
// REQUIRES: `a` is 0 or at least 2^-900: what a root leaves of a smaller number has digits that no f64 has.
NORMD_HOST_DEVICE inline DoublePair SqrtInRange(DoublePair a) {
  const double root = std::sqrt(a.hi);
  const double r = std::fma(-root, root, a.hi) + a.lo;
  return WithoutLowIfSpecial(root, Renormalise(root, r / (2 * root)));
}
NORMD_HOST_DEVICE inline DoublePair Sqrt(DoublePair a) {
  if (!(a.hi > 0 && a.hi < 0x1p-900)) return SqrtInRange(a);
  const DoublePair root = SqrtInRange({a.hi * 0x1p+400, a.lo * 0x1p+400});
  return {root.hi * 0x1p-200, root.lo * 0x1p-200};
}

}  // namespace normd

#endif  // NORMD_KERNELS_PAIRS_H_
