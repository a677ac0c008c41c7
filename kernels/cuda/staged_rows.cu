// Both passes over rows that register_rows.cu refuses, because their length or their place in memory is odd (or because
// they are summed in f64, of which VisitFused compiles no instance): one read from memory, sums and elements from
// shared memory, one write. A row comes to shared memory by the aligned vectors around it, and lane l has partial sum
// l, or l and l + 32, so that it reads shared memory, and w and b beside it, element by element without conflicts. The
// elements of y replace those of x there and leave as whole vectors. Rows that are not in their usual state are left to
// NormaliseSlowly().
#include <cooperative_groups.h>

#include <type_traits>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/quick_finish.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_ranges.cuh"
#include "kernels/cuda/slow_row.cuh"
#include "kernels/cuda/staged_rows.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kChunk = static_cast<int>(order::kRowChunk);
constexpr int kStep = static_cast<int>(order::kFastRowStep);
constexpr int kStepElements = kStep / kWarp;  // elements of a whole step that a lane has
// Warps of a block whose warps have rows of their own.
constexpr int kShortRowWarps = 4;
// The bytes of a row that one block holds while a cluster can still grow, so that three blocks fit on a multiprocessor
// and one loads while another stores; the blocks of a cluster (the size that every device with clusters supports);
// warps of a block that share a row.
constexpr int64_t kBlockBytes = 64 << 10;
constexpr int kMaxCluster = 8;
constexpr int kMaxWarps = 8;
constexpr int kFoldLevels = 3;  // of at most 2^kFoldLevels chunks that a lane folds

// How a launch divides rows.
struct Cut {
  int warps = 1;         // of a block that share a row; 1: a row is one chunk, a block holds several
  int block_chunks = 1;  // chunks of a row in a block
  int cluster = 1;       // blocks of a row
  int slot_bytes = 0;    // shared memory of a chunk
};

struct KernelParameters {
  RowLaunch launch;
  Cut cut;
  Count count;  // of a row's elements
};

// One row, or those of its chunks that this block holds. Real: what it is summed in.
template <typename T, typename Real, bool kCentred>
class StagedRow {
 public:
  using S = typename T::Storage;
  using Sums = NarrowSums<Real>;
  static constexpr int kOwn = Sums::kPartials / kWarp;  // partial sums of a lane
  static constexpr bool kIsFast = std::is_same_v<Real, float>;

  // `index` is that of the row in the launch.
  __device__ __forceinline__ StagedRow(const KernelParameters& p, const RowRange& range, int64_t index,
                                       unsigned char* slots, NarrowPart* parts)
      : p_(p),
        range_(range),
        row_(index - range.first_row),
        n_(static_cast<int>(p.launch.n)),
        x_(static_cast<const S*>(range.x) + row_ * p.launch.n),
        y_(static_cast<S*>(range.y) + row_ * p.launch.n),
        lanes_(LaneGroup<kWarp>::This()),
        slots_(slots),
        parts_(parts),
        warp_(p.cut.warps == 1 ? 0 : static_cast<int>(threadIdx.x) / kWarp) {
    if (p.cut.cluster > 1) rank_ = static_cast<int>(blockIdx.x & static_cast<unsigned>(p.cut.cluster - 1));
    first_chunk_ = rank_ * p.cut.block_chunks;
    chunks_ = static_cast<int>(order::RowChunks(n_));
    end_chunk_ = chunks_ < first_chunk_ + p.cut.block_chunks ? chunks_ : first_chunk_ + p.cut.block_chunks;
    const bool is_last =
        index + 1 == p.launch.rows || (p.launch.range_count > 1 && &RangeOf(p.launch, index + 1) != &range);
    begins_ = row_ == 0;
    ends_ = is_last;
  }

  __device__ __forceinline__ void Normalise() {
    Bring();
    const Real shift = FirstShift();
    const PairSums sums = Total(shift);
    bool is_done = false;
    if constexpr (kIsFast) {
      is_done = FinishFast(sums, shift);
    } else {
      is_done = FinishExact(sums, shift);
    }
    if (!is_done) {
      if (!InSeveralWarps()) {
        NormaliseSlowly<T, kCentred, Real>(p_.launch, range_, row_, nullptr);
      } else if (rank_ == 0) {
        NormaliseSlowly<T, kCentred, Real>(p_.launch, range_, row_, reinterpret_cast<NarrowPart*>(slots_));
      }
    }
    LeaveBlocks(p_.cut.cluster);
  }

 private:
  // Finishes the row and writes its outputs and elements, unless it is in an unusual state: it then returns false.
  __device__ __forceinline__ bool FinishFast(const PairSums& sums, double shift) {
    const QuickFinish finish = FinishQuickly<kCentred>(p_.launch.statistic, range_.rule, sums, p_.count, shift);
    if (!finish.is_usual || !range_.parameters.fit_f32) return false;
    if (IsFirst()) StoreQuickly(range_.outputs, row_, p_.count, finish);
    const Parameters& parameters = range_.parameters;
    if (parameters.absent() || range_.index.kind == AffineIndex::kElement) {
      ApplyPlain(finish.statistics);
    } else {
      ApplyChannels(finish.statistics, finish.inverse_std);
    }
    return true;
  }
  // The same for EXACT. REQUIRES: each element has parameters of its own, or there are none; in f64 they equal f32.
  __device__ __forceinline__ bool FinishExact(const PairSums& sums, double shift) {
    const Statistic statistic = kCentred ? Statistic::kMeanVariance : p_.launch.statistic;
    FinishedStatistics finished = FinishNarrow(statistic, range_.rule, sums, p_.count.n, shift, Precision::kExact);
    if (NextRound(Round::kExact, finished) != Round::kDone) return false;
    const FinishedStatistics outputs = finished;
    if constexpr (!std::is_same_v<T, F32>) Calculate16BitInF32(&finished);
    const GroupResult group = ResultOf(finished, kCentred, range_.parameters.fit_f32, true);
    const GroupStatistics& s = group.statistics;
    constexpr bool kInPairs = std::is_same_v<T, F32> && !kCentred;
    if (group.may_be_nan || (kInPairs && !group.in_pairs) || (!std::is_same_v<T, F32> && !group.in_f32)) return false;
    if (IsFirst()) StoreOutputs(range_.outputs, row_, p_.count.n, outputs);
    if constexpr (!std::is_same_v<T, F32>) {
      ApplyPlain(ToF32(s));
    } else if constexpr (kCentred) {
      const double centre = FoldedCentre(s);
      const bool folds = group.folds;
      ApplyWithParameters([&](float x, const Affine<float>& affine) {
        const double n = folds ? std::fma(x, s.inverse.hi, centre) : ((x - s.shift) - s.delta.hi) * s.inverse.hi;
        return static_cast<float>(std::fma(n, affine.weight, affine.bias));
      });
    } else {
      const FloatPair pair = FloatPairOf(s.inverse.hi);
      ApplyWithParameters([&](float x, const Affine<float>& affine) { return TimesPair(x, pair, affine.weight); });
    }
    return true;
  }
  __device__ __forceinline__ bool IsFirst() const { return rank_ == 0 && warp_ == 0 && lanes_.lane == 0; }

  __device__ __forceinline__ bool InSeveralWarps() const { return p_.cut.warps > 1 || p_.cut.cluster > 1; }
  template <typename Body>
  __device__ __forceinline__ void ForChunks(Body body) {
    for (int chunk = first_chunk_ + warp_; chunk < end_chunk_; chunk += p_.cut.warps) body(chunk);
  }
  __device__ __forceinline__ int ChunkLength(int chunk) const {
    const int left = n_ - chunk * kChunk;
    return left < kChunk ? left : kChunk;
  }
  __device__ __forceinline__ unsigned char* Slot(int chunk) const {
    return slots_ + (chunk - first_chunk_) * p_.cut.slot_bytes;
  }
  // The staged elements of a chunk, whose distance from alignment is that of all chunks.
  __device__ __forceinline__ S* Staged(int chunk) const {
    return reinterpret_cast<S*>(Slot(chunk)) + MisalignedElements(x_);
  }

  // Brings the chunks to shared memory, and to each lane its elements of the sample that the first shift is made of.
  __device__ __forceinline__ void Bring() {
    ForChunks([&](int chunk) {
      const S* const from = x_ + chunk * kChunk;
      const int n = ChunkLength(chunk);
      // Beside the first and the last element of a range there may be no memory. A window may end behind its chunk, and
      // behind the row, too, where the last chunk is shorter than a vector.
      const bool may_overrun = chunk * kChunk + n + kVector<T> > n_;
      if ((begins_ && chunk == 0) || (ends_ && may_overrun)) return Stage(lanes_, from, n, Slot(chunk));
      const int misaligned = MisalignedElements(from);
      const int vectors = (misaligned + n + kVector<T> - 1) / kVector<T>;
      const S* const window = from - misaligned + lanes_.lane * kVector<T>;
      unsigned char* const slot = Slot(chunk) + lanes_.lane * kVectorBytes;
#pragma unroll 4
      for (int v = 0; v < vectors - lanes_.lane; v += kWarp) {
        CopyVector(slot + v * kVectorBytes, window + v * kVector<T>);
      }
    });
    if constexpr (kCentred) {
#pragma unroll
      for (int k = 0; k < kSample; ++k) {
        const int i = kIsFast ? lanes_.lane + k * kWarp : static_cast<int>(SampleIndex(n_, k));
        sample_[k] = x_[i];
        if constexpr (!kIsFast) {
          if (Residual() != nullptr) sample_[k] = AddElement<T>(1, x_[i], Residual()[i]);
        }
      }
    }
    if constexpr (!kIsFast) {
      if (Residual() != nullptr) AddResidual();
    }
    WaitForCopies();
    lanes_.Sync();
  }
  // The first element of the residual, or null.
  __device__ __forceinline__ const S* Residual() const {
    return range_.residual == nullptr ? nullptr : static_cast<const S*>(range_.residual) + row_ * p_.launch.n;
  }
  // Adds the residual to the staged chunks and writes the sum to h, too. A lane adds to those vectors that it has
  // copied.
  __device__ __forceinline__ void AddResidual() {
    constexpr int kUnrolled = 4;
    S* const h = range_.h == nullptr ? nullptr : static_cast<S*>(range_.h) + row_ * p_.launch.n;
    // h may overwrite the elements that others sample.
    if (h != nullptr && kCentred && InSeveralWarps()) MeetBlocks(p_.cut.cluster);
    WaitForCopies();
    if (!InSeveralWarps()) lanes_.Sync();
    ForChunks([&](int chunk) {
      const int at = chunk * kChunk;
      const int n = ChunkLength(chunk);
      S* const staged = Staged(chunk);
      const S* const residual = Residual() + at;
#pragma unroll 1
      for (int from = lanes_.lane * kVector<T>; from < n; from += kUnrolled * kWarp * kVector<T>) {
        uint4 r[kUnrolled] = {};
#pragma unroll
        for (int k = 0; k < kUnrolled; ++k) {
          const int i = from + k * kWarp * kVector<T>;
          if (i < n) r[k] = LoadStreaming(residual + i);
        }
#pragma unroll
        for (int k = 0; k < kUnrolled; ++k) {
          const int i = from + k * kWarp * kVector<T>;
          if (i >= n) continue;
          auto* const words = reinterpret_cast<uint4*>(staged + i);
          *words = AddVectors<T>(*words, r[k]);
          if (h != nullptr) *reinterpret_cast<uint4*>(h + at + i) = *words;
        }
      }
    });
  }
  // The first shift: see FastShiftOf and ExactShiftOf.
  __device__ __forceinline__ Real FirstShift() const {
    if constexpr (!kCentred) {
      return 0;
    } else if constexpr (kIsFast) {
      float own[kSample];
#pragma unroll
      for (int k = 0; k < kSample; ++k) own[k] = T::Widen(sample_[k]);
      const float sum = lanes_.FromFirst(FoldPartials<Sums>(lanes_, own));
      const auto shift = static_cast<float>(static_cast<double>(sum) / Sums::kPartials);
      return std::isfinite(shift) ? shift : 0;
    } else {
      return ExactShift(T::Widen(sample_[0]), T::Widen(sample_[1]), T::Widen(sample_[2]), T::Widen(sample_[3]));
    }
  }

  // The sums of a chunk about `shift`. The first lane has the result.
  __device__ __forceinline__ PairSums SumOf(int chunk, Real shift) const {
    const S* staged = Staged(chunk) + lanes_.lane;
    Sums sums[kOwn];
    [[maybe_unused]] Sums totals[kOwn];  // FAST: of the steps before
    const auto take = [&](int k) {
      const auto x = static_cast<Real>(T::Widen(staged[k * kWarp]));
      sums[k % kOwn].template Take<kCentred>(kCentred ? x - shift : x, false);
    };
#pragma unroll 1
    for (int left = ChunkLength(chunk); left > 0; left -= kStep, staged += kStep) {
      if (left >= kStep) {
#pragma unroll
        for (int k = 0; k < kStepElements; ++k) take(k);
      } else {
#pragma unroll
        for (int k = 0; k < kStepElements; ++k) {
          if (lanes_.lane + k * kWarp < left) take(k);
        }
      }
      if constexpr (kIsFast) EndStep(sums, totals);
    }
    return FoldSums<kCentred, Sums>(lanes_, kIsFast ? totals : sums);
  }
  // The sums of the row. Every lane has the result.
  __device__ __forceinline__ PairSums Total(Real shift) {
    if (!InSeveralWarps()) return lanes_.FromFirst(SumOf(0, shift));
    ForChunks([&](int chunk) {
      const PairSums sum = SumOf(chunk, shift);
      if (lanes_.lane == 0) parts_[chunk - first_chunk_] = {sum.first.hi, sum.second.hi};
    });
    MeetBlocks(p_.cut.cluster);
    // Each lane folds up to eight adjacent chunks, then the lanes are folded. Missing chunks count as 0, which changes
    // no sum that began with +0.
    int of_lane = 1;
    while (of_lane * kWarp < chunks_) of_lane *= 2;
    const int begin = lanes_.lane * of_lane;
    const int end = begin + of_lane < chunks_ ? begin + of_lane : chunks_;
    NarrowPart sum;
    if (begin < end) {
      sum = of_lane == 1 ? PartOf(begin)
                         : FoldTree<kFoldLevels, NarrowPart>(
                               begin, end, [&](int64_t chunk) { return PartOf(static_cast<int>(chunk)); }, AddNarrow());
    }
#pragma unroll 1
    for (int step = 1; step < kWarp && step < chunks_; step *= 2) {
      if constexpr (kCentred) sum.first += __shfl_xor_sync(~0u, sum.first, step);
      sum.second += __shfl_xor_sync(~0u, sum.second, step);
    }
    return lanes_.FromFirst(PairSums{{sum.first, 0}, {sum.second, 0}});
  }
  __device__ __forceinline__ NarrowPart PartOf(int chunk) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (p_.cut.cluster > 1) {
      const int rank = chunk / p_.cut.block_chunks;
      return *cooperative_groups::this_cluster().map_shared_rank(parts_ + (chunk - rank * p_.cut.block_chunks),
                                                                 static_cast<unsigned>(rank));
    }
#endif
    return parts_[chunk];
  }

  // Writes the elements of y, calculated in f32.
  __device__ __forceinline__ void ApplyPlain(const Statistics32& s) {
    ApplyWithParameters(
        [&](float x, const Affine<float>& affine) { return PlainElement<kCentred>(x, s, affine.weight, affine.bias); });
  }
  // Writes the elements of y, which calculate(x, affine) makes.
  template <typename Calculate>
  __device__ __forceinline__ void ApplyWithParameters(Calculate calculate) {
    const float* const w = range_.parameters.weight32;
    const float* const b = range_.parameters.bias32;
    if (n_ % kVector<T> == 0 && IsVectorAligned(x_) && IsVectorAligned(y_) && IsVectorAligned(w) &&
        IsVectorAligned(b)) {
      return ApplyVectors(calculate);
    }
    if (w != nullptr && b != nullptr) {
      return ApplyWith(calculate, [&](int i, int more) {
        return Affine<float>{__ldg(w + i + more), __ldg(b + i + more)};
      });
    }
    ApplyWith(calculate, [&](int i, int more) {
      return Affine<float>{w == nullptr ? 1 : __ldg(w + i + more), b == nullptr ? -0.0f : __ldg(b + i + more)};
    });
  }
  // The same where nothing is odd: by whole vectors.
  template <typename Calculate>
  __device__ __forceinline__ void ApplyVectors(Calculate calculate) {
    [[maybe_unused]] constexpr int kUnrolled = 8 / kVector<T>;  // more would need more registers
    const float* const w = range_.parameters.weight32;
    const float* const b = range_.parameters.bias32;
    ForChunks([&](int chunk) {
      const int n = ChunkLength(chunk);
      const int at = chunk * kChunk;
      const S* const staged = Staged(chunk);
#pragma unroll kUnrolled
      for (int i = lanes_.lane * kVector<T>; i < n; i += kWarp * kVector<T>) {
        float x[kVector<T>], weight[kVector<T>], bias[kVector<T>];
        FillWith(1.0f, weight);
        FillWith(-0.0f, bias);
        if (w != nullptr) LoadAligned(w + at + i, weight);
        if (b != nullptr) LoadAligned(b + at + i, bias);
        UnpackVector<T>(*reinterpret_cast<const uint4*>(staged + i), x);
#pragma unroll
        for (int k = 0; k < kVector<T>; ++k) x[k] = calculate(x[k], Affine<float>{weight[k], bias[k]});
        StoreStreaming(y_ + at + i, PackVector<T>(x));
      }
    });
  }
  // The same with one weight and one bias a channel.
  __device__ __forceinline__ void ApplyChannels(Statistics32 s, double inverse) {
    const Parameters& parameters = range_.parameters;
    // The weight is the factor then, and a product with 1 is exact.
    const bool scaled = kCentred && ScalesChannels(p_.launch.statistic, parameters, range_.index);
    if (scaled) s.inverse = 1;
    const int64_t first = row_ % range_.keep1 * range_.index.channels_per_keep1;
    const auto run = static_cast<unsigned>(range_.index.channel_run);
    ForChunks([&](int chunk) {
      S* const staged = Staged(chunk);
      const int n = ChunkLength(chunk);
#pragma unroll 4
      for (int i = lanes_.lane; i < n; i += kWarp) {
        const int64_t channel = first + static_cast<unsigned>(chunk * kChunk + i) / run;
        const Affine<float> affine =
            kCentred ? ScaledAffineAt<float>(parameters, channel, inverse) : AffineAt<float>(parameters, channel);
        staged[i] = T::Narrow(PlainElement<kCentred>(T::Widen(staged[i]), s, affine.weight, affine.bias));
      }
      WriteChunk(chunk, n);
    });
  }
  // The same, where affine_at(i, more) are the parameters of element i + more of the row.
  template <typename Calculate, typename AffineOf>
  __device__ __forceinline__ void ApplyWith(Calculate calculate, AffineOf affine_at) {
    ForChunks([&](int chunk) {
      S* const staged = Staged(chunk);
      const int n = ChunkLength(chunk);
      const int at = chunk * kChunk;
      int i = lanes_.lane;
#pragma unroll 1
      for (; i - lanes_.lane + kStep <= n; i += kStep) CalculateStep<true>(calculate, affine_at, at, i, n, staged);
      if (i - lanes_.lane < n) CalculateStep<false>(calculate, affine_at, at, i, n, staged);
      WriteChunk(chunk, n);
    });
  }
  // Writes a lane's elements of y of one step over those of x. The first is element i of the n of a chunk that begins
  // at element `at` of the row. kWhole: the step is whole. If it is not, the lane loads its last elements, or others,
  // several times, so that there is no branch.
  template <bool kWhole, typename Calculate, typename AffineOf>
  __device__ __forceinline__ void CalculateStep(Calculate calculate, AffineOf affine_at, int at, int i, int n,
                                                S* staged) const {
    Affine<float> affine[kStepElements];
    float x[kStepElements];
#pragma unroll
    for (int k = 0; k < kStepElements; ++k) {
      const int clamped = i + k * kWarp < n ? i + k * kWarp : n - 1;
      affine[k] = kWhole ? affine_at(at + i, k * kWarp) : affine_at(at + clamped, 0);
      x[k] = T::Widen(kWhole ? (staged + i)[k * kWarp] : staged[clamped]);
    }
    // No other lane may write what this one still has to load.
    if (!kWhole) lanes_.Sync();
#pragma unroll
    for (int k = 0; k < kStepElements; ++k) x[k] = calculate(x[k], affine[k]);
#pragma unroll
    for (int k = 0; k < kStepElements; k += 2) {
      S low, high;
      if constexpr (std::is_same_v<T, F32>) {
        low = x[k];
        high = x[k + 1];
      } else {
        const unsigned word = T::Join(x[k], x[k + 1]);
        low = static_cast<S>(word);
        high = static_cast<S>(word >> 16);
      }
      S* const to = staged + i + k * kWarp;
      if (kWhole || i + k * kWarp < n) to[0] = low;
      if (kWhole || i + (k + 1) * kWarp < n) to[kWarp] = high;
    }
  }
  // Copies the n elements of a chunk from shared memory to y.
  __device__ __forceinline__ void WriteChunk(int chunk, int n) const {
    lanes_.Sync();
    const S* const staged = Staged(chunk);
    S* const y = y_ + chunk * kChunk;
    if (MisalignedElements(x_) == MisalignedElements(y_)) return WriteVectors(staged, y, n);
#pragma unroll 4
    for (int i = lanes_.lane; i < n; i += kWarp) y[i] = staged[i];
  }
  // Copies n elements from shared memory to y, at the same distance from alignment.
  __device__ __forceinline__ void WriteVectors(const S* staged, S* y, int n) const {
    int head = (kVector<T> - MisalignedElements(y)) % kVector<T>;
    if (head > n) head = n;
    const int vectors = (n - head) / kVector<T>;
    // Fewer elements than lanes are beside the vectors.
    const int single = lanes_.lane < head ? lanes_.lane : lanes_.lane + vectors * kVector<T>;
    if (single < n) y[single] = staged[single];
    const int own = head + lanes_.lane * kVector<T>;
#pragma unroll 4
    for (int v = 0; v < vectors - lanes_.lane; v += kWarp) {
      StoreStreaming(y + own + v * kVector<T>, *reinterpret_cast<const uint4*>(staged + own + v * kVector<T>));
    }
  }

  const KernelParameters& p_;
  const RowRange& range_;
  const int64_t row_;  // index in the range
  const int n_;
  const S* const x_;  // its first element
  S* const y_;
  const LaneGroup<kWarp> lanes_;
  unsigned char* const slots_;
  NarrowPart* const parts_;
  const int warp_;
  int rank_ = 0;
  int first_chunk_ = 0, end_chunk_ = 0;  // of this block
  int chunks_ = 0;                       // of the row
  bool begins_ = false, ends_ = false;   // the row is the first, the last one of its range
  static constexpr int kSample = kIsFast ? kOwn : 4;
  S sample_[kSample];
};

// FAST: 64 registers for a thread; EXACT: 80.
template <typename T, typename Real, bool kCentred>
__global__ void __launch_bounds__(kMaxWarps* kWarp, std::is_same_v<Real, float> ? 4 : 3)
    NormaliseStagedRowsKernel(const __grid_constant__ KernelParameters p) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  int64_t index = 0;
  unsigned char* slots = shared;
  NarrowPart* parts = nullptr;
  if (p.cut.warps == 1 && p.cut.cluster == 1) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    index = static_cast<int64_t>(blockIdx.x) * kShortRowWarps + warp;
    slots += warp * p.cut.slot_bytes;
  } else {
    index = blockIdx.x / static_cast<unsigned>(p.cut.cluster);
    parts = reinterpret_cast<NarrowPart*>(shared + p.cut.block_chunks * p.cut.slot_bytes);
  }
  if (index >= p.launch.rows) return;  // whole warps leave
  StagedRow<T, Real, kCentred>(p, RangeOf(p.launch, index), index, slots, parts).Normalise();
}

Cut CutOf(const DeviceLimits& limits, DType dtype, int64_t n) {
  Cut cut;
  const int64_t chunks = order::RowChunks(n);
  cut.slot_bytes = static_cast<int>(SlotBytes(n < kChunk ? n : kChunk, SizeOf(dtype)));
  if (limits.has_clusters) {
    const int64_t block_chunks = kBlockBytes / (kChunk * SizeOf(dtype));
    while (cut.cluster < kMaxCluster && chunks > block_chunks * cut.cluster) cut.cluster *= 2;
  }
  cut.block_chunks = static_cast<int>(order::CeilDiv(chunks, cut.cluster));
  // As few warps as leave none with fewer chunks than the longest needs. A short last chunk goes to one of them.
  int64_t whole = cut.block_chunks;
  if (cut.cluster == 1 && HasShortTail(n) && whole > 2) --whole;
  cut.warps = static_cast<int>(order::CeilDiv(whole, order::CeilDiv(whole, int64_t{kMaxWarps})));
  return cut;
}

}  // namespace

bool FitsStaged(const RowLaunch& launch) {
  if (launch.counted != launch.n || launch.statistic == Statistic::kAbsSum || launch.n <= 2 * order::kFastPartials) {
    return false;
  }
  const bool is_fast = launch.precision == Precision::kFast;
  for (int i = 0; i < launch.range_count; ++i) {
    const RowRange& range = launch.ranges[i];
    if (range.y == nullptr) return false;
    if (range.residual != nullptr) {
      const bool by_vectors = launch.n * SizeOf(launch.dtype) % kVectorBytes == 0 && IsVectorAligned(range.x) &&
                              IsVectorAligned(range.residual) && IsVectorAligned(range.h);
      if (is_fast || range.residual_scale != 1 || !by_vectors) return false;
    }
    const Parameters& parameters = range.parameters;
    if (is_fast || parameters.absent()) continue;
    if (range.index.kind != AffineIndex::kElement || !parameters.fit_f32) return false;
    if (launch.dtype != DType::kF32) continue;
    if (!parameters.equal_f32) return false;
    if (launch.statistic != Statistic::kMeanVariance && parameters.bias != nullptr) return false;
  }
  return true;
}

cudaError_t NormaliseStagedRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream) {
  const Cut cut = CutOf(limits, launch.dtype, launch.n);
  const KernelParameters parameters = {launch, cut, Count::Of(launch.n)};
  LaunchShape grid = {.shared_limit = limits.shared_bytes, .cluster_blocks = cut.cluster};
  if (cut.warps == 1 && cut.cluster == 1) {
    grid.threads = kShortRowWarps * kWarp;
    grid.blocks = order::CeilDiv(launch.rows, kShortRowWarps);
    grid.shared_bytes = kShortRowWarps * cut.slot_bytes;
  } else {
    grid.threads = cut.warps * kWarp;
    grid.blocks = launch.rows * cut.cluster;
    grid.shared_bytes = cut.block_chunks * (cut.slot_bytes + static_cast<int64_t>(sizeof(NarrowPart)));
  }
  return VisitNarrowDType(launch.dtype, [&]<typename T>() {
    return VisitFused(launch.precision, [&]<typename Real>() {
      return VisitCentred(launch.statistic, [&]<bool kCentred>() {
        return Launch(grid, stream, NormaliseStagedRowsKernel<T, Real, kCentred>, parameters);
      });
    });
  });
}

}  // namespace normd::cuda
