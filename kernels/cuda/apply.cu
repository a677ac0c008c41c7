// The apply pass from finished groups. Rows of narrow elements are written by 16-byte vectors, fastest where each
// contiguous piece of memory (the channel of an image) has one group and one pair of parameters. f64 elements,
// PowerNorm, CAST_THEN_AFFINE and parameters along the positions take the general kernel, one element at a time.
// Columns of narrow elements are left to column_apply.cu.
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;

// The place of one element in the plan's geometry.
struct ElementPlace {
  int64_t group = 0, r0 = 0, k1 = 0, r1 = 0;
};

// The place of element i in memory order.
template <typename Index>
__device__ __forceinline__ ElementPlace Decode(const GroupWork& work, Index i) {
  const auto reduce1 = static_cast<Index>(work.reduce1);
  const auto keep1 = static_cast<Index>(work.keep1);
  const auto reduce0 = static_cast<Index>(work.reduce0);
  const Index segment = i / reduce1;
  const Index row = segment / keep1;
  ElementPlace place;
  place.r1 = i % reduce1;
  place.k1 = segment % keep1;
  place.r0 = row % reduce0;
  place.group = static_cast<int64_t>(row / reduce0) * work.keep1 + place.k1;
  return place;
}
// A division of 64 bits costs several of 32.
__device__ __forceinline__ ElementPlace PlaceOf(const GroupWork& work, int64_t i, bool is_small) {
  return is_small ? Decode(work, static_cast<uint32_t>(i)) : Decode(work, static_cast<uint64_t>(i));
}

// The index of the parameters of an element.
__device__ __forceinline__ int64_t ParameterOf(const GroupWork& work, const ApplyWork& apply,
                                               const ElementPlace& place) {
  if (apply.parameters.absent()) return 0;
  if (apply.index.kind == AffineIndex::kElement) return place.r0 * work.reduce1 + place.r1;
  return place.k1 * apply.index.channels_per_keep1 + place.r1 / apply.index.channel_run;
}

// Narrow elements, AFFINE_THEN_CAST: by vectors where a vector lies in one segment and its parameters allow it.
template <typename T, bool kInF64>
__global__ void __launch_bounds__(kThreads)
    ApplyRowsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply, int64_t elements) {
  WaitForLaunchBefore();
  using S = typename T::Storage;
  const bool is_small = elements <= std::numeric_limits<int32_t>::max();
  const auto* const x = static_cast<const S*>(work.x.data);
  auto* const y = static_cast<S*>(apply.y);
  const bool aligned = MisalignedElements(x) == 0 && MisalignedElements(y) == 0;
  const bool per_element = apply.index.kind == AffineIndex::kElement;
  const bool scaled = ScalesChannels(work.statistic, apply.parameters, apply.index);
  const int64_t vectors = order::CeilDiv(elements, kVector<T>);
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors;
       v += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t begin = v * kVector<T>;
    const ElementPlace place = PlaceOf(work, begin, is_small);
    ElementPlace last = place;
    last.r1 += kVector<T> - 1;
    const int64_t parameter = ParameterOf(work, apply, place);
    const bool in_one_row = aligned && last.r1 < work.reduce1 && begin + kVector<T> <= elements &&
                            (per_element || ParameterOf(work, apply, last) == parameter);
    if (in_one_row) {
      uint4 vector = *reinterpret_cast<const uint4*>(x + begin);
      if (NarrowElements<T, kInF64>(work.results[place.group], apply.parameters, scaled)
              .Some(vector, parameter, per_element, &vector)) {
        *reinterpret_cast<uint4*>(y + begin) = vector;
        continue;
      }
    }
    const int64_t end = begin + kVector<T> < elements ? begin + kVector<T> : elements;
#pragma unroll 1
    for (int64_t i = begin; i < end; ++i) {
      const ElementPlace one = PlaceOf(work, i, is_small);
      const NarrowElements<T, kInF64> element(work.results[one.group], apply.parameters, scaled);
      y[i] = element.One(x[i], ParameterOf(work, apply, one));
    }
  }
}

// ---- Pieces: runs of adjacent elements with one group and one pair of parameters ----

// How a flat index gives the piece, the group and the parameters of an element. For tensors of under 2^31 elements.
struct Pieces {
  Divisor length;      // elements of a piece
  Divisor of_segment;  // pieces of a segment
  Divisor keep1, reduce0;
  int64_t channels_per_keep1 = 0;
};

struct PiecePlace {
  int64_t group = 0, parameter = 0;
};

__device__ __forceinline__ PiecePlace PlaceOfPiece(const GroupWork& work, const Pieces& pieces, uint32_t piece) {
  const uint32_t segment = pieces.of_segment.Quotient(piece);
  const uint32_t channel = piece - segment * pieces.of_segment.divisor();
  const uint32_t row = pieces.keep1.Quotient(segment);
  const uint32_t k1 = segment - row * pieces.keep1.divisor();
  return {static_cast<int64_t>(pieces.reduce0.Quotient(row)) * work.keep1 + k1,
          static_cast<int64_t>(k1) * pieces.channels_per_keep1 + channel};
}

// The statistics and parameters of one piece in f32. The weight is the factor, and 1 / D is 1, if `scaled`. If the
// piece must be calculated in f64, a number is NaN, so that all its elements come out as NaN.
struct PieceNumbers {
  Statistics32 s;
  Affine<float> affine;
};

__device__ __forceinline__ PieceNumbers NumbersOf(const GroupWork& work, const ApplyWork& apply,
                                                  const PiecePlace& place, bool scaled) {
  const GroupResult32 group = work.results32[place.group];
  const int64_t parameter = apply.parameters.absent() ? 0 : place.parameter;
  if (scaled) {
    return {{group.shift, group.delta, 1}, ScaledAffineAt<float>(apply.parameters, parameter, group.inverse)};
  }
  return {{group.shift, group.delta, static_cast<float>(group.inverse)}, AffineAt<float>(apply.parameters, parameter)};
}

// Calculates in f32. A vector with an element that must be calculated in f64, or that is not finite, is left to
// `singly`. A thread has several vectors, a block of threads apart.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ApplyPiecesKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                      const __grid_constant__ Pieces pieces, uint32_t elements) {
  WaitForLaunchBefore();
  using S = typename T::Storage;
  constexpr int kOwn = kVector<T>;
  constexpr uint32_t kUnrolled = 4;
  const auto* const x = static_cast<const S*>(work.x.data);
  auto* const y = static_cast<S*>(apply.y);
  const uint32_t length = pieces.length.divisor();
  const uint32_t whole = elements / kOwn;
  const bool scaled = ScalesChannels(work.statistic, apply.parameters, apply.index);
  const auto singly = [&](uint32_t begin, uint32_t end) {
#pragma unroll 1
    for (uint32_t i = begin; i < end; ++i) {
      const PiecePlace place = PlaceOfPiece(work, pieces, pieces.length.Quotient(i));
      y[i] = NarrowElements<T, false>(work.results[place.group], apply.parameters, scaled)
                 .One(x[i], apply.parameters.absent() ? 0 : place.parameter);
    }
  };
  for (uint32_t first = blockIdx.x * (kThreads * kUnrolled) + threadIdx.x; first < whole;
       first += gridDim.x * (kThreads * kUnrolled)) {
    uint4 words[kUnrolled] = {};
#pragma unroll
    for (uint32_t i = 0; i < kUnrolled; ++i) {
      if (first + i * kThreads < whole) words[i] = LoadStreaming(x + int64_t{first + i * kThreads} * kOwn);
    }
#pragma unroll
    for (uint32_t i = 0; i < kUnrolled; ++i) {
      if (first + i * kThreads >= whole) continue;
      const uint32_t at = (first + i * kThreads) * kOwn;
      const uint32_t piece = pieces.length.Quotient(at);
      const uint32_t left = (piece + 1) * length - at;  // elements until the next piece
      const PieceNumbers numbers = NumbersOf(work, apply, PlaceOfPiece(work, pieces, piece), scaled);
      float out[kOwn];
      UnpackVector<T>(words[i], out);
      float zero = 0;      // NaN if an element is not finite
      bool in_two = true;  // pieces at most
      if (left >= kOwn) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          out[k] = FastElement(out[k], numbers.s, numbers.affine.weight, numbers.affine.bias);
          zero = std::fma(out[k], 0.0f, zero);
        }
      } else {
        const PieceNumbers next = NumbersOf(work, apply, PlaceOfPiece(work, pieces, piece + 1), scaled);
        in_two = left + length >= kOwn;
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          const bool is_next = k >= static_cast<int>(left);
          const Statistics32 s = {is_next ? next.s.shift : numbers.s.shift, is_next ? next.s.delta : numbers.s.delta,
                                  is_next ? next.s.inverse : numbers.s.inverse};
          out[k] = FastElement(out[k], s, is_next ? next.affine.weight : numbers.affine.weight,
                               is_next ? next.affine.bias : numbers.affine.bias);
          zero = std::fma(out[k], 0.0f, zero);
        }
      }
      if (in_two && zero == 0) {
        *reinterpret_cast<uint4*>(y + at) = PackVector<T>(out);
      } else {
        singly(at, at + kOwn);
      }
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) singly(whole * kOwn, elements);
}

// True if the elements lie in pieces that ApplyPiecesKernel can take; PiecesOf describes the pieces.
bool AreInPieces(const GroupWork& work, const ApplyWork& apply, int64_t elements) {
  const bool has_parameters = !apply.parameters.absent();
  return elements <= std::numeric_limits<int32_t>::max() && IsVectorAligned(work.x.data) && IsVectorAligned(apply.y) &&
         (!has_parameters ||
          (apply.index.kind != AffineIndex::kElement && work.reduce1 % apply.index.channel_run == 0));
}
Pieces PiecesOf(const GroupWork& work, const ApplyWork& apply) {
  const int64_t length = apply.parameters.absent() ? work.reduce1 : apply.index.channel_run;
  return {.length = Divisor(length),
          .of_segment = Divisor(work.reduce1 / length),
          .keep1 = Divisor(work.keep1),
          .reduce0 = Divisor(work.reduce0),
          .channels_per_keep1 = apply.index.channels_per_keep1};
}

template <typename TIn, typename TOut>
__global__ void __launch_bounds__(kThreads)
    ApplyGeneralKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                       int64_t elements) {
  WaitForLaunchBefore();
  const bool is_small = elements <= std::numeric_limits<int32_t>::max();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const ElementPlace place = PlaceOf(work, i, is_small);
    const double x = LoadAs<double>(TIn(), static_cast<const typename TIn::Storage*>(work.x.data) + i);
    const double lo = work.x.lo == nullptr ? 0 : work.x.lo[i];
    const PositionScale pre = work.pre == nullptr ? PositionScale() : PreOf(work, place.r0, place.k1);
    const Affine<double> affine = AffineAt<double>(apply.parameters, ParameterOf(work, apply, place));
    static_cast<typename TOut::Storage*>(apply.y)[i] = GeneralElement<TIn>(
        TOut(), x, lo, work.results[place.group].statistics, pre, apply.cast_order, affine.weight, affine.bias);
  }
}

int64_t Elements(const GroupWork& work) { return work.StatisticsGroups() * work.reduce0 * work.reduce1; }

template <typename T, bool kInF64>
cudaError_t LaunchRows(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream) {
  if constexpr (!kInF64) {
    if (AreInPieces(work, apply, Elements(work))) {
      const LaunchShape shape = {.blocks = EnoughBlocks(limits, Elements(work), kThreads * 4 * kVector<T>),
                                 .threads = kThreads};
      return Launch(shape, stream, ApplyPiecesKernel<T>, work, apply, PiecesOf(work, apply),
                    static_cast<uint32_t>(Elements(work)));
    }
  }
  const int64_t vectors = order::CeilDiv(Elements(work), kVector<T>);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, vectors, kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyRowsKernel<T, kInF64>, work, apply, Elements(work));
}

cudaError_t ApplyRows(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream) {
  // EXACT f32 alone is calculated in f64.
  if (work.x.dtype == DType::kF32 && work.precision == Precision::kExact) {
    return LaunchRows<F32, true>(limits, work, apply, stream);
  }
  return VisitNarrowDType(work.x.dtype,
                          [&]<typename T>() { return LaunchRows<T, false>(limits, work, apply, stream); });
}

template <typename TIn, typename TOut>
cudaError_t LaunchGeneral(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                          cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, Elements(work), kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyGeneralKernel<TIn, TOut>, work, apply, Elements(work));
}

cudaError_t ApplyGeneral(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         cudaStream_t stream) {
  if (!work.wide()) {
    return VisitNarrowDType(work.x.dtype,
                            [&]<typename T>() { return LaunchGeneral<T, T>(limits, work, apply, stream); });
  }
  return VisitDType(apply.y_dtype,
                    [&]<typename TOut>() { return LaunchGeneral<F64, TOut>(limits, work, apply, stream); });
}

}  // namespace

cudaError_t ApplyGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                        cudaStream_t stream) {
  const bool along_positions = work.columns && apply.index.kind == AffineIndex::kElement && !apply.parameters.absent();
  const bool general =
      work.wide() || work.pre != nullptr || along_positions || apply.cast_order != CastOrder::kAffineThenCast;
  if (general) return ApplyGeneral(limits, work, apply, stream);
  return work.columns ? ApplyColumns(limits, work, apply, stream) : ApplyRows(limits, work, apply, stream);
}

}  // namespace normd::cuda
