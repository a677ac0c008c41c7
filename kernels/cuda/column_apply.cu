// The apply pass of Pattern::kColumns (the innermost extent is kept), from finished groups: a thread loads the
// statistics and parameters of a few adjacent columns, and walks down some positions. Where rows of columns are whole
// 16-byte vectors, a thread has one vector of columns, and a block makes their numbers once.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/channel_numbers.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

// The number of positions that a thread walks down with the statistics of its columns: enough to pay for loading them,
// and few enough to fill the device with threads.
constexpr int kApplyPositions = 32;
constexpr int kLeastApplyPositions = 8;
constexpr int kApplyColumns = 4;

int PositionsOfThread(const DeviceLimits& limits, const GroupWork& work, int64_t tiles) {
  const int64_t filled = int64_t{1024} * limits.multiprocessors;
  int positions = kApplyPositions;
  while (positions > kLeastApplyPositions && work.keep0 * tiles * order::CeilDiv(work.reduce0, positions) < filled) {
    positions /= 2;
  }
  return positions;
}

// Four elements as f32, and back.
template <typename T>
__device__ __forceinline__ void UnpackSome(const uint2& some, float (&x)[kApplyColumns]) {
  T::Split(some.x, x[0], x[1]);
  T::Split(some.y, x[2], x[3]);
}
template <typename T>
__device__ __forceinline__ void UnpackSome(const uint4& some, float (&x)[kApplyColumns]) {
  UnpackVector<F32>(some, x);
}
template <typename T>
__device__ __forceinline__ void PackSome(const float (&x)[kApplyColumns], uint2* some) {
  *some = make_uint2(T::Join(x[0], x[1]), T::Join(x[2], x[3]));
}
template <typename T>
__device__ __forceinline__ void PackSome(const float (&x)[kApplyColumns], uint4* some) {
  *some = PackVector<F32>(x);
}

// Calculates in f32. Elements of columns that must be calculated in f64, and elements that are not finite, are
// calculated one by one.
template <typename T>
__global__ void __launch_bounds__(kColumnThreads, 5)
    ApplyColumnsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply, int positions) {
  WaitForLaunchBefore();
  constexpr int kColumns = kApplyColumns;
  using S = typename T::Storage;
  using Some = std::conditional_t<std::is_same_v<T, F32>, uint4, uint2>;  // kColumns elements of a position
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(Some) == 0; };
  const bool aligned = work.Columns() % kColumns == 0 && is_aligned(work.x.data) && is_aligned(apply.y);
  const int64_t strips = order::CeilDiv(work.reduce0, positions);
  ForBlocks<kColumns>(work, strips, [&](const BlockPlace& place) {
    const int64_t left = work.Columns() - place.column;
    const int count = static_cast<int>(left < kColumns ? left : kColumns);
    const auto group_of = [&](int c) {
      return place.k0 * work.keep1 +
             (work.reduce1 == 1 ? place.column + c : Divide(place.column + c, work.reduce1).quotient);
    };
    Statistics32 s[kColumns];
    Affine<float> affine[kColumns];  // the weights are factors
    bool in_f32 = true;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = c < count ? c : 0;
      const GroupResult32 group = work.results32[group_of(column)];
      s[c] = {group.shift, group.delta, 1};
      in_f32 = in_f32 && group.in_f32();
      affine[c] =
          ScaledAffineAt<float>(apply.parameters, ParameterOfColumn(work, apply, place.column + column), group.inverse);
    }
    const int64_t begin = place.block * positions;
    const int64_t end = begin + positions < work.reduce0 ? begin + positions : work.reduce0;
    const auto singly = [&](int64_t at) {
      const auto* const x = static_cast<const S*>(work.x.data) + at;
      auto* const y = static_cast<S*>(apply.y) + at;
#pragma unroll 1
      for (int c = 0; c < count; ++c) {
        y[c] = NarrowElements<T, false>(work.results[group_of(c)], apply.parameters, true)
                   .One(x[c], ParameterOfColumn(work, apply, place.column + c));
      }
    };
    const int64_t first = IndexOf(work, place.k0, begin, place.column);
    constexpr int kUnrolled = kLeastApplyPositions;
#pragma unroll 1
    for (int64_t p = 0; p < end - begin; p += kUnrolled) {
      const S* const x = static_cast<const S*>(work.x.data) + first + p * work.Columns();
      S* const y = static_cast<S*>(apply.y) + first + p * work.Columns();
      Some some[kUnrolled] = {};
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (!in_f32 || p + i >= end - begin) continue;
        const S* const from = x + i * work.Columns();
        if (aligned) {
          some[i] = __ldcs(reinterpret_cast<const Some*>(from));
        } else {
          float elements[kColumns] = {};
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            if (c < count) elements[c] = T::Widen(from[c]);
          }
          PackSome<T>(elements, &some[i]);  // NaN stays one
        }
      }
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (p + i >= end - begin) continue;
        float out[kColumns];
        UnpackSome<T>(some[i], out);
        float zero = 0;  // NaN if an element is not finite
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          out[c] = ScaledElement(out[c], s[c], affine[c].weight, affine[c].bias);
          zero = std::fma(out[c], 0.0f, zero);
        }
        if (!in_f32 || !(zero == 0)) {
          singly(first + (p + i) * work.Columns());
          continue;
        }
        S* const to = y + i * work.Columns();
        if (aligned) {
          PackSome<T>(out, &some[i]);
          *reinterpret_cast<Some*>(to) = some[i];
        } else {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            if (c < count) to[c] = T::Narrow(out[c]);
          }
        }
      }
    }
  });
}

// ---- Windows: whole vectors of columns ----

constexpr int kTurn = 4;         // vectors of a thread that are under way together
constexpr int kMostTurns = 32;   // of a block: a thread has a bit for each turn that it leaves
constexpr int kMostAcross = 64;  // vectors: a kilobyte of each position
constexpr int kWindowThreads = 256;
constexpr int kWindowBlocks = 3;  // of a multiprocessor at one time

// How the blocks of threads of a launch share columns and positions: a block has one window of columns of one keep0,
// `across` threads beside each other with a vector of columns each, and `down` threads below each other. It takes every
// parts-th turn, in which a thread has kTurn positions, `down` apart. All go backwards: what the launch before read or
// wrote last is still in the L2 cache.
struct Windows {
  Divisor across, count, parts;  // count: windows of each keep0
  Divisor reduce1, channel_run;
  int columns, positions;  // of each keep0
  int down, turns;
  int64_t row_bytes, turn_bytes;  // from a thread's vector to the next one, and from turn to turn of a block
};

// The place of a thread in its window, and of the window among all.
template <typename T>
struct WindowPlace {
  int vector, row;  // of the window and of a turn
  int k0, part;
  int first_turn;
  int window_column, column;  // the first ones of the window and of the thread

  static __device__ __forceinline__ WindowPlace This(const Windows& windows) {
    const uint32_t block = gridDim.x - 1 - blockIdx.x;
    const uint32_t of_window = windows.parts.Quotient(block);
    const uint32_t k0 = windows.count.Quotient(of_window);
    const uint32_t row = windows.across.Quotient(threadIdx.x);
    WindowPlace place;
    place.k0 = static_cast<int>(k0);
    place.part = static_cast<int>(block - of_window * windows.parts.divisor());
    place.first_turn = windows.turns - static_cast<int>(windows.parts.divisor()) + place.part;
    place.row = static_cast<int>(row);
    place.vector = static_cast<int>(threadIdx.x - row * windows.across.divisor());
    const uint32_t window = of_window - k0 * windows.count.divisor();
    place.window_column = static_cast<int>(window * windows.across.divisor()) * kVector<T>;
    place.column = place.window_column + place.vector * kVector<T>;
    return place;
  }
  // The thread's first position in turn `turn`, and the number of its positions there.
  __device__ __forceinline__ int PositionOf(const Windows& windows, int turn) const {
    return turn * (windows.down * kTurn) + row;
  }
  __device__ __forceinline__ int CountOf(const Windows& windows, int turn) const {
    const int left = windows.positions - PositionOf(windows, turn);
    int count = 0;
    for (int i = 0; i < kTurn; ++i) count += i * windows.down < left ? 1 : 0;
    return count;
  }
};

// The group of a column, and the index of its parameters.
struct ColumnIndex {
  int64_t group, k1, parameter;
  bool is_first;  // of its group

  static __device__ __forceinline__ ColumnIndex Of(const GroupWork& work, const ApplyWork& apply,
                                                   const Windows& windows, int k0, int column) {
    const uint32_t k1 = windows.reduce1.Quotient(column);
    const uint32_t r1 = column - k1 * windows.reduce1.divisor();
    const int64_t parameter = k1 * apply.index.channels_per_keep1 + windows.channel_run.Quotient(r1);
    return {k0 * work.keep1 + k1, k1, apply.parameters.absent() ? 0 : parameter, r1 == 0};
  }
};

// y, element by element, of a thread in those of its turns whose bits are set: where an element must be calculated in
// f64 or is not finite. Few need it: inlined, it would take registers from what all need.
template <typename T>
__device__ __noinline__ void ApplySingly(const GroupWork& work, const ApplyWork& apply, const Windows& windows,
                                         unsigned turns) {
  using S = typename T::Storage;
  const auto place = WindowPlace<T>::This(windows);
#pragma unroll 1
  for (; turns != 0; turns &= turns - 1) {
    const int turn =
        place.first_turn - (__ffs(static_cast<int>(turns)) - 1) * static_cast<int>(windows.parts.divisor());
    const int count = place.CountOf(windows, turn);
#pragma unroll 1
    for (int i = 0; i < count * kVector<T>; ++i) {
      const int column = place.column + i % kVector<T>;
      const ColumnIndex index = ColumnIndex::Of(work, apply, windows, place.k0, column);
      const int64_t position = place.PositionOf(windows, turn) + i / kVector<T> * windows.down;
      const int64_t at = IndexOf(work, place.k0, position, column);
      static_cast<S*>(apply.y)[at] =
          NarrowElements<T, false>(ResultAt(work, index.group, index.k1), apply.parameters, true)
              .One(static_cast<const S*>(work.x.data)[at], index.parameter);
    }
  }
}

// The numbers of a window's columns, to shared memory: [column of a vector][vector].
template <typename T, ChannelWay kWay>
__device__ __forceinline__ void MakeNumbers(const GroupWork& work, const ApplyWork& apply, const Windows& windows,
                                            const WindowPlace<T>& place, ChannelNumbers<RealOf<kWay>>* numbers) {
  const int across = static_cast<int>(windows.across.divisor());
  const int left = windows.columns - place.window_column;
  const int count = left < across * kVector<T> ? left : across * kVector<T>;
  for (int c = static_cast<int>(threadIdx.x); c < count; c += static_cast<int>(blockDim.x)) {
    const ColumnIndex index = ColumnIndex::Of(work, apply, windows, place.k0, place.window_column + c);
    numbers[c % kVector<T> * across + c / kVector<T>] = NumbersOf<kWay>(
        work, apply.parameters, index.group, index.k1, index.parameter, index.is_first && place.part == 0);
  }
}

// y of the first `count` vectors of a turn. Returns false, without having written any, if an element is not finite.
template <typename T, ChannelWay kWay, bool kAll>
__device__ __forceinline__ bool StoreTurn(const ChannelNumbers<RealOf<kWay>> (&numbers)[kVector<T>], int count,
                                          int64_t row_bytes, uint4 (&words)[kTurn], char* y) {
  unsigned non_finite = 0;
#pragma unroll
  for (int i = 0; i < kTurn; ++i) {
    if (!kAll && i >= count) continue;
    float values[kVector<T>];
    UnpackVector<T>(words[i], values);
#pragma unroll
    for (int c = 0; c < kVector<T>; ++c) values[c] = ChannelElement<kWay>(values[c], numbers[c]);
    words[i] = PackVector<T>(values);
    non_finite |= NonFinite<T, kWay>(words[i]);
  }
  if (non_finite != 0) return false;
#pragma unroll
  for (int i = 0; i < kTurn; ++i) {
    if (kAll || i < count) StoreStreaming(y + i * row_bytes, words[i]);
  }
  return true;
}

template <typename T, ChannelWay kWay>
__global__ void __launch_bounds__(kWindowThreads, kWindowBlocks)
    ApplyWindowsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                       const __grid_constant__ Windows windows) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  auto* const of_window = reinterpret_cast<ChannelNumbers<RealOf<kWay>>*>(shared);
  const auto place = WindowPlace<T>::This(windows);
  const bool idle = place.column >= windows.columns;
  int turn = place.first_turn;
  const int64_t first = IndexOf(work, place.k0, place.PositionOf(windows, turn), place.column);
  const auto* x = reinterpret_cast<const char*>(static_cast<const typename T::Storage*>(work.x.data) + first);
  auto* y = reinterpret_cast<char*>(static_cast<typename T::Storage*>(apply.y) + first);
  uint4 words[kTurn];
  int count = 0;
  const auto load = [&] {
    if ((turn + 1) * (windows.down * kTurn) <= windows.positions) {
      count = kTurn;
#pragma unroll
      for (int i = 0; i < kTurn; ++i) words[i] = LoadStreaming(x + i * windows.row_bytes);
      return;
    }
    count = place.CountOf(windows, turn);
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      if (i < count) words[i] = LoadStreaming(x + i * windows.row_bytes);
    }
  };
  if (!idle) load();
  MakeNumbers<T, kWay>(work, apply, windows, place, of_window);
  __syncthreads();
  if (idle) return;
  ChannelNumbers<RealOf<kWay>> numbers[kVector<T>];
#pragma unroll
  for (int c = 0; c < kVector<T>; ++c) numbers[c] = of_window[c * windows.across.divisor() + place.vector];
  unsigned singly = 0;  // a bit for each turn that is left to ApplySingly
#pragma unroll 1
  for (unsigned bit = 1;; bit *= 2) {
    const bool done = count == kTurn ? StoreTurn<T, kWay, true>(numbers, count, windows.row_bytes, words, y)
                                     : StoreTurn<T, kWay, false>(numbers, count, windows.row_bytes, words, y);
    if (!done) singly |= bit;
    turn -= static_cast<int>(windows.parts.divisor());
    if (turn < 0) break;
    x -= windows.turn_bytes;
    y -= windows.turn_bytes;
    load();
  }
  if (singly != 0) ApplySingly<T>(work, apply, windows, singly);
}

// ---- Launches ----

template <typename T, ChannelWay kWay>
cudaError_t LaunchWindows(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                          cudaStream_t stream) {
  constexpr int kLeastThreads = 128;
  const int64_t vectors = Tiles<kVector<T>>(work);
  const int64_t count = order::CeilDiv(vectors, kMostAcross);
  const auto across = static_cast<int>(order::CeilDiv(vectors, count));
  const int64_t all = work.keep0 * count;
  int down = kWindowThreads / across;
  if (down > work.reduce0) down = static_cast<int>(work.reduce0);
  const auto turns_of = [&](int rows) { return order::CeilDiv(work.reduce0, int64_t{rows} * kTurn); };
  // Smaller blocks where there are too few large ones to keep all multiprocessors busy.
  while (down > 1 && across * down >= kLeastThreads && all * turns_of(down) < int64_t{2} * limits.multiprocessors) {
    down /= 2;
  }
  const int64_t turns = turns_of(down);
  // As many blocks as run at one time, if that is few enough turns for each.
  const int64_t running = int64_t{kWindowBlocks} * limits.multiprocessors * (kWindowThreads / (across * down));
  const int64_t wanted = std::max(running / all, order::CeilDiv(turns, kMostTurns));
  const int64_t parts = std::clamp<int64_t>(wanted, 1, turns);
  const int64_t row_bytes = down * work.Columns() * SizeOf(work.x.dtype);
  const Windows windows = {.across = Divisor(across),
                           .count = Divisor(count),
                           .parts = Divisor(parts),
                           .reduce1 = Divisor(work.reduce1),
                           .channel_run = Divisor(apply.index.channel_run),
                           .columns = static_cast<int>(work.Columns()),
                           .positions = static_cast<int>(work.reduce0),
                           .down = down,
                           .turns = static_cast<int>(turns),
                           .row_bytes = row_bytes,
                           .turn_bytes = parts * kTurn * row_bytes};
  const LaunchShape shape = {
      .blocks = all * parts,
      .threads = across * down,
      .shared_bytes = int64_t{across} * kVector<T> * static_cast<int64_t>(sizeof(ChannelNumbers<RealOf<kWay>>))};
  return Launch(shape, stream, ApplyWindowsKernel<T, kWay>, work, apply, windows);
}

template <int kColumns, typename Kernel>
cudaError_t LaunchApply(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream,
                        Kernel kernel) {
  const int positions = PositionsOfThread(limits, work, Tiles<kColumns>(work));
  return Launch(BlocksShape<kColumns>(limits, work, order::CeilDiv(work.reduce0, positions)), stream, kernel, work,
                apply, positions);
}

}  // namespace

bool AreInWindows(const GroupWork& work, const ApplyWork& apply) {
  constexpr int64_t kMost = 1 << 30;
  const int64_t of_vector = kVectorBytes / SizeOf(work.x.dtype);
  return work.Columns() % of_vector == 0 && work.Columns() <= kMost && work.reduce0 <= kMost &&
         IsVectorAligned(work.x.data) && IsVectorAligned(apply.y) &&
         (work.keep0 == 1 || work.reduce0 * work.Columns() / of_vector >= kWindowThreads);
}

cudaError_t ApplyColumns(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         cudaStream_t stream) {
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    if (AreInWindows(work, apply)) return LaunchWindows<T, ChannelWay::kScaled>(limits, work, apply, stream);
    return LaunchApply<kApplyColumns>(limits, work, apply, stream, ApplyColumnsKernel<T>);
  });
}

}  // namespace normd::cuda
