// The apply pass from finished groups. Rows of narrow elements are written by 16-byte vectors, fastest where each
// contiguous piece of memory (the channel of an image) has one group and one pair of parameters. f64 elements and
// parameters along the positions take the general kernel, one element at a time.
// Columns of narrow elements are left to column_apply.cu.
#include "kernels/cuda/channel_numbers.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/element_place.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFewThreads = 64;  // where more would leave multiprocessors idle

// Narrow elements, AFFINE_THEN_CAST: by vectors where a vector lies in one segment and its parameters allow it.
template <typename T>
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
      if (NarrowElements<T, false>(work.results[place.group], apply.parameters, scaled)
              .Some(vector, parameter, per_element, &vector)) {
        *reinterpret_cast<uint4*>(y + begin) = vector;
        continue;
      }
    }
    const int64_t end = begin + kVector<T> < elements ? begin + kVector<T> : elements;
#pragma unroll 1
    for (int64_t i = begin; i < end; ++i) {
      const ElementPlace one = PlaceOf(work, i, is_small);
      const NarrowElements<T, false> element(work.results[one.group], apply.parameters, scaled);
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
  int64_t group = 0, k1 = 0, parameter = 0;
  bool is_first = false;  // of its group
};

__device__ __forceinline__ PiecePlace PlaceOfPiece(const GroupWork& work, const Pieces& pieces, uint32_t piece) {
  const uint32_t segment = pieces.of_segment.Quotient(piece);
  const uint32_t channel = piece - segment * pieces.of_segment.divisor();
  const uint32_t row = pieces.keep1.Quotient(segment);
  const uint32_t k1 = segment - row * pieces.keep1.divisor();
  const uint32_t k0 = pieces.reduce0.Quotient(row);
  return {static_cast<int64_t>(k0) * work.keep1 + k1, k1,
          static_cast<int64_t>(k1) * pieces.channels_per_keep1 + channel,
          channel == 0 && row == k0 * pieces.reduce0.divisor()};
}

// y of the elements [begin, end), one by one: of those that must be calculated in f64, or that are not finite. Few need
// it: inlined, it would take registers from what all need.
template <typename T, bool kInF64>
__device__ __noinline__ void ApplySingly(const GroupWork& work, const ApplyWork& apply, const Pieces& pieces,
                                         uint32_t begin, uint32_t end) {
  using S = typename T::Storage;
  const auto* const x = static_cast<const S*>(work.x.data);
  auto* const y = static_cast<S*>(apply.y);
  const bool scaled = ScalesChannels(work.statistic, apply.parameters, apply.index);
#pragma unroll 1
  for (uint32_t i = begin; i < end; ++i) {
    const PiecePlace place = PlaceOfPiece(work, pieces, pieces.length.Quotient(i));
    y[i] = NarrowElements<T, kInF64>(ResultAt(work, place.group, place.k1), apply.parameters, scaled)
               .One(x[i], apply.parameters.absent() ? 0 : place.parameter);
  }
}

// The number of vectors of a thread of ApplyPiecesKernel, a block of threads apart. All are under way together.
constexpr int kPieceVectors = 4;
// The threads of ApplyPiecesKernel that a multiprocessor has room for: numbers in f64 take twice the registers.
template <ChannelWay kWay>
[[maybe_unused]] constexpr int kResident = kWay == ChannelWay::kScaledInF64 ? 768 : 1024;

// A block has one run of vectors, and the numbers of its pieces in shared memory. The first block has the last run:
// what the launch before read or wrote last is still in the L2 cache. kCrosses: a vector may lie in two pieces, never
// in more.
template <typename T, ChannelWay kWay, bool kCrosses, int kBlock>
__global__ void __launch_bounds__(kBlock, kResident<kWay> / kBlock)
    ApplyPiecesKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                      const __grid_constant__ Pieces pieces, uint32_t elements) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  auto* const numbers = reinterpret_cast<ChannelNumbers<RealOf<kWay>>*>(shared);
  constexpr bool kInF64 = kWay == ChannelWay::kScaledInF64;
  using S = typename T::Storage;
  constexpr int kOwn = kVector<T>;
  constexpr uint32_t kRun = kBlock * kPieceVectors;
  const uint32_t whole = elements / kOwn;
  const uint32_t begin = (gridDim.x - 1 - blockIdx.x) * kRun;
  const uint32_t first = begin + threadIdx.x;
  const bool full = begin + kRun <= whole;
  const auto* const x = static_cast<const S*>(work.x.data);
  const S* const own_x = x + int64_t{first} * kOwn;
  S* const own_y = static_cast<S*>(apply.y) + int64_t{first} * kOwn;
  uint4 words[kPieceVectors];
  if (full) {
#pragma unroll
    for (int i = 0; i < kPieceVectors; ++i) words[i] = LoadStreaming(own_x + i * kBlock * kOwn);
  }
  const uint32_t first_piece = pieces.length.Quotient(begin * kOwn);
  const uint32_t last_piece = pieces.length.Quotient((full ? begin + kRun : whole) * kOwn - 1);
  for (uint32_t piece = first_piece + threadIdx.x; piece <= last_piece; piece += kBlock) {
    const PiecePlace place = PlaceOfPiece(work, pieces, piece);
    const bool begins = piece * pieces.length.divisor() >= begin * kOwn;
    numbers[piece - first_piece] =
        NumbersOf<kWay>(work, apply.parameters, place.group, place.k1, apply.parameters.absent() ? 0 : place.parameter,
                        place.is_first && begins);
  }
  __syncthreads();
  const auto calculate = [&](const uint4& vector, uint32_t at) {
    const uint32_t piece = pieces.length.Quotient(at);
    const ChannelNumbers<RealOf<kWay>> own = numbers[piece - first_piece];
    float in[kOwn], out[kOwn];
    UnpackVector<T>(vector, in);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) out[k] = ChannelElement<kWay>(in[k], own);
    if constexpr (kCrosses) {
      const uint32_t left = (piece + 1) * pieces.length.divisor() - at;  // elements until the next piece
      const ChannelNumbers<RealOf<kWay>> next = numbers[(left < kOwn ? piece + 1 : piece) - first_piece];
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const float of_next = ChannelElement<kWay>(in[k], next);
        out[k] = static_cast<uint32_t>(k) < left ? out[k] : of_next;
      }
    }
    return PackVector<T>(out);
  };
  unsigned singly = 0;  // a bit for each vector that is left to ApplySingly
  if (full) {
    unsigned non_finite = 0;
#pragma unroll
    for (int i = 0; i < kPieceVectors; ++i) {
      words[i] = calculate(words[i], (first + i * kBlock) * kOwn);
      non_finite |= NonFinite<T, kWay>(words[i]);
    }
    if (non_finite == 0) {
#pragma unroll
      for (int i = 0; i < kPieceVectors; ++i) StoreStreaming(own_y + i * kBlock * kOwn, words[i]);
    } else {
      singly = (1u << kPieceVectors) - 1;
    }
  } else {
#pragma unroll 1
    for (uint32_t i = 0; first + i * kBlock < whole; ++i) {
      const uint32_t at = (first + i * kBlock) * kOwn;
      const uint4 out = calculate(LoadStreaming(x + at), at);
      if (NonFinite<T, kWay>(out) == 0) {
        StoreStreaming(own_y + i * kBlock * kOwn, out);
      } else {
        singly |= 1u << i;
      }
    }
    const uint32_t last = whole * kOwn + threadIdx.x;
    if (last < elements) ApplySingly<T, kInF64>(work, apply, pieces, last, last + 1);
  }
#pragma unroll 1
  for (; singly != 0; singly &= singly - 1) {
    const uint32_t at = (first + (__ffs(static_cast<int>(singly)) - 1) * kBlock) * kOwn;
    ApplySingly<T, kInF64>(work, apply, pieces, at, at + kOwn);
  }
}

// True if the elements lie in pieces that ApplyPiecesKernel can take; PiecesOf describes the pieces.
bool AreInPieces(const GroupWork& work, const ApplyWork& apply) {
  const bool has_parameters = !apply.parameters.absent();
  if (has_parameters && (apply.index.kind == AffineIndex::kElement || work.reduce1 % apply.index.channel_run != 0)) {
    return false;
  }
  const int64_t vector = kVectorBytes / SizeOf(work.x.dtype);
  const int64_t length = has_parameters ? apply.index.channel_run : work.reduce1;
  return length >= vector && ElementCount(work) <= std::numeric_limits<int32_t>::max() &&
         IsVectorAligned(work.x.data) && IsVectorAligned(apply.y);
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
    const Affine<double> affine = AffineAt<double>(apply.parameters, ParameterOf(work, apply, place));
    static_cast<typename TOut::Storage*>(apply.y)[i] = GeneralElement<TIn>(
        TOut(), x, lo, work.results[place.group].statistics, apply.cast_order, affine.weight, affine.bias);
  }
}

template <typename T, ChannelWay kWay, bool kCrosses, int kBlock>
cudaError_t LaunchPiecesOf(const GroupWork& work, const ApplyWork& apply, const Pieces& pieces, cudaStream_t stream) {
  const int64_t run = int64_t{kBlock} * kPieceVectors * kVector<T>;  // elements
  const int64_t most_pieces = run / pieces.length.divisor() + 2;
  const LaunchShape shape = {.blocks = order::CeilDiv(ElementCount(work), run),
                             .threads = kBlock,
                             .shared_bytes = most_pieces * static_cast<int64_t>(sizeof(ChannelNumbers<RealOf<kWay>>))};
  return Launch(shape, stream, ApplyPiecesKernel<T, kWay, kCrosses, kBlock>, work, apply, pieces,
                static_cast<uint32_t>(ElementCount(work)));
}

template <typename T, ChannelWay kWay, bool kCrosses>
cudaError_t LaunchPieces(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         const Pieces& pieces, cudaStream_t stream) {
  // Small blocks where there are too few large ones to keep all multiprocessors busy.
  const int64_t least = int64_t{4} * limits.multiprocessors * kThreads * kPieceVectors * kVector<T>;
  return ElementCount(work) >= least ? LaunchPiecesOf<T, kWay, kCrosses, kThreads>(work, apply, pieces, stream)
                                     : LaunchPiecesOf<T, kWay, kCrosses, kFewThreads>(work, apply, pieces, stream);
}

template <typename T>
cudaError_t ApplyPieces(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                        cudaStream_t stream) {
  const Pieces pieces = PiecesOf(work, apply);
  const bool scaled = apply.parameters.absent() || ScalesChannels(work.statistic, apply.parameters, apply.index);
  const bool crosses = pieces.length.divisor() % kVector<T> != 0;
  const auto launch = [&]<ChannelWay kWay>() {
    return crosses ? LaunchPieces<T, kWay, true>(limits, work, apply, pieces, stream)
                   : LaunchPieces<T, kWay, false>(limits, work, apply, pieces, stream);
  };
  return scaled ? launch.template operator()<ChannelWay::kScaled>()
                : launch.template operator()<ChannelWay::kAboutZero>();
}

template <typename T>
cudaError_t LaunchRows(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream) {
  if (AreInPieces(work, apply)) return ApplyPieces<T>(limits, work, apply, stream);
  const int64_t vectors = order::CeilDiv(ElementCount(work), kVector<T>);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, vectors, kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyRowsKernel<T>, work, apply, ElementCount(work));
}

cudaError_t ApplyRows(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream) {
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() { return LaunchRows<T>(limits, work, apply, stream); });
}

template <typename TIn, typename TOut>
cudaError_t LaunchGeneral(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                          cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, ElementCount(work), kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyGeneralKernel<TIn, TOut>, work, apply, ElementCount(work));
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

// True if ApplyGeneralKernel takes the elements.
bool AreGeneral(const GroupWork& work, const ApplyWork& apply) {
  const bool along_positions = work.columns && apply.index.kind == AffineIndex::kElement && !apply.parameters.absent();
  return work.wide() || along_positions || apply.cast_order != CastOrder::kAffineThenCast;
}

}  // namespace

bool TakesGivenStatistics(const GroupWork& work, const ApplyWork& apply) {
  // Parameters that do not fit f32 leave every element to the slow way, which would make the results for each of them.
  if (AreGeneral(work, apply) || !work.fit_f32) return false;
  return work.columns ? AreInWindows(work, apply) : AreInPieces(work, apply);
}

cudaError_t ApplyGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                        cudaStream_t stream) {
  if (AreGeneral(work, apply)) return ApplyGeneral(limits, work, apply, stream);
  return work.columns ? ApplyColumns(limits, work, apply, stream) : ApplyRows(limits, work, apply, stream);
}

}  // namespace normd::cuda
