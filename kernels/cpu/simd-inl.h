// Vector building blocks of the CPU kernels: loads and stores of the four dtypes as f64 or f32 lanes, rounding to a
// dtype, fused multiply-add, and error-free pairs. Every operation here is IEEE-exact and the same on each target, and
// that makes results equal bit for bit.
// In the path: included by the kernels (rows.cc, row_blocks.cc, channels.cc, columns.cc, apply.cc, residual.cc).
// Highway recompiles this file for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_SIMD_INL_H_
#undef NORMD_KERNELS_CPU_SIMD_INL_H_
#else
#define NORMD_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/base/types.h"
#include "kernels/summation_order.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f64 lanes, at most 8, because order::kPartials must be a multiple of every width.
using D = hn::CappedTag<double, 8>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;
using DF = hn::Rebind<float, D>;
inline constexpr D d{};
inline constexpr DU du{};
inline constexpr DF df{};
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
static_assert(order::kPartials % kLanes == 0);

HWY_INLINE V Zero() { return hn::Zero(d); }
HWY_INLINE V Set(double x) { return hn::Set(d, x); }

// a * b + c in one rounding. Targets without the instruction call std::fma lane by lane, which is slow but gives the
// same bits.
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

// a + b, where elements are converted: on the multipliers, because conversions keep the adders busy.
HWY_INLINE V AddBesideConversions(V a, V b) {
#if HWY_TARGET == HWY_AVX3
  return hn::MulAdd(a, Set(1), b);
#else
  return hn::Add(a, b);
#endif
}

// a - b, likewise.
HWY_INLINE V SubtractBesideConversions(V a, V b) {
#if HWY_TARGET == HWY_AVX3
  return hn::MulSub(a, Set(1), b);
#else
  return hn::Sub(a, b);
#endif
}

// Element types as tags. Storage is the type of an element in memory.
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

// Rounds to nearest even at kBits bits of significand, with subnormals below 2^kMinExponent and overflow to Inf above
// `max_finite`. The result is a value of the narrower type, held in f64. Adding and subtracting C = 2^52 ulp rounds at
// the ulp.
template <int kBits, int kMinExponent>
HWY_INLINE V RoundToPrecision(V v, double max_finite) {
  const auto exponent_bits = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FF0000000000000ull));
  // The exponents as f64 magnitudes, clamped to the type's range so that C is finite for NaN and Inf, too.
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

// ---- Elements in memory <-> f32 lanes, any number of them ----

#if HWY_TARGET == HWY_AVX2
// The first `count` < 4 elements of 16 bits, and zeros. A copy through the stack would have the vector's load wait for
// the stores of its parts.
HWY_INLINE uint64_t LoadBits(const uint16_t* p, int64_t count) {
  uint64_t bits = 0;
  if ((count & 2) != 0) {
    uint32_t pair = 0;
    std::memcpy(&pair, p, sizeof(pair));
    bits = pair;
    p += 2;
  }
  if ((count & 1) != 0) {
    uint16_t one = 0;  // may lie at an odd address
    std::memcpy(&one, p, sizeof(one));
    bits |= uint64_t{one} << (16 * (count & 2));
  }
  return bits;
}
// Stores the first `bytes` < 8 of `bits`, an even number.
HWY_INLINE void StoreBits(uint64_t bits, size_t bytes, char* to) {
  if ((bytes & 4) != 0) {
    const auto pair = static_cast<uint32_t>(bits);
    std::memcpy(to, &pair, sizeof(pair));
    bits >>= 32;
    to += 4;
  }
  if ((bytes & 2) != 0) {
    const auto one = static_cast<uint16_t>(bits);
    std::memcpy(to, &one, sizeof(one));
  }
}
// Stores the first `bytes` of a vector that has more, an even number.
template <class DT>
HWY_INLINE void StoreBytes(hn::Vec<DT> v, DT dt, size_t bytes, char* to) {
  if constexpr (hn::MaxLanes(DT()) * sizeof(hn::TFromD<DT>) == 32) {
    const hn::Half<DT> half;
    if ((bytes & 16) != 0) {
      hn::StoreU(hn::LowerHalf(half, v), half, reinterpret_cast<hn::TFromD<DT>*>(to));
      return StoreBytes(hn::UpperHalf(half, v), half, bytes - 16, to + 16);
    }
    StoreBytes(hn::LowerHalf(half, v), half, bytes, to);
  } else {
    const __m128i all = hn::BitCast(hn::Repartition<uint8_t, DT>(), v).raw;
    auto bits = static_cast<uint64_t>(_mm_cvtsi128_si64(all));
    if ((bytes & 8) != 0) {
      std::memcpy(to, &bits, sizeof(bits));
      bits = static_cast<uint64_t>(_mm_extract_epi64(all, 1));
      to += 8;
    }
    StoreBits(bits, bytes & 7, to);
  }
}
#endif

// Loads the first `count` lanes without reading beyond them; the other lanes are 0. REQUIRES: 0 <= count <= lanes.
template <class DT>
HWY_INLINE hn::Vec<DT> LoadFirst(DT dt, const hn::TFromD<DT>* p, int64_t count) {
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(dt, static_cast<size_t>(count)), dt, p);
#elif HWY_TARGET == HWY_AVX2
  // AVX2 has no such load for lanes of 16 bits, where Highway would load all of them.
  if constexpr (sizeof(hn::TFromD<DT>) >= 4) {
    return hn::MaskedLoad(hn::FirstN(dt, static_cast<size_t>(count)), dt, p);
  } else {
    if (count == static_cast<int64_t>(hn::MaxLanes(DT()))) return hn::LoadU(dt, p);
    if (count < 4) return {_mm_set_epi64x(0, static_cast<int64_t>(LoadBits(p, count)))};
    int64_t low = 0;
    std::memcpy(&low, p, sizeof(low));
    return {_mm_set_epi64x(static_cast<int64_t>(LoadBits(p + 4, count - 4)), low)};
  }
#else
  hn::TFromD<DT> lanes[hn::MaxLanes(DT())] = {};
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(lanes[0]));
  return hn::LoadU(dt, lanes);
#endif
}
template <class DT>
HWY_INLINE void StoreFirst(hn::Vec<DT> v, DT dt, hn::TFromD<DT>* p, int64_t count) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(dt, static_cast<size_t>(count)), dt, p);
#elif HWY_TARGET == HWY_AVX2
  if (count == static_cast<int64_t>(hn::MaxLanes(DT()))) return hn::StoreU(v, dt, p);
  // Masked stores of AVX2 take dozens of operations on some processors.
  StoreBytes(v, dt, static_cast<size_t>(count) * sizeof(*p), reinterpret_cast<char*>(p));
#else
  hn::TFromD<DT> lanes[hn::MaxLanes(DT())];
  hn::StoreU(v, dt, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(lanes[0]));
#endif
}

// The tag of the memory form of as many elements of T as DFloats has lanes: floats, or the 16 bits of each element.
template <typename T, class DFloats>
struct RawTag {
  using Type = hn::Rebind<uint16_t, DFloats>;
};
template <class DFloats>
struct RawTag<F32, DFloats> {
  using Type = DFloats;
};
template <typename T, class DFloats>
using Raw = typename RawTag<T, DFloats>::Type;

// Elements of T as f32 lanes, exactly.
template <class DFloats>
HWY_INLINE hn::Vec<DFloats> Widen(F32, DFloats, hn::Vec<DFloats> raw) {
  return raw;
}
template <class DFloats>
HWY_INLINE hn::Vec<DFloats> Widen(BF16, DFloats floats, hn::Vec<hn::Rebind<uint16_t, DFloats>> raw) {
  return hn::BitCast(floats, hn::ShiftLeft<16>(hn::PromoteTo(hn::Rebind<uint32_t, DFloats>(), raw)));
}
template <class DFloats>
HWY_INLINE hn::Vec<DFloats> Widen(F16, DFloats floats, hn::Vec<hn::Rebind<uint16_t, DFloats>> raw) {
#if HWY_ARCH_X86 && HWY_NATIVE_FMA
  return hn::PromoteTo(floats, hn::BitCast(hn::Rebind<hwy::float16_t, DFloats>(), raw));
#else
  // By hand: Highway 1.0.3 emulates f16 on the other targets and then breaks Inf and NaN.
  const hn::Rebind<uint32_t, DFloats> words;
  const hn::Rebind<int32_t, DFloats> integers;
  const auto bits = hn::PromoteTo(words, raw);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(words, 0x7FFFu)));
  // Read as f32 bits, the exponent is 112 too small; the exact product corrects it for normals and subnormals alike.
  const auto scaled = hn::BitCast(words, hn::Mul(hn::BitCast(floats, magnitude), hn::Set(floats, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(words, 0x7F800000u));  // Inf and NaN keep their payload
  const auto is_special = hn::Gt(hn::BitCast(integers, magnitude), hn::Set(integers, 0x0F7FFFFF));
  const auto chosen = hn::IfThenElse(hn::RebindMask(words, is_special), special, scaled);
  return hn::BitCast(floats, hn::Or(chosen, sign));
#endif
}

// f32 lanes rounded to T: to nearest even, overflow to Inf. REQUIRES: a NaN is the canonical one.
template <class DFloats>
HWY_INLINE hn::Vec<DFloats> Narrow(F32, DFloats, hn::Vec<DFloats> v) {
  return v;
}
// The words whose upper halves are f32 lanes rounded to bf16.
template <class DWords, class VFloats>
HWY_INLINE hn::Vec<DWords> RoundedWords(DWords words, VFloats v) {
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  return hn::Add(hn::Add(bits, hn::Set(words, 0x7FFFu)), odd);
}
template <class DFloats>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DFloats>> Narrow(BF16, DFloats, hn::Vec<DFloats> v) {
  const auto sum = RoundedWords(hn::Rebind<uint32_t, DFloats>(), v);
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(DFloats()) == 16) {
    // This takes the upper halves in one instruction; a shift and a demotion are three.
    alignas(64) static constexpr uint16_t kUpper[32] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i picked = _mm512_permutexvar_epi16(_mm512_load_si512(kUpper), sum.raw);
    return hn::Vec<hn::Rebind<uint16_t, DFloats>>{_mm512_castsi512_si256(picked)};
  }
#endif
  const auto rounded = hn::ShiftRight<16>(sum);
  return hn::DemoteTo(hn::Rebind<uint16_t, DFloats>(), hn::BitCast(hn::Rebind<int32_t, DFloats>(), rounded));
}
template <class DFloats>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DFloats>> Narrow(F16, DFloats floats, hn::Vec<DFloats> v) {
#if HWY_ARCH_X86 && HWY_NATIVE_FMA
  return hn::BitCast(hn::Rebind<uint16_t, DFloats>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DFloats>(), v));
#else
  const hn::Rebind<uint32_t, DFloats> words;
  const hn::Rebind<int32_t, DFloats> integers;
  const auto bits = hn::BitCast(words, v);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(words, 0x80000000u)));
  const auto magnitude = hn::And(bits, hn::Set(words, 0x7FFFFFFFu));
  // Normals: the exponent is made 112 smaller and half an ulp is added; an overflow gives the bits of Inf by itself.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(words, 0xC8000FFFu)), odd));
  // Subnormals: the ulp of 0.5 in f32 is their ulp, so the sum with 0.5 rounds there.
  const auto sum = hn::Add(hn::BitCast(floats, magnitude), hn::Set(floats, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(words, sum), hn::Set(words, 0x3F000000u));
  const auto nan = hn::Set(words, 0x7E00u);
  const auto signed_magnitude = hn::BitCast(integers, magnitude);
  const auto above = [&](int32_t limit)
                         HWY_ATTR { return hn::RebindMask(words, hn::Gt(signed_magnitude, hn::Set(integers, limit))); };
  auto half = hn::IfThenElse(above(0x387FFFFF), normal, subnormal);
  half = hn::IfThenElse(above(0x477FFFFF), hn::Set(words, 0x7C00u), half);
  half = hn::IfThenElse(above(0x7F800000), nan, half);
  return hn::DemoteTo(hn::Rebind<uint16_t, DFloats>(), hn::BitCast(integers, hn::Or(half, sign)));
#endif
}

// Highway's Ne is false for NaN on x86.
HWY_INLINE M IsNan(V v) { return hn::Not(hn::Eq(v, v)); }

// NaN is written with one bit pattern: which NaN an operation makes differs between processors.
template <class DT>
HWY_INLINE hn::Vec<DT> CanonicalNaN(DT dt, hn::Vec<DT> v) {
  return hn::IfThenElse(hn::Eq(v, v), v, hn::Set(dt, std::numeric_limits<hn::TFromD<DT>>::quiet_NaN()));
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

// ---- Elements as lanes of the type that is calculated in: f64 for EXACT, f32 for FAST and for 16-bit types ----

template <typename Real>
struct LanesOf;
template <>
struct LanesOf<double> {
  using Tag = D;
  using Floats = DF;
};
template <>
struct LanesOf<float> {
  using Tag = hn::CappedTag<float, 16>;
  using Floats = Tag;
};
template <typename Real>
using Tag = typename LanesOf<Real>::Tag;
template <typename Real>
using Floats = typename LanesOf<Real>::Floats;
template <typename Real>
using Vector = hn::Vec<Tag<Real>>;
template <typename Real>
inline constexpr int64_t kLanesOf = static_cast<int64_t>(hn::MaxLanes(Tag<Real>()));

HWY_INLINE Vector<float> Fma(Vector<float> a, Vector<float> b, Vector<float> c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const Tag<float> tag;
  HWY_ALIGN float la[kLanesOf<float>], lb[kLanesOf<float>], lc[kLanesOf<float>];
  hn::Store(a, tag, la);
  hn::Store(b, tag, lb);
  hn::Store(c, tag, lc);
  for (int64_t i = 0; i < kLanesOf<float>; ++i) la[i] = std::fma(la[i], lb[i], lc[i]);
  return hn::Load(tag, la);
#endif
}

// c - a * b and a * b - c in one rounding.
HWY_INLINE Vector<float> NegatedFma(Vector<float> a, Vector<float> b, Vector<float> c) {
#if HWY_NATIVE_FMA
  return hn::NegMulAdd(a, b, c);
#else
  return Fma(hn::Neg(a), b, c);
#endif
}
HWY_INLINE Vector<float> FmaLess(Vector<float> a, Vector<float> b, Vector<float> c) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, c);
#else
  return Fma(a, b, hn::Neg(c));
#endif
}

HWY_INLINE V Promote(hn::Vec<DF> v, double /*to*/) { return hn::PromoteTo(d, v); }
HWY_INLINE Vector<float> Promote(Vector<float> v, float /*to*/) { return v; }

// The lanes as f32. A NaN becomes the canonical one; kMayBeNan false: there is none.
template <bool kMayBeNan>
HWY_INLINE hn::Vec<DF> Demote(V v) {
  return kMayBeNan ? CanonicalNaN(df, ToF32(v)) : ToF32(v);
}
template <bool kMayBeNan>
HWY_INLINE Vector<float> Demote(Vector<float> v) {
  return kMayBeNan ? CanonicalNaN(Tag<float>(), v) : v;
}

template <typename Real, typename T>
HWY_INLINE Vector<Real> LoadAs(T tag, const typename T::Storage* HWY_RESTRICT p) {
  return Promote(Widen(tag, Floats<Real>(), hn::LoadU(Raw<T, Floats<Real>>(), p)), Real());
}
template <typename Real, typename T>
HWY_INLINE Vector<Real> LoadFirstAs(T tag, const typename T::Storage* HWY_RESTRICT p, int64_t count) {
  return Promote(Widen(tag, Floats<Real>(), LoadFirst(Raw<T, Floats<Real>>(), p, count)), Real());
}
// Loads all lanes, or the first `count` of them if that is fewer; the other lanes are 0. Whole vectors have a branch of
// their own on targets where a partial load takes several times as long.
template <typename Real, typename T>
HWY_INLINE Vector<Real> LoadUpToAs(T tag, const typename T::Storage* HWY_RESTRICT p, int64_t count) {
  constexpr bool kIsMasked =
      HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(typename T::Storage) >= sizeof(float));
  return !kIsMasked && count >= kLanesOf<Real> ? LoadAs<Real>(tag, p) : LoadFirstAs<Real>(tag, p, count);
}
template <typename Real>
HWY_INLINE V LoadAs(F64, const double* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}
template <typename Real>
HWY_INLINE V LoadFirstAs(F64, const double* HWY_RESTRICT p, int64_t count) {
  return LoadFirst(d, p, count);
}

// Two vectors of elements in the order that is fastest for T: one vector after the other, but for bf16 the elements
// with even indices and those with odd indices. A shift and a mask separate the two bf16 in each 32 bits, and join them
// again, whereas adjacent elements would have to cross lanes.
struct TwoVectors {
  Vector<float> first, second;
};
template <typename T>
HWY_INLINE TwoVectors LoadTwo(T tag, const typename T::Storage* HWY_RESTRICT p) {
  return {LoadAs<float>(tag, p), LoadAs<float>(tag, p + kLanesOf<float>)};
}
// The parameters of such elements, in the same order.
template <typename T>
HWY_INLINE TwoVectors LoadTwoFor(T /*tag*/, const float* HWY_RESTRICT p) {
  return LoadTwo(F32(), p);
}
// The vectors rounded to T, as Narrow does. REQUIRES: as there.
template <typename T>
HWY_INLINE void StoreTwo(T tag, TwoVectors v, typename T::Storage* HWY_RESTRICT p) {
  const Tag<float> floats;
  const Raw<T, Tag<float>> raw;
  hn::StoreU(Narrow(tag, floats, v.first), raw, p);
  hn::StoreU(Narrow(tag, floats, v.second), raw, p + kLanesOf<float>);
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE TwoVectors LoadTwo(BF16, const uint16_t* HWY_RESTRICT p) {
  const Tag<float> floats;
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto both = hn::BitCast(words, hn::LoadU(hn::Repartition<uint16_t, Tag<float>>(), p));
  return {hn::BitCast(floats, hn::ShiftLeft<16>(both)),
          hn::BitCast(floats, hn::And(both, hn::Set(words, 0xFFFF0000u)))};
}
HWY_INLINE TwoVectors LoadTwoFor(BF16, const float* HWY_RESTRICT p) {
  const Tag<float> floats;
  const TwoVectors v = LoadTwo(F32(), p);
  return {hn::ConcatEven(floats, v.second, v.first), hn::ConcatOdd(floats, v.second, v.first)};
}
HWY_INLINE void StoreTwo(BF16, TwoVectors v, uint16_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto even = hn::ShiftRight<16>(RoundedWords(words, v.first));
  const auto odd = hn::And(RoundedWords(words, v.second), hn::Set(words, 0xFFFF0000u));
  const hn::Repartition<uint16_t, Tag<float>> raw;
  hn::StoreU(hn::BitCast(raw, hn::Or(even, odd)), raw, p);
}
#endif

HWY_INLINE V LoadAsF64(F64, const double* HWY_RESTRICT p) { return hn::LoadU(d, p); }
template <typename T>
HWY_INLINE V LoadAsF64(T tag, const typename T::Storage* HWY_RESTRICT p) {
  return LoadAs<double>(tag, p);
}
// One element as f64, at any alignment.
template <typename T>
HWY_INLINE double ElementAt(T tag, const typename T::Storage* x) {
  return hn::GetLane(LoadFirstAs<double>(tag, x, 1));
}
HWY_INLINE double ElementAt(F32 /*tag*/, const float* x) {
  float value;
  std::memcpy(&value, x, sizeof(value));
  return value;
}
HWY_INLINE double ElementAt(BF16 /*tag*/, const uint16_t* x) {
  uint16_t half;
  std::memcpy(&half, x, sizeof(half));
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Loads all lanes if `count` allows it, else the first `count`; the other lanes are 0.
template <typename T>
HWY_INLINE V LoadUpTo(T tag, const typename T::Storage* p, int64_t count) {
  return HWY_LIKELY(count >= kLanes) ? LoadAsF64(tag, p) : LoadFirstAs<double>(tag, p, count);
}
HWY_INLINE void StoreUpTo(F64, V v, double* HWY_RESTRICT p, int64_t count) {
  const V canonical = CanonicalNaN(d, v);
  if (HWY_LIKELY(count >= kLanes)) {
    hn::StoreU(canonical, d, p);
  } else {
    StoreFirst(canonical, d, p, count);
  }
}
template <typename T>
HWY_INLINE void StoreUpTo(T tag, V v, typename T::Storage* HWY_RESTRICT p, int64_t count) {
  const auto raw = Narrow(tag, df, Demote<true>(v));
  if (HWY_LIKELY(count >= kLanes)) {
    hn::StoreU(raw, Raw<T, DF>(), p);
  } else {
    StoreFirst(raw, Raw<T, DF>(), p, count);
  }
}

// A lane is true where its mask byte is not 0. Reads one byte for each lane.
template <typename Real>
HWY_INLINE hn::Mask<Tag<Real>> LoadMaskBytes(const uint8_t* HWY_RESTRICT p) {
  const Tag<Real> real;
  const hn::Rebind<int32_t, Floats<Real>> integers;
  const auto words = hn::PromoteTo(integers, hn::LoadU(hn::Rebind<uint8_t, Floats<Real>>(), p));
  if constexpr (std::is_same_v<Real, float>) {
    return hn::RebindMask(real, hn::Ne(words, hn::Zero(integers)));
  } else {
    return hn::Ne(hn::PromoteTo(real, words), hn::Zero(real));
  }
}

// The number hi + lo of each lane; |lo| is at most half an ulp of hi after Renormalise. The functions are those of
// kernels/pairs.h, lane by lane.
struct Pair {
  V hi, lo;
};

// Knuth: hi = a + b rounded, lo its exact error.
HWY_INLINE Pair TwoSum(V a, V b) {
  const V s = hn::Add(a, b);
  const V bb = hn::Sub(s, a);
  return {s, hn::Add(hn::Sub(a, hn::Sub(s, bb)), hn::Sub(b, bb))};
}
// Dekker: the same for |a| >= |b| or a = 0.
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

// Rounding to odd: the exact value is rounded + error. If it is not representable and the significand of `rounded` is
// even, the result is the neighbour of `rounded` in the direction of the error, whose significand is odd. Rounding that
// once more to a type of at most 51 bits equals rounding the exact value once.
HWY_INLINE V RoundToOdd(V rounded, V error) {
  const auto bits = hn::BitCast(du, rounded);
  const M inexact = hn::Or(hn::Lt(error, Zero()), hn::Gt(error, Zero()));  // false for NaN
  const M even = hn::RebindMask(d, hn::Eq(hn::And(bits, hn::Set(du, 1)), hn::Zero(du)));
  const M away = hn::Eq(hn::CopySign(Set(1.0), rounded), hn::CopySign(Set(1.0), error));
  const auto one = hn::Set(du, 1);
  const auto stepped = hn::IfThenElse(away, hn::BitCast(d, hn::Add(bits, one)), hn::BitCast(d, hn::Sub(bits, one)));
  return hn::IfThenElse(hn::And(inexact, even), stepped, rounded);
}

// v in 24 bits, of which the last is set if anything was cut off, which is rounding to odd, too: rounding that to a
// type of fewer bits rounds v once.
HWY_INLINE V CutTo24Bits(V v) {
  const auto low = hn::Set(du, uint64_t{0x1FFFFFFF});
  const auto bits = hn::BitCast(du, v);
  const auto is_cut = hn::And(hn::Add(hn::And(bits, low), low), hn::Set(du, uint64_t{0x20000000}));
  return hn::BitCast(d, hn::Or(hn::AndNot(low, bits), is_cut));
}

// a * b and a + b rounded once to T. REQUIRES: a is a value of T; b is any f64.
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
