// The sums of one chunk of a group that lies in shared memory, in f32 (FAST): see kernels/summation_order.h. Lane l of
// a warp has partial sums 2l and 2l + 1, so that it takes two adjacent elements in one access. In the path: included by
// group_tiles.cu. Device functions; all lanes of a warp call them together.
#ifndef NORMD_KERNELS_CUDA_TILE_SUMS_CUH_
#define NORMD_KERNELS_CUDA_TILE_SUMS_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// The sums below may read this many elements after the last one, and make nothing of them.
inline constexpr int kOverread = 64;

// Two adjacent elements as f32. kEven: they are aligned as a pair.
template <typename T, bool kEven>
__device__ __forceinline__ float2 LoadPair(const typename T::Storage* from) {
  if constexpr (!kEven) {
    return make_float2(T::Widen(from[0]), T::Widen(from[1]));
  } else if constexpr (std::is_same_v<T, F32>) {
    return *reinterpret_cast<const float2*>(from);
  } else {
    float2 pair;
    T::Split(*reinterpret_cast<const unsigned*>(from), pair.x, pair.y);
    return pair;
  }
}

// The partial sums of one lane.
struct LanePair {
  float first[2] = {}, second[2] = {};

  __device__ __forceinline__ void TakeEven(float diff) {
    first[0] += diff;
    second[0] = std::fma(diff, diff, second[0]);
  }
  __device__ __forceinline__ void TakeOdd(float diff) {
    first[1] += diff;
    second[1] = std::fma(diff, diff, second[1]);
  }
  // Ends a step: adds its sums to those of the steps before.
  __device__ __forceinline__ void MoveTo(LanePair* totals) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      totals->first[k] += first[k];
      totals->second[k] += second[k];
    }
    *this = LanePair();
  }
};

// The sums of a chunk about `shift`: of `length` elements of each of `segments` segments, which lie `stride` elements
// apart; `x` is the first one. The first lane has the result. `step_segments` is order::StepSegments(length). REQUIRES:
// kOverread elements after the last one may be read.
template <typename T, bool kEven>
__device__ __forceinline__ PairSums SumPairs(const typename T::Storage* x, int stride, int segments, int length,
                                             int step_segments, float shift) {
  constexpr int kTurn = static_cast<int>(order::kFastPartials);
  constexpr int kStepTurns = static_cast<int>(order::kFastRowStep / order::kFastPartials);
  static_assert(kTurn <= kOverread);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  LanePair totals, sums;
  const int whole = length / kTurn;
  const int rest = length % kTurn;
  const bool has_even = 2 * lane < rest, has_odd = 2 * lane + 1 < rest;
  const auto take = [&](const float2& pair) {
    sums.TakeEven(pair.x - shift);
    sums.TakeOdd(pair.y - shift);
  };
  // The same after the last whole turn of a segment. Differences of 0 change no sum that began with +0.
  const auto take_rest = [&](const float2& pair) {
    sums.TakeEven(has_even ? pair.x - shift : 0.0f);
    sums.TakeOdd(has_odd ? pair.y - shift : 0.0f);
  };
  const typename T::Storage* from = x + 2 * lane;
  if (whole == 0) {  // a step is kStepTurns segments
    const auto take_step = [&](int count) {
      float2 pairs[kStepTurns];
#pragma unroll
      for (int i = 0; i < kStepTurns; ++i) {
        if (i < count) pairs[i] = LoadPair<T, kEven>(from + i * stride);
      }
#pragma unroll
      for (int i = 0; i < kStepTurns; ++i) {
        if (i < count) take_rest(pairs[i]);
      }
      sums.MoveTo(&totals);
    };
#pragma unroll 1
    for (; segments > kStepTurns; segments -= kStepTurns) {
      take_step(kStepTurns);
      from += kStepTurns * stride;
    }
    take_step(segments);
  } else {
    int in_step = 0;
#pragma unroll 1
    for (; segments > 0; --segments, from += stride) {
      const typename T::Storage* at = from;
      int left = whole;
#pragma unroll 1
      for (; left >= kStepTurns; left -= kStepTurns, at += kStepTurns * kTurn) {
#pragma unroll
        for (int i = 0; i < kStepTurns; ++i) take(LoadPair<T, kEven>(at + i * kTurn));
        // Of segments that are longer than this step, or as long, a step has no more than one.
        sums.MoveTo(&totals);
      }
      if (left == 0 && rest == 0) continue;
      float2 pairs[kStepTurns];
#pragma unroll
      for (int i = 0; i < kStepTurns; ++i) {
        if (i < left || (i == left && rest != 0)) pairs[i] = LoadPair<T, kEven>(at + i * kTurn);
      }
#pragma unroll
      for (int i = 0; i < kStepTurns; ++i) {
        if (i < left) {
          take(pairs[i]);
        } else if (i == left && rest != 0) {
          take_rest(pairs[i]);
        }
      }
      if (++in_step == step_segments) {
        sums.MoveTo(&totals);
        in_step = 0;
      }
    }
    if (in_step > 0) sums.MoveTo(&totals);
  }
  return {{static_cast<double>(FoldAdjacent<2, kWarp>(lane, ~0u, totals.first)), 0},
          {static_cast<double>(FoldAdjacent<2, kWarp>(lane, ~0u, totals.second)), 0}};
}

// The same in f64 (EXACT), for chunks of several segments. A lane has one partial sum.
template <typename T>
__device__ __forceinline__ PairSums SumSegmentsExactly(const typename T::Storage* x, int stride, int segments,
                                                       int length, double shift) {
  constexpr int kTurn = static_cast<int>(order::kPartials);
  constexpr int kUnrolled = 4;
  static_assert(kTurn == kWarp && kTurn <= kOverread);
  const auto lanes = LaneGroup<kWarp>::This();
  NarrowSums<double> sums;
  const int whole = length / kTurn;
  const bool has_rest = length % kTurn != 0;
  const bool is_in_rest = lanes.lane < length % kTurn;
  const auto take = [&](typename T::Storage value, bool counts) {
    const double diff = static_cast<double>(T::Widen(value)) - shift;
    sums.template Take<true>(counts ? diff : 0.0, false);
  };
  const typename T::Storage* from = x + lanes.lane;
#pragma unroll 1
  for (; segments > 0; --segments, from += stride) {
    const typename T::Storage* at = from;
    int left = whole;
#pragma unroll 1
    for (; left >= kUnrolled; left -= kUnrolled, at += kUnrolled * kTurn) {
      typename T::Storage values[kUnrolled];
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) values[i] = at[i * kTurn];
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) take(values[i], true);
    }
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      if (i < left) {
        take(at[i * kTurn], true);
      } else if (i == left && has_rest) {
        take(at[i * kTurn], is_in_rest);
      }
    }
  }
  return FoldSums<true, NarrowSums<double>>(lanes, {sums});
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_TILE_SUMS_CUH_
