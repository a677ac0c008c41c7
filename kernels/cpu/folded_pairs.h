// How near to a middle a 16-bit element that is calculated by FoldedPairs has to lie to stay undecided: the line of
// this form, which the CPU alone has, in the table of kernels/certificate.h.
//
// y = x f + g, with f and g in f64, is off by BoundOfFolded. f is f1 + f2 and g is g1 + g2 in floats, but for 2^-48 of
// each. With v = 2^-24 and every operation rounded to f32,
//   a = x f1 + g1 is off by v |a|,
//   t = x f2 + g2 is off by v |t|, where |t| <= v (|x f| + |g|) (1 + v),
//   y = a + t     is off by half an ulp,
// and |a| <= |y| + |t|, |x f| <= |y| + |g|. v |y| is at most one ulp of f32 at y, so that y is off by at most
//   1.5 ulp + 2^-45 (|y| + |g|) + the bound in f64.
// An element that is as near to a middle as tests can make one is rounded to that middle itself by the last operation,
// so that any bound but 0 finds it. Numbers that are subnormal are off by 2^-150, of which kSlackUlps has room for two:
// |y| >= kLeastOfPairs.
//
// In the path: fold_columns.cc. Standard headers only. Pure functions.
#ifndef NORMD_KERNELS_CPU_FOLDED_PAIRS_H_
#define NORMD_KERNELS_CPU_FOLDED_PAIRS_H_

#include <cmath>

#include "kernels/base/types.h"
#include "kernels/certificate.h"
#include "kernels/cpu/kernels.h"

namespace normd::cpu {

inline constexpr double kSlackUlps = 0x1p-10;
inline constexpr double kLeastOfPairs = 0x1p-100;

// What the columns or channels of a fold have in common. Starts without any.
struct PairExtremes {
  double fixed = 0;         // the largest part of the bound that does not grow with |y|
  double relative = 0;      // the largest part that does, as a factor of |y|
  double scale = 0x1p+100;  // the smallest max(|w|, |b|) that is not 0

  void Add(const ElementBound& in_f64, double g, double w, double b) {
    const double of_rest = in_f64.fixed + 0x1p-45 * std::abs(g);
    if (of_rest > fixed) fixed = of_rest;
    if (in_f64.relative > relative) relative = in_f64.relative;
    const double here = std::abs(w) > std::abs(b) ? std::abs(w) : std::abs(b);
    if (here > 0 && here < scale) scale = here;
  }
};

// The limits of elements of `dtype`. Values of f16 are subnormal below 2^-14, and their middles lie elsewhere; a y of
// bf16 that is 2^-16 of what its column has is a rare one, and all smaller ones may have a larger error.
inline PairLimits LimitsOfPairs(const PairExtremes& extremes, DType dtype, double bound_factor) {
  PairLimits limits;
  limits.least = 0x1p-13;
  if (dtype != DType::kF16)
    limits.least = std::fmax(kLeastOfPairs, std::exp2(std::floor(std::log2(extremes.scale)) - 16));
  // |y| is what is stored, rounded to 16 bits, at least: more than half of that before.
  const double ulp = limits.least / 2 * 0x1p-24;
  const double ulps = (1.5 + kSlackUlps + extremes.fixed / ulp + extremes.relative * 0x1p+24) * bound_factor;
  constexpr int kAll = 17;
  limits.near_bits = ulps > 0 ? 0 : -1;
  while (limits.near_bits < kAll && std::ldexp(0.5, limits.near_bits) <= ulps) ++limits.near_bits;
  return limits;
}

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FOLDED_PAIRS_H_
