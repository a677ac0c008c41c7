// GroupNorm with channels last, where groups are small and few: a block of threads, or a cluster of them along the
// positions, has one group, which it reads once into shared memory, sums, finishes and applies in one launch. Large or
// many groups take the launches of ReduceGroups and ApplyGroups, which share every group among many blocks.
// All of it is latency: what a group waits for is counted in dependent steps. So the sample is loaded beside the
// elements, a thread sums no more than one block of positions of one column (EXACT) or one run of two (FAST), and warps
// fold by shuffles.
#include <cooperative_groups.h>

#include <algorithm>
#include <bit>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/quick_finish.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kLeastThreads = 128;
constexpr int kMostCluster = 8;  // blocks; the size that every device with clusters supports
// A block has no more elements where a cluster can still grow: that many keep its threads busy for as long as a cluster
// needs to meet.
constexpr int64_t kGoodElements = 5 << 10;
// And no more than these in any case, beyond which three launches are faster.
constexpr int64_t kMostElements = 32 << 10;         // of a group
constexpr int64_t kMostClusterElements = 12 << 10;  // or of each block of a cluster
constexpr int64_t kLeastBytes = 16;                 // of a group at one position: half of what a load brings
constexpr int kMostColumns = 1024;
constexpr int kPair = 2;         // adjacent columns, which a thread sums together (FAST)
constexpr int kLaneColumns = 4;  // that a lane folds
constexpr int kBlock = static_cast<int>(order::kColumnBlock);
constexpr int kRun = static_cast<int>(order::kFastColumnRun);
constexpr int kRuns = kBlock / kRun;
static_assert(kRuns * kRun == kBlock);

// How a launch divides groups.
struct GroupCut {
  int cluster = 1;  // blocks of threads that share a group, a power of two
  int cluster_log2 = 0;
  int blocks = 1;      // of positions, that each of them has; a power of two, so that its sums are a branch of the tree
  int lanes_log2 = 0;  // of the lanes that fold those blocks
  int lane_blocks = 1;  // and of the blocks that each folds first
  int threads = 0;
  int piece_bytes = 16;             // of a load
  int rows = 1;                     // positions that the threads load at a time
  int stride = 1;                   // elements from a position to the next one
  Divisor by_groups = Divisor(1);   // of an image
  Divisor by_run = Divisor(1);      // columns with one pair of parameters
  Divisor by_pieces = Divisor(1);   // pieces of a position
  Divisor by_columns = Divisor(1);  // of the group
  Divisor by_pairs = Divisor(1);
  Count count, sample;  // elements of the group, and of the sample
  int64_t shared_bytes = 0;
};

// What the threads of a block share.
template <typename Real>
struct alignas(kVectorBytes) Shared {
  Real shift, delta;  // of the elements
  double inverse;
  int turn = 0;  // of the sums, 0 if they are done
  int slow = 0;  // elements are calculated one by one
  GroupState state;
  GroupResult result;  // for such elements
};

// The parts of shared memory, in this order: Shared, the parameters of columns, their samples, their sums in this block
// (of two turns, so that one is written while other blocks may still read the other) and in all of the cluster, the
// sums of blocks or runs, elements.
template <typename Real>
__host__ __device__ __forceinline__ int64_t SamplesAt(int columns) {
  return static_cast<int64_t>(sizeof(Shared<Real>)) + columns * static_cast<int64_t>(sizeof(Affine<double>));
}
template <typename Real>
__host__ __device__ __forceinline__ int64_t ColumnsAt(int columns) {
  return SamplesAt<Real>(columns) + (columns + 1) / 2 * kVectorBytes;
}
template <typename Real>
__host__ __device__ __forceinline__ int64_t PartsAt(int columns) {
  return ColumnsAt<Real>(columns) + 3 * columns * static_cast<int64_t>(sizeof(NarrowPart));
}
// Sums of a run of FAST, in f32. Those of a block of positions, or the sums of EXACT, begin one bank further than those
// of the block before.
__host__ __device__ __forceinline__ int RunsOfBlock(int columns) { return kRuns * columns + 1; }
__host__ __device__ __forceinline__ int PartsOfBlock(int columns) { return columns + 1; }
template <typename Real>
__host__ __device__ __forceinline__ int64_t ElementsAt(int columns, int blocks) {
  const int64_t runs = int64_t{blocks} * RunsOfBlock(columns) * static_cast<int64_t>(sizeof(float2));
  const int64_t parts = int64_t{blocks} * PartsOfBlock(columns) * static_cast<int64_t>(sizeof(NarrowPart));
  return PartsAt<Real>(columns) + ((runs > parts ? runs : parts) + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}
// A block of positions begins a position late, so that the same columns of two blocks lie in different banks.
__host__ __device__ __forceinline__ int SlotOf(int position) { return position + position / kBlock; }

// A piece of kBytes of adjacent elements, as words.
template <int kBytes>
struct alignas(kBytes) Piece {
  unsigned words[kBytes / 4];
};
template <typename T, int kBytes>
inline constexpr int kPieceOf = kBytes / static_cast<int>(sizeof(typename T::Storage));

template <typename T, int kBytes>
__device__ __forceinline__ void Unpack(const Piece<kBytes>& piece, float (&x)[kPieceOf<T, kBytes>]) {
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    if constexpr (std::is_same_v<T, F32>) {
      x[i] = __uint_as_float(piece.words[i]);
    } else {
      T::Split(piece.words[i], x[2 * i], x[2 * i + 1]);
    }
  }
}
// REQUIRES: no 16-bit element is NaN.
template <typename T, int kBytes>
__device__ __forceinline__ Piece<kBytes> Pack(const float (&x)[kPieceOf<T, kBytes>]) {
  Piece<kBytes> piece;
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    if constexpr (std::is_same_v<T, F32>) {
      piece.words[i] = __float_as_uint(x[i]);
    } else {
      piece.words[i] = T::Join(x[2 * i], x[2 * i + 1]);
    }
  }
  return piece;
}
// CopyVector for a piece.
template <int kBytes>
__device__ __forceinline__ void CopyPiece(void* to, const void* from) {
  if constexpr (kBytes == kVectorBytes) return CopyVector(to, from);
#if defined(__CUDA_ARCH__)
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kBytes) : "memory");
#else
  *static_cast<Piece<kBytes>*>(to) = *static_cast<const Piece<kBytes>*>(from);
#endif
}

// A group, as one of its blocks has it. Real is the type of the first sums.
template <typename T, typename Real>
class ColumnGroup {
 public:
  using S = typename T::Storage;
  static constexpr bool kFast = std::is_same_v<Real, float>;
  static constexpr Precision kPrecision = kFast ? Precision::kFast : Precision::kExact;
  static constexpr bool kInF64 = std::is_same_v<T, F32> && !kFast;  // elements
  using Calculated = std::conditional_t<kInF64, double, float>;
  using GroupShared = Shared<Calculated>;

  __device__ __forceinline__ ColumnGroup(const GroupWork& work, const ApplyWork& apply, const GroupCut& cut,
                                         unsigned char* memory)
      : work_(work),
        apply_(apply),
        cut_(cut),
        thread_(static_cast<int>(threadIdx.x)),
        columns_(static_cast<int>(work.reduce1)),
        shared_(reinterpret_cast<GroupShared*>(memory)),
        affine_(reinterpret_cast<Affine<double>*>(memory + sizeof(GroupShared))),
        samples_(reinterpret_cast<double*>(memory + SamplesAt<Calculated>(columns_))),
        sums_(reinterpret_cast<NarrowPart*>(memory + ColumnsAt<Calculated>(columns_))),
        parts_(memory + PartsAt<Calculated>(columns_)),
        elements_(reinterpret_cast<S*>(memory + ElementsAt<Calculated>(columns_, cut.blocks))) {
    group_ = static_cast<int>(blockIdx.x);
    if (cut.cluster > 1) {
      rank_ = static_cast<int>(blockIdx.x) & (cut.cluster - 1);
      group_ = static_cast<int>(blockIdx.x >> cut.cluster_log2);
    }
    const auto k0 = static_cast<int>(cut.by_groups.Quotient(static_cast<unsigned>(group_)));
    k1_ = group_ - k0 * static_cast<int>(cut.by_groups.divisor());
    const int begin = rank_ * cut.blocks * kBlock;
    const int left = static_cast<int>(work.reduce0) - begin;
    positions_ = left <= 0 ? 0 : left < cut.blocks * kBlock ? left : cut.blocks * kBlock;
    group_first_ = k0 * static_cast<int>(work.reduce0) * cut.stride + k1_ * columns_;
    first_ = group_first_ + begin * cut.stride;
  }

  template <int kBytes>
  __device__ __forceinline__ void Normalise() {
    ForPieces<kBytes, 4>([&](int at, int from) { CopyPiece<kBytes>(elements_ + at, X() + from); });
    double first_counted = 0;
    if constexpr (kFast) {
      LoadSamples();
    } else {
      first_counted =
          FiniteOrZero(LoadAs<double>(T(), X() + group_first_ + static_cast<int>(work_.first_counted) * cut_.stride));
    }
    LoadAffine();
    WaitForCopies();
    __syncthreads();
    const double shift = kFast ? SampleShift() : first_counted;
    SumParts(static_cast<Real>(shift));
    FoldParts<kPrecision>(0);
    if (thread_ < kWarp) {
      const PairSums sums = FoldColumns(0);
      if (thread_ == 0) FinishFirst(sums, shift);
    }
    __syncthreads();
    if (shared_->turn != 0) SumAgain(work_, apply_, cut_, reinterpret_cast<unsigned char*>(shared_));
    // What this block has read of others it has used, and nothing that it wrote is read after.
    ArriveToLeave<false>(cut_.cluster);
    if (shared_->slow != 0) {
      ApplySlowly(work_, apply_, cut_, reinterpret_cast<unsigned char*>(shared_));
    } else {
      Apply<kBytes>();
    }
    WaitToLeave(cut_.cluster);
  }

 private:
  __device__ __forceinline__ const S* X() const { return static_cast<const S*>(work_.x.data); }

  // Calls body(at, from) for the pieces of this thread, which have the same columns at every rows-th position: the
  // index of their first element in elements_ and in memory.
  template <int kBytes, int kUnroll, typename Body>
  __device__ __forceinline__ void ForPieces(Body body) const {
    const auto row = static_cast<int>(cut_.by_pieces.Quotient(threadIdx.x));
    const int column = PieceColumn<kBytes>(row);
    if (row >= cut_.rows) return;
    int from = first_ + row * cut_.stride + column;
#pragma unroll kUnroll
    for (int p = row; p < positions_; p += cut_.rows) {
      body(SlotOf(p) * columns_ + column, from);
      from += cut_.rows * cut_.stride;
    }
  }
  template <int kBytes>
  __device__ __forceinline__ int PieceColumn(int row) const {
    return (thread_ - row * static_cast<int>(cut_.by_pieces.divisor())) * kPieceOf<T, kBytes>;
  }

  __device__ __forceinline__ int64_t ParameterOf(int column) const {
    if (apply_.parameters.absent()) return 0;
    return k1_ * apply_.index.channels_per_keep1 + cut_.by_run.Quotient(static_cast<unsigned>(column));
  }
  // The last threads have the first columns: the first threads wait for the sample.
  __device__ __forceinline__ void LoadAffine() const {
#pragma unroll 1
    for (int c = static_cast<int>(blockDim.x) - 1 - thread_; c < columns_; c += static_cast<int>(blockDim.x)) {
      affine_[c] = AffineAt<double>(apply_.parameters, ParameterOf(c));
    }
  }

  // Sums the first positions of each column, straight from memory, so that no thread waits for what others load.
  __device__ __forceinline__ void LoadSamples() const {
    constexpr int kSample = static_cast<int>(order::kFastColumnSample);
    const int positions = work_.reduce0 < kSample ? static_cast<int>(work_.reduce0) : kSample;
#pragma unroll 1
    for (int c = thread_; c < columns_; c += static_cast<int>(blockDim.x)) {
      const S* const x = X() + group_first_ + c;
      double sum = 0;
      if (positions == kSample) {
        S own[kSample];
#pragma unroll
        for (int p = 0; p < kSample; ++p) own[p] = x[p * cut_.stride];
#pragma unroll
        for (int p = 0; p < kSample; ++p) sum += static_cast<double>(T::Widen(own[p]));
      } else {
#pragma unroll 4
        for (int p = 0; p < positions; ++p) sum += static_cast<double>(T::Widen(x[p * cut_.stride]));
      }
      samples_[c] = sum;
    }
  }
  // The first shift of FAST. Every thread calculates it, so that none waits for another.
  __device__ __forceinline__ double SampleShift() const {
    double sum = 0;
#pragma unroll 8
    for (int c = 0; c < columns_; ++c) sum += samples_[c];
    return FiniteOrZero(static_cast<float>(cut_.sample.Quotient(sum)));
  }

  // The sums of runs about `shift`, each of two columns: [block][run][column].
  __device__ __forceinline__ void SumParts(float shift) const {
    const auto pairs = static_cast<int>(cut_.by_pairs.divisor());
    auto* const runs = reinterpret_cast<float2*>(parts_);
#pragma unroll 1
    for (int i = thread_; i < cut_.blocks * kRuns * pairs; i += static_cast<int>(blockDim.x)) {
      const auto run = static_cast<int>(cut_.by_pairs.Quotient(static_cast<unsigned>(i)));
      const int column = (i - run * pairs) * kPair;
      const int block = run / kRuns;
      const int left = positions_ - run * kRun;
      const S* const x = elements_ + SlotOf(run * kRun) * columns_ + column;
      constexpr int kBytes = kPair * static_cast<int>(sizeof(S));
      NarrowSums<float> sums[2][kPair];  // of even and odd positions
      const auto take = [&](int p) {
        float values[kPair];
        Unpack<T, kBytes>(*reinterpret_cast<const Piece<kBytes>*>(x + p * columns_), values);
#pragma unroll
        for (int c = 0; c < kPair; ++c) sums[p % 2][c].template Take<true>(values[c] - shift, false);
      };
      if (left >= kRun) {
#pragma unroll
        for (int p = 0; p < kRun; ++p) take(p);
      } else {
#pragma unroll
        for (int p = 0; p < kRun; ++p) {
          if (p < left) take(p);
        }
      }
      float2* const to = runs + block * RunsOfBlock(columns_) + run % kRuns * columns_ + column;
#pragma unroll
      for (int c = 0; c < kPair; ++c) {
        to[c] = make_float2(sums[0][c].first + sums[1][c].first, sums[0][c].second + sums[1][c].second);
      }
    }
  }
  // The sums of blocks of positions about `shift`: [block][column].
  __device__ __forceinline__ void SumParts(double shift) const {
    constexpr int kLoads = 8;  // that are under way together
    auto* const parts = reinterpret_cast<NarrowPart*>(parts_);
#pragma unroll 1
    for (int i = thread_; i < cut_.blocks * columns_; i += static_cast<int>(blockDim.x)) {
      const auto block = static_cast<int>(cut_.by_columns.Quotient(static_cast<unsigned>(i)));
      const int column = i - block * columns_;
      const int left = positions_ - block * kBlock;
      const S* const x = elements_ + SlotOf(block * kBlock) * columns_ + column;
      NarrowSums<double> sums;
#pragma unroll 1
      for (int from = 0; from < kBlock; from += kLoads) {
        double values[kLoads];
#pragma unroll
        for (int p = 0; p < kLoads; ++p) {
          if (from + p < left) values[p] = LoadAs<double>(T(), x + (from + p) * columns_);
        }
#pragma unroll
        for (int p = 0; p < kLoads; ++p) {
          if (from + p < left) sums.template Take<true>(values[p] - shift, false);
        }
      }
      parts[block * PartsOfBlock(columns_) + column] = {sums.first, sums.second};
    }
  }

  // The sums of a column of a block of positions. Those of a run after the last position are 0, which changes no sum
  // that began with +0; the same holds for blocks and columns that are not there.
  template <Precision kNow>
  __device__ __forceinline__ NarrowPart PartOf(int block, int column) const {
    if constexpr (kNow == Precision::kExact) {
      return reinterpret_cast<const NarrowPart*>(parts_)[block * PartsOfBlock(columns_) + column];
    } else {
      const float2* const runs = reinterpret_cast<const float2*>(parts_) + block * RunsOfBlock(columns_) + column;
      NarrowPart part;
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const float2 sums = runs[run * columns_];
        part.first += static_cast<double>(sums.x);
        part.second += static_cast<double>(sums.y);
      }
      return part;
    }
  }
  // Adds what `step` lanes further is, for steps up to half of 2^lanes_log2.
  static __device__ __forceinline__ NarrowPart FoldLanes(NarrowPart sums, int lanes_log2) {
#pragma unroll 1
    for (int step = 1; step < 1 << lanes_log2; step *= 2) {
      AddNarrow()(sums, {__shfl_xor_sync(~0u, sums.first, step), __shfl_xor_sync(~0u, sums.second, step)});
    }
    return sums;
  }
  __device__ __forceinline__ NarrowPart* Sums(int turn) const { return sums_ + turn % 2 * columns_; }
  // The sums of all blocks of the cluster, or of this one if it is alone.
  __device__ __forceinline__ NarrowPart* Total(int turn) const {
    return cut_.cluster > 1 ? sums_ + 2 * columns_ : Sums(turn);
  }
  __device__ __forceinline__ int Lane() const { return thread_ % kWarp; }

  // Calls of(column, index) for index < 2^lanes_log2, one a lane, folds these parts, and writes them to to[column].
  template <typename Of>
  __device__ __forceinline__ void FoldEach(int lanes_log2, NarrowPart* to, Of of) const {
    const int items = columns_ << lanes_log2;
#pragma unroll 1
    for (int i = thread_; i - Lane() < items; i += static_cast<int>(blockDim.x)) {
      const int column = i >> lanes_log2;
      const int index = i & ((1 << lanes_log2) - 1);
      NarrowPart part;
      if (i < items) part = of(column, index);
      part = FoldLanes(part, lanes_log2);
      if (i < items && index == 0) to[column] = part;
    }
  }
  // Folds the sums of every column, those of the blocks of positions pairwise by index: Total(turn). All threads of the
  // group call it, and have been synchronised when they return.
  template <Precision kNow>
  __device__ __forceinline__ void FoldParts(int turn) const {
    __syncthreads();
    FoldEach(cut_.lanes_log2, Sums(turn), [&](int column, int index) {
      if (cut_.lane_blocks == 1) return PartOf<kNow>(index, column);
      PairwiseStack<3> first, second;
#pragma unroll 1
      for (int i = 0; i < cut_.lane_blocks; ++i) {
        const NarrowPart part = PartOf<kNow>(index * cut_.lane_blocks + i, column);
        first.Push(i, part.first);
        second.Push(i, part.second);
      }
      return NarrowPart{first.Total(cut_.lane_blocks), second.Total(cut_.lane_blocks)};
    });
    MeetBlocks(cut_.cluster);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cut_.cluster == 1) return;
    FoldEach(cut_.cluster_log2, Total(turn), [&](int column, int rank) {
      return *cooperative_groups::this_cluster().map_shared_rank(Sums(turn) + column, rank);
    });
    __syncthreads();
#endif
  }
  static __device__ __noinline__ void FoldMany(NarrowPart* of_columns, int columns) {
    FoldInPlace<WarpThreads>(of_columns, columns, 1, 1, AddNarrow());
  }
  // The sums of the group, columns folded pairwise by index. A warp calls it; the first lane has the result.
  __device__ __forceinline__ PairSums FoldColumns(int turn) const {
    NarrowPart* const of_columns = Total(turn);
    if (columns_ > kLaneColumns * kWarp) {
      FoldMany(of_columns, columns_);
      return AsSums(of_columns[0]);
    }
    NarrowPart own[kLaneColumns];
#pragma unroll
    for (int k = 0; k < kLaneColumns; ++k) {
      const int column = Lane() * kLaneColumns + k;
      if (column < columns_) own[k] = of_columns[column];
    }
    AddNarrow()(own[0], own[1]);
    AddNarrow()(own[2], own[3]);
    AddNarrow()(own[0], own[2]);
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      if (step * kLaneColumns >= columns_) break;
      AddNarrow()(own[0], {__shfl_xor_sync(~0u, own[0].first, step), __shfl_xor_sync(~0u, own[0].second, step)});
    }
    return AsSums(own[0]);
  }

  // Ends the first turn. One thread of each block calls it.
  __device__ __forceinline__ void FinishFirst(const PairSums& sums, double shift) const {
    if constexpr (kFast) {
      const QuickFinish quick = FinishQuickly<true>(Statistic::kMeanVariance, work_.rule, sums, cut_.count, shift);
      if (quick.is_usual && work_.fit_f32) {
        shared_->shift = quick.statistics.shift;
        shared_->delta = quick.statistics.delta;
        shared_->inverse = quick.inverse_std;
        shared_->turn = shared_->slow = 0;
        if (rank_ == 0) StoreQuickly(work_.outputs, group_, cut_.count, quick);
        return;
      }
    }
    FinishGenerally(work_, shared_, sums, shift, rank_ == 0, group_, group_first_);
  }
  static __device__ __noinline__ void FinishGenerally(const GroupWork& work, GroupShared* shared, const PairSums& sums,
                                                      double shift, bool publishes, int group, int first) {
    GroupState state;
    state.round = FirstRound(kPrecision);
    state.shift = shift;
    state.exact_shift = FirstCounted(work, first);
    shared->state = state;
    Finish(work, shared, sums, publishes, group, 1);
  }
  // The same in the general way, after any turn. `turn` is that of the next sums.
  static __device__ __forceinline__ void Finish(const GroupWork& work, GroupShared* shared, const PairSums& sums,
                                                bool publishes, int group, int turn) {
    const GroupState state = shared->state;
    const FinishedStatistics finished =
        FinishNarrow(Statistic::kMeanVariance, work.rule, sums, static_cast<double>(work.counted), state.shift,
                     PrecisionOf(state.round));
    shared->state = NextState(state, finished);
    shared->turn = shared->state.round == Round::kDone ? 0 : turn;
    shared->slow = 0;
    if (shared->turn != 0) return;
    if (publishes) StoreOutputs(work.outputs, group, static_cast<double>(work.counted), finished);
    const GroupResult result = FinishedResult(work, finished);
    shared->result = result;
    shared->shift = static_cast<Calculated>(result.statistics.shift);
    shared->delta = static_cast<Calculated>(result.statistics.delta.hi);
    shared->inverse = result.statistics.inverse.hi;
    shared->slow = !kInF64 && (!result.in_f32 || result.may_be_nan) ? 1 : 0;
  }

  // Sums the group again until it is done. Few groups need it: inlined, it would take registers from what all need. All
  // threads of the group call it, after those of each block have been synchronised.
  static __device__ __noinline__ void SumAgain(const GroupWork& work, const ApplyWork& apply, const GroupCut& cut,
                                               unsigned char* memory) {
    const ColumnGroup group(work, apply, cut, memory);
#pragma unroll 1
    for (int turn = 1; group.shared_->turn != 0; ++turn) group.SumOnce(turn);
  }
  __device__ __forceinline__ void SumOnce(int turn) const {
    const double shift = shared_->state.shift;
    if (PrecisionOf(shared_->state.round) == Precision::kFast) {
      SumParts(static_cast<float>(shift));
      FoldParts<Precision::kFast>(turn);
    } else {
      SumParts(shift);
      FoldParts<Precision::kExact>(turn);
    }
    if (thread_ < kWarp) {
      const PairSums sums = FoldColumns(turn);
      if (thread_ == 0) Finish(work_, shared_, sums, rank_ == 0, group_, turn + 1);
    }
    __syncthreads();
  }

  // Writes y of the block's elements, in the usual case.
  template <int kBytes>
  __device__ __forceinline__ void Apply() const {
    constexpr int kOwn = kPieceOf<T, kBytes>;
    const int row = static_cast<int>(cut_.by_pieces.Quotient(threadIdx.x));
    const int column = PieceColumn<kBytes>(row);
    const Calculated shift = shared_->shift, delta = shared_->delta;
    const double inverse = shared_->inverse;
    Affine<Calculated> affine[kOwn];  // the weights are factors
#pragma unroll
    for (int k = 0; k < kOwn; ++k) affine[k] = ScaledAffine<Calculated>(affine_[column + k], inverse);
    auto* const y = static_cast<S*>(apply_.y);
    ForPieces<kBytes, 2>([&](int at, int to) {
      float out[kOwn];
      Unpack<T, kBytes>(*reinterpret_cast<const Piece<kBytes>*>(elements_ + at), out);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        out[k] = static_cast<float>(std::fma((out[k] - shift) - delta, affine[k].weight, affine[k].bias));
        if constexpr (kInF64) out[k] = CanonicalNaN(out[k]);
      }
      *reinterpret_cast<Piece<kBytes>*>(y + to) = Pack<T, kBytes>(out);
    });
  }
  // Writes y of the block's elements one by one, where f32 may not suffice or values are not finite.
  static __device__ __noinline__ void ApplySlowly(const GroupWork& work, const ApplyWork& apply, const GroupCut& cut,
                                                  unsigned char* memory) {
    const ColumnGroup group(work, apply, cut, memory);
    const NarrowElements<T, kInF64> elements(group.shared_->result, apply.parameters, true);
    S* const y = static_cast<S*>(apply.y) + group.first_;
#pragma unroll 1
    for (int i = group.thread_; i < group.positions_ * group.columns_; i += static_cast<int>(blockDim.x)) {
      const auto p = static_cast<int>(cut.by_columns.Quotient(static_cast<unsigned>(i)));
      const int column = i - p * group.columns_;
      y[p * work.Columns() + column] =
          elements.One(group.elements_[SlotOf(p) * group.columns_ + column], group.ParameterOf(column));
    }
  }

  const GroupWork& work_;
  const ApplyWork& apply_;
  const GroupCut& cut_;
  const int thread_;
  const int columns_;  // of the group
  GroupShared* const shared_;
  Affine<double>* const affine_;
  double* const samples_;
  NarrowPart* const sums_;
  unsigned char* const parts_;
  S* const elements_;  // [slot][column]
  int rank_ = 0;       // of the block in its cluster
  int positions_ = 0;  // that the block has
  int group_ = 0, k1_ = 0;
  int group_first_ = 0, first_ = 0;  // the index of the group's first element, and of the block's
};

template <typename T, typename Real, int kBytes>
__global__ void __launch_bounds__(kMostThreads, 2)
    NormaliseGroupsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                          const __grid_constant__ GroupCut cut) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(memory);
  ColumnGroup<T, Real>(work, apply, cut, memory).template Normalise<kBytes>();
}

// The most bytes of a load, 16 or less, that all addresses of the group's columns are multiples of.
int PieceBytes(const GroupWork& work, const ApplyWork& apply) {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(work.x.data) | reinterpret_cast<uintptr_t>(apply.y) |
                              static_cast<uintptr_t>(work.reduce1 * SizeOf(work.x.dtype)) | kVectorBytes;
  return 1 << std::countr_zero(addresses);
}

int64_t SharedBytes(const GroupWork& work, int blocks) {
  const auto columns = static_cast<int>(work.reduce1);
  const bool in_f64 = work.x.dtype == DType::kF32 && work.precision == Precision::kExact;
  return (in_f64 ? ElementsAt<double>(columns, blocks) : ElementsAt<float>(columns, blocks)) +
         SlotOf(blocks * kBlock) * work.reduce1 * SizeOf(work.x.dtype);
}

// Divides groups among blocks of threads. Returns false if these would have too much.
bool Cut(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, GroupCut* cut) {
  const int64_t elements = work.reduce0 * work.reduce1;
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  const int most_cluster = limits.has_clusters ? kMostCluster : 1;
  while (cut->cluster < most_cluster && cut->cluster < blocks && elements > kGoodElements * cut->cluster &&
         work.StatisticsGroups() * cut->cluster <= limits.multiprocessors) {
    cut->cluster *= 2;
    ++cut->cluster_log2;
  }
  if (elements > std::max(kMostElements, kMostClusterElements * cut->cluster)) return false;
  cut->blocks = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(order::CeilDiv(blocks, cut->cluster))));
  cut->shared_bytes = SharedBytes(work, cut->blocks);
  const int lanes = std::min(cut->blocks, kWarp);
  cut->lanes_log2 = std::countr_zero(static_cast<unsigned>(lanes));
  cut->lane_blocks = cut->blocks / lanes;
  cut->piece_bytes = PieceBytes(work, apply);
  const int64_t pieces = work.reduce1 * SizeOf(work.x.dtype) / cut->piece_bytes;
  cut->stride = static_cast<int>(work.Columns());
  cut->by_groups = Divisor(work.keep1);
  cut->by_run = Divisor(apply.parameters.absent() ? work.reduce1 : apply.index.channel_run);
  cut->by_pieces = Divisor(pieces);
  cut->by_columns = Divisor(work.reduce1);
  cut->by_pairs = Divisor(work.reduce1 / kPair);
  cut->count = Count::Of(work.counted);
  cut->sample = Count::Of(std::min(work.reduce0, order::kFastColumnSample) * work.reduce1);
  const int64_t parts =
      work.precision == Precision::kFast ? cut->blocks * kRuns * work.reduce1 / kPair : cut->blocks * work.reduce1;
  const int64_t turns = order::CeilDiv(parts, kMostThreads);
  const int64_t threads = std::max<int64_t>({order::CeilDiv(parts, turns), pieces, kLeastThreads});
  cut->threads = static_cast<int>(order::CeilDiv(threads, kWarp) * kWarp);
  cut->rows = static_cast<int>(cut->threads / pieces);
  constexpr int kMostLaneBlocks = 8;  // of a PairwiseStack
  return cut->threads <= kMostThreads && cut->lane_blocks <= kMostLaneBlocks &&
         cut->shared_bytes <= limits.shared_bytes;
}

template <typename T, typename Real>
cudaError_t LaunchGroups(const LaunchShape& shape, const GroupWork& work, const ApplyWork& apply, const GroupCut& cut,
                         cudaStream_t stream) {
  if (cut.piece_bytes == 16) return Launch(shape, stream, NormaliseGroupsKernel<T, Real, 16>, work, apply, cut);
  if (cut.piece_bytes == 8) return Launch(shape, stream, NormaliseGroupsKernel<T, Real, 8>, work, apply, cut);
  if constexpr (!std::is_same_v<T, F32>) {
    if (cut.piece_bytes == 4) return Launch(shape, stream, NormaliseGroupsKernel<T, Real, 4>, work, apply, cut);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool FitsInBlocks(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply) {
  const bool is_plain = work.columns && !work.wide() && work.statistic == Statistic::kMeanVariance &&
                        work.mask == nullptr && work.counted > 0 && apply.cast_order == CastOrder::kAffineThenCast &&
                        (apply.parameters.absent() || apply.index.kind != AffineIndex::kElement);
  // Of more groups than multiprocessors some would wait for others.
  if (!is_plain || work.reduce1 % kPair != 0 || work.reduce1 > kMostColumns ||
      work.StatisticsGroups() > limits.multiprocessors || work.reduce1 * SizeOf(work.x.dtype) < kLeastBytes ||
      PieceBytes(work, apply) < kPair * SizeOf(work.x.dtype)) {
    return false;
  }
  GroupCut cut;
  return Cut(limits, work, apply, &cut);
}

cudaError_t NormaliseGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                            cudaStream_t stream) {
  GroupCut cut;
  if (!Cut(limits, work, apply, &cut)) return cudaErrorInvalidValue;
  const LaunchShape shape = {.blocks = work.StatisticsGroups() * cut.cluster,
                             .threads = cut.threads,
                             .shared_bytes = cut.shared_bytes,
                             .shared_limit = limits.shared_bytes,
                             .cluster_blocks = cut.cluster};
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return VisitFused(work.precision,
                      [&]<typename Real>() { return LaunchGroups<T, Real>(shape, work, apply, cut, stream); });
  });
}

}  // namespace normd::cuda
