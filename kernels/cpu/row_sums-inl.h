// The sums of one chunk of a row in registers, and the shift that they are about.
// In the path: included by rows.cc, row_blocks.cc and channels.cc. Highway recompiles this file for each instruction
// set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_ROW_SUMS_INL_H_
#undef NORMD_KERNELS_CPU_ROW_SUMS_INL_H_
#else
#define NORMD_KERNELS_CPU_ROW_SUMS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// The number of interleaved partial sums, which stay in registers: element i of a chunk belongs to partial sum i %
// kPartials.
template <typename Real>
inline constexpr int64_t kPartials = std::is_same_v<Real, float> ? order::kFastPartials : order::kPartials;
template <typename Real>
inline constexpr int64_t kVectors = kPartials<Real> / kLanesOf<Real>;

// The lanes folded by halves into one value.
template <class DT>
HWY_INLINE hn::TFromD<DT> FoldLanes(DT dt, hn::Vec<DT> v) {
#if HWY_NATIVE_FMA
  if constexpr (hn::MaxLanes(DT()) > 1) {
    const hn::Half<DT> half;
    return FoldLanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
  (void)dt;
  return hn::GetLane(v);
#else
  hn::TFromD<DT> lanes[hn::MaxLanes(DT())];
  hn::StoreU(v, dt, lanes);
  for (size_t width = hn::MaxLanes(DT()); width > 1; width /= 2) {
    for (size_t i = 0; i < width / 2; ++i) lanes[i] += lanes[i + width / 2];
  }
  return lanes[0];
#endif
}

// Folds the partial sums by halves, first across vectors, then across the lanes of the last vector.
template <typename Real>
HWY_INLINE DoublePair Fold(TypeTag<Real> /*type*/, Vector<Real>* partials) {
  for (int64_t width = kVectors<Real>; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) partials[i] = hn::Add(partials[i], partials[i + width / 2]);
  }
  return {FoldLanes(Tag<Real>(), partials[0]), 0};
}

HWY_INLINE DoublePair Fold(TypeTag<double> /*type*/, Pair* partials) {
  for (int64_t width = kVectors<double>; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) partials[i] = Add(partials[i], partials[i + width / 2]);
  }
  HWY_ALIGN double hi[kLanes];
  HWY_ALIGN double lo[kLanes];
  hn::Store(partials[0].hi, d, hi);
  hn::Store(partials[0].lo, d, lo);
  for (int64_t width = kLanes; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) {
      const DoublePair sum = normd::Add({hi[i], lo[i]}, {hi[i + width / 2], lo[i + width / 2]});
      hi[i] = sum.hi;
      lo[i] = sum.lo;
    }
  }
  return {hi[0], lo[0]};
}

// True where sums need no shift as long as the mean is near 0: narrow elements in f64, see ExactShift.
template <typename Sums>
inline constexpr bool kMayLackShift = std::is_same_v<Sums, NarrowSums<double>>;

// The sums of one chunk, see summation_order.h, which is all of `rows`. kGeneral: there may be a mask, a shift where
// sums may lack one, and several segments in f32.
template <Statistic kStatistic, bool kGeneral, typename T, typename Sums>
HWY_INLINE PairSums SumChunk(T tag, TypeTag<Sums> /*type*/, const cpu::RowChunks& rows, double shift_value,
                             double scale_value) {
  using Real = typename Sums::Real;
  using Value = Vector<Real>;
  const Tag<Real> real;
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kSums = kVectors<Real>;
  constexpr bool kSubtract = kStatistic == Statistic::kMeanVariance && (kGeneral || !kMayLackShift<Sums>);
  // f32 only: partial sums of a step are added to those of the earlier steps.
  constexpr bool kInSteps = std::is_same_v<Real, float>;
  const Value shift = hn::Set(real, static_cast<Real>(shift_value));
  const Value scale = hn::Set(real, static_cast<Real>(scale_value));
  const auto* HWY_RESTRICT data = static_cast<const typename T::Storage*>(rows.x.data);
  const double* HWY_RESTRICT lows = rows.x.lo;
  const uint8_t* HWY_RESTRICT mask = rows.mask;
  const int64_t n = rows.n;
  const int64_t segments = rows.segments;
  const auto low = [&](int64_t at, int64_t count) HWY_ATTR {
    if constexpr (std::is_same_v<T, F64>) {
      if (lows != nullptr) return LoadUpTo(F64(), lows + at, count);
    }
    return hn::Zero(real);
  };
  const auto difference = [&](Value value, int64_t at, int64_t count) HWY_ATTR {
    const auto read = Sums::Read(value, low(at, count), scale);
    return kSubtract ? Sums::Subtract(read, shift) : read;
  };
  Sums sums[kSums];
  Sums totals[kSums];
  for (int64_t k = 0; k < kSums; ++k) {
    sums[k].Clear();
    totals[k].Clear();
  }
  constexpr bool kSeveral = kGeneral || !kInSteps;  // segments
  const int64_t step_segments = kSeveral && segments > 1 ? order::StepSegments(n) : 1;
  const int64_t last = kSeveral ? segments - 1 : 0;
  for (int64_t segment = 0; segment <= last; ++segment) {
    for (int64_t i = 0; i < n;) {
      const int64_t stop = kInSteps ? HWY_MIN(n, i + order::kFastRowStep) : n;
      for (; i + kPartials<Real> <= stop; i += kPartials<Real>) {
        for (int64_t k = 0; k < kSums; ++k) {
          const int64_t at = i + k * kStep;
          auto diff = difference(LoadAs<Real>(tag, data + at), at, kStep);
          if constexpr (kGeneral) {
            if (mask != nullptr) diff = Sums::Only(LoadMaskBytes<Real>(mask + at), diff);
          }
          sums[k].template Take<kStatistic>(diff);
        }
      }
      // The last, incomplete group of lanes: lanes past the end add exactly 0. Unrolled, so that the sums stay in
      // registers.
      for (int64_t k = 0; k < kSums; ++k) {
        const int64_t at = i + k * kStep;
        if (at >= stop) break;
        const int64_t count = HWY_MIN(kStep, stop - at);
        auto diff = difference(LoadUpToAs<Real>(tag, data + at, count), at, count);
        if constexpr (kSubtract) diff = Sums::Only(hn::FirstN(real, static_cast<size_t>(count)), diff);
        if constexpr (kGeneral) {
          if (mask != nullptr) {
            uint8_t bytes[kStep] = {};
            std::memcpy(bytes, mask + at, static_cast<size_t>(count));
            diff = Sums::Only(LoadMaskBytes<Real>(bytes), diff);
          }
        }
        sums[k].template Take<kStatistic>(diff);
      }
      i = stop;
      if constexpr (kInSteps) {
        const bool ends =
            !kSeveral || n >= order::kFastRowStep || (segment + 1) % step_segments == 0 || segment == last;
        for (int64_t k = 0; ends && k < kSums; ++k) {
          totals[k].first = hn::Add(totals[k].first, sums[k].first);
          totals[k].second = hn::Add(totals[k].second, sums[k].second);
          sums[k].Clear();
        }
      }
    }
    if constexpr (kSeveral) {
      data += rows.stride;
      if (lows != nullptr) lows += rows.stride;
      if (mask != nullptr) mask += rows.mask_stride;
    }
  }
  decltype(Sums::first) first[kSums];
  decltype(Sums::second) second[kSums];
  for (int64_t k = 0; k < kSums; ++k) {
    first[k] = kInSteps ? totals[k].first : sums[k].first;
    second[k] = kInSteps ? totals[k].second : sums[k].second;
  }
  PairSums total;
  if (kStatistic == Statistic::kMeanVariance) total.first = Fold(TypeTag<Real>(), first);
  total.second = Fold(TypeTag<Real>(), second);
  return total;
}

// The number of vectors of partial sums that are summed in one turn. Vectors take turns where the registers cannot hold
// both sums of all of them, as those of AVX2 cannot: elements would wait for stores and loads of sums. Each turn reads
// the elements again, from L1.
template <typename Real>
inline constexpr int64_t kTogether = HWY_MIN(kVectors<Real>, 4);

// The sums of one chunk of n elements without a mask, about a shift under FAST; SumChunk<kMeanVariance, false> returns
// the same. The vectors of partial sums take turns.
template <typename Real, typename T>
HWY_INLINE PairSums SumInTurns(T tag, TypeTag<Real> type, const typename T::Storage* HWY_RESTRICT x, int64_t n,
                               double shift_value) {
  constexpr Statistic kStatistic = Statistic::kMeanVariance;
  constexpr bool kIsFast = std::is_same_v<Real, float>;
  using Sums = NarrowSums<Real>;
  const Tag<Real> real;
  constexpr int64_t kStep = kLanesOf<Real>;
  const auto shift = hn::Set(real, static_cast<Real>(shift_value));
  Vector<Real> first[kVectors<Real>];
  Vector<Real> second[kVectors<Real>];
  const int64_t step = kIsFast ? order::kFastRowStep : n;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t stop = HWY_MIN(n, begin + step);
    for (int64_t from = 0; from < kVectors<Real>; from += kTogether<Real>) {
      Sums sums[kTogether<Real>];
      for (int64_t k = 0; k < kTogether<Real>; ++k) sums[k].Clear();
      int64_t i = begin;
      for (; i + kPartials<Real> <= stop; i += kPartials<Real>) {
        for (int64_t k = 0; k < kTogether<Real>; ++k) {
          const auto value = LoadAs<Real>(tag, x + i + (from + k) * kStep);
          sums[k].template Take<kStatistic>(kIsFast ? Sums::Subtract(value, shift) : value);
        }
      }
      // The last, incomplete group of lanes: lanes past the end add exactly 0. Unrolled, so that the sums stay in
      // registers.
      for (int64_t k = 0; k < kTogether<Real>; ++k) {
        const int64_t at = i + (from + k) * kStep;
        if (at >= stop) break;
        const int64_t count = HWY_MIN(kStep, stop - at);
        auto diff = LoadUpToAs<Real>(tag, x + at, count);
        if constexpr (kIsFast) {
          diff = Sums::Only(hn::FirstN(real, static_cast<size_t>(count)), Sums::Subtract(diff, shift));
        }
        sums[k].template Take<kStatistic>(diff);
      }
      for (int64_t k = 0; k < kTogether<Real>; ++k) {
        first[from + k] = begin > 0 ? hn::Add(first[from + k], sums[k].first) : sums[k].first;
        second[from + k] = begin > 0 ? hn::Add(second[from + k], sums[k].second) : sums[k].second;
      }
    }
  }
  const DoublePair sum = Fold(type, first);
  return {sum, Fold(type, second)};
}

// The fold of the sums of `chunks` chunks of narrow elements; chunk_of(chunk) returns the sums of one. They are folded
// as they come, see order::FoldsAfter, so that at most as many wait as the count has binary digits. REQUIRES: 1 <=
// chunks <= kMaxChunks.
template <int64_t kMaxChunks, typename ChunkOf>
HWY_INLINE PairSums FoldChunks(int64_t chunks, ChunkOf chunk_of) {
  constexpr int kMostWaiting = std::bit_width(static_cast<uint64_t>(kMaxChunks));
  // Not initialised: that would take as long as the sums of a short row.
  double first[kMostWaiting], second[kMostWaiting];
  PairSums sum;
  int64_t waiting = 0;
  const auto fold = [&](int64_t with) { sum = {{first[with] + sum.first.hi, 0}, {second[with] + sum.second.hi, 0}}; };
  for (int64_t chunk = 0;; ++chunk) {
    sum = chunk_of(chunk);
    if (chunk + 1 == chunks) break;
    for (int folds = order::FoldsAfter(chunk); folds > 0; --folds) fold(--waiting);
    first[waiting] = sum.first.hi;
    second[waiting++] = sum.second.hi;
  }
  while (waiting > 0) fold(--waiting);
  return sum;
}

// FirstShift() of kernels.h for the n elements at `x`.
template <typename T>
HWY_INLINE double ShiftOf(T tag, Precision precision, const typename T::Storage* x, int64_t n, bool masked) {
  const auto element = [&](int64_t i) HWY_ATTR { return ElementAt(tag, x + i); };
  double shift = 0;
  if (masked || std::is_same_v<T, F64>) {
    shift = element(0);
  } else if (precision == Precision::kExact) {
    return ExactShift(element(SampleIndex(n, 0)), element(SampleIndex(n, 1)), element(SampleIndex(n, 2)),
                      element(SampleIndex(n, 3)));
  } else if constexpr (!std::is_same_v<T, F64>) {
    Vector<float> sums[kVectors<float>];
    const int64_t count = HWY_MIN(kPartials<float>, n);
    if (count == kPartials<float>) {
      for (int64_t k = 0; k < kVectors<float>; ++k) sums[k] = LoadAs<float>(tag, x + k * kLanesOf<float>);
    } else {
      for (int64_t k = 0; k < kVectors<float>; ++k) {
        const int64_t left = count - k * kLanesOf<float>;
        if (left >= kLanesOf<float>) {
          sums[k] = LoadAs<float>(tag, x + k * kLanesOf<float>);
        } else {
          sums[k] = left > 0 ? LoadFirstAs<float>(tag, x + k * kLanesOf<float>, left) : hn::Zero(Tag<float>());
        }
      }
    }
    shift = static_cast<float>(Fold(TypeTag<float>(), sums).hi / static_cast<double>(count));
  }
  return std::isfinite(shift) ? shift : 0;
}

// The kernel of kernels.h on this instruction set, which rows.cc compiles.
void ReduceRowChunks(const cpu::Summand& summand, const cpu::RowChunks& rows, int64_t begin, int64_t end,
                     PairSums* sums);

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_ROW_SUMS_INL_H_
