// The statistics of a vector of narrow groups at once: the arithmetic of FinishNarrow and GivenStatistics
// (kernels/group_statistics.h), lane by lane and with the same bits. A scalar division or root takes as
// long as one of all lanes.
// In the path: between the sums and the apply pass; included by row_blocks.cc, channels.cc and columns.cc. Highway
// recompiles this file for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_FINISH_INL_H_
#undef NORMD_KERNELS_CPU_FINISH_INL_H_
#else
#define NORMD_KERNELS_CPU_FINISH_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/base/types.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/group_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// InverseDivisor() of each lane. `value` is S, or R if kIsRoot.
template <bool kIsRoot>
HWY_INLINE V InverseDivisors(const DivisorRule& rule, V value) {
  const V eps = Set(rule.eps);
  V divisor;
  if (rule.mode == EpsMode::kInsideSqrt) {
    divisor = hn::Sqrt(hn::Add(value, eps));
  } else {
    const V root = kIsRoot ? value : hn::Sqrt(value);
    divisor = rule.mode == EpsMode::kAddToRoot ? hn::Add(root, eps) : hn::IfThenElse(hn::Lt(root, eps), eps, root);
  }
  return hn::Div(Set(1), divisor);
}

// CentringShift() of each lane.
HWY_INLINE V CentringShifts(V shift) { return hn::IfThenElse(hn::Eq(shift, Zero()), Set(-0.0), shift); }

// The members of GroupStatistics that narrow elements use, one group in each lane.
struct StatisticsLanes {
  V shift, delta, inverse;

  // FitF32() of each lane.
  HWY_INLINE M FitF32() const {
    const M in_range = hn::And(hn::Ge(inverse, Set(0x1p-60)), hn::Le(inverse, Set(0x1p+60)));
    return hn::And(hn::Le(hn::Abs(shift), Set(0x1p+100)), hn::Or(hn::Eq(inverse, Zero()), in_range));
  }
  // Splits each mean into two floats, the second of which is the rest of the first.
  HWY_INLINE void Split() {
    const V centre = Promote(ToF32(hn::Add(shift, delta)), double());
    delta = hn::Add(hn::Sub(shift, centre), delta);
    shift = CentringShifts(centre);
  }
};

// The sums of a vector of groups about their shifts. Where no mean is subtracted, `second` alone is used.
struct SumLanes {
  V shift, first, second;
};

// The FinishedStatistics of a vector of groups. `statistics.inverse` is inverse_std, too.
struct FinishedLanes {
  StatisticsLanes statistics;
  V mean, m2;
  M settled;  // see ChannelStatistics of kernels.h; the other lanes mean nothing
  M near;     // the mean alone is subtracted, see CentreNarrow; not set where no mean is subtracted
};

// True in the lanes whose sums suffice and are finite. M2 is the second sum without `correction`, which is 0 where no
// mean is subtracted.
template <typename Real>
HWY_INLINE M SumsSuffice(V second, V correction, V m2) {
  constexpr bool kIsFast = std::is_same_v<Real, float>;
  constexpr double kMost = kIsFast ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  M suffice =
      hn::And(hn::Le(second, Set(kMost)), hn::Le(correction, hn::Mul(Set(kIsFast ? kFastGuard : kExactGuard), m2)));
  if constexpr (kIsFast) suffice = hn::And(suffice, hn::Ge(second, Set(0x1p-100)));
  return suffice;
}

// CentreNarrow() of each lane.
template <typename Real>
HWY_INLINE void CentreLanes(V variance, V shift, V delta, FinishedLanes* lanes) {
  constexpr bool kIsFast = std::is_same_v<Real, float>;
  const V mean = lanes->mean;
  const V centre = kIsFast ? Promote(ToF32(mean), double()) : mean;
  lanes->near = hn::Le(hn::Mul(mean, mean), hn::Mul(Set(kIsFast ? kFastGuard : kExactGuard), variance));
  lanes->statistics.shift = CentringShifts(hn::IfThenElse(lanes->near, centre, shift));
  lanes->statistics.delta = hn::IfThenZeroElse(lanes->near, delta);
}

// The statistics of groups of `n` elements, summed in lanes of Real. kMeanSquare stands for kSumSquares, too:
// `statistic` says which of the two it is.
template <Statistic kStatistic, typename Real>
HWY_INLINE FinishedLanes FinishLanes(Statistic statistic, const DivisorRule& rule, V n, const SumLanes& sums) {
  constexpr bool kIsRoot = kStatistic == Statistic::kAbsSum;
  FinishedLanes lanes;
  StatisticsLanes& statistics = lanes.statistics;
  if constexpr (kStatistic == Statistic::kMeanVariance) {
    const V delta = hn::Div(sums.first, n);
    const V correction = hn::Mul(sums.first, delta);
    lanes.m2 = hn::Sub(sums.second, correction);
    lanes.mean = hn::Add(sums.shift, delta);
    const V variance = hn::Div(lanes.m2, n);
    statistics.inverse = InverseDivisors<kIsRoot>(rule, variance);
    CentreLanes<Real>(variance, sums.shift, delta, &lanes);
    lanes.settled = SumsSuffice<Real>(sums.second, correction, lanes.m2);
  } else {
    lanes.m2 = sums.second;
    lanes.mean = statistics.shift = statistics.delta = Zero();
    const bool is_mean = statistic == Statistic::kMeanSquare;
    statistics.inverse = InverseDivisors<kIsRoot>(rule, is_mean ? hn::Div(lanes.m2, n) : lanes.m2);
    lanes.settled = SumsSuffice<Real>(sums.second, Zero(), lanes.m2);
  }
  lanes.settled = hn::And(lanes.settled, statistics.FitF32());
  return lanes;
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_FINISH_INL_H_
