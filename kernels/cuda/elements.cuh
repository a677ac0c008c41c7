// Elements on a GPU, one at a time: the four dtypes as f32 or f64, rounding to a dtype, error-free pairs, and the
// arithmetic of the apply pass. Every operation is that of kernels/cpu (simd-inl.h, elements-inl.h, apply.cc), in the
// same order, so that the bytes are equal; compiled without contraction of a * b + c.
// In the path: included by every kernel. Pure functions.
#ifndef NORMD_KERNELS_CUDA_ELEMENTS_CUH_
#define NORMD_KERNELS_CUDA_ELEMENTS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/base/types.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// The bits of a pair of 16-bit floats, whose types std::bit_cast does not take.
template <typename Pair>
__device__ __forceinline__ unsigned AsWord(const Pair& pair) {
  static_assert(sizeof(Pair) == sizeof(unsigned));
  unsigned word = 0;
  std::memcpy(&word, &pair, sizeof(word));
  return word;
}
template <typename Pair>
__device__ __forceinline__ Pair AsPair(unsigned word) {
  static_assert(sizeof(Pair) == sizeof(unsigned));
  Pair pair;
  std::memcpy(&pair, &word, sizeof(pair));
  return pair;
}

// Element types as tags. Storage is the type of an element in memory. Narrow() takes an f32; if it is a NaN, it must be
// the canonical one. Split() and Join() convert a word of two 16-bit elements; of a NaN, Join() does not make the
// canonical one. TimesZero() multiplies the elements of a word by 0; kMagnitudes are the bits of a word without signs.
struct F32 {
  using Storage = float;
  static constexpr DType kDType = DType::kF32;
  static constexpr unsigned kMagnitudes = 0x7FFFFFFF;
  static __device__ __forceinline__ float Widen(float x) { return x; }
  static __device__ __forceinline__ float Narrow(float x) { return x; }
  static __device__ __forceinline__ unsigned TimesZero(unsigned word) {
    return __float_as_uint(__uint_as_float(word) * 0.0f);
  }
};
struct F16 {
  using Storage = uint16_t;
  static constexpr DType kDType = DType::kF16;
  static constexpr unsigned kMagnitudes = 0x7FFF7FFF;
  static __device__ __forceinline__ float Widen(uint16_t x) { return __half2float(__ushort_as_half(x)); }
  static __device__ __forceinline__ uint16_t Narrow(float x) {
    return x == x ? __half_as_ushort(__float2half_rn(x)) : uint16_t{0x7E00};
  }
  static __device__ __forceinline__ void Split(unsigned word, float& low, float& high) {
    low = Widen(static_cast<uint16_t>(word));
    high = Widen(static_cast<uint16_t>(word >> 16));
  }
  static __device__ __forceinline__ unsigned Join(float low, float high) {
    return AsWord(__floats2half2_rn(low, high));
  }
  static __device__ __forceinline__ unsigned TimesZero(unsigned word) {
    return AsWord(__hmul2(AsPair<__half2>(word), __floats2half2_rn(0, 0)));
  }
};
struct BF16 {
  using Storage = uint16_t;
  static constexpr DType kDType = DType::kBF16;
  static constexpr unsigned kMagnitudes = 0x7FFF7FFF;
  static __device__ __forceinline__ float Widen(uint16_t x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
  static __device__ __forceinline__ uint16_t Narrow(float x) {
    return x == x ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : uint16_t{0x7FC0};
  }
  static __device__ __forceinline__ void Split(unsigned word, float& low, float& high) {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xFFFF0000u);
  }
  static __device__ __forceinline__ unsigned Join(float low, float high) {
    return AsWord(__floats2bfloat162_rn(low, high));
  }
  static __device__ __forceinline__ unsigned TimesZero(unsigned word) {
    return AsWord(__hmul2(AsPair<__nv_bfloat162>(word), __floats2bfloat162_rn(0, 0)));
  }
};
struct F64 {
  using Storage = double;
  static constexpr DType kDType = DType::kF64;
  static __device__ __forceinline__ double Widen(double x) { return x; }
};

template <typename T>
inline constexpr bool kIsWide = std::is_same_v<T, F64>;

// Loads an element of T as the type that is calculated in.
template <typename Real, typename T>
__device__ __forceinline__ Real LoadAs(T /*type*/, const typename T::Storage* p) {
  return static_cast<Real>(T::Widen(*p));
}

__device__ __forceinline__ double CanonicalNaN(double x) {
  return x == x ? x : std::numeric_limits<double>::quiet_NaN();
}
__device__ __forceinline__ float CanonicalNaN(float x) { return x == x ? x : std::numeric_limits<float>::quiet_NaN(); }

// f64 as an element of T, by way of f32 for the narrow types.
__device__ __forceinline__ double Store(F64 /*type*/, double x) { return CanonicalNaN(x); }
template <typename T>
__device__ __forceinline__ typename T::Storage Store(T /*type*/, double x) {
  return T::Narrow(CanonicalNaN(static_cast<float>(x)));
}

// Rounds an f64 to nearest even at kBits bits of significand, with subnormals below 2^kMinExponent and overflow to Inf
// above `max_finite`. Adding and subtracting C = 2^52 ulp rounds at the ulp.
template <int kBits, int kMinExponent>
__device__ inline double RoundToPrecision(double x, double max_finite) {
  if (!(std::fabs(x) <= std::numeric_limits<double>::max())) return x;
  double power = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7FF0000000000000ull);
  constexpr double kLowest = std::bit_cast<double>(static_cast<uint64_t>(1023 + kMinExponent) << 52);
  if (power < kLowest) power = kLowest;
  if (!(power < 0x1p+900)) power = 0x1p+900;
  constexpr double kUlps = std::bit_cast<double>(static_cast<uint64_t>(1023 + 52 - (kBits - 1)) << 52);
  const double c = power * kUlps;
  const double magnitude = std::fabs(x);
  double rounded = (magnitude + c) - c;
  if (rounded > max_finite || !(magnitude < 0x1p+600)) rounded = std::numeric_limits<double>::infinity();
  return std::copysign(rounded, x);
}
__device__ __forceinline__ double RoundTo(F64 /*type*/, double x) { return x; }
__device__ __forceinline__ double RoundTo(F32 /*type*/, double x) { return static_cast<float>(x); }
__device__ __forceinline__ double RoundTo(BF16 /*type*/, double x) { return RoundToPrecision<8, -126>(x, 0x1.fep+127); }
__device__ __forceinline__ double RoundTo(F16 /*type*/, double x) { return RoundToPrecision<11, -14>(x, 65504.0); }

// Rounding to odd of the exact value rounded + error: see kernels/cpu/simd-inl.h.
__device__ __forceinline__ double RoundToOdd(double rounded, double error) {
  const uint64_t bits = std::bit_cast<uint64_t>(rounded);
  const bool inexact = error < 0 || error > 0;
  if (!inexact || (bits & 1) != 0) return rounded;
  const bool away = std::signbit(rounded) == std::signbit(error);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

// a * b and a + b rounded once to T. REQUIRES: a is a value of T; b is any f64.
template <typename T>
__device__ __forceinline__ double MultiplyIn(T type, double a, double b) {
  const DoublePair p = TwoProduct(a, b);
  return RoundTo(type, RoundToOdd(p.hi, p.lo));
}
template <typename T>
__device__ __forceinline__ double AddIn(T type, double a, double b) {
  const DoublePair s = TwoSum(a, b);
  return RoundTo(type, RoundToOdd(s.hi, s.lo));
}
__device__ __forceinline__ double MultiplyIn(F64 /*type*/, double a, double b) { return a * b; }
__device__ __forceinline__ double AddIn(F64 /*type*/, double a, double b) { return a + b; }

// x + scale * r rounded once to T.
template <typename T>
__device__ inline double RoundedSum(T type, double x, double r, double scale) {
  const double plain = std::fma(scale, r, x);
  const DoublePair product = TwoProduct(scale, r);
  const DoublePair sum = TwoSum(x, product.hi);
  const DoublePair errors = TwoSum(product.lo, sum.lo);
  const DoublePair total = TwoSum(sum.hi, errors.hi);
  const double odd = RoundToOdd(total.hi, total.lo + errors.lo);
  return RoundTo(type, std::isnan(odd) || odd == plain ? plain : odd);
}
__device__ __forceinline__ double RoundedSum(F64 /*type*/, double x, double r, double scale) {
  return std::fma(scale, r, x);
}

// x + scale * r held in f64, as a pair if `as_pair` (for f64 x).
__device__ inline DoublePair WideSum(double x, double r, double scale, bool as_pair) {
  const double plain = std::fma(scale, r, x);
  if (!as_pair) return {CanonicalNaN(plain), 0};
  const DoublePair product = TwoProduct(scale, r);
  const DoublePair sum = TwoSum(x, product.hi);
  const DoublePair total = Renormalise(sum.hi, sum.lo + product.lo);
  const bool finite = total.hi - total.hi == 0;
  return {CanonicalNaN(!finite || total.hi == plain ? plain : total.hi), finite ? CanonicalNaN(total.lo) : 0};
}

// ---- Apply ----

// One w and b in the type that is calculated in; the defaults are those of absent parameters.
template <typename Real>
struct Affine {
  Real weight = 1;
  Real bias = static_cast<Real>(-0.0);  // leaves every value as it is, zeros included
};

// One narrow element in f64, in three of the ways of kernels/group_statistics.h. The first is the general one.
__device__ __forceinline__ float ExactElement(double x, const GroupStatistics& s, double w, double b) {
  return CanonicalNaN(static_cast<float>(std::fma(((x - s.shift) - s.delta.hi) * s.inverse.hi, w, b)));
}
// `factor` is FactorOf(inverse, w).
__device__ __forceinline__ float ScaledElement(double x, const GroupStatistics& s, double factor, double b) {
  return CanonicalNaN(static_cast<float>(std::fma((x - s.shift) - s.delta.hi, factor, b)));
}
// REQUIRES: Folds(s). `centre` is FoldedCentre(s).
__device__ __forceinline__ float FoldedElement(double x, const GroupStatistics& s, double centre, double w, double b) {
  return CanonicalNaN(static_cast<float>(std::fma(std::fma(x, s.inverse.hi, centre), w, b)));
}

// The statistics of a group in f32, for FastElement and ScaledElement.
struct Statistics32 {
  float shift, delta, inverse;
};
__device__ __forceinline__ Statistics32 ToF32(const GroupStatistics& s) {
  return {static_cast<float>(s.shift), static_cast<float>(s.delta.hi), static_cast<float>(s.inverse.hi)};
}
__device__ __forceinline__ float FastElement(float x, const Statistics32& s, float w, float b) {
  return std::fma(((x - s.shift) - s.delta) * s.inverse, w, b);
}
__device__ __forceinline__ float ScaledElement(float x, const Statistics32& s, float factor, float b) {
  return std::fma((x - s.shift) - s.delta, factor, b);
}

// The result of a finished group. `centred`: a mean is subtracted. `all_counted`: every element entered the statistic.
__device__ __forceinline__ GroupResult ResultOf(const FinishedStatistics& finished, bool centred, bool fit_f32,
                                                bool all_counted) {
  const bool may_be_nan = !finished.finite || !fit_f32 || !all_counted;
  return {.statistics = finished.statistics,
          .in_f32 = finished.elements_in_f32 && fit_f32,
          .may_be_nan = may_be_nan,
          .folds = centred && Folds(finished.statistics),
          .in_pairs = !centred && !may_be_nan && FitF32(finished.statistics)};
}

// FastElement for groups from which nothing is subtracted (the shift is +0) unless they are centred.
template <bool kCentred>
__device__ __forceinline__ float PlainElement(float x, const Statistics32& s, float w, float b) {
  if constexpr (kCentred) return FastElement(x, s, w, b);
  return std::fma(x * s.inverse, w, b);
}

// Narrow elements in the general kernel: FAST with parameters along the positions.
struct NarrowArithmetic {
  static __device__ __forceinline__ double Normalise(double x, double /*lo*/, const GroupStatistics& s) {
    return ((x - s.shift) - s.delta.hi) * s.inverse.hi;
  }
  static __device__ __forceinline__ double ThenAffine(double x, double lo, const GroupStatistics& s, double w,
                                                      double b) {
    return Normalise(x, lo, s) * w + b;
  }
};

// f64 elements: pairs throughout. `plain` is the result of the same formula in plain f64. It has the right sign of
// zero, Inf and NaN, and is used where the pairs give NaN or the same value.
struct WideArithmetic {
  static __device__ __forceinline__ double Choose(double paired, double plain) {
    return std::isnan(paired) || paired == plain ? plain : paired;
  }
  static __device__ inline DoublePair Pairs(double x, double lo, const GroupStatistics& s, double* plain) {
    double scale = s.scale;
    double late_scale = 1;
    if (scale > 1 && std::fabs(x) >= kFarBeyond) {
      late_scale = scale;
      scale = 1;
    }
    const DoublePair value = {x * scale, lo * scale};
    *plain = ((value.hi - s.shift) - s.delta.hi) * s.inverse.hi * late_scale;
    const DoublePair shifted = TwoSum(value.hi, -s.shift);
    const DoublePair centred = TwoSum(shifted.hi, -s.delta.hi);
    const double rest = centred.lo + (shifted.lo + (value.lo - s.delta.lo));
    const DoublePair result = Multiply(Renormalise(centred.hi, rest), s.inverse);
    return {result.hi * late_scale, result.lo * late_scale};
  }
  static __device__ inline double Normalise(double x, double lo, const GroupStatistics& s) {
    double plain = 0;
    const DoublePair value = Pairs(x, lo, s, &plain);
    return Choose(value.hi, plain);
  }
  static __device__ inline double ThenAffine(double x, double lo, const GroupStatistics& s, double w, double b) {
    double plain = 0;
    const DoublePair value = Pairs(x, lo, s, &plain);
    const DoublePair scaled = TwoProduct(value.hi, w);
    const DoublePair sum = TwoSum(scaled.hi, b);
    const double paired = sum.hi + (sum.lo + std::fma(value.lo, w, scaled.lo));
    return Choose(paired, plain * w + b);
  }
};

// One element of y in TOut, from an element x of TIn.
template <typename TIn, typename TOut>
__device__ inline typename TOut::Storage GeneralElement(TOut out, double x, double lo, const GroupStatistics& s,
                                                        CastOrder order, double w, double b) {
  using Arithmetic = std::conditional_t<kIsWide<TIn>, WideArithmetic, NarrowArithmetic>;
  if (order == CastOrder::kAffineThenCast) return Store(out, Arithmetic::ThenAffine(x, lo, s, w, b));
  const double value = RoundTo(out, Arithmetic::Normalise(x, lo, s));
  return Store(out, AddIn(out, MultiplyIn(out, value, w), b));
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_ELEMENTS_CUH_
