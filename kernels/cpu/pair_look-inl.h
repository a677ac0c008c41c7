// A quick look at a few 16-bit elements that have the same numbers in each lane: y in two multiply-adds of f32
// (FoldedPairs), stored, and which of them may lie near a middle. In the path: included by nearest_columns.cc. Highway
// recompiles this file for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_PAIR_LOOK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_PAIR_LOOK_INL_H_
#undef NORMD_KERNELS_CPU_PAIR_LOOK_INL_H_
#else
#define NORMD_KERNELS_CPU_PAIR_LOOK_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/look-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// The numbers of a step of 16-bit columns, or of one position in every lane.
template <typename T>
struct PairNumbers {
  Both<T> factor, offset, factor_rest, offset_rest;

  static HWY_INLINE PairNumbers OfColumns(T tag, const cpu::FoldedPairs& pairs, int64_t column) {
    return {LoadNumbers(tag, pairs.factor + column), LoadNumbers(tag, pairs.offset + column),
            LoadNumbers(tag, pairs.factor_rest + column), LoadNumbers(tag, pairs.offset_rest + column)};
  }
  static HWY_INLINE PairNumbers OfPosition(T tag, const cpu::FoldedPairs& pairs, int64_t position) {
    return {SetBoth(tag, pairs.factor[position]), SetBoth(tag, pairs.offset[position]),
            SetBoth(tag, pairs.factor_rest[position]), SetBoth(tag, pairs.offset_rest[position])};
  }
};

// Step() tells at once which elements of a step may lie near a middle. Those whose y is not finite, or smaller than the
// limits allow, show in IsUnusual() after any number of steps, and Unusual() finds them among what was stored.
template <typename T>
class PairLook {
 public:
  static constexpr int64_t kStep = kStepElements<T>;

  explicit HWY_INLINE PairLook(const cpu::PairLimits& limits) {
    const bool is_any_near = limits.near_bits >= 0;
    const uint32_t reach = is_any_near ? uint32_t{1} << limits.near_bits : 0;
    addend_ = hn::Set(kWords, (kCut + 1) / 2 + reach / 2);
    cut_ = hn::Set(kWords, is_any_near ? kCut & ~(reach - 1) : ~uint32_t{0});
    // Twice the bits of a value, which leaves out its sign: the least one, and Inf.
    const auto least = static_cast<uint16_t>((std::ilogb(limits.least) + kBias) << (kSignificand + 1));
    const auto infinity = static_cast<uint16_t>((2 * kBias + 1) << (kSignificand + 1));
    least_ = hn::Set(kHalves, least);
    infinity_ = hn::Set(kHalves, static_cast<uint16_t>(infinity - least));
    most_ = hn::Zero(kHalves);
  }
  // Calculates and stores one step, and returns a bit for each element that may lie near a middle: those of the first
  // vector of LoadTwo, then those of the second.
  template <bool kStream>
  HWY_INLINE uint64_t Step(T tag, const PairNumbers<T>& numbers, const uint16_t* HWY_RESTRICT x,
                           uint16_t* HWY_RESTRICT y) {
    const Both<T> of = LoadElements(tag, x);
    const Both<T>& rest = numbers.factor_rest;
    const auto first = hn::Add(Fma(of.first, numbers.factor.first, numbers.offset.first),
                               Fma(of.first, rest.first, numbers.offset_rest.first));
    const auto second = hn::Add(Fma(of.second, numbers.factor.second, numbers.offset.second),
                                Fma(of.second, rest.second, numbers.offset_rest.second));
    // With half an ulp of T added, and half of its reach, an element near a middle has no bits beyond the reach.
    const auto first_sum = hn::Add(hn::BitCast(kWords, first), addend_);
    const auto second_sum = hn::Add(hn::BitCast(kWords, second), addend_);
    if constexpr (kIsF16) {
      Put<kStream>(Narrow(tag, kFloats, first), y);
      Put<kStream>(Narrow(tag, kFloats, second), y + kLanesOf<float>);
    } else {  // the upper halves of the sums are the elements
      const auto upper = hn::And(second_sum, hn::Set(kWords, 0xFFFF0000u));
      Put<kStream>(hn::BitCast(kHalves, hn::Or(hn::ShiftRight<16>(first_sum), upper)), y);
    }
    const auto first_near = AreNear(first_sum);
    const auto second_near = AreNear(second_sum);
    if (HWY_LIKELY(hn::AllFalse(kWords, hn::Or(first_near, second_near)))) return 0;
    return BitsOf(kWords, first_near, second_near);
  }

  HWY_INLINE bool IsUnusual() const { return !hn::AllFalse(kHalves, AreUnusual(most_)); }
  // A bit for each element of a step that is stored at `y`, in the order of memory.
  HWY_INLINE uint64_t Unusual(const uint16_t* y) const {
    constexpr auto kAtOnce = static_cast<int64_t>(hn::MaxLanes(Halves()));
    uint64_t bits = 0;
    for (int64_t i = 0; i < kStep; i += kAtOnce) {
      uint8_t of_lanes[8] = {};
      hn::StoreMaskBits(kHalves, AreUnusual(AboveLeast(hn::LoadU(kHalves, y + i))), of_lanes);
      uint64_t word;
      std::memcpy(&word, of_lanes, sizeof(word));
      bits |= word << i;
    }
    return bits;
  }

 private:
  static constexpr bool kIsF16 = std::is_same_v<T, F16>;
  static constexpr uint32_t kCut = kIsF16 ? 0x1FFF : 0xFFFF;  // the bits of an f32 that T does not have
  static constexpr int kSignificand = kIsF16 ? 10 : 7, kBias = kIsF16 ? 15 : 127;
  using Words = hn::RebindToUnsigned<Tag<float>>;
  // What is stored at once: half a step of f16, or a step of bf16.
  using Halves = std::conditional_t<kIsF16, hn::Rebind<uint16_t, Tag<float>>, hn::Repartition<uint16_t, Tag<float>>>;
  using HalfLanes = hn::Vec<Halves>;
  static constexpr Tag<float> kFloats{};
  static constexpr Words kWords{};
  static constexpr Halves kHalves{};

  HWY_INLINE hn::Mask<Words> AreNear(hn::Vec<Words> sum) const {
#if HWY_TARGET == HWY_AVX3
    // One instruction, of which the compiler makes two.
    return hn::Mask<Words>{_mm512_testn_epi32_mask(sum.raw, cut_.raw)};
#else
    return hn::Eq(hn::And(sum, cut_), hn::Zero(kWords));
#endif
  }
  // Twice the bits of values, less those of the least one: what is smaller wraps around to beyond Inf.
  HWY_INLINE HalfLanes AboveLeast(HalfLanes value) const { return hn::Sub(hn::Add(value, value), least_); }
  HWY_INLINE hn::Mask<Halves> AreUnusual(HalfLanes above_least) const {
    return hn::Eq(hn::Max(above_least, infinity_), above_least);
  }
  template <bool kStream>
  HWY_INLINE void Put(HalfLanes value, uint16_t* HWY_RESTRICT y) {
    most_ = hn::Max(most_, AboveLeast(value));
    StoreVector<kStream>(value, kHalves, y);
  }

  hn::Vec<Words> addend_, cut_;
  HalfLanes least_, infinity_, most_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_PAIR_LOOK_INL_H_
