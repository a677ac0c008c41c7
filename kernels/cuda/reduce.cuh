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

// The same for adjacent partial sums: lane l has kOwn * l and the following. The kLanes lanes are those of `mask`, and
// this lane is number `lane` of them. All lanes have the result. While a lane has several values, it gives half of them
// away and receives half of another lane's; the values of one lane are then folded by halves among the lanes that have
// them. kRotated: the number of a lane in the fold is its place in the warp, rotated left by so many bits.
template <int kOwn, int kLanes, int kRotated = 0, typename V>
__device__ __forceinline__ V FoldAdjacent(int lane, unsigned mask, const V (&own)[kOwn]) {
  // From a distance in the fold to one in the warp.
  constexpr auto distance = [](int step) { return step >> kRotated | (step * (kLanes >> kRotated) & (kLanes - 1)); };
  V half[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) half[k] = own[k];
  int step = kLanes / 2;
#pragma unroll
  for (int keep = kOwn / 2; keep > 0; keep /= 2, step /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int k = 0; k < keep; ++k) {
      const V given = upper ? half[k] : half[k + keep];
      const V kept = upper ? half[k + keep] : half[k];
      half[k] = kept + __shfl_xor_sync(mask, given, distance(step));
    }
  }
  V sum = half[0];
#pragma unroll
  for (; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, distance(step));
#pragma unroll
  for (int keep = kOwn / 2, bit = kLanes / 2; keep > 0; keep /= 2, bit /= 2) {
    sum += __shfl_xor_sync(mask, sum, distance(bit));
  }
  return sum;
}

// Folds the partial sums of both numbers. The first lane has the result.
template <bool kCentred, typename Sums, int kLanes>
__device__ __forceinline__ PairSums FoldSums(LaneGroup<kLanes> lanes, const Sums (&sums)[Sums::kPartials / kLanes]) {
  constexpr int kOwn = Sums::kPartials / kLanes;
  typename Sums::Value first[kOwn], second[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    first[k] = sums[k].first;
    second[k] = sums[k].second;
  }
  PairSums total;
  if constexpr (kCentred) total.first = Sums::AsPair(FoldPartials<Sums>(lanes, first));
  total.second = Sums::AsPair(FoldPartials<Sums>(lanes, second));
  return total;
}

// Ends a step: adds the partial sums of a lane to those of the steps before.
template <typename Sums, int kOwn>
__device__ __forceinline__ void EndStep(Sums (&sums)[kOwn], Sums (&totals)[kOwn]) {
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    totals[k].AddAll(sums[k]);
    sums[k] = Sums();
  }
}

// FAST alone sums in steps.
template <typename Sums>
inline constexpr bool kInSteps = std::is_same_v<typename Sums::Real, float>;

// The sums of a chunk of one segment, or of a part of one, with n elements; the first lane has the result. `take(i,
// sums)` adds element i to `sums`, or leaves it out. kIsRare: the loop of EXACT is not unrolled, and needs fewer
// registers.
template <bool kCentred, typename Sums, bool kIsRare = false, int kLanes, typename Take>
__device__ __forceinline__ PairSums SumChunk(LaneGroup<kLanes> lanes, int n, Take take) {
  constexpr int kPartials = Sums::kPartials;
  constexpr int kOwn = kPartials / kLanes;
  [[maybe_unused]] constexpr int kUnrolled = kIsRare ? 1 : 8 / kOwn;
  Sums sums[kOwn];
  int i = lanes.lane;
  const auto take_last = [&] {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (i + k * kLanes < n) take(i + k * kLanes, sums[k]);
    }
  };
  const int whole = n / kPartials * kPartials;
  if constexpr (kInSteps<Sums>) {
    constexpr int kStep = static_cast<int>(order::kFastRowStep);
    static_assert(kStep % kPartials == 0);
    Sums totals[kOwn];
    for (int from = 0; from < n; from += kStep) {
      const int stop = whole < from + kStep ? whole : from + kStep;
#pragma unroll 4
      for (; i < stop; i += kPartials) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) take(i + k * kLanes, sums[k]);
      }
      if (from + kStep >= n) take_last();
      EndStep(sums, totals);
    }
    return FoldSums<kCentred, Sums>(lanes, totals);
  } else {
#pragma unroll kUnrolled
    for (; i < whole; i += kPartials) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) take(i + k * kLanes, sums[k]);
    }
    take_last();
    return FoldSums<kCentred, Sums>(lanes, sums);
  }
}

// The sums of a chunk of `segments` whole segments of `length` elements; the first lane has the result. `take(segment,
// i, sums)` adds element i of a segment to `sums`, or leaves it out. `step_segments` is order::StepSegments(length).
template <bool kCentred, typename Sums, int kLanes, typename Take>
__device__ __forceinline__ PairSums SumShortSegments(LaneGroup<kLanes> lanes, int segments, int length,
                                                     int step_segments, Take take) {
  constexpr int kPartials = Sums::kPartials;
  constexpr int kOwn = kPartials / kLanes;
  Sums sums[kOwn];
  // A turn is kPartials elements of one segment, or those that the segment still has. The turns of several segments are
  // one loop, so that the loads of some of them are under way together.
  const int of_segment = (length + kPartials - 1) / kPartials;
  [[maybe_unused]] constexpr int kUnrolled = kOwn > 4 ? 2 : 4;
  const auto take_turns = [&](int segment, int begin, int turns) {
    int from = begin;
#pragma unroll kUnrolled
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const int i = from + lanes.lane + k * kLanes;
        if (i < length) take(segment, i, sums[k]);
      }
      from += kPartials;
      if (from >= length) {
        from = 0;
        ++segment;
      }
    }
  };
  if constexpr (kInSteps<Sums>) {
    constexpr int kStep = static_cast<int>(order::kFastRowStep);
    constexpr int kStepTurns = kStep / kPartials;
    Sums totals[kOwn];
    for (int segment = 0; segment < segments; segment += step_segments) {
      const int left = segments - segment < step_segments ? segments - segment : step_segments;
      // Segments of at least a step have steps of their own, and step_segments is 1.
      int turns = left * of_segment;
      for (int from = 0; turns > 0; from += kStep, turns -= kStepTurns) {
        take_turns(segment, from, length >= kStep && turns > kStepTurns ? kStepTurns : turns);
        EndStep(sums, totals);
        if (length < kStep) break;
      }
    }
    return FoldSums<kCentred, Sums>(lanes, totals);
  } else {
    take_turns(0, 0, segments * of_segment);
    return FoldSums<kCentred, Sums>(lanes, sums);
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

// The first shift of FAST for a group of n elements that begins at x: the mean of a sample; 0 if that is not finite.
// All lanes call it and have the result.
template <typename T, int kLanes>
__device__ __forceinline__ double FastShiftOf(T type, LaneGroup<kLanes> lanes, const typename T::Storage* x,
                                              int64_t n) {
  using Sums = NarrowSums<float>;
  const int count = static_cast<int>(n < Sums::kPartials ? n : Sums::kPartials);
  float own[Sums::kPartials / kLanes];
#pragma unroll
  for (int k = 0; k < Sums::kPartials / kLanes; ++k) {
    const int i = lanes.lane + k * kLanes;
    own[k] = i < count ? LoadAs<float>(type, x + i) : 0.0f;
  }
  const float sum = lanes.FromFirst(FoldPartials<Sums>(lanes, own));
  const double shift = static_cast<float>(static_cast<double>(sum) / static_cast<double>(count));
  return std::isfinite(shift) ? shift : 0;
}

// The first shift of EXACT for rows of n elements, of which element_at(i) is element i as f64.
template <typename ElementAt>
__device__ __forceinline__ double ExactShiftOf(int64_t n, ElementAt element_at) {
  return ExactShift(element_at(SampleIndex(n, 0)), element_at(SampleIndex(n, 1)), element_at(SampleIndex(n, 2)),
                    element_at(SampleIndex(n, 3)));
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
// and after them, or for every one unless `by_vectors`. The lanes share the calls.
template <int kUnroll, int kLanes, typename S, typename Vector, typename Single>
__device__ __forceinline__ void ForVectors(LaneGroup<kLanes> lanes, const S* p, int n, Vector vector, Single single,
                                           bool by_vectors = true) {
  constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(S));
  const int misaligned = MisalignedElements(p);
  int head = misaligned == 0 ? 0 : kElements - misaligned;
  if (head > n || !by_vectors) head = n;
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
