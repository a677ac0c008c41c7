// Groups of several segments that fit on chip (BatchNorm training with channels first): one read from memory, sums and
// elements from shared memory, one write. A block of threads has a tile, one or several adjacent groups with all their
// segments; a cluster of blocks shares the segments where a block does not hold them. Several groups make the pieces
// that are contiguous in memory (one segment of each) whole 16-byte vectors, or longer.
#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tile_sums.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kMostChannels = 8;  // of a tile
constexpr int kMostCluster = 8;   // blocks; the size that every device with clusters supports
// The chunks of a group: a warp folds 32 to one, and then 32 of those.
constexpr int kMostChunks = kWarp * kWarp;

// How a launch divides groups. A piece is what a tile has of one of the reduce0 extents: a segment of each channel.
struct TileCut {
  int channels = 1;        // groups of a tile, a power of two
  int channels_log2 = 0;   //
  int cluster = 1;         // blocks of a tile
  int threads = 0;         // of a block
  int block_segments = 1;  // segments of each group that a block has; the last blocks may have fewer
  int block_chunks = 1;    // and chunks
  int chunks = 1;          // of a group
  int folds = 0;           // 0, or that many sums of 32 chunks of a group are folded after those have been
  int has_short_tail = 0;  // see HasShortTail
  int piece_vectors = 1;   // 16-byte vectors of a piece
  unsigned stride = 0;     // vectors between two pieces
  int piece_rows = 1;      // several channels: pieces that the threads have at a time
  int row_length = 0;      // TileKind::kRow: elements of the group that a block has; the last blocks may have fewer
  int table = 0;           // and the most channels that they lie in
  RowCut row;
  Divisor by_chunks = Divisor(1);   // block_chunks
  Divisor by_sharers = Divisor(1);  // chunks of a segment that are summed one after the other count as one
  Divisor by_vectors = Divisor(1);  // piece_vectors
  Divisor by_length = Divisor(1);   // elements with one pair of parameters
  int64_t shared_bytes = 0;
};

// What tiles are made of: one group, with all its segments; several; or one group of one segment (GroupNorm with
// channels first), of which each block of a cluster has a part, and whose channels have parameters of their own.
enum class TileKind { kOne, kSeveral, kRow };

// What y is made of x with: y = ((x - shift) - delta) * factor + bias.
template <typename Real>
struct alignas(16) ElementNumbers {
  Real shift, delta, factor, bias;
};

// One group of the tile. Every block of the tile has its own.
template <typename Real>
struct alignas(16) TileGroup {
  ElementNumbers<Real> numbers;
  double shift;  // of the sums that come next
  Round round;   // of these sums
  Affine<double> affine;
  GroupResult result;  // for elements that are calculated one by one
};

// Flags that any thread may raise.
struct alignas(16) TileFlags {
  int again = 0;  // the turn of sums after which some group is summed again
  int slow = 0;   // some group has elements that are calculated one by one
};

// The parts of shared memory, in this order: flags, groups, the sums of chunks (of two turns, so that one is written
// while the other may still be read), the sums of 32 chunks, parameters of the channels of kRow, elements.
template <typename Real>
__host__ __device__ __forceinline__ int64_t PartsAt(int channels) {
  return static_cast<int64_t>(sizeof(TileFlags)) + channels * static_cast<int64_t>(sizeof(TileGroup<Real>));
}
template <typename Real>
__host__ __device__ __forceinline__ int64_t TableAt(const TileCut& cut) {
  return PartsAt<Real>(cut.channels) +
         cut.channels * static_cast<int64_t>(sizeof(NarrowPart)) * (2 * cut.block_chunks + cut.folds);
}
template <typename Real>
__host__ __device__ __forceinline__ int64_t ElementsAt(const TileCut& cut) {
  return TableAt<Real>(cut) + cut.table * static_cast<int64_t>(sizeof(Affine<double>));
}

// True if elements of T with sums in Real are calculated in f64: EXACT f32 alone.
template <typename T, typename Real>
inline constexpr bool kElementsInF64 = std::is_same_v<T, F32>&& std::is_same_v<Real, double>;

// Ends a group of copies that CopyVector() has started.
__device__ __forceinline__ void EndGroupOfCopies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kLeft>
__device__ __forceinline__ void WaitForAllBut() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}
// Waits until at most the last `left` groups of copies of each lane are under way, and shows all lanes the others. A
// warp calls it.
__device__ __forceinline__ void WaitForGroups(int left) {
  if (left == 0) {
    WaitForAllBut<0>();
  } else if (left == 1) {
    WaitForAllBut<1>();
  } else if (left == 2) {
    WaitForAllBut<2>();
  } else if (left == 3) {
    WaitForAllBut<3>();
  } else if (left < 6) {
    WaitForAllBut<4>();
  } else {
    WaitForAllBut<6>();
  }
  __syncwarp();
}

// The elements that decide the first shift of a group in rows, loaded long before it is calculated: see RowShift. A
// warp has one.
template <typename T, typename Real>
class FirstSample {
 public:
  __device__ __forceinline__ FirstSample(const typename T::Storage* x, int n) {
    if constexpr (kIsFast) {
      count_ = n < kPartials ? n : kPartials;
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const int i = static_cast<int>(threadIdx.x) % kWarp + k * kWarp;
        own_[k] = i < count_ ? x[i] : typename T::Storage{};
      }
    } else {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) own_[k] = x[SampleIndex(n, k)];
    }
  }
  // All lanes have the result.
  __device__ __forceinline__ double Shift() const {
    if constexpr (kIsFast) {
      const auto lanes = LaneGroup<kWarp>::This();
      float values[kOwn];
#pragma unroll
      for (int k = 0; k < kOwn; ++k) values[k] = T::Widen(own_[k]);
      const float sum = lanes.FromFirst(FoldPartials<NarrowSums<float>>(lanes, values));
      return FiniteOrZero(static_cast<float>(static_cast<double>(sum) / static_cast<double>(count_)));
    } else {
      return ExactShift(T::Widen(own_[0]), T::Widen(own_[1]), T::Widen(own_[2]), T::Widen(own_[3]));
    }
  }

 private:
  static constexpr bool kIsFast = std::is_same_v<Real, float>;
  static constexpr int kPartials = static_cast<int>(order::kFastPartials);
  static constexpr int kOwn = kIsFast ? kPartials / kWarp : 4;
  typename T::Storage own_[kOwn];
  int count_ = 0;
};

// A tile, as one of its blocks has it.
template <typename T, typename Real, TileKind kKind>
class Tile {
 public:
  using S = typename T::Storage;
  static constexpr bool kSeveral = kKind == TileKind::kSeveral;
  static constexpr bool kRow = kKind == TileKind::kRow;
  static constexpr bool kInF64 = kElementsInF64<T, Real>;
  static constexpr Precision kPrecision = std::is_same_v<Real, float> ? Precision::kFast : Precision::kExact;
  using Calculated = std::conditional_t<kInF64, double, float>;
  using Group = TileGroup<Calculated>;

  __device__ __forceinline__ Tile(const GroupWork& work, const ApplyWork& apply, const TileCut& cut,
                                  unsigned char* shared)
      : work_(work),
        apply_(apply),
        cut_(cut),
        length_(static_cast<int>(work.reduce1)),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        flags_(reinterpret_cast<TileFlags*>(shared)),
        groups_(reinterpret_cast<Group*>(shared + sizeof(TileFlags))),
        parts_(reinterpret_cast<NarrowPart*>(shared + PartsAt<Calculated>(cut.channels))),
        table_(reinterpret_cast<Affine<double>*>(shared + TableAt<Calculated>(cut))),
        elements_(reinterpret_cast<S*>(shared + ElementsAt<Calculated>(cut))) {
    unsigned tile = blockIdx.x;
    if (cut.cluster > 1) {
      rank_ = static_cast<int>(tile % static_cast<unsigned>(cut.cluster));
      tile /= static_cast<unsigned>(cut.cluster);
    }
    const Division place = Divide(int64_t{tile} * cut.channels, work.keep1);
    k1_ = place.remainder;
    group_ = place.quotient * work.keep1 + k1_;
    group_first_ = FirstOf(work, place.quotient, k1_);
    if constexpr (kRow) {
      offset_ = rank_ * cut.row_length;
      const int left = length_ - offset_;
      length_ = left <= 0 ? 0 : left < cut.row_length ? left : cut.row_length;
      segments_ = 1;
      first_ = group_first_ + offset_;
      return;
    }
    const int64_t left = work.reduce0 - int64_t{rank_} * cut.block_segments;
    segments_ = left <= 0 ? 0 : static_cast<int>(left < cut.block_segments ? left : cut.block_segments);
    first_ = group_first_ + int64_t{rank_} * cut.block_segments * work.keep1 * work.reduce1;
  }

  __device__ __forceinline__ void Normalise() {
    if constexpr (kSeveral) {
      Load();
      BeginGroups();
      WaitForCopies();
      __syncthreads();
      Sum([](int /*items_left*/) {}, [&](int c) { return groups_[c].shift; });
    } else {
      // Each warp sums what it has loaded itself, so that it need not wait for others.
      const FirstSample<T, Real> sample(X() + group_first_, static_cast<int>(work_.reduce1));
      int items = LoadChunks();
      const double shift = sample.Shift();
      if (warp_ == 0) BeginGroup(0, shift);
      if constexpr (kRow) LoadTable();
      Sum([&](int items_left) { WaitForGroups(items_left); }, [&](int /*c*/) { return shift; }, items);
    }
    MeetBlocks(cut_.cluster);
    FinishFirst();
    __syncthreads();
    if (flags_->again != 0) SumAgain(work_, apply_, cut_, reinterpret_cast<unsigned char*>(flags_));
    ArriveToLeave<true>(cut_.cluster);
    if constexpr (kRow) FinishTable();
    if (flags_->slow != 0) {
      ApplySlowly(work_, apply_, cut_, reinterpret_cast<unsigned char*>(flags_));
    } else {
      Apply();
    }
    WaitToLeave(cut_.cluster);
  }

 private:
  static constexpr int kOwn = kVector<T>;

  __device__ __forceinline__ int Channels() const { return kSeveral ? cut_.channels : 1; }
  __device__ __forceinline__ int Warps() const { return static_cast<int>(blockDim.x) / kWarp; }

  // Calls body(at, from) for the vectors of this thread: number `at` of the block's elements, and `from` vectors after
  // the first one in memory.
  template <int kUnroll, typename Body>
  __device__ __forceinline__ void ForVectors(Body body) const {
    const auto vectors = static_cast<unsigned>(cut_.piece_vectors);
    const unsigned row = cut_.by_vectors.Quotient(threadIdx.x);
    const unsigned column = threadIdx.x - row * vectors;
    if constexpr (kRow) {
      const unsigned end = static_cast<unsigned>(length_) / kOwn;
#pragma unroll kUnroll
      for (unsigned at = threadIdx.x; at < end; at += blockDim.x) body(at, at);
    } else if constexpr (kSeveral) {
      // A thread has the same vector of every piece, and thus the same channels.
      const auto rows = static_cast<unsigned>(cut_.piece_rows);
      if (row >= rows) return;
      unsigned at = row * vectors + column;
      unsigned from = row * cut_.stride + column;
#pragma unroll kUnroll
      for (unsigned piece = row; piece < static_cast<unsigned>(segments_); piece += rows) {
        body(at, from);
        at += rows * vectors;
        from += rows * cut_.stride;
      }
    } else {
      const unsigned rows = cut_.by_vectors.Quotient(blockDim.x);
      const unsigned columns = blockDim.x - rows * vectors;
      const unsigned step = rows * cut_.stride + columns;
      const unsigned end = static_cast<unsigned>(segments_) * vectors;
      unsigned from = row * cut_.stride + column;
      unsigned left = vectors - column;  // of the piece
#pragma unroll kUnroll
      for (unsigned at = threadIdx.x; at < end; at += blockDim.x) {
        body(at, from);
        from += step;
        if (left > columns) {
          left -= columns;
        } else {  // a piece further
          left += vectors - columns;
          from += cut_.stride - vectors;
        }
      }
    }
  }

  __device__ __forceinline__ const S* X() const { return static_cast<const S*>(work_.x.data); }

  // Starts to copy the block's elements to shared memory.
  __device__ __forceinline__ void Load() const {
    const auto* const x = reinterpret_cast<const uint4*>(X() + first_);
    auto* const to = reinterpret_cast<uint4*>(elements_);
    ForVectors<4>([&](unsigned at, unsigned from) { CopyVector(to + at, x + from); });
  }

  // Brings the groups to the state in which they are summed first.
  __device__ __forceinline__ void BeginGroups() const {
    const auto lanes = LaneGroup<kWarp>::This();
#pragma unroll 1
    for (int c = warp_; c < Channels(); c += Warps()) {
      BeginGroup(c, RowShift<T>(lanes, work_, kPrecision, group_first_ + c * work_.reduce1));
    }
  }
  // A warp calls it.
  __device__ __forceinline__ void BeginGroup(int c, double shift) const {
    if (lane_ != 0) return;
    if (c == 0) *flags_ = TileFlags();
    if constexpr (!kRow) groups_[c].affine = AffineAt<double>(apply_.parameters, k1_ + c);
    groups_[c].shift = shift;
    groups_[c].round = FirstRound(kPrecision);
  }

  // The channels of a row that the block has elements of: number `first_channel` of the group, and those that follow.
  __device__ __forceinline__ int FirstChannel() const {
    return static_cast<int>(cut_.by_length.Quotient(static_cast<unsigned>(offset_)));
  }
  __device__ __forceinline__ int TableLength() const {
    if (length_ == 0) return 0;
    return static_cast<int>(cut_.by_length.Quotient(static_cast<unsigned>(offset_ + length_ - 1))) - FirstChannel() + 1;
  }
  __device__ __forceinline__ int64_t ParameterOf(int channel) const {
    return apply_.parameters.absent() ? 0 : k1_ * apply_.index.channels_per_keep1 + channel;
  }
  // Loads the parameters of these channels, and makes them what elements are multiplied by once the group is finished.
  __device__ __forceinline__ void LoadTable() const {
    const int count = TableLength();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      table_[i] = AffineAt<double>(apply_.parameters, ParameterOf(FirstChannel() + i));
    }
  }
  __device__ __forceinline__ void FinishTable() const {
    const bool absent = apply_.parameters.absent();
    const ElementNumbers<Calculated>& numbers = groups_[0].numbers;
    const double inverse = groups_[0].result.statistics.inverse.hi;
    const int count = TableLength();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const Affine<Calculated> scaled =
          absent ? Affine<Calculated>{numbers.factor, numbers.bias} : ScaledAffine<Calculated>(table_[i], inverse);
      *reinterpret_cast<Affine<Calculated>*>(table_ + i) = scaled;
    }
    __syncthreads();
  }

  // What a warp sums without a break: chunk `chunk` of a channel, as the block counts them, and where `tail` is set the
  // one that follows it. The chunk has elements [at, at + kRowChunk), or those that there are, of `segments` segments.
  struct Item {
    int channel, chunk, segment, segments, at;
    bool tail;
  };
  // Calls body(item) for the items of this warp.
  template <typename Body>
  __device__ __forceinline__ void ForItems(Body body) const {
    if constexpr (kRow) {
      constexpr int kChunk = static_cast<int>(order::kRowChunk);
#pragma unroll 1
      for (int chunk = warp_; chunk * kChunk < length_; chunk += Warps()) {
        body(Item{.channel = 0, .chunk = chunk, .segment = 0, .segments = 1, .at = chunk * kChunk, .tail = false});
      }
      return;
    }
    const int whole = cut_.row.chunk_segments;
    const int runs = (segments_ + whole - 1) / whole;
    const auto sharers = static_cast<int>(cut_.by_sharers.divisor());
    const int items = runs * sharers * Channels();
#pragma unroll 1
    for (int i = warp_; i < items; i += Warps()) {
      const int place = kSeveral ? i >> cut_.channels_log2 : i;
      const auto run = static_cast<int>(cut_.by_sharers.Quotient(static_cast<unsigned>(place)));
      const int index = place - run * sharers;
      const int segment = run * whole;
      body(Item{.channel = kSeveral ? i & (cut_.channels - 1) : 0,
                .chunk = run * static_cast<int>(cut_.row.of_segment) + index,
                .segment = segment,
                .segments = segments_ - segment < whole ? segments_ - segment : whole,
                .at = index * static_cast<int>(order::kRowChunk),
                .tail = index + 1 == sharers && cut_.has_short_tail != 0});
    }
  }
  // Calls body(chunk, at, n) for the chunks of an item.
  template <typename Body>
  __device__ __forceinline__ void ForChunks(const Item& item, Body body) const {
    constexpr int kChunk = static_cast<int>(order::kRowChunk);
    const int last = item.tail ? 1 : 0;
#pragma unroll 1
    for (int i = 0; i <= last; ++i) {
      const int at = item.at + i * kChunk;
      body(item.chunk + i, at, length_ - at < kChunk ? length_ - at : kChunk);
    }
  }

  // Starts to copy the elements of this warp's items, those of each as one group of copies. Returns their number.
  __device__ __forceinline__ int LoadChunks() const {
    const auto vectors = static_cast<unsigned>(kRow ? length_ / kOwn : cut_.piece_vectors);
    const auto* const x = reinterpret_cast<const uint4*>(X() + first_);
    auto* const to = reinterpret_cast<uint4*>(elements_);
    int items = 0;
    ForItems([&](const Item& item) {
      const unsigned begin = static_cast<unsigned>(item.segment) * vectors;
      const unsigned from = static_cast<unsigned>(item.segment) * cut_.stride;
      if (kRow || item.segments == 1) {
        constexpr int kChunkVectors = static_cast<int>(order::kRowChunk) / kOwn;
        const auto at = static_cast<unsigned>(item.at / kOwn + lane_);
        uint4* own = to + (begin + at);
        const uint4* own_x = x + (from + at);
        int left = static_cast<int>(vectors) - item.at / kOwn;
        if (!item.tail && left >= kChunkVectors) {
#pragma unroll
          for (int i = 0; i < kChunkVectors; i += kWarp) CopyVector(own + i, own_x + i);
        } else {
#pragma unroll 4
          for (left -= lane_; left > 0; left -= kWarp, own += kWarp, own_x += kWarp) CopyVector(own, own_x);
        }
      } else {
        const unsigned end = static_cast<unsigned>(item.segments) * vectors;
#pragma unroll 4
        for (unsigned i = static_cast<unsigned>(lane_); i < end; i += kWarp) {
          CopyVector(to + (begin + i), x + (from + i + cut_.by_vectors.Quotient(i) * (cut_.stride - vectors)));
        }
      }
      EndGroupOfCopies();
      ++items;
    });
    return items;
  }

  // The first sums of the chunks. `wait(items)` returns when all but the last `items` items of the warp are there;
  // `shift_of(c)` is the shift of a channel.
  template <typename Wait, typename ShiftOf>
  __device__ __forceinline__ void Sum(Wait wait, ShiftOf shift_of, int items = 0) const {
    ForItems([&](const Item& item) {
      wait(--items);
      const auto shift = static_cast<Real>(shift_of(item.channel));
      ForChunks(item, [&](int chunk, int at, int n) {
        const PairSums sums = SumOf<Real>(item, at, n, shift);
        if (lane_ == 0) Parts(0)[item.channel * cut_.block_chunks + chunk] = {sums.first.hi, sums.second.hi};
      });
    });
  }
  template <typename R>
  __device__ __forceinline__ PairSums SumOf(const Item& item, int at, int n, R shift) const {
    const int stride = Channels() * length_;
    const int offset = item.channel * length_;
    const S* const x = elements_ + item.segment * stride + offset + at;
    if constexpr (std::is_same_v<R, float>) {
      if (!kSeveral || offset % 2 == 0) {
        return SumPairs<T, true>(x, stride, item.segments, n, cut_.row.step_segments, shift);
      }
      return SumPairs<T, false>(x, stride, item.segments, n, cut_.row.step_segments, shift);
    } else {
      if (!kRow && item.segments > 1) return SumSegmentsExactly<T>(x, stride, item.segments, n, shift);
      return SumChunk<true, NarrowSums<R>>(LaneGroup<kWarp>::This(), n, [&](int i, NarrowSums<R>& sums) {
        sums.template Take<true>(LoadAs<R>(T(), x + i) - shift, false);
      });
    }
  }

  __device__ __forceinline__ NarrowPart* Parts(int turn) const {
    return parts_ + turn % 2 * Channels() * cut_.block_chunks;
  }

  // The sums of chunk `chunk` of the group; those after the last one are 0, which changes no sum that began with +0.
  __device__ __forceinline__ NarrowPart SumsOf(NarrowPart* parts, int c, int chunk) const {
    if (chunk >= cut_.chunks) return {};
    NarrowPart* const of_channel = parts + c * cut_.block_chunks;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cut_.cluster > 1) {
      const unsigned rank = cut_.by_chunks.Quotient(static_cast<unsigned>(chunk));
      const int local = chunk - static_cast<int>(rank) * cut_.block_chunks;
      return *cooperative_groups::this_cluster().map_shared_rank(of_channel + local, rank);
    }
#endif
    return of_channel[chunk];
  }
  // Folds the sums of 32 chunks, or of as many such folds, pairwise by index. All of the warp have the result.
  static __device__ __forceinline__ NarrowPart FoldLanes(NarrowPart sums) {
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      AddNarrow()(sums, {__shfl_xor_sync(~0u, sums.first, step), __shfl_xor_sync(~0u, sums.second, step)});
    }
    return sums;
  }
  // Calls finish(c, sums) with the sums of each group, by a warp of each block. All threads call it after Meet().
  template <typename Finish>
  __device__ __forceinline__ void FoldGroups(int turn, Finish finish) const {
    NarrowPart* const parts = Parts(turn);
    NarrowPart* const folded = parts_ + 2 * Channels() * cut_.block_chunks;
    if (cut_.folds > 0) {
#pragma unroll 1
      for (int i = warp_; i < cut_.folds * Channels(); i += Warps()) {
        const int c = kSeveral ? i / cut_.folds : 0;
        const NarrowPart sums = FoldLanes(SumsOf(parts, c, (i - c * cut_.folds) * kWarp + lane_));
        if (lane_ == 0) folded[i] = sums;
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int c = warp_; c < Channels(); c += Warps()) {
      NarrowPart sums;
      if (cut_.folds == 0) {
        sums = SumsOf(parts, c, lane_);
      } else if (lane_ < cut_.folds) {
        sums = folded[c * cut_.folds + lane_];
      }
      sums = FoldLanes(sums);
      finish(c, PairSums{{sums.first, 0}, {sums.second, 0}});
    }
  }

  // Ends the first round of every group. One warp of each block finishes a group for all: divisions and roots of f64
  // are slow.
  __device__ __forceinline__ void FinishFirst() const {
    FoldGroups(0, [&](int c, const PairSums& sums) { Finish<kPrecision>(c, sums, FirstRound(kPrecision), 1); });
  }
  // `turn` is the number of the next sums.
  template <Precision kNow>
  __device__ __forceinline__ void Finish(int c, const PairSums& sums, Round round, int turn) const {
    Group* const group = groups_ + c;
    FinishedStatistics finished = FinishNarrow(Statistic::kMeanVariance, work_.rule, sums,
                                               static_cast<double>(work_.counted), group->shift, kNow);
    const Round next = NextRound(round, finished);
    __syncwarp();  // the shift has been read
    if (lane_ != 0) return;
    group->round = next;
    if (next == Round::kDone) {
      Publish(c, &finished);
    } else {
      group->shift = IsFirstOfPrecision(next) ? ExactShiftAt(c) : finished.better_shift;
      flags_->again = turn;
    }
  }
  // The first shift of EXACT, should FAST not suffice: see RowShift.
  __device__ __forceinline__ double ExactShiftAt(int c) const {
    const S* const x = X() + group_first_ + c * work_.reduce1;
    return ExactShiftOf(work_.reduce1, [&](int64_t i) { return LoadAs<double>(T(), x + i); });
  }
  // Writes the outputs of a finished group, and what its elements are calculated with.
  __device__ __forceinline__ void Publish(int c, FinishedStatistics* finished) const {
    Group* const group = groups_ + c;
    if (rank_ == 0) StoreOutputs(work_.outputs, group_ + c, static_cast<double>(work_.counted), *finished);
    if constexpr (!std::is_same_v<T, F32>) Calculate16BitInF32(finished);
    const GroupResult result = ResultOf(*finished, true, work_.fit_f32, true);
    // The factors of a row are those of its table.
    group->numbers = NumbersOf(result, kRow ? Affine<double>() : group->affine, apply_.parameters.absent());
    group->result = result;
    if (result.may_be_nan || (!kInF64 && !result.in_f32)) flags_->slow = 1;
  }
  static __device__ __forceinline__ ElementNumbers<Calculated> NumbersOf(const GroupResult& result,
                                                                         const Affine<double>& affine, bool absent) {
    const GroupStatistics& s = result.statistics;
    const double inverse = s.inverse.hi;
    constexpr auto kNoBias = static_cast<Calculated>(-0.0);
    // (x - 0) - 0 is x.
    if (kInF64 && absent && result.folds) {
      return {0, 0, static_cast<Calculated>(inverse), static_cast<Calculated>(FoldedCentre(s))};
    }
    const auto shift = static_cast<Calculated>(s.shift);
    const auto delta = static_cast<Calculated>(s.delta.hi);
    // A product with a weight of 1, and a sum with -0, change nothing.
    if (absent) return {shift, delta, static_cast<Calculated>(inverse), kNoBias};
    const Affine<Calculated> scaled = ScaledAffine<Calculated>(affine, inverse);
    return {shift, delta, scaled.weight, scaled.bias};
  }

  // Sums those groups again that need it, until all are done. Few need it: inlined, it would take registers from what
  // all need. All threads of the tile call it, after those of each block have been synchronised.
  static __device__ __noinline__ void SumAgain(const GroupWork& work, const ApplyWork& apply, const TileCut& cut,
                                               unsigned char* shared) {
    const Tile tile(work, apply, cut, shared);
    for (int turn = 1; tile.flags_->again == turn; ++turn) tile.SumOnce(turn);
  }
  __device__ __forceinline__ void SumOnce(int turn) const {
    ForItems([&](const Item& item) {
      const Group& group = groups_[item.channel];
      if (group.round == Round::kDone) return;
      ForChunks(item, [&](int chunk, int at, int n) {
        const PairSums sums = PrecisionOf(group.round) == Precision::kFast
                                  ? SumOf<float>(item, at, n, static_cast<float>(group.shift))
                                  : SumOf<double>(item, at, n, group.shift);
        if (lane_ == 0) Parts(turn)[item.channel * cut_.block_chunks + chunk] = {sums.first.hi, sums.second.hi};
      });
    });
    MeetBlocks(cut_.cluster);
    FoldGroups(turn, [&](int c, const PairSums& sums) {
      const Round round = groups_[c].round;
      __syncwarp();
      if (round == Round::kDone) return;
      if (PrecisionOf(round) == Precision::kFast) {
        Finish<Precision::kFast>(c, sums, round, turn + 1);
      } else {
        Finish<Precision::kExact>(c, sums, round, turn + 1);
      }
    });
    __syncthreads();
  }

  __device__ __forceinline__ uint4* Output() const {
    return reinterpret_cast<uint4*>(static_cast<S*>(apply_.y) + first_);
  }

  // Writes y of the block's elements, in the usual case.
  __device__ __forceinline__ void Apply() const {
    const auto* const x = reinterpret_cast<const uint4*>(elements_);
    uint4* const y = Output();
    [[maybe_unused]] const Affine<double>* const table = kRow ? table_ - FirstChannel() : nullptr;
    ElementNumbers<Calculated> numbers[kSeveral ? kOwn : 1];  // of one channel, or of each element of a vector
    numbers[0] = groups_[0].numbers;
    if constexpr (kSeveral) {
      const unsigned column = threadIdx.x - cut_.by_vectors.Quotient(threadIdx.x) * cut_.piece_vectors;
#pragma unroll
      for (unsigned k = 0; k < kOwn; ++k) {
        numbers[k] = groups_[cut_.by_length.Quotient(column * kOwn + k)].numbers;
      }
    }
    ForVectors<kSeveral ? 2 : 4>([&](unsigned at, unsigned to) {
      float out[kOwn];
      UnpackVector<T>(x[at], out);
      Affine<Calculated> affine;  // of a row
      if constexpr (kRow) {
        const unsigned channel = cut_.by_length.Quotient(static_cast<unsigned>(offset_) + at * kOwn);
        affine = *reinterpret_cast<const Affine<Calculated>*>(table + channel);
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const ElementNumbers<Calculated>& n = numbers[kSeveral ? k : 0];
        const Calculated factor = kRow ? affine.weight : n.factor, bias = kRow ? affine.bias : n.bias;
        out[k] = static_cast<float>(std::fma((out[k] - n.shift) - n.delta, factor, bias));
      }
      StoreStreaming(y + to, PackVector<T>(out));
    });
  }

  // Writes y of the block's elements one by one, where f32 may not suffice or values are not finite.
  static __device__ __noinline__ void ApplySlowly(const GroupWork& work, const ApplyWork& apply, const TileCut& cut,
                                                  unsigned char* shared) {
    const Tile tile(work, apply, cut, shared);
    const int length = tile.Channels() * tile.length_;
    S* const y = static_cast<S*>(apply.y) + tile.first_;
    const bool scaled = !apply.parameters.absent();
#pragma unroll 1
    for (int segment = 0; segment < tile.segments_; ++segment) {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x)) {
        const int c = kSeveral ? i / tile.length_ : 0;
        const NarrowElements<T, kInF64> elements(tile.groups_[c].result, apply.parameters, scaled);
        int64_t parameter = scaled ? tile.k1_ + c : 0;
        if constexpr (kRow) {
          parameter =
              tile.ParameterOf(static_cast<int>(cut.by_length.Quotient(static_cast<unsigned>(tile.offset_ + i))));
        }
        y[segment * work.keep1 * work.reduce1 + i] = elements.One(tile.elements_[segment * length + i], parameter);
      }
    }
  }

  const GroupWork& work_;
  const ApplyWork& apply_;
  const TileCut& cut_;
  int length_;  // elements of a segment; of a row, those that the block has
  const int warp_, lane_;
  TileFlags* const flags_;
  Group* const groups_;
  NarrowPart* const parts_;
  Affine<double>* const table_;
  S* const elements_;                    // [segment][channel][element]
  int rank_ = 0;                         // of the block in its cluster
  int segments_ = 0;                     // that this block has
  int offset_ = 0;                       // of a row: the block's first element in the group
  int64_t k1_ = 0, group_ = 0;           // of the tile's first group
  int64_t group_first_ = 0, first_ = 0;  // the index of that group's first element, and of the block's
};

template <typename T, typename Real, TileKind kKind>
__global__ void __launch_bounds__(kMostThreads, 2)
    NormaliseTilesKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                         const __grid_constant__ TileCut cut) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  Tile<T, Real, kKind>(work, apply, cut, shared).Normalise();
}

int64_t SharedBytes(const GroupWork& work, const TileCut& cut) {
  const bool in_f64 = work.x.dtype == DType::kF32 && work.precision == Precision::kExact;
  return (in_f64 ? ElementsAt<double>(cut) : ElementsAt<float>(cut)) +
         (cut.row_length > 0 ? cut.row_length * SizeOf(work.x.dtype)
                             : int64_t{cut.block_segments} * cut.piece_vectors * kVectorBytes) +
         kOverread * SizeOf(work.x.dtype);
}

// Divides tiles of `channels` groups among `cluster` blocks.
TileCut CutOf(const GroupWork& work, int64_t channels, int cluster) {
  TileCut cut;
  cut.row = RowCut::Of(work);
  cut.channels = static_cast<int>(channels);
  while ((1 << cut.channels_log2) < cut.channels) ++cut.channels_log2;
  cut.cluster = cluster;
  const int64_t block_runs = order::CeilDiv(cut.row.runs, cluster);
  cut.block_segments = static_cast<int>(std::min(block_runs * cut.row.chunk_segments, work.reduce0));
  cut.block_chunks = static_cast<int>(block_runs * cut.row.of_segment);
  cut.chunks = static_cast<int>(cut.row.of_group);
  cut.folds = cut.chunks > kWarp ? static_cast<int>(order::CeilDiv(cut.chunks, kWarp)) : 0;
  cut.has_short_tail = HasShortTail(work.reduce1) ? 1 : 0;
  const int64_t vector = kVectorBytes / SizeOf(work.x.dtype);
  cut.piece_vectors = static_cast<int>(channels * work.reduce1 / vector);
  cut.stride = static_cast<unsigned>(work.keep1 * work.reduce1 / vector);
  cut.by_chunks = Divisor(cut.block_chunks);
  cut.by_sharers = Divisor(cut.row.of_segment - cut.has_short_tail);
  cut.by_vectors = Divisor(cut.piece_vectors);
  cut.by_length = Divisor(work.reduce1);
  cut.shared_bytes = SharedBytes(work, cut);
  return cut;
}

// Divides rows among `cluster` blocks. Elements of `run` adjacent ones have one pair of parameters.
TileCut CutOfRow(const GroupWork& work, int64_t run, int cluster) {
  TileCut cut = CutOf(work, 1, 1);
  cut.cluster = cluster;
  cut.block_chunks = static_cast<int>(order::CeilDiv(cut.chunks, cluster));
  cut.row_length = cut.block_chunks * static_cast<int>(order::kRowChunk);
  cut.has_short_tail = 0;
  cut.table = static_cast<int>(std::min(cut.row_length / run + 2, order::CeilDiv(work.reduce1, run)));
  cut.by_chunks = Divisor(cut.block_chunks);
  cut.by_length = Divisor(run);
  cut.shared_bytes = SharedBytes(work, cut);
  return cut;
}

// The least number of adjacent groups of which a piece is whole vectors, 0 if there is none.
int64_t LeastChannels(const GroupWork& work) {
  const int64_t bytes = work.reduce1 * SizeOf(work.x.dtype);
  if (work.keep1 * bytes % kVectorBytes != 0) return 0;
  for (int64_t channels = 1; channels <= kMostChannels; channels *= 2) {
    if (channels * bytes % kVectorBytes == 0) return channels;
  }
  return 0;
}

// A multiprocessor has several blocks, so that some load while others calculate and store.
constexpr int64_t kGoodSharedBytes = 100 << 10;
// Pieces of under this many bytes leave parts of what memory brings unused.
constexpr int64_t kGoodPieceBytes = 512;

// Chunks of a row that a block has while a cluster can still grow: more than that keep memory busy for long enough.
constexpr int kGoodRowChunks = 10;

bool CutRows(const DeviceLimits& limits, const GroupWork& work, int64_t run, TileCut* cut) {
  const int64_t vector = kVectorBytes / SizeOf(work.x.dtype);
  if (work.reduce1 % vector != 0 || run % vector != 0 || order::RowChunks(work.reduce1) > kMostChunks) return false;
  const int most_cluster = limits.has_clusters ? kMostCluster : 1;
  *cut = CutOfRow(work, run, 1);
  while (cut->cluster < most_cluster && cut->block_chunks > kGoodRowChunks &&
         (cut->shared_bytes > kGoodSharedBytes || work.StatisticsGroups() * cut->cluster < limits.multiprocessors)) {
    *cut = CutOfRow(work, run, cut->cluster * 2);
  }
  return cut->shared_bytes <= limits.shared_bytes;
}

bool CutTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, TileCut* cut) {
  if (work.reduce0 == 1) {
    return CutRows(limits, work, apply.parameters.absent() ? work.reduce1 : apply.index.channel_run, cut);
  }
  int64_t channels = LeastChannels(work);
  if (channels == 0) return false;
  if (order::GroupChunks(work.reduce0, work.reduce1) > kMostChunks) return false;
  const int most_cluster = limits.has_clusters ? kMostCluster : 1;
  *cut = CutOf(work, channels, 1);
  const auto tiles = [&] { return work.StatisticsGroups() / cut->channels; };
  const auto can_grow = [&] { return cut->cluster < most_cluster && cut->cluster < cut->row.runs; };
  while (can_grow() && (cut->shared_bytes > kGoodSharedBytes || tiles() * cut->cluster < limits.multiprocessors)) {
    *cut = CutOf(work, channels, cut->cluster * 2);
  }
  // A multiprocessor whose one block loads, sums and stores in turn is slower than three launches.
  if (2 * cut->shared_bytes > limits.shared_bytes) return false;
  // A thread has one vector of a piece of several channels.
  if (channels > 1 && cut->piece_vectors > kMostThreads) return false;
  while (cut->cluster == 1 && channels < kMostChannels && work.keep1 % (2 * channels) == 0 &&
         int64_t{cut->piece_vectors} * kVectorBytes < kGoodPieceBytes && tiles() >= 2 * limits.multiprocessors) {
    const TileCut wider = CutOf(work, 2 * channels, 1);
    if (wider.shared_bytes > kGoodSharedBytes) break;
    *cut = wider;
    channels *= 2;
  }
  return true;
}

// Chooses the number of threads: as many as leave few idle.
void ChooseThreads(const DeviceLimits& limits, const GroupWork& work, TileCut* cut) {
  const int64_t blocks = work.StatisticsGroups() / cut->channels * cut->cluster;
  const int64_t fit = std::max<int64_t>(1, (limits.shared_bytes + 1024) / (cut->shared_bytes + 1024));
  const int64_t of_processor = std::min(fit, order::CeilDiv(blocks, limits.multiprocessors));
  const int64_t most = std::clamp<int64_t>(1024 / of_processor, 128, kMostThreads);
  if (cut->channels > 1) {
    const int64_t rows = std::clamp<int64_t>(most / cut->piece_vectors, 1, cut->block_segments);
    cut->piece_rows = static_cast<int>(rows);
    cut->threads = static_cast<int>(order::CeilDiv(rows * cut->piece_vectors, kWarp)) * kWarp;
    return;
  }
  const int64_t items = cut->row_length > 0
                            ? cut->block_chunks
                            : cut->by_sharers.divisor() * order::CeilDiv(cut->block_segments, cut->row.chunk_segments);
  const int64_t turns = order::CeilDiv(items, most / kWarp);
  cut->threads = static_cast<int>(std::max<int64_t>(order::CeilDiv(items, turns), 4)) * kWarp;
}

template <TileKind kKind>
cudaError_t LaunchTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, const TileCut& cut,
                        cudaStream_t stream) {
  const LaunchShape shape = {.blocks = work.StatisticsGroups() / cut.channels * cut.cluster,
                             .threads = cut.threads,
                             .shared_bytes = cut.shared_bytes,
                             .shared_limit = limits.shared_bytes,
                             .cluster_blocks = cut.cluster};
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return VisitFused(work.precision, [&]<typename Real>() {
      return Launch(shape, stream, NormaliseTilesKernel<T, Real, kKind>, work, apply, cut);
    });
  });
}

}  // namespace

bool FitsInTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply) {
  const bool has_plain_groups = !work.columns && !work.wide() && work.statistic == Statistic::kMeanVariance &&
                                work.mask == nullptr && work.counted > 0 && work.statistic_reduce1 == work.reduce1;
  const bool has_plain_elements =
      apply.cast_order == CastOrder::kAffineThenCast &&
      (apply.parameters.absent() ||
       (apply.index.kind == AffineIndex::kChannel &&
        (work.reduce0 == 1 || (apply.index.channels_per_keep1 == 1 && apply.index.channel_run == work.reduce1))));
  const int64_t elements = work.StatisticsGroups() * work.reduce0 * work.reduce1;
  if (!has_plain_groups || !has_plain_elements || elements > std::numeric_limits<int32_t>::max()) return false;
  TileCut cut;
  return IsVectorAligned(work.x.data) && IsVectorAligned(apply.y) && CutTiles(limits, work, apply, &cut);
}

cudaError_t NormaliseTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                           cudaStream_t stream) {
  TileCut cut;
  if (!CutTiles(limits, work, apply, &cut)) return cudaErrorInvalidValue;
  ChooseThreads(limits, work, &cut);
  if (cut.row_length > 0) return LaunchTiles<TileKind::kRow>(limits, work, apply, cut, stream);
  if (cut.channels > 1) return LaunchTiles<TileKind::kSeveral>(limits, work, apply, cut, stream);
  return LaunchTiles<TileKind::kOne>(limits, work, apply, cut, stream);
}

}  // namespace normd::cuda
