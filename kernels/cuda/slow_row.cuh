// A row of narrow elements in any state, from memory, element by element: what register_rows.cu and staged_rows.cu
// leave to a function of its own, because few rows need it, and its code and registers would cost all of them. The sums
// are repeated as often as kernels/group_statistics.h says, and elements are calculated in f64 where f32 does not
// suffice. In the path: included by those two. Device functions.
#ifndef NORMD_KERNELS_CUDA_SLOW_ROW_CUH_
#define NORMD_KERNELS_CUDA_SLOW_ROW_CUH_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// The row with index `row` of a range, by all Threads, a warp or a block. h, if the range has one, is written. Real:
// what the first sums are calculated in.
template <typename T, bool kCentred, typename Threads, typename Real>
class SlowRow {
 public:
  using S = typename T::Storage;

  // `parts`: in shared memory, one for each chunk of the row. A warp needs none, and has at most four chunks.
  __device__ __forceinline__ SlowRow(const RowLaunch& launch, const RowRange& range, int64_t row, NarrowPart* parts)
      : launch_(launch), range_(range), row_(row), parts_(parts), begin_(row * launch.n) {
    x_ = static_cast<const S*>(range.h == nullptr ? range.x : range.h) + begin_;
    if (range.h == nullptr && range.residual != nullptr) residual_ = static_cast<const S*>(range.residual) + begin_;
  }

  __device__ __forceinline__ void Normalise() const {
    Threads::Sync();  // h has been written
    const Statistic statistic = kCentred ? Statistic::kMeanVariance : launch_.statistic;
    FinishedStatistics finished = FinishNarrowGroup(
        statistic, range_.rule, kIsFast ? Precision::kFast : Precision::kExact, static_cast<double>(launch_.n),
        [&](Precision precision) { return kCentred ? FirstShift(precision) : 0; },
        [&](Precision precision, double shift) {
          if constexpr (kIsFast) {
            if (precision == Precision::kFast) return Sums<float>(shift);
          }
          return Sums<double>(shift);
        });
    if (Threads::Index() == 0) StoreOutputs(range_.outputs, row_, static_cast<double>(launch_.n), finished);
    if constexpr (!std::is_same_v<T, F32>) Calculate16BitInF32(&finished);
    const Parameters& parameters = range_.parameters;
    const GroupResult applied = ResultOf(finished, kCentred, parameters.fit_f32, true);
    // Only EXACT f32 is calculated in f64.
    using Elements = NarrowElements<T, std::is_same_v<T, F32> && !kIsFast>;
    const Elements elements(applied, parameters,
                            kCentred && ScalesChannels(launch_.statistic, parameters, range_.index));
    S* const y = static_cast<S*>(range_.y) + begin_;
    for (int64_t i = Threads::Index(); i < launch_.n; i += Threads::Count()) y[i] = elements.One(At(i), ParameterOf(i));
  }

 private:
  static constexpr bool kIsFast = std::is_same_v<Real, float>;

  __device__ __forceinline__ S At(int64_t i) const {
    return residual_ == nullptr ? x_[i] : AddElement<T>(1, x_[i], residual_[i]);
  }
  template <typename R>
  __device__ __forceinline__ R ValueOf(int64_t i) const {
    return static_cast<R>(T::Widen(At(i)));
  }
  __device__ __forceinline__ int64_t ParameterOf(int64_t i) const {
    if (range_.parameters.absent()) return 0;
    if (range_.index.kind == AffineIndex::kElement) return i;
    return row_ % range_.keep1 * range_.index.channels_per_keep1 + i / range_.index.channel_run;
  }

  __device__ __forceinline__ double FirstShift(Precision precision) const {
    if (precision != Precision::kFast) return ExactShiftOf(launch_.n, [&](int64_t i) { return ValueOf<double>(i); });
    const auto lanes = LaneGroup<kWarp>::This();
    constexpr int kPartials = NarrowSums<float>::kPartials;
    float own[kPartials / kWarp];
#pragma unroll
    for (int k = 0; k < kPartials / kWarp; ++k) own[k] = ValueOf<float>(lanes.lane + k * kWarp);
    const float sum = lanes.FromFirst(FoldPartials<NarrowSums<float>>(lanes, own));
    return FiniteOrZero(static_cast<float>(static_cast<double>(sum) / kPartials));
  }

  template <typename R>
  __device__ __forceinline__ PairSums Sums(double shift) const {
    const int64_t chunks = order::RowChunks(launch_.n);
    if constexpr (std::is_same_v<Threads, WarpThreads>) {
      const NarrowPart total = FoldFour<NarrowPart>(
          static_cast<int>(chunks), [&](int chunk) { return ChunkSums<R>(chunk, static_cast<R>(shift)); }, AddNarrow());
      return LaneGroup<kWarp>::This().FromFirst(AsSums(total));
    } else {
      Threads::Sync();  // all have read the sums before
      for (int64_t chunk = Threads::Index() / kWarp; chunk < chunks; chunk += Threads::Count() / kWarp) {
        const NarrowPart part = ChunkSums<R>(chunk, static_cast<R>(shift));
        if (Threads::Index() % kWarp == 0) parts_[chunk] = part;
      }
      Threads::Sync();
      FoldInPlace<Threads>(parts_, chunks, 1, 1, AddNarrow());
      return AsSums(parts_[0]);
    }
  }
  // The sums of a chunk. The first lane of the warp has the result.
  template <typename R>
  __device__ __forceinline__ NarrowPart ChunkSums(int64_t chunk, R shift) const {
    const int64_t at = chunk * order::kRowChunk;
    const int64_t left = launch_.n - at;
    const auto take = [&](int i, NarrowSums<R>& sums) {
      const R value = ValueOf<R>(at + i);
      sums.template Take<kCentred>(kCentred ? value - shift : value, false);
    };
    const PairSums sums = SumChunk<kCentred, NarrowSums<R>, true>(
        LaneGroup<kWarp>::This(), static_cast<int>(left < order::kRowChunk ? left : order::kRowChunk), take);
    return {sums.first.hi, sums.second.hi};
  }

  const RowLaunch& launch_;
  const RowRange& range_;
  const int64_t row_;  // in the range
  NarrowPart* const parts_;
  const int64_t begin_;
  const S* x_;
  const S* residual_ = nullptr;  // null, or to be added
};

// Normalises a row. A block calls it if `parts` is not null, else a warp.
template <typename T, bool kCentred, typename Real = float>
__device__ __noinline__ void NormaliseSlowly(const RowLaunch& launch, const RowRange& range, int64_t row,
                                             NarrowPart* parts) {
  if (parts == nullptr) {
    SlowRow<T, kCentred, WarpThreads, Real>(launch, range, row, parts).Normalise();
  } else {
    SlowRow<T, kCentred, BlockThreads, Real>(launch, range, row, parts).Normalise();
  }
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_SLOW_ROW_CUH_
