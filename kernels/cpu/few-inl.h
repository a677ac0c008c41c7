// The second look at elements that a quick look leaves: y in f64, with a test of each lane. The elements that share a
// lane of a quick look lie apart in memory and are gathered, so that one vector settles them all.
// In the path: included by nearest_rows.cc and nearest_columns.cc. Highway recompiles this file for each instruction
// set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_FEW_INL_H_
#undef NORMD_KERNELS_CPU_FEW_INL_H_
#else
#define NORMD_KERNELS_CPU_FEW_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// y rounded to T. REQUIRES: true in each lane of AreSure(), or a 0.
template <typename T>
HWY_INLINE auto NarrowSure(T tag, V y) {
  if constexpr (std::is_same_v<T, F32>) {
    return ToF32(y);
  } else {
    return Narrow(tag, df, ToF32(CutTo24Bits(y)));
  }
}

// True in the lanes where y, which is off by less than half of `doubled_bound`, rounds to T as its exact value does.
template <typename T>
HWY_INLINE M AreSure(T /*tag*/, V y, V doubled_bound) {
  constexpr int kBits = std::is_same_v<T, F32> ? 24 : std::is_same_v<T, BF16> ? 8 : 11;
  constexpr uint64_t kCut = (uint64_t{1} << (53 - kBits)) - 1;
  const V magnitude = hn::Abs(y);
  const auto below = hn::AndNot(hn::Set(du, kCut), hn::BitCast(du, magnitude));
  const V middle = hn::BitCast(d, hn::Or(below, hn::Set(du, (kCut + 1) / 2)));
  const M is_far = hn::Gt(hn::Abs(hn::Sub(magnitude, middle)), doubled_bound);
  const M is_normal = hn::Ge(magnitude, Set(std::is_same_v<T, F16> ? 0x1p-14 : 0x1p-126));
  return hn::And(is_far, hn::And(is_normal, hn::Le(magnitude, Set(0x1p+100))));
}

// Up to kLanes elements; the first one stands in the lanes that are left.
template <typename T>
struct Few {
  using Storage = typename T::Storage;
  HWY_ALIGN Storage values[kLanes];

  // offset(i) is that of element i from x.
  template <typename Offset>
  HWY_INLINE V Gather(T tag, const Storage* x, int64_t n, Offset offset) {
    for (int64_t i = 0; i < kLanes; ++i) std::memcpy(values + i, x + offset(i < n ? i : 0), sizeof(Storage));
    return LoadAs<double>(tag, values);
  }
  // Stores those of y that are sure, rounded, and returns a bit for each of the others.
  template <typename Offset>
  HWY_INLINE unsigned Scatter(T tag, V y, M are_sure, Storage* to, int64_t n, Offset offset) {
    hn::StoreU(NarrowSure(tag, y), Raw<T, DF>(), values);
    uint8_t bits[8] = {};
    hn::StoreMaskBits(d, are_sure, bits);
    for (int64_t i = 0; i < n; ++i) {
      if ((bits[0] >> i & 1) != 0) std::memcpy(to + offset(i), values + i, sizeof(Storage));
    }
    return ~static_cast<unsigned>(bits[0]) & ((1u << n) - 1);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_FEW_INL_H_
