// Sums in f64 of which a term takes part in few additions: where y is rounded to the nearest value, no order of sums is
// declared, and the bound of their error is smaller.
// In the path: included by columns.cc and shallow_sums.cc. Highway recompiles this file for each instruction set, hence
// the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_SHALLOW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_SHALLOW_INL_H_
#undef NORMD_KERNELS_CPU_SHALLOW_INL_H_
#else
#define NORMD_KERNELS_CPU_SHALLOW_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// Adds four differences and their squares, or magnitudes, before they are added to the sums.
template <Statistic kStatistic, typename Sums>
HWY_INLINE void TakeFour(const typename Sums::Value* four, Sums* sums) {
  const auto pairwise = [](auto a, auto b, auto c, auto e) HWY_ATTR { return hn::Add(hn::Add(a, b), hn::Add(c, e)); };
  if (kStatistic == Statistic::kMeanVariance) {
    sums->first = hn::Add(sums->first, pairwise(four[0], four[1], four[2], four[3]));
  }
  if (kStatistic == Statistic::kAbsSum) {
    sums->second =
        hn::Add(sums->second, pairwise(hn::Abs(four[0]), hn::Abs(four[1]), hn::Abs(four[2]), hn::Abs(four[3])));
    return;
  }
  auto squares = Fma(four[1], four[1], hn::Mul(four[0], four[0]));
  squares = Fma(four[3], four[3], Fma(four[2], four[2], squares));
  sums->second = hn::Add(sums->second, squares);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_SHALLOW_INL_H_
