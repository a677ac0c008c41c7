// A quick look at a few f32 elements that have one factor and one offset in each lane: y in one multiply-add, stored,
// and the least distance to a middle; and what it has in common with the look at 16-bit elements (pair_look-inl.h). In
// the path: included by nearest_columns.cc. Highway recompiles this file for each instruction set, hence the per-target
// include guard. No state.
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

// Rounds to f32 and stores. An element that is a middle may go either way. REQUIRES: no NaN.
template <bool kStream>
HWY_INLINE void StoreBoth(const Both<F32>& v, float* HWY_RESTRICT p) {
  if constexpr (kStream) {
    const Tag<float> floats;
    return hn::Stream(hn::Combine(floats, ToF32(v.second), ToF32(v.first)), floats, p);
  }
  hn::StoreU(ToF32(v.first), df, p);
  hn::StoreU(ToF32(v.second), df, p + kLanes);
}

// The middle between the two values of f32 that y lies between.
HWY_INLINE V MiddleBeside(V y) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_castpd_si512(y.raw), _mm512_set1_epi64(0x1FFFFFFF),
                                                         _mm512_set1_epi64(0x10000000), 0xBA))};
#else
  const auto above = hn::AndNot(hn::Set(du, uint64_t{0x1FFFFFFF}), hn::BitCast(du, y));
  return hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{0x10000000})));
#endif
}

// The bits of two masks, one after the other.
template <class DT, class MaskT>
HWY_INLINE uint64_t BitsOf(DT dt, MaskT first, MaskT second) {
  uint8_t bits[2][8] = {};
  hn::StoreMaskBits(dt, first, bits[0]);
  hn::StoreMaskBits(dt, second, bits[1]);
  uint64_t words[2];
  std::memcpy(words, bits, sizeof(words));
  return words[0] | words[1] << hn::MaxLanes(dt);
}

// The smaller of `so_far`, which is not negative, and |value|.
HWY_INLINE V Lesser(V so_far, V value) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_range_pd(so_far.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(hn::Abs(value), so_far);
#endif
}

// The numbers of a step of columns of f32, or of one position in every lane, and what its elements have come to.
struct Look {
  using Words = hn::Repartition<uint32_t, Tag<float>>;
  Both<F32> factor, offset, least;  // the least distance to a middle
  hn::Vec<Words> most;              // the largest |x|, which is an order of integers, too; NaN is the largest

  HWY_INLINE Look(const Both<F32>& of_factor, const Both<F32>& of_offset) : factor(of_factor), offset(of_offset) {
    least = SetBoth(F32(), std::numeric_limits<double>::infinity());
    most = hn::Zero(Words());
  }

  // Calculates and stores one step.
  template <bool kStream>
  HWY_INLINE void Step(const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
    const auto bits = hn::BitCast(Words(), hn::LoadU(Tag<float>(), x));
    most = hn::Max(most, hn::And(bits, hn::Set(Words(), 0x7FFFFFFFu)));
    const Both<F32> of = LoadElements(F32(), x);
    const Both<F32> value = {Fma(of.first, factor.first, offset.first), Fma(of.second, factor.second, offset.second)};
    least.first = Lesser(least.first, SubtractBesideConversions(value.first, MiddleBeside(value.first)));
    least.second = Lesser(least.second, SubtractBesideConversions(value.second, MiddleBeside(value.second)));
    StoreBoth<kStream>(value, y);
  }

  // The bound of the error of each lane, |y| <= |x| |factor| + |offset|. Inf or NaN where an x is not finite.
  HWY_INLINE Both<F32> Limit(const Both<F32>& fixed, const Both<F32>& relative) const {
    HWY_ALIGN float elements[kStepElements<F32>];
    hn::Store(hn::BitCast(Tag<float>(), most), Tag<float>(), elements);
    const Both<F32> x = LoadElements(F32(), elements);
    const auto limit = [](auto of_x, auto f, auto g, auto of_fixed, auto of_relative)
                           HWY_ATTR { return Fma(Fma(of_x, hn::Abs(f), hn::Abs(g)), of_relative, of_fixed); };
    return {limit(x.first, factor.first, offset.first, fixed.first, relative.first),
            limit(x.second, factor.second, offset.second, fixed.second, relative.second)};
  }

  // A bit for each lane in which an element may lie near a middle: those of `first`, then those of `second`.
  HWY_INLINE uint64_t Near(const Both<F32>& limit) const {
    const auto first = hn::Not(hn::Gt(least.first, limit.first));
    const auto second = hn::Not(hn::Gt(least.second, limit.second));
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(first, second)))) return 0;
    return BitsOf(d, first, second);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_LOOK_INL_H_
