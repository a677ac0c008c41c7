// Results to the nearest value: the bounds of groups, and the apply pass with a test of every element. An element near
// which no middle between two values of its type lies is rounded; the others are left to the host, and so are outputs
// of groups. As kernels/cpu/nearest_group.cc, nearest.cc and nearest_wide.cc, an element at a time.
#include "kernels/certificate.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/element_place.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/nearest_elements.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    BoundGroupsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ NearestWork nearest) {
  WaitForLaunchBefore();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= work.StatisticsGroups()) return;
  NearestGroup group = work.nearest[index];
  SetBound(work, nearest, &group);
  work.nearest[index] = group;
  if (group.is_finite) DecideOutputs(work, nearest, index, group);
}

// y in pairs: hi + rest, with what the bound of its error needs.
struct WideSum {
  double hi = 0, rest = 0;
  double plain = 0;
  double product = 0;  // n * w

  __device__ double Rounded() const { return hi + rest; }
};
__device__ inline WideSum WideSumOf(double x, double lo, const GroupStatistics& s, const Affine<double>& affine) {
  WideSum sum;
  double plain = 0;
  const DoublePair n = WideArithmetic::Pairs(x, lo, s, &plain);
  const DoublePair scaled = TwoProduct(n.hi, affine.weight);
  const DoublePair total = TwoSum(scaled.hi, affine.bias);
  sum.hi = total.hi;
  sum.rest = total.lo + std::fma(n.lo, affine.weight, scaled.lo);
  sum.plain = plain * affine.weight + affine.bias;
  sum.product = scaled.hi;
  return sum;
}

// True if the exact value, which the pair is off from by less than its bound, may round to another f64 than `rounded`.
__device__ inline bool IsDoubtful(F64 /*type*/, double rounded, const WideSum& sum, const ElementBound& bound,
                                  double /*rounding*/) {
  const double rest = sum.rest - (rounded - sum.hi);
  const double error = std::fabs(sum.product) * bound.relative + bound.fixed;
  return !(rounded + (rest + error) == rounded && rounded + (rest - error) == rounded);
}
template <typename T>
__device__ inline bool IsDoubtful(T /*type*/, double rounded, const WideSum& sum, const ElementBound& bound,
                                  double rounding) {
  const double error = std::fabs(rounded) * rounding + (std::fabs(sum.product) * bound.relative + bound.fixed);
  return IsNearMiddle<T::kDType>(rounded, error);
}

// `zero_is_exact`: x is no rounded sum, so that a 0 is one, and no mean is subtracted from it.
template <typename T>
__device__ inline NearestValue WideValue(T type, double x, double lo, const GroupStatistics& s,
                                         const Affine<double>& affine, const ElementBound& bound, double rounding,
                                         bool zero_is_exact) {
  const WideSum sum = WideSumOf(x, lo, s, affine);
  const double rounded = sum.Rounded();
  NearestValue value = {WideArithmetic::Choose(rounded, sum.plain), IsDoubtful(type, rounded, sum, bound, rounding)};
  const bool overflows = !(std::fabs(rounded) < 0x1p+1000) && std::isfinite(x);
  if (overflows) value.is_doubtful = true;
  if (kIsWide<T> && zero_is_exact && x == 0 && sum.hi == affine.bias) value.is_doubtful = false;
  return value;
}

// The value of a narrow type that is nearest to a pair, if its bound, which is doubled, shows which one that is: never
// that of a subnormal number or of 0.
template <typename T>
__device__ inline NearestValue NearestToPair(const WideSum& sum, const ElementBound& bound) {
  constexpr Narrowness kOf = NarrownessOf(T::kDType);
  constexpr uint64_t kLow = (uint64_t{1} << (53 - kOf.bits)) - 1;
  const double rounded = sum.Rounded();
  const uint64_t below = std::bit_cast<uint64_t>(rounded) & ~kLow;
  const auto middle = std::bit_cast<double>(below | (kLow / 2 + 1));
  const double from_middle =
      (sum.hi - middle) + sum.rest;  // hi and the middle are too near for their difference to round
  const double error = std::fabs(sum.product) * bound.relative + bound.fixed;
  const bool is_normal = std::fabs(rounded) >= PowerOfTwo(kOf.min_exponent) && std::fabs(rounded) <= 0x1p+200;
  const bool is_above = std::signbit(rounded) ? from_middle < 0 : from_middle > 0;
  return {std::bit_cast<double>(is_above ? below + kLow + 1 : below), !(is_normal && std::fabs(from_middle) > error)};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DecideInPairsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                        const __grid_constant__ NearestWork nearest, int64_t keep1, const LeftElement* elements,
                        int64_t count, DecidedElement* decided) {
  WaitForLaunchBefore();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const LeftElement element = elements[i];
  ElementPlace place;
  place.r1 = element.index % work.reduce1;
  place.k1 = element.index / work.reduce1 % keep1;
  const double x = static_cast<const double*>(work.x.data)[element.row * work.reduce1 + place.r1];
  const NearestGroup& group = work.nearest[element.row];
  const Affine<double> affine = AffineAt<double>(apply.parameters, ParameterOf(work, apply, place));
  const Affine<double> before = BeforeRounding(apply.cast_order, affine);
  const ElementBound bound = BoundOf(work, apply, nearest, group, affine, true);
  const NearestValue value = NearestToPair<T>(WideSumOf(x, 0, group.finished.statistics, before), bound);
  DecidedElement result;
  result.is_decided = !value.is_doubtful && group.is_finite;
  if (result.is_decided) {
    const typename T::Storage y = Rounded(T(), apply.cast_order, value.y, affine);
    static_cast<typename T::Storage*>(apply.y)[element.index] = y;
    memcpy(&result.y_bits, &y, sizeof(y));
  }
  decided[i] = result;
}

template <typename TIn, typename TOut>
__global__ void __launch_bounds__(kThreads)
    ApplyNearestKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                       const __grid_constant__ NearestWork nearest) {
  WaitForLaunchBefore();
  const int64_t elements = nearest.element_count;
  const bool is_small = elements <= std::numeric_limits<int32_t>::max();
  const double rounding = RoundingOf(nearest);
  const bool zero_is_exact = work.statistic != Statistic::kMeanVariance && work.x.lo == nullptr;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const ElementPlace place = PlaceOf(work, i, is_small);
    const double x = LoadAs<double>(TIn(), static_cast<const typename TIn::Storage*>(work.x.data) + i);
    const NearestGroup& group = work.nearest[place.group];
    const GroupStatistics& s = group.finished.statistics;
    const Affine<double> affine = AffineAt<double>(apply.parameters, ParameterOf(work, apply, place));
    const Affine<double> before = BeforeRounding(apply.cast_order, affine);
    const ElementBound bound = BoundOf(work, apply, nearest, group, affine, kIsWide<TOut>);
    NearestValue value;
    if constexpr (kIsWide<TIn>) {
      const double lo = work.x.lo == nullptr ? 0 : work.x.lo[i];
      value = WideValue(TOut(), x, lo, s, before, bound, rounding, zero_is_exact);
    } else {
      value = NarrowValue(TOut(), x, s, before, bound, rounding);
    }
    static_cast<typename TOut::Storage*>(apply.y)[i] = Rounded(TOut(), apply.cast_order, value.y, affine);
    if (value.is_doubtful) LeaveElement(nearest, group, i, x);
  }
}

template <typename TIn, typename TOut>
cudaError_t LaunchNearest(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                          const NearestWork& nearest, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, nearest.element_count, kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyNearestKernel<TIn, TOut>, work, apply, nearest);
}

}  // namespace

cudaError_t BoundGroups(const GroupWork& work, const NearestWork& nearest, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = order::CeilDiv(work.StatisticsGroups(), kThreads), .threads = kThreads};
  return Launch(shape, stream, BoundGroupsKernel, work, nearest);
}

cudaError_t DecideInPairs(const GroupWork& work, const ApplyWork& apply, const NearestWork& nearest, int64_t keep1,
                          const LeftElement* elements, int64_t count, DecidedElement* decided, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = order::CeilDiv(count, kThreads), .threads = kThreads};
  return VisitNarrowDType(apply.y_dtype, [&]<typename T>() {
    return Launch(shape, stream, DecideInPairsKernel<T>, work, apply, nearest, keep1, elements, count, decided);
  });
}

cudaError_t ApplyToNearest(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                           const NearestWork& nearest, cudaStream_t stream) {
  if (!work.wide()) {
    return VisitNarrowDType(work.x.dtype,
                            [&]<typename T>() { return LaunchNearest<T, T>(limits, work, apply, nearest, stream); });
  }
  return VisitDType(apply.y_dtype,
                    [&]<typename TOut>() { return LaunchNearest<F64, TOut>(limits, work, apply, nearest, stream); });
}

}  // namespace normd::cuda
