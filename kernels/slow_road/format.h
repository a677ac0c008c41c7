// The values of an element type as an ordered list, which is what rounding to the nearest of them needs: value i is the
// one whose bit pattern, read as an integer, is i.
// In the path: kernels/slow_road/group.cc. Plain values and pure functions.
#ifndef NORMD_KERNELS_SLOW_ROAD_FORMAT_H_
#define NORMD_KERNELS_SLOW_ROAD_FORMAT_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/types.h"
#include "kernels/power_sum.h"
#include "kernels/slow_road/dyadic.h"

namespace normd::slow_road {

struct Format {
  int bits;          // of the significand, the leading one included
  int min_exponent;  // of the least normal value
  int max_exponent;  // of the largest finite value

  int64_t Infinity() const { return int64_t{max_exponent - min_exponent + 2} << (bits - 1); }
  // Half the distance from value `index` to the next one is 2^HalfStep(index).
  int HalfStep(int64_t index) const {
    const int64_t exponent = index >> (bits - 1);
    return static_cast<int>(exponent == 0 ? 0 : exponent - 1) + min_exponent - bits;
  }
  // The significand of value `index`, which is Significand * 2^(HalfStep + 1).
  uint64_t Significand(int64_t index) const {
    const int64_t leading = int64_t{1} << (bits - 1);
    return static_cast<uint64_t>((index & (leading - 1)) + (index < leading ? 0 : leading));
  }
  // Value `index`; Infinity() gives Inf.
  double Value(int64_t index) const {
    if (index >= Infinity()) return std::numeric_limits<double>::infinity();
    if (bits == 53) return std::bit_cast<double>(index);
    return static_cast<double>(Significand(index)) * PowerOfTwo(HalfStep(index) + 1);  // no std::ldexp, which is a call
  }
  // 2^HalfStep(index), which no f64 is below the normal numbers of f64: 0 there.
  double Half(int64_t index) const {
    const int exponent = HalfStep(index);
    return exponent < -1022 ? 0 : PowerOfTwo(exponent);
  }
  // The same, where Infinity() counts as the power of two that follows the largest finite value.
  Dyadic Exactly(int64_t index) const { return {1, Significand(index), HalfStep(index) + 1}; }
  // The middle between value `index` and the next one.
  Dyadic Middle(int64_t index) const { return {1, 2 * Significand(index) + 1, HalfStep(index)}; }
  // The index of the largest value that is not above `magnitude`. REQUIRES: `magnitude` >= 0.
  int64_t IndexBelow(double magnitude) const {
    const auto of_f64 = static_cast<int64_t>(std::bit_cast<uint64_t>(magnitude));
    if (bits == 53) return of_f64;
    const int64_t exponent = (of_f64 >> 52) - 1023;
    if (exponent > max_exponent) return Infinity();
    if (exponent < min_exponent) return static_cast<int64_t>(std::ldexp(magnitude, bits - 1 - min_exponent));
    const int64_t fraction = of_f64 & ((int64_t{1} << 52) - 1);
    return ((exponent - min_exponent + 1) << (bits - 1)) + (fraction >> (53 - bits));
  }
};

constexpr Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {11, -14, 15};
    case DType::kBF16:
      return {8, -126, 127};
    case DType::kF32:
      return {24, -126, 127};
    case DType::kF64:
      break;
  }
  return {53, -1022, 1023};
}

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_FORMAT_H_
