// Both passes over rows that fit on chip, each of which is a statistics group: one read from memory, sums and elements
// from shared memory, one write. A warp stages and sums one chunk of a row at a time; 8 or 16 threads suffice for the
// shortest rows, and several warps or a cluster of blocks share rows of several chunks. How a row is summed depends on
// its length and dtype alone, so that results depend on neither the batch nor the device.
#include <cooperative_groups.h>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_ranges.cuh"
#include "kernels/cuda/staged_rows.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kChunk = static_cast<int>(order::kRowChunk);
// Threads of a block for rows of one chunk; the block holds as many rows as it has lane groups.
constexpr int kShortRowThreads = 128;
// The chunks of a longer row that one block holds while a cluster can still grow; the most that it holds at all; and
// the blocks of a cluster (the size that every device with clusters supports).
constexpr int kBlockChunks = 32;
constexpr int kMaxBlockChunks = 96;
constexpr int kMaxCluster = 8;
constexpr int kMaxWarps = 8;
constexpr int kMaxParts = kBlockChunks * kMaxCluster;  // chunks of a row

// How a launch divides rows.
struct RowShape {
  int lanes = kWarp;     // threads that share a chunk
  int warps = 1;         // warps of a block that share a row; 1: a row is one chunk, a block holds several
  int block_chunks = 1;  // chunks of a row in a block
  int cluster = 1;       // blocks of a row
  int64_t slot_bytes = 0;
  int64_t shared_bytes = 0;
  int64_t shared_limit = 0;  // the device's limit
};

struct KernelParameters {
  RowLaunch launch;
  RowShape shape;
};

// One row, or those of its chunks that this block holds.
template <typename T, typename Real, bool kCentred, int kLanes>
class Row {
 public:
  using S = typename T::Storage;
  // Only EXACT f32 is calculated in f64.
  using Elements = NarrowElements<T, std::is_same_v<T, F32> && std::is_same_v<Real, double>>;

  __device__ Row(const KernelParameters& p, const RowRange& range, int64_t row, unsigned char* slots, NarrowPart* sums)
      : launch_(p.launch),
        shape_(p.shape),
        range_(range),
        row_(row - range.first_row),
        begin_(row_ * p.launch.n),
        lanes_(LaneGroup<kLanes>::This()),
        slots_(slots),
        sums_(sums),
        warp_(p.shape.warps == 1 ? 0 : static_cast<int>(threadIdx.x) / kWarp),
        rank_(0) {
    if constexpr (kLanes == kWarp) {
      if (p.shape.cluster > 1) rank_ = static_cast<int>(blockIdx.x) % p.shape.cluster;
    }
    first_chunk_ = rank_ * p.shape.block_chunks;
    const int chunks = static_cast<int>(order::RowChunks(p.launch.n));
    last_chunk_ = chunks < first_chunk_ + p.shape.block_chunks ? chunks : first_chunk_ + p.shape.block_chunks;
  }

  __device__ void Normalise() {
    ForChunks([&](int chunk) { StageChunk(chunk); });
    WaitForCopies();
    lanes_.Sync();
    if (range_.residual != nullptr) ForChunks([&](int chunk) { AddResidual(chunk); });
    const auto shift_of = [&](Precision precision) { return FirstShift(precision); };
    const auto finish = [&](Precision precision, double shift) {
      if constexpr (std::is_same_v<Real, float>) {
        if (precision == Precision::kFast) return FinishAbout<float>(shift);
      }
      return FinishAbout<double>(shift);
    };
    constexpr Precision kPrecision = std::is_same_v<Real, float> ? Precision::kFast : Precision::kExact;
    FinishedStatistics group = FinishInRounds(kPrecision, shift_of, finish);
    if (rank_ == 0 && warp_ == 0 && lanes_.lane == 0) {
      StoreOutputs(range_.outputs, row_, static_cast<double>(launch_.counted), group);
    }
    if constexpr (!std::is_same_v<T, F32>) Calculate16BitInF32(&group);
    if (range_.y == nullptr) return;
    const GroupResult applied = ResultOf(group, kCentred, range_.parameters.fit_f32, launch_.counted == launch_.n);
    const bool scaled = kCentred && ScalesChannels(StatisticOf(), range_.parameters, range_.index);
    if (IsPlain(applied)) return ApplyPlainly(applied, scaled);
    const Elements elements(applied, range_.parameters, scaled);
    ForChunks([&](int chunk) { ApplyChunk(chunk, elements); });
  }

 private:
  template <typename Body>
  __device__ __forceinline__ void ForChunks(Body body) {
    for (int chunk = first_chunk_ + warp_; chunk < last_chunk_; chunk += shape_.warps) body(chunk);
  }
  __device__ __forceinline__ int ChunkLength(int chunk, int64_t n) const {
    const int64_t left = n - static_cast<int64_t>(chunk) * kChunk;
    return static_cast<int>(left < kChunk ? left : kChunk);
  }
  __device__ __forceinline__ unsigned char* Slot(int chunk) const {
    return slots_ + (chunk - first_chunk_) * shape_.slot_bytes;
  }
  // The staged elements of a chunk.
  __device__ __forceinline__ S* Staged(int chunk) const {
    return reinterpret_cast<S*>(Slot(chunk)) + MisalignedElements(static_cast<const S*>(range_.x) + begin_);
  }
  // The same for a chunk that any block of the row may have.
  __device__ __forceinline__ const S* StagedAnywhere(int chunk) const {
    const int rank = shape_.cluster == 1 ? 0 : chunk / shape_.block_chunks;
    unsigned char* const slot = slots_ + (chunk - rank * shape_.block_chunks) * shape_.slot_bytes;
    return InBlock(reinterpret_cast<S*>(slot), rank) + MisalignedElements(static_cast<const S*>(range_.x) + begin_);
  }

  __device__ __forceinline__ void StageChunk(int chunk) {
    const int64_t at = begin_ + static_cast<int64_t>(chunk) * kChunk;
    Stage(lanes_, static_cast<const S*>(range_.x) + at, ChunkLength(chunk, launch_.n), Slot(chunk));
  }
  __device__ __forceinline__ void AddResidual(int chunk) {
    const int64_t at = begin_ + static_cast<int64_t>(chunk) * kChunk;
    AddResidual(Staged(chunk), static_cast<const S*>(range_.residual) + at,
                range_.h == nullptr ? nullptr : static_cast<S*>(range_.h) + at, ChunkLength(chunk, launch_.n));
    lanes_.Sync();
  }

  // staged += residual_scale * residual, rounded to T; writes the sum to h, too. A thread that reads its own writes
  // does so only at elements of its own.
  __device__ __forceinline__ void AddResidual(S* staged, const S* residual, S* h, int n) {
    const double scale = range_.residual_scale;
    const auto single = [&](int i) {
      staged[i] = AddElement<T>(scale, staged[i], residual[i]);
      if (h != nullptr) h[i] = staged[i];
    };
    const int misaligned = MisalignedElements(residual);
    const bool alike =
        misaligned == MisalignedElements(staged) && (h == nullptr || misaligned == MisalignedElements(h));
    if (!alike) {
      for (int i = lanes_.lane; i < n; i += kLanes) single(i);
      return;
    }
    ForVectors<2>(
        lanes_, residual, n,
        [&](int i) {
          const VectorOf<S> x = AddVectors<T>(scale, LoadVector(staged + i), LoadVector(residual + i));
          StoreVector(staged + i, x);
          if (h != nullptr) StoreVector(h + i, x);
        },
        single);
  }

  __device__ __forceinline__ double FirstShift(Precision precision) {
    if constexpr (!kCentred) return 0;
    if (shape_.warps > 1) MeetBlocks(shape_.cluster);  // all chunks are staged then
    if (precision == Precision::kFast) return FastShiftOf(T(), lanes_, StagedAnywhere(0), launch_.counted);
    return ExactShiftOf(launch_.counted, [&](int64_t i) {
      const int chunk = static_cast<int>(i / kChunk);
      return LoadAs<double>(T(), StagedAnywhere(chunk) + (i - static_cast<int64_t>(chunk) * kChunk));
    });
  }

  __device__ __forceinline__ Statistic StatisticOf() const {
    return kCentred ? Statistic::kMeanVariance : launch_.statistic;
  }

  // The result of the row from its sums about `shift`. Every thread that works on the row has it.
  template <typename R>
  __device__ __forceinline__ FinishedStatistics FinishAbout(double shift) {
    constexpr Precision kPrecision = std::is_same_v<R, float> ? Precision::kFast : Precision::kExact;
    const auto finish = [&](const PairSums& sums) {
      return FinishNarrow(StatisticOf(), range_.rule, sums, static_cast<double>(launch_.counted), shift, kPrecision);
    };
    if (shape_.warps == 1) return finish(lanes_.FromFirst(SumOf<R>(0, shift)));
    ForChunks([&](int chunk) {
      const PairSums sum = SumOf<R>(chunk, shift);
      if (lanes_.lane == 0) sums_[chunk - first_chunk_] = {sum.first.hi, sum.second.hi};
    });
    MeetBlocks(shape_.cluster);
    // One warp of each block finishes for all: divisions and roots of f64 are slow.
    auto* const finished = reinterpret_cast<FinishedStatistics*>(sums_ + shape_.block_chunks);
    if (warp_ == 0) {
      const FinishedStatistics own = finish(FoldChunks());
      if (lanes_.lane == 0) *finished = own;
    }
    MeetBlocks(shape_.cluster);  // also before the sums are written again
    return *finished;
  }

  template <typename R>
  __device__ __forceinline__ PairSums SumOf(int chunk, double shift) {
    const int64_t left = launch_.counted - static_cast<int64_t>(chunk) * kChunk;
    if (left <= 0) return {};  // FoldChunks does not read it
    const S* const staged = Staged(chunk);
    const R about = static_cast<R>(shift);
    constexpr bool kIsRare = !std::is_same_v<R, Real>;  // FAST that falls back to EXACT
    const auto sum = [&](auto is_abs) {
      const auto take = [&](int i, NarrowSums<R>& sums) {
        const R x = LoadAs<R>(T(), staged + i);
        sums.template Take<kCentred>(kCentred ? x - about : x, is_abs);
      };
      return SumChunk<kCentred, NarrowSums<R>, kIsRare>(lanes_, ChunkLength(chunk, launch_.counted), take);
    };
    if (!kCentred && launch_.statistic == Statistic::kAbsSum) return sum(std::true_type());
    return sum(std::false_type());
  }

  // Folds the sums of the chunks pairwise by index, whichever block has them: each lane folds up to eight adjacent
  // chunks, then the lanes are folded. Missing chunks count as 0, which changes no sum that began with +0.
  __device__ __forceinline__ PairSums FoldChunks() {
    constexpr int kLevels = 3;
    static_assert(kMaxParts <= kWarp << kLevels);
    const int chunks = static_cast<int>(order::RowChunks(launch_.counted));
    int of_lane = 1;
    while (of_lane * kWarp < chunks) of_lane *= 2;
    const int begin = lanes_.lane * of_lane;
    const int end = begin + of_lane < chunks ? begin + of_lane : chunks;
    NarrowPart sum;
    if (begin < end) {
      sum = FoldTree<kLevels, NarrowPart>(
          begin, end, [&](int64_t chunk) { return SumsOfChunk(static_cast<int>(chunk)); }, AddNarrow());
    }
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      AddNarrow()(sum, {lanes_.Down(sum.first, step), lanes_.Down(sum.second, step)});
    }
    return lanes_.FromFirst(PairSums{{sum.first, 0}, {sum.second, 0}});
  }

  __device__ __forceinline__ NarrowPart SumsOfChunk(int chunk) const {
    if (shape_.cluster == 1) return sums_[chunk];
    return *InBlock(sums_ + chunk % shape_.block_chunks, chunk / shape_.block_chunks);
  }
  // The address of `p` in block `rank` of the row.
  template <typename V>
  __device__ __forceinline__ const V* InBlock(V* p, int rank) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (shape_.cluster > 1) {
      return cooperative_groups::this_cluster().map_shared_rank(p, static_cast<unsigned>(rank));
    }
#endif
    return p;
  }
  static constexpr bool kInF64 = std::is_same_v<T, F32> && std::is_same_v<Real, double>;

  // True if ApplyPlainly can write y: all elements are finite, can be calculated with f32 parameters in one of the ways
  // that are common, and are aligned as vectors are.
  __device__ __forceinline__ bool IsPlain(const GroupResult& group) const {
    const Parameters& parameters = range_.parameters;
    if (group.may_be_nan) return false;
    if constexpr (!kInF64) {
      if (!group.in_f32) return false;
    } else if constexpr (kCentred) {
      if (!parameters.absent() && !parameters.equal_f32) return false;
    } else {
      if (!group.in_pairs || !AllowPairs(parameters)) return false;
    }
    if (!parameters.absent() && range_.index.kind != AffineIndex::kElement &&
        range_.index.channel_run % kVector<T> != 0) {
      return false;
    }
    return IsVectorAligned(static_cast<const S*>(range_.x) + begin_) &&
           IsVectorAligned(static_cast<const S*>(range_.y) + begin_) && IsVectorAligned(parameters.weight32) &&
           IsVectorAligned(parameters.bias32);
  }
  // Writes y without checks of single elements. REQUIRES: IsPlain.
  __device__ __forceinline__ void ApplyPlainly(const GroupResult& group, bool scaled) {
    const GroupStatistics& s = group.statistics;
    const Parameters& parameters = range_.parameters;
    const bool per_element = range_.index.kind == AffineIndex::kElement;
    const auto channel_of = [&](int i) { return ChannelOf(i); };
    if constexpr (kInF64 && !kCentred) {
      const FloatPair pair = FloatPairOf(s.inverse.hi);
      WithWeights<T>(parameters, per_element, channel_of, [&](auto weights) {
        ForPlainVectors([&](int i, float(&x)[kVector<T>]) {
          float weight[kVector<T>];
          weights(i, weight);
#pragma unroll
          for (int k = 0; k < kVector<T>; ++k) x[k] = TimesPair(x[k], pair, weight[k]);
        });
      });
      ApplyLast([&](float x, int64_t at) { return TimesPair(x, pair, At(parameters.weight32, at, 1.0f)); });
    } else {
      using Calculated = std::conditional_t<kInF64, double, float>;
      // Where the weight is the factor, a product with 1 is exact.
      Statistics32 in_f32 = ToF32(s);
      if (scaled) in_f32.inverse = 1;
      const double inverse = scaled ? 1 : s.inverse.hi;
      const bool folds = group.folds && !scaled;
      const double centre = FoldedCentre(s);
      const auto element = [&](float x, Calculated w, Calculated b) {
        if constexpr (kInF64) {
          const double n = folds ? std::fma(x, inverse, centre) : ((x - s.shift) - s.delta.hi) * inverse;
          return static_cast<float>(std::fma(n, w, b));
        } else {
          return PlainElement<kCentred>(x, in_f32, w, b);
        }
      };
      WithAffine<T, Calculated, kCentred>(parameters, per_element, s.inverse.hi, channel_of, [&](auto affine) {
        ForPlainVectors([&](int i, float(&x)[kVector<T>]) {
          Calculated weight[kVector<T>], bias[kVector<T>];
          affine(i, weight, bias);
#pragma unroll
          for (int k = 0; k < kVector<T>; ++k) x[k] = element(x[k], weight[k], bias[k]);
        });
      });
      ApplyLast([&](float x, int64_t at) {
        const Affine<Calculated> affine =
            scaled ? ScaledAffineAt<Calculated>(parameters, at, s.inverse.hi) : AffineAt<Calculated>(parameters, at);
        return element(x, affine.weight, affine.bias);
      });
    }
  }
  // Writes y for the elements of the row after the last whole vector, if this thread has one of them. `element(x, at)`
  // makes it of x and the parameters at index `at`.
  template <typename Element>
  __device__ __forceinline__ void ApplyLast(Element element) {
    const int left = static_cast<int>(launch_.n % kVector<T>);
    const int last = static_cast<int>(order::RowChunks(launch_.n)) - 1;
    if (left == 0 || lanes_.lane >= left || last < first_chunk_ || last >= last_chunk_) return;
    if ((last - first_chunk_) % shape_.warps != warp_) return;
    const int64_t i = launch_.n - left + lanes_.lane;
    const int64_t parameter = range_.index.kind == AffineIndex::kElement ? i : ChannelOf(i);
    const S x = Staged(last)[i - static_cast<int64_t>(last) * kChunk];
    static_cast<S*>(range_.y)[begin_ + i] = T::Narrow(element(T::Widen(x), range_.parameters.absent() ? 0 : parameter));
  }
  // Writes y for the whole vectors of this thread: calculate(i, x) makes those of y from the vector x that begins at
  // element i of the row.
  template <typename Calculate>
  __device__ __forceinline__ void ForPlainVectors(Calculate calculate) {
    ForChunks([&](int chunk) {
      const int at = chunk * kChunk;
      const int n = ChunkLength(chunk, launch_.n);
      const S* const staged = Staged(chunk);
      S* const y = static_cast<S*>(range_.y) + begin_ + at;
#pragma unroll 2
      for (int i = lanes_.lane * kVector<T>; i + kVector<T> <= n; i += kLanes * kVector<T>) {
        float x[kVector<T>];
        UnpackVector<T>(*reinterpret_cast<const uint4*>(staged + i), x);
        calculate(at + i, x);
        *reinterpret_cast<uint4*>(y + i) = PackVector<T>(x);
      }
    });
  }

  __device__ __forceinline__ void ApplyChunk(int chunk, const Elements& elements) {
    const int64_t at = static_cast<int64_t>(chunk) * kChunk;
    const S* const staged = Staged(chunk);
    S* const y = static_cast<S*>(range_.y) + begin_ + at;
    const bool alike = MisalignedElements(y) == MisalignedElements(staged);
    const bool per_element = range_.index.kind == AffineIndex::kElement;
    const auto parameter = [&](int i) { return per_element ? at + i : ChannelOf(at + i); };
    const int n = ChunkLength(chunk, launch_.n);
    // Parameters that are not aligned as the vectors of y are would be loaded one by one, the lanes a vector apart.
    // Adjacent lanes then take adjacent elements. Where those in f32 are aligned, those in f64 are, too.
    const int head = (kVector<T> - MisalignedElements(y)) % kVector<T>;
    const auto fits = [&](const float* values) { return values == nullptr || IsVectorAligned(values + at + head); };
    const bool by_vectors = !per_element || (fits(range_.parameters.weight32) && fits(range_.parameters.bias32));
    ForVectors<2>(
        lanes_, y, n,
        [&](int i) {
          VectorOf<S> v;
          if (alike) {
            v = LoadVector(staged + i);
          } else {
#pragma unroll
            for (int k = 0; k < kVector<T>; ++k) v.lanes[k] = staged[i + k];
          }
          const int64_t first = parameter(i);
          const bool all_alike = per_element || parameter(i + kVector<T> - 1) == first;
          uint4 out;
          if (all_alike && elements.Some(AsWords(v), first, per_element, &out)) {
            *reinterpret_cast<uint4*>(y + i) = out;
          } else {
#pragma unroll 1
            for (int k = i; k < i + kVector<T>; ++k) y[k] = elements.One(staged[k], parameter(k));
          }
        },
        [&](int i) { y[i] = elements.One(staged[i], parameter(i)); }, by_vectors);
  }

  __device__ __forceinline__ int64_t ChannelOf(int64_t i) const {
    if (range_.parameters.absent()) return 0;
    // A row that fits on chip has fewer than 2^31 elements.
    const unsigned channel = static_cast<unsigned>(i) / static_cast<unsigned>(range_.index.channel_run);
    return row_ % range_.keep1 * range_.index.channels_per_keep1 + channel;
  }

  const RowLaunch& launch_;
  const RowShape& shape_;
  const RowRange& range_;
  const int64_t row_;    // index in the range
  const int64_t begin_;  // index of its first element
  const LaneGroup<kLanes> lanes_;
  unsigned char* const slots_;
  NarrowPart* const sums_;
  const int warp_;
  int rank_;
  int first_chunk_ = 0, last_chunk_ = 0;
};

template <typename T, typename Real, bool kCentred, int kLanes>
__global__ void __launch_bounds__(kMaxWarps* kWarp) NormaliseRowsKernel(const __grid_constant__ KernelParameters p) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  int64_t row = 0;
  unsigned char* slots = shared;
  NarrowPart* sums = nullptr;
  if (p.shape.warps == 1) {
    const int groups = static_cast<int>(blockDim.x) / kLanes;
    const int group = static_cast<int>(threadIdx.x) / kLanes;
    row = static_cast<int64_t>(blockIdx.x) * groups + group;
    slots += group * p.shape.slot_bytes;
  } else {
    row = blockIdx.x / static_cast<unsigned>(p.shape.cluster);
    sums = reinterpret_cast<NarrowPart*>(shared + p.shape.block_chunks * p.shape.slot_bytes);
  }
  if (row >= p.launch.rows) return;  // whole lane groups leave
  Row<T, Real, kCentred, kLanes>(p, RangeOf(p.launch, row), row, slots, sums).Normalise();
}

// The shared memory of a block with `chunks` chunks of a row that several warps share.
int64_t BytesOf(DType dtype, int64_t chunks) {
  return chunks * (SlotBytes(kChunk, SizeOf(dtype)) + static_cast<int64_t>(sizeof(NarrowPart))) +
         static_cast<int64_t>(sizeof(FinishedStatistics));
}

RowShape ShapeOf(const DeviceLimits& limits, DType dtype, int64_t n) {
  RowShape shape;
  shape.shared_limit = limits.shared_bytes;
  const int64_t chunks = order::RowChunks(n);
  shape.slot_bytes = SlotBytes(n < kChunk ? n : kChunk, SizeOf(dtype));
  if (chunks <= 1) {
    shape.lanes = ChunkLanes(1, n);
    shape.shared_bytes = kShortRowThreads / shape.lanes * shape.slot_bytes;
    return shape;
  }
  if (limits.has_clusters) {
    while (shape.cluster < kMaxCluster && chunks > kBlockChunks * shape.cluster) shape.cluster *= 2;
  }
  shape.block_chunks = static_cast<int>(order::CeilDiv(chunks, shape.cluster));
  // As few warps as leave none with fewer chunks than the longest needs. A short last chunk goes to one of them.
  int64_t whole = shape.block_chunks;
  if (shape.cluster == 1 && HasShortTail(n) && whole > 2) --whole;
  shape.warps = static_cast<int>(order::CeilDiv(whole, order::CeilDiv(whole, int64_t{kMaxWarps})));
  shape.shared_bytes = BytesOf(dtype, shape.block_chunks);
  return shape;
}

LaunchShape GridOf(const RowLaunch& launch, const RowShape& shape) {
  LaunchShape grid = {
      .shared_bytes = shape.shared_bytes, .shared_limit = shape.shared_limit, .cluster_blocks = shape.cluster};
  if (shape.warps == 1) {
    grid.threads = kShortRowThreads;
    grid.blocks = order::CeilDiv(launch.rows, kShortRowThreads / shape.lanes);
  } else {
    grid.threads = shape.warps * kWarp;
    grid.blocks = launch.rows * shape.cluster;
  }
  return grid;
}

}  // namespace

bool HasClusters(const DeviceLimits& limits, int device) {
  int launches_clusters = 0;
  if (cudaDeviceGetAttribute(&launches_clusters, cudaDevAttrClusterLaunch, device) != cudaSuccess ||
      launches_clusters == 0 || CodeVersion() < 90) {
    cudaGetLastError();  // no error of a later call
    return false;
  }
  const LaunchShape largest = {.blocks = kMaxCluster,
                               .threads = kMaxWarps * kWarp,
                               .shared_bytes = BytesOf(DType::kF32, kBlockChunks),
                               .shared_limit = limits.shared_bytes,
                               .cluster_blocks = kMaxCluster};
  const auto kernel = NormaliseRowsKernel<F32, float, true, kWarp>;
  LaunchConfig launch;
  int clusters = 0;
  const bool has_room = Configure(largest, kernel, &launch) == cudaSuccess &&
                        cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config) == cudaSuccess &&
                        clusters > 0;
  if (!has_room) cudaGetLastError();
  return has_room;
}

bool FitsOnChip(const DeviceLimits& limits, DType dtype, int64_t n) {
  if (n < 1 || order::RowChunks(n) > kMaxParts) return false;
  const RowShape shape = ShapeOf(limits, dtype, n);
  return shape.block_chunks <= kMaxBlockChunks && shape.shared_bytes <= limits.shared_bytes;
}

cudaError_t NormaliseRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream) {
  if (FitsStaged(launch)) return NormaliseStagedRows(limits, launch, stream);
  const KernelParameters parameters = {launch, ShapeOf(limits, launch.dtype, launch.n)};
  const LaunchShape grid = GridOf(launch, parameters.shape);
  return VisitFused(launch.precision, [&]<typename Real>() {
    return VisitNarrowRows(launch.dtype, launch.statistic, parameters.shape.lanes,
                           [&]<typename T, bool kCentred, int kLanes>() {
                             return Launch(grid, stream, NormaliseRowsKernel<T, Real, kCentred, kLanes>, parameters);
                           });
  });
}

}  // namespace normd::cuda
