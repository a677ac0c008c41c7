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

// max(|w|, |b|) of the columns or channels of a fold where it is not 0: the smallest and the largest.
struct PairScales {
  double smallest = 0x1p+100, largest = 0;

  void Add(double w, double b) {
    const double here = std::abs(w) > std::abs(b) ? std::abs(w) : std::abs(b);
    if (here > 0 && here < smallest) smallest = here;
    if (here > largest) largest = here;
  }
};

// The limits of a fold, for all columns or channels whose bound allows it. A column of which few elements would be
// decided, because its mean is hundreds of deviations from 0, is left out, so that the others keep their limits.
class PairBound {
 public:
  // Values of f16 are subnormal below 2^-14, and their middles lie elsewhere. A y of bf16 that is 2^-16 of what its
  // column has is a rare one; a column with a small weight may have more of these, so that the others have few ulps.
  PairBound(const PairScales& scales, DType dtype, double bound_factor)
      : bound_factor_(bound_factor), most_bits_(dtype == DType::kF16 ? 4 : 6) {
    limits_.least = 0x1p-13;
    if (dtype != DType::kF16) {
      const double scale = std::fmax(scales.smallest, scales.largest * 0x1p-4);
      limits_.least = std::fmax(kLeastOfPairs, std::exp2(std::floor(std::log2(scale)) - 16));
    }
    limits_.near_bits = bound_factor > 0 ? 0 : -1;
    // |y| is what is stored, rounded to 16 bits, at least: more than half of that before.
    of_ulp_ = 0x1p+25 / limits_.least;
  }

  // False if the column is left out.
  bool Add(const ElementBound& in_f64, double g) {
    const double of_rest = (in_f64.fixed + 0x1p-45 * std::abs(g)) * of_ulp_;
    const double ulps = (1.5 + kSlackUlps + of_rest + in_f64.relative * 0x1p+24) * bound_factor_;
    if (!(ulps < reach_)) {
      int bits = limits_.near_bits;
      while (bits <= most_bits_ && std::ldexp(0.5, bits) <= ulps) ++bits;
      if (bits > most_bits_) return false;
      limits_.near_bits = bits;
      reach_ = std::ldexp(0.5, bits);
    }
    return true;
  }
  const PairLimits& limits() const { return limits_; }

 private:
  const double bound_factor_;
  const int most_bits_;
  double of_ulp_ = 0;
  double reach_ = 0;  // in ulps of f32: the bounds of all columns so far are less
  PairLimits limits_;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FOLDED_PAIRS_H_
