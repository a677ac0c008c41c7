// Vector building blocks of the CPU kernels, recompiled by Highway for each instruction set: loads and stores of the
// four dtypes as f64 lanes, rounding to a dtype, fused multiply-add, and error-free pairs. Every operation here is
// IEEE-exact and the same on each target; that is what makes results equal bit for bit. Per-target include guard; no
// state.
#if defined(NORMD_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_SIMD_INL_H_
#undef NORMD_KERNELS_CPU_SIMD_INL_H_
#else
#define NORMD_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/attributes.h"
#include "kernels/order.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f64 lanes, at most 8 of them: kPartials of order.h is a multiple of every width.
using D = hn::CappedTag<double, 8>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;
using DF = hn::Rebind<float, D>;
using D32 = hn::Rebind<uint32_t, D>;
using DI32 = hn::Rebind<int32_t, D>;
using D16 = hn::Rebind<uint16_t, D>;
using D8 = hn::Rebind<uint8_t, D>;
inline constexpr D d{};
inline constexpr DU du{};
inline constexpr DF df{};
inline constexpr D32 d32{};
inline constexpr DI32 di32{};
inline constexpr D16 d16{};
inline constexpr D8 d8{};
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
static_assert(order::kPartials % kLanes == 0);

HWY_INLINE V Zero() { return hn::Zero(d); }
HWY_INLINE V Set(double x) { return hn::Set(d, x); }

// a * b + c in one rounding. Targets without the instruction go through std::fma lane by lane: slow, the same bits.
HWY_INLINE V Fma(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN double la[kLanes], lb[kLanes], lc[kLanes];
  hn::Store(a, d, la);
  hn::Store(b, d, lb);
  hn::Store(c, d, lc);
  for (int64_t i = 0; i < kLanes; ++i) la[i] = std::fma(la[i], lb[i], lc[i]);
  return hn::Load(d, la);
#endif
}

// Element types as tags: Storage is what memory holds.
struct F32 {
  using Storage = float;
};
struct F16 {
  using Storage = uint16_t;
};
struct BF16 {
  using Storage = uint16_t;
};
struct F64 {
  using Storage = double;
};

HWY_INLINE V LoadAsF64(F64, const double* HWY_RESTRICT p) { return hn::LoadU(d, p); }
HWY_INLINE V LoadAsF64(F32, const float* HWY_RESTRICT p) { return hn::PromoteTo(d, hn::LoadU(df, p)); }
HWY_INLINE V LoadAsF64(BF16, const uint16_t* HWY_RESTRICT p) {
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, p));
  return hn::PromoteTo(d, hn::BitCast(df, hn::ShiftLeft<16>(bits)));
}
// By hand: Highway 1.0.3 emulates f16 on some targets and then breaks Inf and NaN.
HWY_INLINE V LoadAsF64(F16, const uint16_t* HWY_RESTRICT p) {
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, p));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d32, 0x7FFFu)));
  // As f32 bits the exponent is 112 too small; the exact product rights it for normals and subnormals alike.
  const auto scaled = hn::BitCast(d32, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(d32, 0x7F800000u));  // Inf and NaN keep their payload
  const auto is_special = hn::Gt(hn::BitCast(di32, magnitude), hn::Set(di32, 0x0F7FFFFF));
  const auto chosen = hn::IfThenElse(hn::RebindMask(d32, is_special), special, scaled);
  return hn::PromoteTo(d, hn::BitCast(df, hn::Or(chosen, sign)));
}

// Rounds to nearest even at `kBits` bits of significand with subnormals below 2^kMinExponent, overflow to Inf above
// `max_finite`; the result is a value of the type, held in f64. Adding and subtracting C = 2^52 ulp rounds at the ulp.
template <int kBits, int kMinExponent>
HWY_INLINE V RoundToPrecision(V v, double max_finite) {
  const auto exponent_bits = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FF0000000000000ull));
  // Exponents as f64 magnitudes: clamp to the type's range so that C is finite for NaN and Inf, too.
  V power = hn::BitCast(d, exponent_bits);
  const double lowest = std::ldexp(1.0, kMinExponent);
  const double highest = 0x1p+900;
  power = hn::IfThenElse(hn::Lt(power, Set(lowest)), Set(lowest), power);
  power = hn::IfThenElse(hn::Lt(power, Set(highest)), power, Set(highest));  // NaN compares false
  const V c = hn::Mul(power, Set(std::ldexp(1.0, 52 - (kBits - 1))));
  const V magnitude = hn::Abs(v);
  V rounded = hn::Sub(hn::Add(magnitude, c), c);
  const V infinity = hn::BitCast(d, hn::Set(du, 0x7FF0000000000000ull));
  rounded = hn::IfThenElse(hn::Gt(rounded, Set(max_finite)), infinity, rounded);
  rounded = hn::IfThenElse(hn::Lt(magnitude, Set(0x1p+600)), rounded, hn::IfThenElse(hn::Eq(v, v), infinity, v));
  return hn::CopySign(rounded, v);
}

HWY_INLINE V RoundTo(F64, V v) { return v; }
HWY_INLINE V RoundTo(F32, V v) { return RoundToPrecision<24, -126>(v, 0x1.fffffep+127); }
HWY_INLINE V RoundTo(BF16, V v) { return RoundToPrecision<8, -126>(v, 0x1.fep+127); }
HWY_INLINE V RoundTo(F16, V v) { return RoundToPrecision<11, -14>(v, 65504.0); }

// NaN is written with one pattern: which NaN an operation makes differs between processors.
HWY_INLINE V CanonicalNaN(V v) {
  return hn::IfThenElse(hn::Eq(v, v), v, hn::BitCast(d, hn::Set(du, 0x7FF8000000000000ull)));
}

// f64 -> f32, to nearest even, Inf and NaN kept. Highway's emulation saturates instead.
HWY_INLINE hn::Vec<DF> ToF32(V v) {
#if HWY_NATIVE_FMA
  return hn::DemoteTo(df, v);
#else
  HWY_ALIGN double wide[kLanes];
  HWY_ALIGN float narrow[kLanes];
  hn::Store(v, d, wide);
  for (int64_t i = 0; i < kLanes; ++i) narrow[i] = static_cast<float>(wide[i]);
  return hn::LoadU(df, narrow);
#endif
}

HWY_INLINE void StoreFromF64(F64, V v, double* HWY_RESTRICT p) { hn::StoreU(CanonicalNaN(v), d, p); }
HWY_INLINE void StoreFromF64(F32, V v, float* HWY_RESTRICT p) { hn::StoreU(ToF32(CanonicalNaN(v)), df, p); }
HWY_INLINE void StoreFromF64(BF16, V v, uint16_t* HWY_RESTRICT p) {
  // Rounded first, so the conversion to f32 and the cut to 16 bits are exact; the canonical NaN is 0x7FC0 either way.
  const auto bits = hn::BitCast(d32, ToF32(RoundTo(BF16(), CanonicalNaN(v))));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, hn::ShiftRight<16>(bits))), d16, p);
}
HWY_INLINE void StoreFromF64(F16, V v, uint16_t* HWY_RESTRICT p) {
  const auto single = ToF32(RoundTo(F16(), CanonicalNaN(v)));
  const auto bits = hn::BitCast(d32, single);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(d32, 0x80000000u)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFFFFFu));
  // The value is exact in f16: multiplying by 2^-112 puts normals and subnormals on f16's exponent, shifted by 13.
  const auto scaled = hn::BitCast(d32, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p-112f)));
  const auto finite = hn::ShiftRight<13>(scaled);
  const auto special = hn::Or(hn::Set(d32, 0x7C00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 0x03FFu)));
  const auto is_special = hn::Gt(hn::BitCast(di32, magnitude), hn::Set(di32, 0x7F7FFFFF));
  const auto half = hn::Or(hn::IfThenElse(hn::RebindMask(d32, is_special), special, finite), sign);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, half)), d16, p);
}

// The first `count` < kLanes elements; the other lanes hold `fill`.
template <typename T>
HWY_INLINE V LoadPartial(T tag, const typename T::Storage* p, int64_t count, typename T::Storage fill) {
  typename T::Storage lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = fill;
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(lanes[0]));
  return LoadAsF64(tag, lanes);
}
template <typename T>
HWY_INLINE void StorePartial(T tag, V v, typename T::Storage* p, int64_t count) {
  typename T::Storage lanes[kLanes];
  StoreFromF64(tag, v, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(lanes[0]));
}
// All lanes if there are as many, else the first `count`.
template <typename T>
HWY_INLINE V LoadUpTo(T tag, const typename T::Storage* p, int64_t count) {
  return HWY_LIKELY(count >= kLanes) ? LoadAsF64(tag, p) : LoadPartial(tag, p, count, typename T::Storage{});
}
template <typename T>
HWY_INLINE void StoreUpTo(T tag, V v, typename T::Storage* p, int64_t count) {
  if (HWY_LIKELY(count >= kLanes)) {
    StoreFromF64(tag, v, p);
  } else {
    StorePartial(tag, v, p, count);
  }
}

// True lanes where the mask byte is not 0. Reads kLanes bytes.
HWY_INLINE M LoadMaskBytes(const uint8_t* HWY_RESTRICT p) {
  const auto words = hn::PromoteTo(di32, hn::LoadU(d8, p));
  return hn::Ne(hn::PromoteTo(d, words), Zero());
}

// Sums without rounding error: value = hi + lo, |lo| at most half an ulp of hi after Renormalise.
struct Pair {
  V hi, lo;
};

// Knuth: hi = a + b rounded, lo its exact error.
HWY_INLINE Pair TwoSum(V a, V b) {
  const V s = hn::Add(a, b);
  const V bb = hn::Sub(s, a);
  return {s, hn::Add(hn::Sub(a, hn::Sub(s, bb)), hn::Sub(b, bb))};
}
// Dekker: the same where |a| >= |b| or a = 0.
HWY_INLINE Pair Renormalise(V a, V b) {
  const V s = hn::Add(a, b);
  return {s, hn::Sub(b, hn::Sub(s, a))};
}
HWY_INLINE Pair TwoProduct(V a, V b) {
  const V p = hn::Mul(a, b);
  return {p, Fma(a, b, hn::Neg(p))};
}
HWY_INLINE Pair Add(Pair a, Pair b) {
  const Pair s = TwoSum(a.hi, b.hi);
  return Renormalise(s.hi, hn::Add(s.lo, hn::Add(a.lo, b.lo)));
}
HWY_INLINE Pair Multiply(Pair a, Pair b) {
  const Pair p = TwoProduct(a.hi, b.hi);
  return Renormalise(p.hi, Fma(a.hi, b.lo, Fma(a.lo, b.hi, p.lo)));
}

// `rounded` with the information that an exact value lay `error` beside it: an even significand steps towards the error
// and becomes odd. Rounding that once more to a type of at most 51 bits equals rounding the exact value once.
HWY_INLINE V RoundToOdd(V rounded, V error) {
  const auto bits = hn::BitCast(du, rounded);
  const M inexact = hn::Or(hn::Lt(error, Zero()), hn::Gt(error, Zero()));  // false for NaN
  const M even = hn::RebindMask(d, hn::Eq(hn::And(bits, hn::Set(du, 1)), hn::Zero(du)));
  const M away = hn::Eq(hn::CopySign(Set(1.0), rounded), hn::CopySign(Set(1.0), error));
  const auto one = hn::Set(du, 1);
  const auto stepped = hn::IfThenElse(away, hn::BitCast(d, hn::Add(bits, one)), hn::BitCast(d, hn::Sub(bits, one)));
  return hn::IfThenElse(hn::And(inexact, even), stepped, rounded);
}

// a * b and a + b rounded once to T, for a of T and b any f64.
template <typename T>
HWY_INLINE V MultiplyIn(T tag, V a, V b) {
  const Pair p = TwoProduct(a, b);
  return RoundTo(tag, RoundToOdd(p.hi, p.lo));
}
template <typename T>
HWY_INLINE V AddIn(T tag, V a, V b) {
  const Pair s = TwoSum(a, b);
  return RoundTo(tag, RoundToOdd(s.hi, s.lo));
}
HWY_INLINE V MultiplyIn(F64, V a, V b) { return hn::Mul(a, b); }
HWY_INLINE V AddIn(F64, V a, V b) { return hn::Add(a, b); }

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_SIMD_INL_H_
