// The reduce pass over contiguous elements, of which a term takes part in few additions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/shallow_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/shallow-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void TakeFourFrom(T tag, const typename T::Storage* x, V shift, NarrowSums<double>& sums) {
  V four[4];
  for (int64_t k = 0; k < 4; ++k) four[k] = SubtractBesideConversions(LoadAs<double>(tag, x + k * kLanes), shift);
  TakeFour<Statistic::kMeanVariance>(four, &sums);
}

// kMeanVariance about 0 has the sum of squares, too.
template <typename T>
PairSums SumShallowly(T tag, const typename T::Storage* x, int64_t n, double shift_value) {
  constexpr Statistic kStatistic = Statistic::kMeanVariance;
  constexpr int64_t kAccumulators = 32 / kLanes;  // 32 partial sums on every instruction set
  constexpr int64_t kFour = 4 * kLanes;
  using Sums = NarrowSums<double>;
  const V shift = Set(shift_value);
  Sums sums[kAccumulators];
  for (Sums& of : sums) of.Clear();
  int64_t i = 0;
  for (; i + kAccumulators * kFour <= n; i += kAccumulators * kFour) {
    for (int64_t k = 0; k < kAccumulators; ++k) TakeFourFrom(tag, x + i + k * kFour, shift, sums[k]);
  }
  // An index that varies would keep the sums of the loop above in memory, too.
  Sums rest[kAccumulators];
  for (int64_t k = 0; k < kAccumulators; ++k) rest[k] = sums[k];
  for (int64_t k = 0; i + kFour <= n; i += kFour, ++k) TakeFourFrom(tag, x + i, shift, rest[k]);
  for (; i < n; i += kLanes) {
    const int64_t count = HWY_MIN(kLanes, n - i);
    const V value = hn::Sub(LoadUpTo(tag, x + i, count), shift);
    rest[0].template Take<kStatistic>(Sums::Only(hn::FirstN(d, static_cast<size_t>(count)), value));
  }
  for (int64_t count = kAccumulators; count > 1; count /= 2) {
    for (int64_t k = 0; k < count / 2; ++k) {
      rest[k].first = hn::Add(rest[k].first, rest[count / 2 + k].first);
      rest[k].second = hn::Add(rest[k].second, rest[count / 2 + k].second);
    }
  }
  return {{FoldLanes(d, rest[0].first), 0}, {FoldLanes(d, rest[0].second), 0}};
}

PairSums ReduceShallowly(const cpu::Elements& x, int64_t n, double shift) {
  return WithNarrowType(x.dtype, [&](auto tag) HWY_ATTR {
    return SumShallowly(tag, static_cast<const typename decltype(tag)::Storage*>(x.data), n, shift);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceShallowly);

PairSums ReduceShallowly(const Elements& x, int64_t n, double shift) {
  return HWY_DYNAMIC_DISPATCH(ReduceShallowly)(x, n, shift);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
