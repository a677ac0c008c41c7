// The reduce pass of Pattern::kColumns (the innermost extent is kept). For narrow elements the threads of a block share
// the positions of summation_order.h's blocks, FAST run by run and EXACT block by block, and fold their sums as far as
// they can; statistics.cu folds the rest. For f64 elements, and FAST with a mask, a thread has one column of a few
// blocks.
#include <algorithm>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kBlock = static_cast<int>(order::kColumnBlock);

// Loads the elements of a vector one by one; those after the first `count` are 0.
template <typename T>
__device__ __forceinline__ void LoadColumns(const typename T::Storage* from, int count,
                                            typename T::Storage (&to)[kVector<T>]) {
#pragma unroll
  for (int c = 0; c < kVector<T>; ++c) to[c] = c < count ? from[c] : typename T::Storage{};
}

// A whole vector, in one access: a copy of it as elements would make the compiler load byte by byte.
template <typename S>
__device__ __forceinline__ uint4 LoadWords(const S* from) {
  return *reinterpret_cast<const uint4*>(from);
}

// True if every position of every tile can be read in one access.
template <typename T>
bool IsAligned(const GroupWork& work, const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0 && work.Columns() % kVector<T> == 0;
}

// The place that a block of threads sums: work.fold blocks of positions, which become one part, of adjacent columns.
struct FoldPlace {
  // The number of parts of each keep0 and column.
  static __host__ __device__ __forceinline__ int64_t Parts(const GroupWork& work) {
    return Divide(order::ColumnBlocks(work.reduce0) + work.fold - 1, work.fold).quotient;
  }

  int64_t k0 = 0;
  int64_t part = 0;         // index among the parts of this keep0
  int64_t first_block = 0;  // index of a block of positions
  int blocks = 0;
  int64_t column = 0;

  // The first place of a block of threads, where `sharers` of them share the parts of the same columns.
  static __device__ __forceinline__ FoldPlace This(const GroupWork& work, int columns, int64_t sharers) {
    const int64_t groups = Divide(work.Columns() + columns - 1, columns).quotient;
    const Division group = Divide(blockIdx.x, groups);
    const Division share = Divide(group.quotient, sharers);
    FoldPlace place;
    place.column = group.remainder * columns;
    place.k0 = share.quotient;
    place.GoTo(work, share.remainder);
    return place;
  }
  // The place in another part.
  __device__ __forceinline__ void GoTo(const GroupWork& work, int64_t to) {
    part = to;
    first_block = part * work.fold;
    const int64_t left = order::ColumnBlocks(work.reduce0) - first_block;
    blocks = static_cast<int>(left < work.fold ? left : work.fold);
  }
  __device__ __forceinline__ NarrowPart* PartOf(const GroupWork& work, int64_t of_column) const {
    return static_cast<NarrowPart*>(work.parts) + (k0 * Parts(work) + part) * work.Columns() + of_column;
  }
};

LaunchShape FoldShape(const GroupWork& work, int columns, int threads, int64_t shared_bytes, int64_t sharers) {
  return {.blocks = work.keep0 * sharers * order::CeilDiv(work.Columns(), columns),
          .threads = threads,
          .shared_bytes = shared_bytes};
}

// The group (its k1) that a column belongs to.
__device__ __forceinline__ int64_t GroupOfColumn(const GroupWork& work, int64_t column) {
  return work.reduce1 == 1 ? column : Divide(column, work.reduce1).quotient;
}

// FAST without a mask: a thread sums one run of eight positions, for the columns of a 16-byte access. The threads of a
// block have the runs of four adjacent blocks of positions at a time, which is a turn. One thread then adds the runs of
// each of the four blocks of a column in their order, and folds the blocks, while the elements of the next turn are
// under way. A block of threads has one part after the other of the same columns, and samples these once.
constexpr int kBlockRuns = static_cast<int>(order::kColumnBlock / order::kFastColumnRun);
constexpr int kRunBlocks = 4;
constexpr int kRuns = kRunBlocks * kBlockRuns;
constexpr int kRunTiles = 8;
constexpr int kRunThreads = kRuns * kRunTiles;
static_assert(order::kFastColumnRun % 2 == 0);
// The most turns of kRunBlocks blocks that make one part, as a power of two.
constexpr int kFoldLevels = 5;
// The blocks of threads that a multiprocessor has at a time.
constexpr int kRunOccupancy = 4;

template <typename T>
inline constexpr int kRunColumns = kRunTiles* kVector<T>;
// The floats of one run: two sums for each column, in an order in which no two threads meet in a bank.
template <typename T>
inline constexpr int kRunStride = 2 * kRunColumns<T> + 16;

// The shared memory of SampleColumns.
template <typename T>
struct ColumnShifts {
  float shifts[kRunColumns<T>];
  ColumnSample samples[kRunThreads];
};

// Writes the shifts of the block's columns. A group may have columns of other blocks, too, which are sampled again.
// All threads call it, and may read the shifts when they return.
template <typename T>
__device__ __forceinline__ void SampleColumns(const GroupWork& work, const FoldPlace& place, ColumnShifts<T>* to) {
  const int own = static_cast<int>(threadIdx.x);
  const int64_t own_column = place.column + own;
  const int64_t end = place.column + kRunColumns<T> < work.Columns() ? place.column + kRunColumns<T> : work.Columns();
  if (work.reduce1 == 1) {
    if (own_column < end && own < kRunColumns<T>) {
      to->shifts[own] = static_cast<float>(
          SampleColumn<T>(work, place.k0, own_column).Shift(work, FirstOf(work, place.k0, own_column)));
    }
    __syncthreads();
    return;
  }
  // All threads sample columns; each of the first ones has a group, and adds up its columns in their order.
  static_assert(kRunColumns<T> <= kRunThreads);
  const int64_t first_k1 = GroupOfColumn(work, place.column);
  const int64_t columns_end = (GroupOfColumn(work, end - 1) + 1) * work.reduce1;
  const int64_t k1 = first_k1 + own;
  const int64_t group_begin = k1 * work.reduce1, group_end = group_begin + work.reduce1;
  const bool has_group = group_end <= columns_end;
  const auto within = [](int64_t column, int64_t low, int64_t high) {
    return column < low ? low : column < high ? column : high;
  };
  ColumnSample sample;
  for (int64_t from = first_k1 * work.reduce1; from < columns_end; from += kRunThreads) {
    if (from + own < columns_end) to->samples[own] = SampleColumn<T>(work, place.k0, from + own);
    __syncthreads();
    if (has_group) {
      const int64_t low = within(group_begin, from, from + kRunThreads);
      sample.Add(to->samples + (low - from), within(group_end, from, from + kRunThreads) - low);
    }
    __syncthreads();
  }
  if (has_group) {
    const auto shift = static_cast<float>(sample.Shift(work, FirstOf(work, place.k0, k1)));
    for (int64_t c = within(group_begin, place.column, end); c < within(group_end, place.column, end); ++c) {
      to->shifts[c - place.column] = shift;
    }
  }
  __syncthreads();
}

// `sharers` blocks of threads share the parts of the same columns. kAligned: see IsAligned.
template <typename T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(kRunThreads, kRunOccupancy)
    SumColumnRunsKernel(const __grid_constant__ GroupWork work, int64_t sharers) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  constexpr int kColumns = kVector<T>;
  constexpr int kRun = static_cast<int>(order::kFastColumnRun);
  FoldPlace place = FoldPlace::This(work, kRunColumns<T>, sharers);
  const int64_t parts = FoldPlace::Parts(work);
  const int tile = static_cast<int>(threadIdx.x) % kRunTiles;
  const int run = static_cast<int>(threadIdx.x) / kRunTiles;
  const int64_t column = place.column + tile * kColumns;
  const int64_t left = work.Columns() - column;
  const int count = static_cast<int>(left < 0 ? 0 : left < kColumns ? left : kColumns);
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  // The elements of this thread in a turn, and how many of its positions there are.
  uint4 words[kRun];
  int64_t positions = 0;
  const auto load = [&](int block) {
    const int64_t begin = (place.first_block + block) * kBlock + run * kRun;
    const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + IndexOf(work, place.k0, begin, column);
    positions = count == 0 ? 0 : work.reduce0 - begin;
    if (kAligned && positions >= kRun) {
#pragma unroll
      for (int p = 0; p < kRun; ++p) words[p] = LoadWords(x + p * work.Columns());
      return;
    }
#pragma unroll
    for (int p = 0; p < kRun; ++p) {
      words[p] = make_uint4(0, 0, 0, 0);
      if (p >= positions) continue;
      if constexpr (kAligned) {
        words[p] = LoadWords(x + p * work.Columns());
      } else {
        VectorOf<typename T::Storage> some;
        LoadColumns<T>(x + p * work.Columns(), count, some.lanes);
        words[p] = AsWords(some);
      }
    }
  };
  float shift[kColumns] = {};
  if constexpr (kCentred) {
    auto* const shifts = reinterpret_cast<ColumnShifts<T>*>(shared);
    SampleColumns(work, place, shifts);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) shift[c] = c < count ? shifts->shifts[tile * kColumns + c] : 0.0f;
    __syncthreads();  // the sums take the place of the shifts
  }
  load(0);
  // The column, and the sum of that column (first or second), that this thread adds up.
  const int own_column = static_cast<int>(threadIdx.x) / 2;
  const int own_number = static_cast<int>(threadIdx.x) % 2;
  const bool has_column = own_column < kRunColumns<T> && place.column + own_column < work.Columns();
  PairwiseStack<kFoldLevels> stack;
  int block = 0, turn = 0;
  bool is_last = false;
#pragma unroll 1
  for (int buffer = 0; !is_last; buffer ^= 1) {
    NarrowSums<float> even[kColumns], odd[kColumns];
    const auto take_all = [&](auto is_there) {
      const auto take = [&](int p, NarrowSums<float>(&sums)[kColumns]) {
        float values[kColumns];
        UnpackVector<T>(words[p], values);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float value = kCentred ? values[c] - shift[c] : values[c];
          sums[c].template Take<kCentred>(is_there(p) ? value : 0.0f, is_abs);
        }
      };
#pragma unroll
      for (int p = 0; p < kRun; p += 2) take(p, even);
#pragma unroll
      for (int p = 1; p < kRun; p += 2) take(p, odd);
    };
    if (positions >= kRun) {
      take_all([](int /*p*/) { return true; });
    } else {
      // A difference of 0 changes no sum that began with +0.
      take_all([&](int p) { return p < positions; });
    }
    NarrowPart* part = nullptr;  // to write after this turn
    block += kRunBlocks;
    if (block >= place.blocks) {
      part = place.PartOf(work, place.column + own_column);
      block = 0;
      is_last = place.part + sharers >= parts;
      if (!is_last) place.GoTo(work, place.part + sharers);
    }
    float* const sums = reinterpret_cast<float*>(shared) + buffer * (kRuns * kRunStride<T>);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float* const of_column = sums + run * kRunStride<T> + tile * kColumns + c;
      if constexpr (kCentred) of_column[0] = even[c].first + odd[c].first;
      of_column[kRunColumns<T> + 16] = even[c].second + odd[c].second;
    }
    if (!is_last) load(block);
    __syncthreads();
    if (!has_column) continue;
    // Blocks after the last one have sums of 0, which change no sum that began with +0.
    double of_block[kRunBlocks] = {};
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const float* const of_column = sums + r * kRunStride<T> + own_column;
      if (kCentred || own_number == 1) {
        of_block[r / kBlockRuns] += static_cast<double>(of_column[own_number * (kRunColumns<T> + 16)]);
      }
    }
    static_assert(kRunBlocks == 4);
    stack.Push(turn, (of_block[0] + of_block[1]) + (of_block[2] + of_block[3]));
    ++turn;
    if (part == nullptr) continue;
    (own_number == 0 ? part->first : part->second) = stack.Total(turn);
    turn = 0;
  }
}

// EXACT: a thread sums up to four adjacent blocks of positions, for two columns that are a warp apart.
constexpr int kExactWarps = 8;  // of a block of threads
constexpr int kExactThreads = kExactWarps * kWarp;
constexpr int kExactColumns = 2 * kWarp;

template <typename T, bool kCentred>
__global__ void __launch_bounds__(kExactThreads) SumColumnBlocksKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  auto* const folded = reinterpret_cast<NarrowPart*>(shared);  // [warp][column]
  const FoldPlace place = FoldPlace::This(work, kExactColumns, FoldPlace::Parts(work));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int of_warp = static_cast<int>(work.fold) / kExactWarps;  // blocks: 1, 2 or 4
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  int64_t begin = (place.first_block + warp * of_warp) * kBlock;
  double shift[2];
  const typename T::Storage* x[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    // Columns after the last one are read as the last one, and not written.
    const int64_t column = place.column + c * kWarp + lane;
    const int64_t from = column < work.Columns() ? column : work.Columns() - 1;
    shift[c] = kCentred ? FirstCounted(work, FirstOf(work, place.k0, GroupOfColumn(work, from))) : 0;
    x[c] = static_cast<const typename T::Storage*>(work.x.data) + IndexOf(work, place.k0, begin, from);
  }
  // Blocks after the last one have sums of 0, which change no sum that began with +0.
  NarrowSums<double> total[2], pair[2];
#pragma unroll 1
  for (int b = 0; b < of_warp; ++b) {
    const int64_t left = work.reduce0 - begin;
    const int positions = static_cast<int>(left < kBlock ? left : kBlock);
    NarrowSums<double> sums[2];
#pragma unroll 8
    for (int p = 0; p < positions; ++p) {
      const bool counts = Counts(work, begin + p);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const double value = LoadAs<double>(T(), x[c] + p * work.Columns());
        if (counts) sums[c].template Take<kCentred>(kCentred ? value - shift[c] : value, is_abs);
      }
    }
    begin += kBlock;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      x[c] += kBlock * work.Columns();
      pair[c].AddAll(sums[c]);
      if (b % 2 != 0 || of_warp == 1) {
        total[c].AddAll(pair[c]);
        pair[c] = {};
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) folded[warp * kExactColumns + c * kWarp + lane] = {total[c].first, total[c].second};
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (own >= kExactColumns || place.column + own >= work.Columns()) return;
  static_assert(kExactWarps == 1 << 3);
  *place.PartOf(work, place.column + own) = FoldTree<3, NarrowPart>(
      0, order::CeilDiv(place.blocks, of_warp), [&](int64_t i) { return folded[i * kExactColumns + own]; },
      AddNarrow());
}

// A column of one part: of `blocks` adjacent blocks of positions.
struct ThreadPlace {
  int64_t k0 = 0, first_block = 0, column = 0;
  int blocks = 0;
};

// Calls body(place, part) for the columns of parts that this thread sums; `part` is the index in work.parts.
template <typename Body>
__device__ __forceinline__ void ForParts(const GroupWork& work, Body body) {
  const int64_t parts = FoldPlace::Parts(work);
  ForBlocks<1>(work, parts, [&](const BlockPlace& place) {
    const int64_t first = place.block * work.fold;
    const int64_t left = order::ColumnBlocks(work.reduce0) - first;
    body(ThreadPlace{place.k0, first, place.column, static_cast<int>(left < work.fold ? left : work.fold)},
         (place.k0 * parts + place.block) * work.Columns() + place.column);
  });
}
LaunchShape PartsShape(const DeviceLimits& limits, const GroupWork& work) {
  return BlocksShape<1>(limits, work, FoldPlace::Parts(work));
}

// FAST with a mask, which decides where runs begin: a thread has one column of a part.
template <typename T, bool kCentred>
__global__ void __launch_bounds__(kColumnThreads) SumMaskedColumnsKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  ForParts(work, [&](const ThreadPlace& place, int64_t part) {
    float shift = 0;
    if constexpr (kCentred) {
      const int64_t k1 = GroupOfColumn(work, place.column);
      ColumnSample sample;
#pragma unroll 1
      for (int64_t r1 = 0; r1 < work.reduce1; ++r1) {
        sample.Add(SampleColumn<T>(work, place.k0, k1 * work.reduce1 + r1));
      }
      shift = static_cast<float>(sample.Shift(work, FirstOf(work, place.k0, k1)));
    }
    static_cast<NarrowPart*>(work.parts)[part] = FoldFour<NarrowPart>(
        place.blocks,
        [&](int b) {
          return SumNarrowColumn<T, float, kCentred>(work, place.k0, place.first_block + b, place.column, shift);
        },
        AddNarrow());
  });
}

// f64 elements: a thread has one column of a part.
template <bool kCentred>
__global__ void __launch_bounds__(kColumnThreads)
    SumWideColumnsKernel(const __grid_constant__ GroupWork work, Round round) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const bool is_abs = work.statistic == Statistic::kAbsSum || work.statistic == Statistic::kPowerSum;
  ForParts(work, [&](const ThreadPlace& place, int64_t part) {
    const int64_t k1 = place.column / work.reduce1;
    const GroupState state = work.states[place.k0 * work.keep1 + k1];
    if (state.round != round) return;
    const auto sum_block = [&](int b) -> PairSums {
      const int64_t begin = (place.first_block + b) * kBlock;
      const int64_t end = begin + kBlock < work.reduce0 ? begin + kBlock : work.reduce0;
      WideSums sums;
      for (int64_t p = begin; p < end; ++p) {
        if (!Counts(work, p)) continue;
        const int64_t at = IndexOf(work, place.k0, p, place.column);
        const double x = static_cast<const double*>(work.x.data)[at];
        const double lo = work.x.lo == nullptr ? 0 : work.x.lo[at];
        sums.template Take<kCentred>(WideValue<kCentred>(work, state, {x, lo}), is_abs);
      }
      return {sums.first, sums.second};
    };
    static_cast<PairSums*>(work.parts)[part] = FoldFour<PairSums>(place.blocks, sum_block, AddWide());
  });
}

// The positions of one thread of MeasureColumnsKernel: the order of magnitudes does not matter.
constexpr int64_t kMeasuredPositions = 128;

__global__ void __launch_bounds__(kColumnThreads) MeasureColumnsKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  const int64_t strips = order::CeilDiv(work.reduce0, kMeasuredPositions);
  ForBlocks<1>(work, strips, [&](const BlockPlace& place) {
    const int64_t begin = place.block * kMeasuredPositions;
    const int64_t end = begin + kMeasuredPositions < work.reduce0 ? begin + kMeasuredPositions : work.reduce0;
    LaneMagnitude magnitude;
    for (int64_t p = begin; p < end; ++p) {
      if (!Counts(work, p)) continue;
      magnitude.Take(static_cast<const double*>(work.x.data)[IndexOf(work, place.k0, p, place.column)]);
    }
    magnitude.AddTo(&work.magnitudes[place.k0 * work.keep1 + place.column / work.reduce1]);
  });
}

// How the blocks of threads of SumColumnRunsKernel share the parts of `fold` blocks of positions.
struct RunShares {
  int64_t sharers = 1;  // of the parts of the same columns
  int64_t turns = 0;    // for which the launch lasts, the sample counted as one
  int64_t bytes = 0;    // of x that are read at a time

  static RunShares Of(const DeviceLimits& limits, const GroupWork& work, int64_t fold) {
    const int64_t columns = int64_t{kRunTiles} * (kVectorBytes / SizeOf(work.x.dtype));
    const int64_t tiles = std::max<int64_t>(1, work.keep0 * order::CeilDiv(work.Columns(), columns));
    const int64_t filled = int64_t{kRunOccupancy} * limits.multiprocessors;
    const int64_t blocks = order::ColumnBlocks(work.reduce0);
    const int64_t parts = std::max<int64_t>(1, order::CeilDiv(blocks, fold));
    RunShares best;
    for (int64_t waves = 1; waves <= 4; ++waves) {
      const int64_t sharers = std::clamp<int64_t>(waves * filled / tiles, 1, parts);
      const int64_t of_block =
          std::min(order::CeilDiv(parts, sharers) * fold / kRunBlocks, order::CeilDiv(blocks, kRunBlocks));
      const int64_t turns = order::CeilDiv(tiles * sharers, filled) * (of_block + 1);
      if (best.turns != 0 && turns >= best.turns) continue;
      best = {sharers, turns, work.keep0 * sharers * fold * kBlock * work.Columns() * SizeOf(work.x.dtype)};
    }
    return best;
  }
};
// What surely stays in the L2 cache of a GPU for data centres until it is read again.
constexpr int64_t kBytesInL2 = int64_t{32} << 20;

template <typename T, bool kCentred>
cudaError_t LaunchNarrow(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  if (PrecisionOf(round) == Precision::kExact) {
    const int64_t shared_bytes = kExactWarps * kExactColumns * static_cast<int64_t>(sizeof(NarrowPart));
    return Launch(FoldShape(work, kExactColumns, kExactThreads, shared_bytes, FoldPlace::Parts(work)), stream,
                  SumColumnBlocksKernel<T, kCentred>, work);
  }
  if (work.mask != nullptr) {
    return Launch(PartsShape(limits, work), stream, SumMaskedColumnsKernel<T, kCentred>, work);
  }
  const int64_t shared_bytes = 2 * kRuns * kRunStride<T> * static_cast<int64_t>(sizeof(float));
  static_assert(2 * kRuns * kRunStride<T> * sizeof(float) >= sizeof(ColumnShifts<T>));
  const int64_t sharers = RunShares::Of(limits, work, work.fold).sharers;
  const LaunchShape shape = FoldShape(work, kRunColumns<T>, kRunThreads, shared_bytes, sharers);
  return IsAligned<T>(work, work.x.data)
             ? Launch(shape, stream, SumColumnRunsKernel<T, kCentred, true>, work, sharers)
             : Launch(shape, stream, SumColumnRunsKernel<T, kCentred, false>, work, sharers);
}

}  // namespace

cudaError_t SumColumnParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  const LaunchShape shape = PartsShape(limits, work);
  return VisitDType(work.x.dtype, [&]<typename T>() {
    return VisitCentred(work.statistic, [&]<bool kCentred>() {
      if constexpr (kIsWide<T>) {
        return Launch(shape, stream, SumWideColumnsKernel<kCentred>, work, round);
      } else {
        return LaunchNarrow<T, kCentred>(limits, work, round, stream);
      }
    });
  });
}

cudaError_t MeasureColumns(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  return Launch(BlocksShape<1>(limits, work, order::CeilDiv(work.reduce0, kMeasuredPositions)), stream,
                MeasureColumnsKernel, work);
}

int64_t LeastFold(const DeviceLimits& limits, const GroupWork& work) {
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  int64_t fold = 4;
  while (fold > 1 &&
         work.keep0 * work.Columns() * order::CeilDiv(blocks, fold) < int64_t{1024} * limits.multiprocessors)
    fold /= 2;
  return fold;
}

int64_t FoldOf(const DeviceLimits& limits, const GroupWork& work) {
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  // The blocks of threads of a launch whose blocks of threads each have so many columns and blocks of positions.
  const auto thread_blocks = [&](int64_t columns, int64_t fold) {
    return work.keep0 * order::CeilDiv(work.Columns(), columns) * order::CeilDiv(blocks, fold);
  };
  if (work.precision == Precision::kExact) {
    // Fewer blocks of positions for each warp where the device would be idle otherwise.
    int64_t fold = 4 * kExactWarps;
    while (fold > kExactWarps && thread_blocks(kExactColumns, fold) < int64_t{2} * limits.multiprocessors) fold /= 2;
    return fold;
  }
  if (work.mask != nullptr) return work.fold;
  // Folds more only while the launch lasts no longer, and while its end leaves adjacent elements in the L2 cache.
  int64_t fold = kRunBlocks;
  const int64_t turns = RunShares::Of(limits, work, fold).turns;
  while (fold < kRunBlocks << kFoldLevels) {
    const RunShares next = RunShares::Of(limits, work, 2 * fold);
    if (next.turns > turns || next.bytes > kBytesInL2) break;
    fold *= 2;
  }
  return fold;
}

}  // namespace normd::cuda
