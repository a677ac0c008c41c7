// The sums of a chunk of rows whose elements are loaded by vectors: in the order of kernels/summation_order.h, to the
// bits of SumNarrowChunk. A vector holds some of one lane's partial sums, side by side, so that nothing is exchanged
// before the partial sums are folded, and as few lanes as have all partial sums share a chunk: a warp has several.
// In the path: included by rows.cu for segments that are aligned to vectors. Device functions.
#ifndef NORMD_KERNELS_CUDA_VECTOR_SUMS_CUH_
#define NORMD_KERNELS_CUDA_VECTOR_SUMS_CUH_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {

// kWidth adjacent elements of T, which one load brings.
template <typename T, int kWidth>
struct Packed {
  using S = typename T::Storage;
  static constexpr int kWords = kWidth * static_cast<int>(sizeof(S) / 2) / 2;
  static_assert(kWords == 2 || kWords == 4);
  unsigned words[kWords];

  // REQUIRES: `from` is aligned to the vector.
  static __device__ __forceinline__ Packed Load(const S* from) {
    if constexpr (kWords == 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      return {{v.x, v.y, v.z, v.w}};
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      return {{v.x, v.y}};
    }
  }
  __device__ __forceinline__ void Unpack(float (&x)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (std::is_same_v<T, F32>) {
        x[i] = __uint_as_float(words[i]);
      } else {
        T::Split(words[i], x[2 * i], x[2 * i + 1]);
      }
    }
  }
};

// The sums of one chunk, which kLanes lanes share. All of them call each function together.
template <typename T, typename Real, bool kCentred, int kWidth>
class VectorSums {
 public:
  using S = typename T::Storage;
  using Sums = NarrowSums<Real>;
  static constexpr int kPartials = Sums::kPartials;
  static constexpr int kLanes = kPartials / kWidth;
  // The vectors of a lane that are loaded together, one from each run of kPartials elements. Those of FAST are a step.
  static constexpr int kTurns = 4;
  static constexpr int kBatch = kTurns * kPartials;
  static_assert(!kInSteps<Sums> || kBatch == static_cast<int>(order::kFastRowStep));

  explicit __device__ __forceinline__ VectorSums(const GroupWork& work)
      : work_(work), lanes_(LaneGroup<kLanes>::This()), is_abs_(work.statistic == Statistic::kAbsSum) {}

  // The sums of the chunk at `place` about the first shift of its group. The loads of its first elements are under way
  // while the shift is calculated.
  __device__ __forceinline__ NarrowPart Sum(const RowCut& cut, const ChunkPlace& place) {
    const S* const x = static_cast<const S*>(work_.x.data) + lanes_.lane * kWidth;
    const S* const group = x + place.group_first;
    if (place.segments == 1 && place.n == order::kRowChunk) return SumWhole(group, x + place.first);
    return SumAny(cut, place, group, x + place.first);
  }

 private:
  using Vector = Packed<T, kWidth>;

  // Where the turns of a chunk of one or several parts of segments are.
  struct Turns {
    const S* x;  // this lane's elements of the segment
    int segment = 0, at = 0;
  };

  __device__ __forceinline__ NarrowPart SumWhole(const S* group, const S* x) {
    constexpr int kBatches = static_cast<int>(order::kRowChunk) / kBatch;
    Sample(group);
    Vector batches[2][kTurns];
    Load(x, batches[0]);
    Load(x + kBatch, batches[1]);
    CalculateShift(group);
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) Take(batches[b % 2][t]);
      EndBatch();
      if (b + 2 < kBatches) Load(x + (b + 2) * kBatch, batches[b % 2]);
    }
    return Total();
  }

  __device__ __forceinline__ NarrowPart SumAny(const RowCut& cut, const ChunkPlace& place, const S* group, const S* x) {
    Sample(group);
    Turns turns{x};
    Vector now[kTurns], next[kTurns];
    unsigned valid = LoadTurns(cut, place, &turns, now);
    CalculateShift(group);
#pragma unroll 2
    while (true) {
      const bool is_last = turns.segment >= place.segments;
      unsigned next_valid = 0;
      if (!is_last) next_valid = LoadTurns(cut, place, &turns, next);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        if ((valid >> t & 1) != 0) Take(now[t]);
      }
      EndBatch();
      if (is_last) return Total();
#pragma unroll
      for (int t = 0; t < kTurns; ++t) now[t] = next[t];
      valid = next_valid;
    }
  }

  // Loads this lane's vectors of the next turns, which in FAST are a step. Returns a bit for each that is there.
  __device__ __forceinline__ unsigned LoadTurns(const RowCut& cut, const ChunkPlace& place, Turns* turns,
                                                Vector (&to)[kTurns]) const {
    // A step of FAST has elements of one segment, or of several whole ones.
    const bool several = !kInSteps<Sums> || cut.step_segments > 1;
    const int first = lanes_.lane * kWidth;
    unsigned valid = 0;
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (turns->segment < place.segments && turns->at + first < place.n) {
        to[t] = Vector::Load(turns->x + turns->at);
        valid |= 1u << t;
      }
      turns->at += kPartials;
      if (several) EndSegment(place, turns);
    }
    EndSegment(place, turns);
    return valid;
  }
  __device__ __forceinline__ void EndSegment(const ChunkPlace& place, Turns* turns) const {
    if (turns->at < place.n) return;
    turns->at = 0;
    turns->x += work_.keep1 * work_.reduce1;
    ++turns->segment;
  }

  static __device__ __forceinline__ void Load(const S* x, Vector (&to)[kTurns]) {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) to[t] = Vector::Load(x + t * kPartials);
  }

  // The first shift of FAST: see FastShiftOf. That of EXACT is of elements that are far apart.
  __device__ __forceinline__ void Sample(const S* group) {
    if constexpr (kCentred && kInSteps<Sums>) sample_ = Vector::Load(group);
  }
  __device__ __forceinline__ void CalculateShift(const S* group) {
    if constexpr (!kCentred) return;
    if constexpr (kInSteps<Sums>) {
      float own[kWidth];
      sample_.Unpack(own);
      const float sum = FoldAdjacent<kWidth, kLanes>(lanes_.lane, lanes_.mask, own);
      const auto shift = static_cast<float>(static_cast<double>(sum) / kPartials);
      shift_ = std::isfinite(shift) ? shift : 0;
    } else {
      const S* const x = group - lanes_.lane * kWidth;
      shift_ = ExactShiftOf(work_.statistic_reduce1, [&](int64_t i) { return LoadAs<double>(T(), x + i); });
    }
  }

  __device__ __forceinline__ void Take(const Vector& vector) {
    float x[kWidth];
    vector.Unpack(x);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto value = static_cast<Real>(x[k]);
      sums_[k].template Take<kCentred>(kCentred ? value - shift_ : value, is_abs_);
    }
  }
  __device__ __forceinline__ void EndBatch() {
    if constexpr (kInSteps<Sums>) EndStep(sums_, totals_);
  }
  __device__ __forceinline__ NarrowPart Total() {
    const Sums(&all)[kWidth] = kInSteps<Sums> ? totals_ : sums_;
    Real first[kWidth], second[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      first[k] = all[k].first;
      second[k] = all[k].second;
    }
    NarrowPart part;
    if constexpr (kCentred)
      part.first = static_cast<double>(FoldAdjacent<kWidth, kLanes>(lanes_.lane, lanes_.mask, first));
    part.second = static_cast<double>(FoldAdjacent<kWidth, kLanes>(lanes_.lane, lanes_.mask, second));
    return part;
  }

  const GroupWork& work_;
  const LaneGroup<kLanes> lanes_;
  const bool is_abs_;
  Vector sample_;
  Real shift_ = 0;
  Sums sums_[kWidth], totals_[kWidth];
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_VECTOR_SUMS_CUH_
