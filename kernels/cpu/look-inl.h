// A quick look at a few elements that have one factor and one offset in each lane: y in one multiply-add, stored, and
// the least distance to a middle. In the path: included by nearest_columns.cc. Highway recompiles this file for each
// instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_LOOK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_LOOK_INL_H_
#undef NORMD_KERNELS_CPU_LOOK_INL_H_
#else
#define NORMD_KERNELS_CPU_LOOK_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// The type that elements of T are calculated in, and the elements of one step.
template <typename T>
using LookReal = std::conditional_t<std::is_same_v<T, F32>, double, float>;
template <typename T>
inline constexpr int64_t kStepElements = 2 * kLanesOf<LookReal<T>>;

// Two vectors of numbers or elements, in the order of LoadTwo.
template <typename T>
struct Both {
  Vector<LookReal<T>> first, second;
};
HWY_INLINE Both<F32> LoadElements(F32 tag, const float* HWY_RESTRICT p) {
  return {LoadAs<double>(tag, p), LoadAs<double>(tag, p + kLanes)};
}
template <typename T>
HWY_INLINE Both<T> LoadElements(T tag, const uint16_t* HWY_RESTRICT p) {
  const TwoVectors v = LoadTwo(tag, p);
  return {v.first, v.second};
}
HWY_INLINE Both<F32> LoadNumbers(F32, const double* HWY_RESTRICT p) {
  return {hn::LoadU(d, p), hn::LoadU(d, p + kLanes)};
}
template <typename T>
HWY_INLINE Both<T> LoadNumbers(T tag, const float* HWY_RESTRICT p) {
  const TwoVectors v = LoadTwoFor(tag, p);
  return {v.first, v.second};
}
template <typename T>
HWY_INLINE Both<T> SetBoth(T /*tag*/, LookReal<T> value) {
  const auto v = hn::Set(Tag<LookReal<T>>(), value);
  return {v, v};
}

// Stores a vector, past the caches if kStream.
template <bool kStream, class DT>
HWY_INLINE void StoreVector(hn::Vec<DT> v, DT dt, hn::TFromD<DT>* HWY_RESTRICT p) {
  kStream ? hn::Stream(v, dt, p) : hn::StoreU(v, dt, p);
}

// Rounds to T and stores. An element that is a middle may go either way. REQUIRES: no NaN.
template <bool kStream>
HWY_INLINE void StoreBoth(F32, const Both<F32>& v, float* HWY_RESTRICT p) {
  if constexpr (kStream) {
    const Tag<float> floats;
    return hn::Stream(hn::Combine(floats, ToF32(v.second), ToF32(v.first)), floats, p);
  }
  hn::StoreU(ToF32(v.first), df, p);
  hn::StoreU(ToF32(v.second), df, p + kLanes);
}
template <bool kStream>
HWY_INLINE void StoreBoth(F16 tag, const Both<F16>& v, uint16_t* HWY_RESTRICT p) {
  const Tag<float> floats;
  const Raw<F16, Tag<float>> raw;
  StoreVector<kStream>(Narrow(tag, floats, v.first), raw, p);
  StoreVector<kStream>(Narrow(tag, floats, v.second), raw, p + kLanesOf<float>);
}
template <bool kStream>
HWY_INLINE void StoreBoth(BF16, const Both<BF16>& v, uint16_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto half = hn::Set(words, 0x8000u);
  const auto even = hn::ShiftRight<16>(hn::Add(hn::BitCast(words, v.first), half));
  const auto odd = hn::And(hn::Add(hn::BitCast(words, v.second), half), hn::Set(words, 0xFFFF0000u));
  const hn::Repartition<uint16_t, Tag<float>> raw;
  StoreVector<kStream>(hn::BitCast(raw, hn::Or(even, odd)), raw, p);
}

// The middle between the two values of T that y lies between.
HWY_INLINE V MiddleBeside(F32, V y) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_castpd_si512(y.raw), _mm512_set1_epi64(0x1FFFFFFF),
                                                         _mm512_set1_epi64(0x10000000), 0xBA))};
#else
  const auto above = hn::AndNot(hn::Set(du, uint64_t{0x1FFFFFFF}), hn::BitCast(du, y));
  return hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{0x10000000})));
#endif
}
template <typename T>
HWY_INLINE Vector<float> MiddleBeside(T, Vector<float> y) {
  constexpr uint32_t kHalf = std::is_same_v<T, BF16> ? 0x8000 : 0x1000;
#if HWY_TARGET == HWY_AVX3
  return Vector<float>{_mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_castps_si512(y.raw), _mm512_set1_epi32(2 * kHalf - 1), _mm512_set1_epi32(kHalf), 0xBA))};
#else
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto above = hn::AndNot(hn::Set(words, 2 * kHalf - 1), hn::BitCast(words, y));
  return hn::BitCast(Tag<float>(), hn::Or(above, hn::Set(words, kHalf)));
#endif
}

// The smaller of `so_far`, which is not negative, and |value|.
HWY_INLINE V Lesser(V so_far, V value) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_range_pd(so_far.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(hn::Abs(value), so_far);
#endif
}
HWY_INLINE Vector<float> Lesser(Vector<float> so_far, Vector<float> value) {
#if HWY_TARGET == HWY_AVX3
  return Vector<float>{_mm512_range_ps(so_far.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(hn::Abs(value), so_far);
#endif
}

// The elements of a step as they lie in memory, in unsigned integers.
template <typename T>
using Bits = hn::Repartition<hwy::MakeUnsigned<typename T::Storage>, Tag<float>>;

// The numbers of a step of columns, or of one position in every lane, and what its elements have come to.
template <typename T>
struct Look {
  using Real = LookReal<T>;
  using Storage = typename T::Storage;
  Both<T> factor, offset, least;  // the least distance to a middle
  hn::Vec<Bits<T>> most;          // the largest |x|, which is an order of integers, too; NaN is the largest

  HWY_INLINE Look(T tag, const Both<T>& of_factor, const Both<T>& of_offset) : factor(of_factor), offset(of_offset) {
    Clear(tag);
  }
  HWY_INLINE void Clear(T tag) {
    least = SetBoth(tag, std::numeric_limits<Real>::infinity());
    most = hn::Zero(Bits<T>());
  }

  // Calculates and stores one step.
  template <bool kStream>
  HWY_INLINE void Step(T tag, const Storage* HWY_RESTRICT x, Storage* HWY_RESTRICT y) {
    using Unsigned = hn::TFromD<Bits<T>>;
    constexpr auto kMagnitude = static_cast<Unsigned>(static_cast<Unsigned>(~Unsigned{0}) >> 1);
    const auto bits = hn::LoadU(Bits<T>(), reinterpret_cast<const Unsigned*>(x));
    most = hn::Max(most, hn::And(bits, hn::Set(Bits<T>(), kMagnitude)));
    const Both<T> of = LoadElements(tag, x);
    const Both<T> value = {Fma(of.first, factor.first, offset.first), Fma(of.second, factor.second, offset.second)};
    least.first = Lesser(least.first, hn::Sub(value.first, MiddleBeside(tag, value.first)));
    least.second = Lesser(least.second, hn::Sub(value.second, MiddleBeside(tag, value.second)));
    StoreBoth<kStream>(tag, value, y);
  }

  // The bound of the error of each lane, |y| <= |x| |factor| + |offset|. Inf or NaN where an x is not finite.
  HWY_INLINE Both<T> Limit(T tag, const Both<T>& fixed, const Both<T>& relative) const {
    HWY_ALIGN Storage elements[kStepElements<T>];
    hn::Store(most, Bits<T>(), reinterpret_cast<hn::TFromD<Bits<T>>*>(elements));
    const Both<T> x = LoadElements(tag, elements);
    const auto limit = [](auto of_x, auto f, auto g, auto of_fixed, auto of_relative)
                           HWY_ATTR { return Fma(Fma(of_x, hn::Abs(f), hn::Abs(g)), of_relative, of_fixed); };
    return {limit(x.first, factor.first, offset.first, fixed.first, relative.first),
            limit(x.second, factor.second, offset.second, fixed.second, relative.second)};
  }

  // A bit for each lane in which an element may lie near a middle: those of `first`, then those of `second`.
  HWY_INLINE uint64_t Near(const Both<T>& limit) const {
    const Tag<Real> real;
    const auto first = hn::Not(hn::Gt(least.first, limit.first));
    const auto second = hn::Not(hn::Gt(least.second, limit.second));
    if (HWY_LIKELY(hn::AllFalse(real, hn::Or(first, second)))) return 0;
    uint8_t bits[2][8] = {};
    hn::StoreMaskBits(real, first, bits[0]);
    hn::StoreMaskBits(real, second, bits[1]);
    uint64_t words[2];
    std::memcpy(words, bits, sizeof(words));
    return words[0] | words[1] << kLanesOf<Real>;
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_LOOK_INL_H_
