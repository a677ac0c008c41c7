// FinishNarrow of kernels/group_statistics.h for FAST groups in their usual state, bit for bit, in a third of the
// instructions. A group in any other state is told so, and its caller takes FinishNarrow.
// In the path: register_rows.cu and staged_rows.cu finish rows with it. Device functions.
//
// The quotients and the root are those of IEEE 754, made of an approximation and its exact remainder: P. Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor" (1990). Where q is within an ulp of a / n
// and r is 1 / n, rounded, fma(fma(-q, n, a), r, q) is a / n, rounded; where g is within an ulp of the root of x and h
// is near half its inverse, fma(fma(-g, g, x), h, g) is the root, rounded; where y is within an ulp of 1 / d,
// fma(fma(-d, y, 1), y, y) is 1 / d, rounded, unless all bits of d are ones. The compiler's own code does the same and
// spends as much again on operands at the ends of the range, which the usual state excludes.
#ifndef NORMD_KERNELS_CUDA_QUICK_FINISH_CUH_
#define NORMD_KERNELS_CUDA_QUICK_FINISH_CUH_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/types.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// The number of elements of a group and its inverse, rounded: dividing by it is then a multiplication.
struct Count {
  double n = 1, inverse = 1;

  static Count Of(int64_t n) { return {static_cast<double>(n), 1 / static_cast<double>(n)}; }
  // a / n. REQUIRES: |a| is 0, or in [2^-900, 2^900].
  __device__ __forceinline__ double Quotient(double a) const {
    const double near = a * inverse;
    const double nearer = std::fma(std::fma(-near, n, a), inverse, near);
    return std::fma(std::fma(-nearer, n, a), inverse, nearer);
  }
};

// Approximations with 20 bits or more, of the upper word of a positive normal number.
__device__ __forceinline__ double NearInverse(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / x) & 0xFFFFFFFF00000000u);
#endif
}
__device__ __forceinline__ double NearInverseRoot(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / std::sqrt(x)) & 0xFFFFFFFF00000000u);
#endif
}

// The root of x, rounded. REQUIRES: x is in [2^-400, 2^400].
__device__ __forceinline__ double Root(double x) {
  // A step of third order, from 20 bits to all.
  double y = NearInverseRoot(x);
  const double rest = std::fma(x, -(y * y), 1.0);
  y = std::fma(std::fma(rest, 0.375, 0.5), rest * y, y);
  const double root = x * y;
  return std::fma(std::fma(root, -root, x), 0.5 * y, root);
}
// 1 / d, rounded. REQUIRES: d is in [2^-400, 2^400], and not all bits of its significand are ones.
__device__ __forceinline__ double Inverse(double d) {
  double y = NearInverse(d);
  const double rest = std::fma(-d, y, 1.0);
  y = std::fma(y, std::fma(rest, rest, rest), y);
  return std::fma(y, std::fma(-d, y, 1.0), y);
}
__device__ __forceinline__ bool HasOnlyOnes(double d) {
  constexpr uint64_t kSignificand = (uint64_t{1} << 52) - 1;
  return (std::bit_cast<uint64_t>(d) & kSignificand) == kSignificand;
}
// True for x in [2^-400, 2^400).
__device__ __forceinline__ bool IsModerate(double x) {
  constexpr unsigned kLeast = (1023 - 400) << 20, kWidth = 800 << 20;
  return static_cast<unsigned>(std::bit_cast<uint64_t>(x) >> 32) - kLeast < kWidth;
}

// What FinishNarrow makes of a FAST group.
struct QuickFinish {
  Statistics32 statistics;
  double mean = 0, m2 = 0, inverse_std = 0;  // of FinishedStatistics, whose `inverse` is inverse_std
  // The statistics are finite and in the range of f32, and the sums need not be repeated. If not, nothing else holds.
  bool is_usual = false;
};

// REQUIRES: the statistic is not kAbsSum, unless only `is_usual` is read.
template <bool kCentred>
__device__ __forceinline__ QuickFinish FinishQuickly(Statistic statistic, const DivisorRule& rule, const PairSums& sums,
                                                     const Count& count, double shift) {
  QuickFinish finish;
  finish.m2 = sums.second.hi;
  double value = sums.second.hi;
  bool is_near = true, is_too_far = false;
  double delta = 0;
  if constexpr (kCentred) {
    delta = count.Quotient(sums.first.hi);
    const double correction = sums.first.hi * delta;
    finish.m2 -= correction;
    finish.mean = shift + delta;
    is_too_far = !(correction <= finish.m2);
    value = count.Quotient(finish.m2);
    is_near = finish.mean * finish.mean <= value;
  } else if (statistic == Statistic::kMeanSquare) {
    value = count.Quotient(value);
  }
  static_assert(kFastGuard == 1);
  double divisor = 0;
  bool in_range = true;
  if (rule.mode == EpsMode::kInsideSqrt) {
    value += rule.eps;
    in_range = IsModerate(value);
    divisor = Root(value);
  } else {
    in_range = IsModerate(value);
    const double root = Root(value);
    divisor = rule.mode == EpsMode::kAddToRoot ? root + rule.eps : root < rule.eps ? rule.eps : root;
  }
  finish.inverse_std = Inverse(divisor);
  float shift32 = static_cast<float>(is_near ? finish.mean : shift);
  if (shift32 == 0) shift32 = -0.0f;
  if constexpr (!kCentred) shift32 = 0;
  finish.statistics = {shift32, is_near ? 0.0f : static_cast<float>(delta), static_cast<float>(finish.inverse_std)};
  // An overflow of f32 is Inf in its sums. The bounds are those of OutOfFastRange and FitF32.
  const float inverse = finish.statistics.inverse;
  finish.is_usual = in_range && !HasOnlyOnes(divisor) && !is_too_far && sums.second.hi >= 0x1p-100 &&
                    sums.second.hi <= std::numeric_limits<float>::max() && std::fabs(shift32) < 0x1p+100f &&
                    inverse > 0x1p-60f && inverse < 0x1p+60f;
  return finish;
}

// Writes the outputs of a group that has been finished quickly.
__device__ __forceinline__ void StoreQuickly(const GroupOutputs& outputs, int64_t group, const Count& count,
                                             const QuickFinish& finish) {
  FinishedStatistics finished;
  finished.mean = finish.mean;
  finished.m2 = finish.m2;
  finished.inverse_std = finish.inverse_std;
  StoreOutputs(outputs, group, count.n, finished);
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_QUICK_FINISH_CUH_
