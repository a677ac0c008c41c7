// The sums of kernels/summation_order.h on a GPU. A chunk of a row belongs to a lane group: the 32 threads of a warp,
// or 8 or 16 of them where rows are short. Lane l holds partial sums l, l + lanes, ..., and parts are folded pairwise
// by index. The bits are those of the CPU, for EXACT and for FAST. This file also brings chunks to shared memory.
// In the path: included by the kernels that sum rows. Device functions; all lanes of a lane group call them together.
#ifndef NORMD_KERNELS_CUDA_REDUCE_CUH_
#define NORMD_KERNELS_CUDA_REDUCE_CUH_

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/base/types.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// A lane group: kLanes adjacent threads of one warp, 8, 16 or 32.
template <int kLanes>
struct LaneGroup {
  int lane;
  unsigned mask;  // the bits of its threads in the warp

  static __device__ __forceinline__ LaneGroup This() {
    const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
    constexpr unsigned kOnes = kLanes == kWarp ? ~0u : (1u << (kLanes % kWarp)) - 1;
    return {in_warp % kLanes, kOnes << (in_warp - in_warp % kLanes)};
  }
  __device__ __forceinline__ void Sync() const { __syncwarp(mask); }
  template <typename V>
  __device__ __forceinline__ V Down(V v, int delta) const {
    return __shfl_down_sync(mask, v, static_cast<unsigned>(delta), kLanes);
  }
  __device__ __forceinline__ DoublePair Down(DoublePair v, int delta) const {
    return {Down(v.hi, delta), Down(v.lo, delta)};
  }
  template <typename V>
  __device__ __forceinline__ V FromFirst(V v) const {
    return __shfl_sync(mask, v, 0, kLanes);
  }
  __device__ __forceinline__ PairSums FromFirst(const PairSums& v) const {
    return {{FromFirst(v.first.hi), FromFirst(v.first.lo)}, {FromFirst(v.second.hi), FromFirst(v.second.lo)}};
  }
};

// One partial sum of narrow elements, in f64 or f32.
template <typename RealType>
struct NarrowSums {
  using Real = RealType;
  using Value = RealType;
  static constexpr int kPartials =
      static_cast<int>(std::is_same_v<Real, float> ? order::kFastPartials : order::kPartials);
  Value first = 0, second = 0;

  // Adds diff. `is_abs`: |diff| instead of its square. |diff| is diff times its sign, which a fused multiply-add adds
  // exactly.
  template <bool kCentred>
  __device__ __forceinline__ void Take(Value diff, bool is_abs) {
    if constexpr (kCentred) {
      first += diff;
      second = std::fma(diff, diff, second);
    } else {
      // The factor is diff, or 1 with the sign of diff. It is made by masks, which are constant throughout a loop.
      using Bits = std::conditional_t<std::is_same_v<Value, float>, uint32_t, uint64_t>;
      const Bits kept = is_abs ? std::bit_cast<Bits>(Value{-0.0}) : ~Bits{0};
      const Bits one = is_abs ? std::bit_cast<Bits>(Value{1}) : Bits{0};
      second = std::fma(diff, std::bit_cast<Value>((std::bit_cast<Bits>(diff) & kept) | one), second);
    }
  }
  __device__ __forceinline__ void AddAll(const NarrowSums& other) {
    first += other.first;
    second += other.second;
  }
  static __device__ __forceinline__ Value Sum(Value a, Value b) { return a + b; }
  static __device__ __forceinline__ DoublePair AsPair(Value v) { return {static_cast<double>(v), 0}; }
};

// One partial sum of f64 elements, in pairs.
struct WideSums {
  using Real = double;
  using Value = DoublePair;
  static constexpr int kPartials = static_cast<int>(order::kPartials);
  Value first, second;

  template <bool kCentred>
  __device__ __forceinline__ void Take(Value diff, bool is_abs) {
    if constexpr (kCentred) first = Add(first, diff);
    if (is_abs) {
      second = Add(second, {std::fabs(diff.hi), diff.hi < 0 ? -diff.lo : diff.lo});
    } else {
      second = Add(second, Multiply(diff, diff));
    }
  }
  static __device__ __forceinline__ Value Sum(Value a, Value b) { return Add(a, b); }
  static __device__ __forceinline__ DoublePair AsPair(Value v) { return v; }
};

// x * scale - shift as an f64 pair.
__device__ __forceinline__ DoublePair WideDifference(double x, double lo, double scale, double shift) {
  const DoublePair value = {x * scale, lo * scale};
  const DoublePair exact = TwoSum(value.hi, -shift);
  return Renormalise(exact.hi, exact.lo + value.lo);
}

// The value that is summed for an f64 element: its scaled difference from the shift, its scaled value, or its term of
// kPowerSum.
template <bool kCentred>
__device__ __forceinline__ DoublePair WideValue(const GroupWork& work, const GroupState& state, DoublePair x) {
  if constexpr (kCentred) {
    return WideDifference(x.hi, x.lo, state.scale, state.shift);
  } else {
    const DoublePair value = {x.hi * state.scale, x.lo * state.scale};
    return work.statistic == Statistic::kPowerSum ? PowerTerm(value, state.shift, work.rule.p) : value;
  }
}

// Folds the partial sums by halves: p[i] += p[i + width / 2]. The first lane has the result.
template <typename Sums, int kLanes>
__device__ __forceinline__ typename Sums::Value FoldPartials(LaneGroup<kLanes> lanes,
                                                             typename Sums::Value (&own)[Sums::kPartials / kLanes]) {
#pragma unroll
  for (int half = Sums::kPartials / kLanes / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) own[i] = Sums::Sum(own[i], own[i + half]);
  }
  typename Sums::Value sum = own[0];
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) sum = Sums::Sum(sum, lanes.Down(sum, half));
  return sum;
}

// The sums of elements [begin, begin + n) of a chunk; the first lane has the result. `take(i, sums)` adds element i to
// `sums`, or leaves it out.
template <bool kCentred, typename Sums, int kLanes, typename Take>
__device__ __forceinline__ PairSums SumRun(LaneGroup<kLanes> lanes, int begin, int n, Take take) {
  constexpr int kPartials = Sums::kPartials;
  constexpr int kOwn = kPartials / kLanes;
  constexpr bool kInSteps = std::is_same_v<typename Sums::Real, float>;
  Sums sums[kOwn];
  const int end = begin + n;
  const int whole = begin + n / kPartials * kPartials;
  int i = begin + lanes.lane;
  if constexpr (kInSteps) {
    constexpr int kStep = static_cast<int>(order::kFastRowStep);
    Sums totals[kOwn];
    for (int from = begin; from < whole; from += kStep) {
      const int stop = whole < from + kStep ? whole : from + kStep;
#pragma unroll 4
      for (; i < stop; i += kPartials) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) take(i + k * kLanes, sums[k]);
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        totals[k].AddAll(sums[k]);
        sums[k] = Sums();
      }
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (i + k * kLanes < end) take(i + k * kLanes, sums[k]);
      totals[k].AddAll(sums[k]);
      sums[k] = totals[k];
    }
  } else {
#pragma unroll 8
    for (; i < whole; i += kPartials) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) take(i + k * kLanes, sums[k]);
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (i + k * kLanes < end) take(i + k * kLanes, sums[k]);
    }
  }
  typename Sums::Value first[kOwn], second[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    first[k] = sums[k].first;
    second[k] = sums[k].second;
  }
  PairSums total;
  if constexpr (kCentred) {
    total.first = Sums::AsPair(FoldPartials<Sums>(lanes, first));
  }
  total.second = Sums::AsPair(FoldPartials<Sums>(lanes, second));
  return total;
}

// The sums of a chunk of n elements: one run in f64, up to four in f32, which are added pairwise by index in f64. The
// first lane has the result.
template <bool kCentred, typename Sums, int kLanes, typename Take>
__device__ __forceinline__ PairSums SumChunk(LaneGroup<kLanes> lanes, int n, Take take) {
  if constexpr (std::is_same_v<typename Sums::Real, float>) {
    constexpr int kRun = static_cast<int>(order::kFastRowRun);
    static_assert(order::kRowChunk == 4 * order::kFastRowRun);
    const auto run = [&](int begin) {
      const int left = n - begin;
      return SumRun<kCentred, Sums>(lanes, begin, left < kRun ? left : kRun, take);
    };
    // Two runs for each turn, so that there is one copy of the loop.
    PairSums total;
#pragma unroll 1
    for (int begin = 0; begin < n; begin += 2 * kRun) {
      PairSums pair = run(begin);
      if (begin + kRun < n) AddPlain(pair, run(begin + kRun));
      if (begin == 0) {
        total = pair;
      } else {
        AddPlain(total, pair);
      }
    }
    return total;
  } else {
    return SumRun<kCentred, Sums>(lanes, 0, n, take);
  }
}

// Folds the parts of(i), begin <= i < end, pairwise by index. There are at least one and at most 2^kLevels parts.
// REQUIRES: begin is a multiple of 2^kLevels.
template <int kLevels, typename Part, typename Of, typename AddTo>
__device__ __forceinline__ Part FoldTree(int64_t begin, int64_t end, Of of, AddTo add) {
  if constexpr (kLevels == 0) {
    return of(begin);
  } else {
    Part left = FoldTree<kLevels - 1, Part>(begin, end, of, add);
    const int64_t middle = begin + (int64_t{1} << (kLevels - 1));
    if (middle < end) add(left, FoldTree<kLevels - 1, Part>(middle, end, of, add));
    return left;
  }
}

// The first shift of a group whose first elements are at x: the mean of a sample for kFast, else the first element; 0
// if that is not finite. All lanes call it and have the result.
template <typename T, int kLanes>
__device__ __forceinline__ double ShiftOf(T type, LaneGroup<kLanes> lanes, Precision precision,
                                          const typename T::Storage* x, int64_t n) {
  double shift = LoadAs<double>(type, x);
  if (precision == Precision::kFast) {
    using Sums = NarrowSums<float>;
    const int count = static_cast<int>(n < Sums::kPartials ? n : Sums::kPartials);
    float own[Sums::kPartials / kLanes];
#pragma unroll
    for (int k = 0; k < Sums::kPartials / kLanes; ++k) {
      const int i = lanes.lane + k * kLanes;
      own[k] = i < count ? LoadAs<float>(type, x + i) : 0.0f;
    }
    const float sum = lanes.FromFirst(FoldPartials<Sums>(lanes, own));
    shift = static_cast<float>(static_cast<double>(sum) / static_cast<double>(count));
  }
  return std::isfinite(shift) ? shift : 0;
}

// ---- Staging ----

inline constexpr int kVectorBytes = 16;

// The bytes of shared memory that a part of n elements needs, whatever its alignment in memory.
constexpr int64_t SlotBytes(int64_t n, int64_t element_bytes) {
  return order::CeilDiv(n * element_bytes, kVectorBytes) * kVectorBytes + kVectorBytes;
}

template <typename S>
__device__ __forceinline__ int MisalignedElements(const S* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) % kVectorBytes / sizeof(S));
}

// Calls vector(i) for each whole, aligned 16-byte vector of the n elements at p, and single(i) for each element before
// and after them. The lanes share the calls.
template <int kUnroll, int kLanes, typename S, typename Vector, typename Single>
__device__ __forceinline__ void ForVectors(LaneGroup<kLanes> lanes, const S* p, int n, Vector vector, Single single) {
  constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(S));
  const int misaligned = MisalignedElements(p);
  int head = misaligned == 0 ? 0 : kElements - misaligned;
  if (head > n) head = n;
  const int vectors = (n - head) / kElements;
#pragma unroll 1
  for (int i = lanes.lane; i < head; i += kLanes) single(i);
#pragma unroll kUnroll
  for (int v = lanes.lane; v < vectors; v += kLanes) vector(head + v * kElements);
#pragma unroll 1
  for (int i = head + vectors * kElements + lanes.lane; i < n; i += kLanes) single(i);
}

// Starts a copy of 16 bytes to shared memory, which is complete once this thread has returned from WaitForCopies().
__device__ __forceinline__ void CopyVector(void* to, const void* from) {
#if defined(__CUDA_ARCH__)
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}
__device__ __forceinline__ void WaitForCopies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Starts to copy the n elements at `from` to shared memory, at the same distance from alignment. The copy is complete
// once all lanes have returned from WaitForCopies() and have been synchronised. REQUIRES: `slot` is aligned to 16 bytes
// and has SlotBytes(n) bytes; `from` is aligned to its elements.
template <int kLanes, typename S>
__device__ __forceinline__ void Stage(LaneGroup<kLanes> lanes, const S* from, int n, unsigned char* slot) {
  S* const to = reinterpret_cast<S*>(slot) + MisalignedElements(from);
  ForVectors<4>(
      lanes, from, n, [&](int i) { CopyVector(to + i, from + i); }, [&](int i) { to[i] = from[i]; });
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_REDUCE_CUH_
