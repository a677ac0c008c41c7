// Sets whose innermost extent is kept: a thread has neighbouring columns, as many as a 16-byte access holds, and walks
// down a block of positions. Sums of blocks are folded by sets.cu.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlock = static_cast<int>(order::kColumnBlock);

// `kColumns` neighbouring columns of one block of positions.
struct BlockPlace {
  int64_t k0 = 0, block = 0, column = 0;
};

template <int kColumns>
__host__ __device__ inline int64_t Tiles(const SetWork& work) {
  return order::CeilDiv(work.Columns(), kColumns);
}

// Calls body(place) for what this thread has; neighbours have neighbouring columns. `blocks`: of each keep0.
template <int kColumns, typename Body>
__device__ __forceinline__ void ForBlocks(const SetWork& work, int64_t blocks, Body body) {
  const int64_t tiles = Tiles<kColumns>(work);
  const int64_t items = work.keep0 * blocks * tiles;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < items;
       item += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = item / tiles;
    body(BlockPlace{row / blocks, row % blocks, item % tiles * kColumns});
  }
}

template <int kColumns>
LaunchShape BlocksShape(const DeviceLimits& limits, const SetWork& work, int64_t blocks) {
  return {.blocks = EnoughBlocks(limits, work.keep0 * blocks * Tiles<kColumns>(work), kThreads), .threads = kThreads};
}

// Element `column` of position `p`.
__device__ __forceinline__ int64_t IndexOf(const SetWork& work, int64_t k0, int64_t p, int64_t column) {
  return (k0 * work.reduce0 + p) * work.Columns() + column;
}

__device__ __forceinline__ bool Counts(const SetWork& work, int64_t p) {
  return work.mask == nullptr || work.mask[p] != 0;
}

// kColumns elements of one position, those behind the last column 0; one access where the rows are aligned.
template <typename T, int kColumns>
__device__ __forceinline__ void LoadColumns(const typename T::Storage* from, bool aligned, int count,
                                            typename T::Storage (&to)[kColumns]) {
  if (aligned) {
    const auto vector = LoadVector(from);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) to[c] = vector.lanes[c];
    return;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) to[c] = c < count ? from[c] : typename T::Storage{};
}

// Whether every position of every tile can be read at one access.
template <typename T>
__device__ __forceinline__ bool IsAligned(const SetWork& work, const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0 && work.Columns() % kVector<T> == 0;
}

template <typename T, typename Real, bool kCentred>
__global__ void __launch_bounds__(kThreads) SumNarrowColumnsKernel(const __grid_constant__ SetWork work, Round round) {
  if (work.pending[static_cast<int>(round)] == 0) return;
  constexpr int kColumns = kVector<T>;
  constexpr bool kInF32 = std::is_same_v<Real, float>;
  const bool aligned = IsAligned<T>(work, work.x.data);
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  ForBlocks<kColumns>(work, blocks, [&](const BlockPlace& place) {
    const int64_t left = work.Columns() - place.column;
    const int count = static_cast<int>(left < kColumns ? left : kColumns);
    Real shift[kColumns];
    bool any = false;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c < count) {
        const SetState& state = work.states[place.k0 * work.keep1 + (place.column + c) / work.reduce1];
        any = any || state.round == round;
        shift[c] = static_cast<Real>(state.shift);
      } else {
        shift[c] = 0;
      }
    }
    if (!any) return;
    // In f32 the sums of a few positions, those in even and in odd places apart; else of the whole block.
    NarrowSums<Real> sums[kColumns];
    NarrowSums<float> odd[kInF32 ? kColumns : 1];
    NarrowSums<double> totals[kInF32 ? kColumns : 1];
    const auto flush = [&] {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if constexpr (kInF32) {
          totals[c].first += static_cast<double>(sums[c].first + odd[c].first);
          totals[c].second += static_cast<double>(sums[c].second + odd[c].second);
          sums[c] = {};
          odd[c] = {};
        }
      }
    };
    const int64_t begin = place.block * kBlock;
    const int positions = static_cast<int>(work.reduce0 - begin < kBlock ? work.reduce0 - begin : kBlock);
    const auto* const x =
        static_cast<const typename T::Storage*>(work.x.data) + IndexOf(work, place.k0, begin, place.column);
    int in_run = 0;
#pragma unroll 8
    for (int p = 0; p < positions; ++p) {
      typename T::Storage values[kColumns];
      LoadColumns<T, kColumns>(x + p * work.Columns(), aligned, count, values);
      if (!Counts(work, begin + p)) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const Real value = LoadAs<Real>(T(), &values[c]);
        const Real diff = kCentred ? value - shift[c] : value;
        if constexpr (kInF32) {
          NarrowSums<float> one = in_run % 2 == 0 ? sums[c] : odd[c];
          one.template Take<kCentred>(diff, is_abs);
          (in_run % 2 == 0 ? sums[c] : odd[c]) = one;
        } else {
          sums[c].template Take<kCentred>(diff, is_abs);
        }
      }
      if (++in_run == order::kFastColumnRun) {
        flush();
        in_run = 0;
      }
    }
    if (in_run != 0) flush();
    NarrowPart* const parts =
        static_cast<NarrowPart*>(work.parts) + (place.k0 * blocks + place.block) * work.Columns() + place.column;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= count) continue;
      if constexpr (kInF32) {
        parts[c] = {totals[c].first, totals[c].second};
      } else {
        parts[c] = {sums[c].first, sums[c].second};
      }
    }
  });
}

// f64, and PowerNorm: a column a thread. `T` narrow: the position's scale, then sums in f64.
template <typename T, bool kCentred, bool kPre>
__global__ void __launch_bounds__(kThreads) SumOneColumnKernel(const __grid_constant__ SetWork work, Round round) {
  if (work.pending[static_cast<int>(round)] == 0) return;
  using Sums = std::conditional_t<kIsWide<T>, WideSums, NarrowSums<double>>;
  const bool is_abs = work.statistic == Statistic::kAbsSum || work.statistic == Statistic::kPowerSum;
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  ForBlocks<1>(work, blocks, [&](const BlockPlace& place) {
    const int64_t k1 = place.column / work.reduce1;
    const SetState& state = work.states[place.k0 * work.keep1 + k1];
    if (state.round != round) return;
    const int64_t begin = place.block * kBlock;
    const int64_t end = begin + kBlock < work.reduce0 ? begin + kBlock : work.reduce0;
    Sums sums;
    for (int64_t p = begin; p < end; ++p) {
      if (!Counts(work, p)) continue;
      const int64_t at = IndexOf(work, place.k0, p, place.column);
      const double x = LoadAs<double>(T(), static_cast<const typename T::Storage*>(work.x.data) + at);
      PositionScale pre;
      if constexpr (kPre) pre = PreOf(work, p, k1);
      if constexpr (kIsWide<T>) {
        const double lo = work.x.lo == nullptr ? 0 : work.x.lo[at];
        DoublePair diff;
        if constexpr (kPre) {
          diff = Multiply({x * pre.scale, lo * pre.scale}, {pre.hi, pre.lo});
        } else {
          diff = WideValue<kCentred>(work, state, {x, lo});
        }
        sums.template Take<kCentred>(diff, is_abs);
      } else {
        sums.template Take<kCentred>(x * pre.hi, is_abs);
      }
    }
    const int64_t part = (place.k0 * blocks + place.block) * work.Columns() + place.column;
    if constexpr (kIsWide<T>) {
      static_cast<PairSums*>(work.parts)[part] = {sums.first, sums.second};
    } else {
      static_cast<NarrowPart*>(work.parts)[part] = {sums.first, sums.second};
    }
  });
}

__global__ void __launch_bounds__(kThreads) MeasureColumnsKernel(const __grid_constant__ SetWork work) {
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  ForBlocks<1>(work, blocks, [&](const BlockPlace& place) {
    const int64_t begin = place.block * kBlock;
    const int64_t end = begin + kBlock < work.reduce0 ? begin + kBlock : work.reduce0;
    LaneMagnitude magnitude;
    for (int64_t p = begin; p < end; ++p) {
      if (!Counts(work, p)) continue;
      magnitude.Take(static_cast<const double*>(work.x.data)[IndexOf(work, place.k0, p, place.column)]);
    }
    magnitude.AddTo(&work.magnitudes[place.k0 * work.keep1 + place.column / work.reduce1]);
  });
}

// Positions that a thread walks down with the statistics of its columns: enough to pay for loading them.
constexpr int kApplyPositions = 32;

// What a thread knows of one column, in the type that is calculated in.
template <typename Real>
struct Column {
  Real shift = 0, delta = 0, inverse = 1;
  Affine<Real> affine;
};
template <typename Real>
__device__ __forceinline__ Column<Real> ColumnOf(const SetResult& set, const Parameters& parameters, int64_t at) {
  return {static_cast<Real>(set.statistics.shift), static_cast<Real>(set.statistics.delta.hi),
          static_cast<Real>(set.statistics.inverse.hi), AffineAt<Real>(parameters, at)};
}
template <typename Real>
__device__ __forceinline__ float ElementOf(Real x, const Column<Real>& column) {
  return static_cast<float>(
      std::fma(((x - column.shift) - column.delta) * column.inverse, column.affine.weight, column.affine.bias));
}

// Real: what most columns are calculated in; columns that are not are taken element by element.
template <typename T, typename Real>
__global__ void __launch_bounds__(kThreads)
    ApplyColumnsKernel(const __grid_constant__ SetWork work, const __grid_constant__ ApplyWork apply) {
  constexpr int kColumns = kVector<T>;
  constexpr bool kInF64 = std::is_same_v<Real, double>;
  const bool aligned = IsAligned<T>(work, work.x.data) && IsAligned<T>(work, apply.y);
  const int64_t strips = order::CeilDiv(work.reduce0, kApplyPositions);
  ForBlocks<kColumns>(work, strips, [&](const BlockPlace& place) {
    const int64_t left = work.Columns() - place.column;
    const int count = static_cast<int>(left < kColumns ? left : kColumns);
    const auto set_of = [&](int c) -> const SetResult& {
      return work.results[place.k0 * work.keep1 + (place.column + c) / work.reduce1];
    };
    const auto parameter = [&](int c) {
      const int64_t k1 = (place.column + c) / work.reduce1;
      const int64_t r1 = (place.column + c) % work.reduce1;
      return apply.parameters.absent() ? 0 : k1 * apply.index.channels_per_keep1 + r1 / apply.index.channel_run;
    };
    Column<Real> columns[kColumns];
    bool alike = true;  // all in Real
    bool mend = false;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= count) continue;
      const SetResult& set = set_of(c);
      alike = alike && (kInF64 || set.in_f32);
      mend = mend || set.may_be_nan;
      columns[c] = ColumnOf<Real>(set, apply.parameters, parameter(c));
    }
    const int64_t begin = place.block * kApplyPositions;
    const int64_t end = begin + kApplyPositions < work.reduce0 ? begin + kApplyPositions : work.reduce0;
#pragma unroll 4
    for (int64_t p = begin; p < end; ++p) {
      const int64_t at = IndexOf(work, place.k0, p, place.column);
      const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + at;
      auto* const y = static_cast<typename T::Storage*>(apply.y) + at;
      typename T::Storage values[kColumns];
      LoadColumns<T, kColumns>(x, aligned, count, values);
      VectorOf<typename T::Storage> out;
      bool good = alike;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float element = ElementOf<Real>(LoadAs<Real>(T(), &values[c]), columns[c]);
        if constexpr (kInF64) element = CanonicalNaN(element);
        good = good && (kInF64 || !mend || std::isfinite(element) || c >= count);
        out.lanes[c] = T::Narrow(element);
      }
      if (good && aligned) {
        StoreVector(y, out);
      } else if (good) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (c < count) y[c] = out.lanes[c];
        }
      } else {
#pragma unroll 1
        for (int c = 0; c < count; ++c)
          y[c] = NarrowElements<T, kInF64>(set_of(c), apply.parameters).One(x[c], parameter(c));
      }
    }
  });
}

template <typename T>
cudaError_t LaunchSums(const DeviceLimits& limits, const SetWork& work, Round round, cudaStream_t stream) {
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  if (work.pre != nullptr) {
    return Launch(BlocksShape<1>(limits, work, blocks), stream, SumOneColumnKernel<T, false, true>, work, round);
  }
  const LaunchShape shape = BlocksShape<kVector<T>>(limits, work, blocks);
  const bool fast = PrecisionOf(round) == Precision::kFast;
  if (work.statistic == Statistic::kMeanVariance) {
    return fast ? Launch(shape, stream, SumNarrowColumnsKernel<T, float, true>, work, round)
                : Launch(shape, stream, SumNarrowColumnsKernel<T, double, true>, work, round);
  }
  return fast ? Launch(shape, stream, SumNarrowColumnsKernel<T, float, false>, work, round)
              : Launch(shape, stream, SumNarrowColumnsKernel<T, double, false>, work, round);
}

template <typename T, typename Real>
cudaError_t LaunchApply(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  const int64_t strips = order::CeilDiv(work.reduce0, kApplyPositions);
  return Launch(BlocksShape<kVector<T>>(limits, work, strips), stream, ApplyColumnsKernel<T, Real>, work, apply);
}

}  // namespace

cudaError_t SumColumnParts(const DeviceLimits& limits, const SetWork& work, Round round, cudaStream_t stream) {
  switch (work.x.dtype) {
    case DType::kF16:
      return LaunchSums<F16>(limits, work, round, stream);
    case DType::kBF16:
      return LaunchSums<BF16>(limits, work, round, stream);
    case DType::kF32:
      return LaunchSums<F32>(limits, work, round, stream);
    case DType::kF64:
      break;
  }
  const LaunchShape shape = BlocksShape<1>(limits, work, order::ColumnBlocks(work.reduce0));
  if (work.pre != nullptr) return Launch(shape, stream, SumOneColumnKernel<F64, false, true>, work, round);
  return work.statistic == Statistic::kMeanVariance
             ? Launch(shape, stream, SumOneColumnKernel<F64, true, false>, work, round)
             : Launch(shape, stream, SumOneColumnKernel<F64, false, false>, work, round);
}

cudaError_t MeasureColumns(const DeviceLimits& limits, const SetWork& work, cudaStream_t stream) {
  return Launch(BlocksShape<1>(limits, work, order::ColumnBlocks(work.reduce0)), stream, MeasureColumnsKernel, work);
}

cudaError_t ApplyColumns(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  switch (work.x.dtype) {
    case DType::kF16:
      return LaunchApply<F16, float>(limits, work, apply, stream);
    case DType::kBF16:
      return LaunchApply<BF16, float>(limits, work, apply, stream);
    case DType::kF32:
      return work.precision == Precision::kFast ? LaunchApply<F32, float>(limits, work, apply, stream)
                                                : LaunchApply<F32, double>(limits, work, apply, stream);
    case DType::kF64:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace normd::cuda
