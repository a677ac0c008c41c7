// Both passes over FAST rows whose elements stay in registers between the sums and y: one read from memory, one
// write, and shared memory only for sums that warps exchange. A chunk of kernels/summation_order.h, here a run,
// belongs to 8 lanes (16 where elements have four bytes): a vector of 16 bytes holds one lane's partial sums of 64
// elements, so that loads are whole vectors and nothing is exchanged before the run is summed. Where few rows would
// leave the device idle, a run belongs to a whole warp, which shares its steps. Rows are finished by
// FinishQuickly(); those that are not in their usual state are left to NormaliseSlowly(), and rows that
// FitsInRegisters() refuses to staged_rows.cu and fused_rows.cu.
#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/quick_finish.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_ranges.cuh"
#include "kernels/cuda/slow_row.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kRun = static_cast<int>(order::kRowChunk);
constexpr int kPartials = static_cast<int>(order::kFastPartials);
constexpr int kStepVectors = static_cast<int>(order::kFastRowStep / order::kFastPartials);
constexpr int kRunVectors = kRun / kPartials;  // vectors of a whole run that a lane holds
// A thread has at most 128 registers, half of them for elements.
constexpr int kMaxWarps = 16;   // warps of a block
constexpr int kMaxCluster = 8;  // blocks; the size that every device with clusters supports
// The most warps of a block for one row while a cluster can still grow.
constexpr int kBlockWarps = 8;
// Runs are split if there would be fewer warps than this for each multiprocessor.
constexpr int kSplitWarps = 4;
// The warps of a block whose warps have rows of their own.
constexpr int kShortRowWarps = 4;

// The number of lanes that share a run of T, each with several partial sums; and the number of such runs in a warp.
template <typename T>
inline constexpr int kRunLanes = kPartials / kVector<T>;
template <typename T>
inline constexpr int kWarpRuns = kWarp / kRunLanes<T>;

// How a launch divides rows.
struct Cut {
  int vectors = kRunVectors;  // the most vectors that a lane holds
  bool split = false;         // a whole warp shares a run
  int runs = 1;               // runs of a row in a warp, a power of two
  int warps = 1;              // warps of a row in a block
  int cluster = 1;            // blocks of a row
  int block_warps = 1;        // warps of a block; more than `warps`: of several rows
  int block_rows = 1;         // rows of a block, where a warp has whole rows
  int cluster_shift = 0;      // log2(cluster)
  int width_shift = 0;        // log2 of the lanes of a row in a warp
};

struct KernelParameters {
  RowLaunch launch;
  Cut cut;
  Count count;  // of a row's elements
};

// The sums that the warps of a row exchange.
struct WarpSums {
  double first[kMaxWarps], second[kMaxWarps];
};

// One row. kSplit: a run has kWarpRuns times as many lanes, each with a part of the run's steps.
template <typename T, bool kCentred, int kVectors, bool kSplit>
class RegisterRow {
 public:
  using S = typename T::Storage;
  static constexpr int kLanes = kRunLanes<T>;
  static constexpr int kOwn = kVector<T>;
  static constexpr int kFellows = kWarpRuns<T>;
  static_assert(!kSplit || kVectors * kWarpRuns<T> == kRunVectors);

  // `row` is the index in the launch; `is_there`: false for lanes of a warp that have no row.
  __device__ __forceinline__ RegisterRow(const KernelParameters& p, const RowRange& range, int64_t row, bool is_there,
                                         WarpSums* sums)
      : launch_(p.launch), cut_(p.cut), range_(&range), row_(row - range.first_row), sums_(sums) {
    const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
    lane_ = in_warp % kLanes;
    const int width = kSplit ? kWarp : kLanes * cut_.runs;  // a power of two
    mask_ = width == kWarp ? ~0u : ((1u << width) - 1) << (in_warp & -width);
    if (cut_.cluster > 1) rank_ = static_cast<int>(blockIdx.x & static_cast<unsigned>(cut_.cluster - 1));
    if (InSeveralWarps()) warp_ = rank_ * cut_.warps + static_cast<int>(threadIdx.x) / kWarp;
    // The lanes that share a part have kVectors * kPartials contiguous elements.
    const int part =
        kSplit ? warp_ * kFellows + in_warp / kLanes : warp_ * cut_.runs + (in_warp & (width - 1)) / kLanes;
    constexpr int kPart = kSplit ? kVectors * kPartials : kRun;
    const int left = static_cast<int>(launch_.n) - part * kPart;
    count_ = !is_there || left <= 0 ? 0 : (left < kPart ? left : kPart) / kPartials;
    if (count_ > kVectors) count_ = kVectors;
    offset_ = part * kPart + lane_ * kOwn;
    is_first_ = is_there && part == 0 && lane_ == 0;
    begin_ = row_ * launch_.n;
  }

  // Loads the row and adds the residual.
  __device__ __forceinline__ void Bring() {
    const S* const x = static_cast<const S*>(range_->x) + begin_;
    const S* const residual = range_->residual == nullptr ? nullptr : static_cast<const S*>(range_->residual) + begin_;
    if constexpr (kCentred) {
      if (count_ > 0 || InSeveralWarps()) sample_ = Load(x, residual, lane_ * kOwn);
    }
    LoadAll(x + offset_);
    if (residual == nullptr) return;
    // h may overwrite the elements that other lanes sample.
    if constexpr (kCentred) {
      if (InSeveralWarps()) {
        MeetBlocks(cut_.cluster);
      } else {
        __syncwarp(mask_);
      }
    }
    AddResidual(residual + offset_, range_->h == nullptr ? nullptr : static_cast<S*>(range_->h) + begin_ + offset_);
  }
  // The first shift of FAST: see FastShiftOf.
  __device__ __forceinline__ float FirstShift() const {
    if constexpr (!kCentred) return 0;
    float sample[kOwn];
    UnpackVector<T>(sample_, sample);
    const auto shift = static_cast<float>(static_cast<double>(Fold(sample)) / kPartials);
    return std::isfinite(shift) ? shift : 0;
  }
  // The sums of the row about `shift`. Every lane of the row has the result.
  __device__ __forceinline__ PairSums Sums(float shift) {
    StayPacked();
    const PairSums sums = Total(RunSums(shift));
    StayPacked();
    return sums;
  }
  // Loads the parameters before anything else, where registers have room for them. No launch writes them.
  __device__ __forceinline__ void LoadParameters() {
    if constexpr (kSplit) {
      const Parameters& parameters = range_->parameters;
      if (!parameters.absent() && range_->index.kind != AffineIndex::kElement) return;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        FillWith(1.0f, early_.weight[v]);
        FillWith(-0.0f, early_.bias[v]);
        if (v >= count_) continue;
        if (parameters.weight32 != nullptr)
          LoadAligned(parameters.weight32 + offset_ + v * kPartials, early_.weight[v]);
        if (parameters.bias32 != nullptr) LoadAligned(parameters.bias32 + offset_ + v * kPartials, early_.bias[v]);
      }
    }
  }
  // Writes the elements of y.
  __device__ __forceinline__ void Apply(const Statistics32& s, double inverse) const {
    if (count_ == kVectors) {
      Apply<true>(s, inverse);
    } else if (count_ > 0) {
      Apply<false>(s, inverse);
    }
  }

  __device__ __forceinline__ bool InSeveralWarps() const { return cut_.warps > 1 || cut_.cluster > 1; }
  __device__ __forceinline__ bool is_first() const { return is_first_; }
  __device__ __forceinline__ const RowRange& range() const { return *range_; }
  __device__ __forceinline__ int64_t row() const { return row_; }  // in the range
  __device__ __forceinline__ int rank() const { return rank_; }

 private:
  // Writes the elements of y, of which load(v, weight, bias) brings the parameters of vector v.
  // kFull: this lane has all vectors. Without a branch for each of them the parameters of several are loaded together.
  template <bool kFull, typename LoadAffine>
  __device__ __forceinline__ void ApplyVectors(const Statistics32& s, LoadAffine load) const {
    S* const y = static_cast<S*>(range_->y) + begin_ + offset_;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!kFull && v >= count_) continue;
      float x[kOwn], weight[kOwn] = {}, bias[kOwn] = {};
      load(v, weight, bias);
      UnpackVector<T>(data_[v], x);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) x[k] = PlainElement<kCentred>(x[k], s, weight[k], bias[k]);
      StoreStreaming(y + v * kPartials, PackVector<T>(x));
    }
  }
  template <bool kFull>
  __device__ __forceinline__ void Apply(const Statistics32& s, double inverse) const {
    const Parameters& parameters = range_->parameters;
    if (!parameters.absent() && range_->index.kind != AffineIndex::kElement) return ApplyChannels<kFull>(s, inverse);
    if constexpr (kSplit) {
      return ApplyVectors<kFull>(s, [&](int v, float(&weight)[kOwn], float(&bias)[kOwn]) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          weight[k] = early_.weight[v][k];
          bias[k] = early_.bias[v][k];
        }
      });
    }
    if (parameters.weight32 != nullptr && parameters.bias32 == nullptr) {
      ApplyVectors<kFull>(s, [&](int v, float(&weight)[kOwn], float(&bias)[kOwn]) {
        FillWith(-0.0f, bias);
        LoadAligned(parameters.weight32 + (offset_ + v * kPartials), weight);
      });
    } else if (parameters.weight32 != nullptr) {
      ApplyVectors<kFull>(s, [&](int v, float(&weight)[kOwn], float(&bias)[kOwn]) {
        LoadAligned(parameters.weight32 + (offset_ + v * kPartials), weight);
        LoadAligned(parameters.bias32 + (offset_ + v * kPartials), bias);
      });
    } else {
      ApplyVectors<kFull>(s, [&](int v, float(&weight)[kOwn], float(&bias)[kOwn]) {
        FillWith(1.0f, weight);
        FillWith(-0.0f, bias);
        if (parameters.bias32 != nullptr) LoadAligned(parameters.bias32 + (offset_ + v * kPartials), bias);
      });
    }
  }
  // The same with one weight and one bias a channel.
  template <bool kFull>
  __device__ __forceinline__ void ApplyChannels(Statistics32 s, double inverse) const {
    const Parameters& parameters = range_->parameters;
    // The weight is the factor then, and a product with 1 is exact.
    if (kCentred && ScalesChannels(launch_.statistic, parameters, range_->index)) s.inverse = 1;
    const auto affine_at = [&](int i) {
      const int64_t channel = ChannelOf(i);
      return kCentred ? ScaledAffineAt<float>(parameters, channel, inverse) : AffineAt<float>(parameters, channel);
    };
    // The vectors of a lane often have one channel.
    const auto run = static_cast<int>(range_->index.channel_run);
    const Affine<float> first = affine_at(offset_);
    if (offset_ % run + (kVectors - 1) * kPartials < run) {
      return ApplyVectors<kFull>(s, [&](int /*v*/, float(&weight)[kOwn], float(&bias)[kOwn]) {
        FillWith(first.weight, weight);
        FillWith(first.bias, bias);
      });
    }
    ApplyVectors<kFull>(s, [&](int v, float(&weight)[kOwn], float(&bias)[kOwn]) {
      const Affine<float> affine = affine_at(offset_ + v * kPartials);
      FillWith(affine.weight, weight);
      FillWith(affine.bias, bias);
    });
  }
  // Loads all vectors. Those that a lane does not have are zeros.
  __device__ __forceinline__ void LoadAll(const S* x) {
    if (count_ == kVectors) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) data_[v] = LoadStreaming(x + v * kPartials);
      return;
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      data_[v] = make_uint4(0, 0, 0, 0);
      if (v < count_) data_[v] = LoadStreaming(x + v * kPartials);
    }
  }

  // Elements [at, at + kOwn) of the row, with the residual added.
  __device__ __forceinline__ uint4 Load(const S* x, const S* residual, int at) const {
    uint4 words = *reinterpret_cast<const uint4*>(x + at);
    if (residual != nullptr) words = AddVectors<T>(words, *reinterpret_cast<const uint4*>(residual + at));
    return words;
  }
  // Makes several loads before the first store, which may overwrite the loaded elements.
  __device__ __forceinline__ void AddResidual(const S* residual, S* h) {
    constexpr int kUnrolled = std::min(kVectors, 4);
#pragma unroll
    for (int from = 0; from < kVectors; from += kUnrolled) {
      uint4 r[kUnrolled] = {};
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (from + i < count_) r[i] = LoadStreaming(residual + (from + i) * kPartials);
      }
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (from + i >= count_) continue;
        data_[from + i] = AddVectors<T>(data_[from + i], r[i]);
        if (h != nullptr) *reinterpret_cast<uint4*>(h + (from + i) * kPartials) = data_[from + i];
      }
    }
  }

  __device__ __forceinline__ float Fold(const float (&own)[kOwn]) const {
    return FoldAdjacent<kOwn, kLanes>(lane_, mask_, own);
  }

  // Keeps the compiler from holding unpacked elements, which take twice the registers.
  __device__ __forceinline__ void StayPacked() {
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      asm volatile("" : "+r"(data_[v].x), "+r"(data_[v].y), "+r"(data_[v].z), "+r"(data_[v].w));
    }
#endif
  }

  // The sums of the run about `shift`. Every lane of the run has the result.
  __device__ __forceinline__ PairSums RunSums(float shift) const {
    constexpr int kSteps = (kVectors + kStepVectors - 1) / kStepVectors;
    // Steps that are summed by several lanes stay apart until these have exchanged them.
    float first[kSplit ? kSteps : 1][kOwn], second[kSplit ? kSteps : 1][kOwn];
    // About zero, the zeros of vectors that are not there change no sum.
    if (!kCentred || count_ == kVectors) {
      SumVectors<true>(shift, first, second);
    } else {
      SumVectors<false>(shift, first, second);
    }
    PairSums sums;
    if constexpr (kSplit) {
      if constexpr (kCentred) sums.first.hi = static_cast<double>(FoldSteps(first));
      sums.second.hi = static_cast<double>(FoldSteps(second));
    } else {
      if constexpr (kCentred) sums.first.hi = static_cast<double>(Fold(first[0]));
      sums.second.hi = static_cast<double>(Fold(second[0]));
    }
    return sums;
  }
  // The partial sums of this lane's vectors. kFull: it has all of them.
  template <bool kFull, int kKept>
  __device__ __forceinline__ void SumVectors(float shift, float (&first)[kKept][kOwn],
                                             float (&second)[kKept][kOwn]) const {
    // Four partial sums at a time need fewer registers than all of a vector's.
    constexpr int kUnrolled = 4;
#pragma unroll
    for (int from = 0; from < kOwn; from += kUnrolled) {
      NarrowSums<float> totals[kUnrolled];
#pragma unroll
      for (int begin = 0; begin < kVectors; begin += kStepVectors) {
        NarrowSums<float> sums[kUnrolled];
#pragma unroll
        for (int v = begin; v < begin + kStepVectors && v < kVectors; ++v) {
          if (!kFull && v >= count_) continue;
          float x[kOwn];
          UnpackVector<T>(data_[v], x);
#pragma unroll
          for (int k = 0; k < kUnrolled; ++k) {
            sums[k].template Take<kCentred>(kCentred ? x[from + k] - shift : x[from + k], false);
          }
        }
#pragma unroll
        for (int k = 0; k < kUnrolled; ++k) {
          if constexpr (kSplit) {
            totals[k] = sums[k];
          } else {
            totals[k].AddAll(sums[k]);
          }
          first[kSplit ? begin / kStepVectors : 0][from + k] = totals[k].first;
          second[kSplit ? begin / kStepVectors : 0][from + k] = totals[k].second;
        }
      }
    }
  }
  // The total of one number of a run whose steps are shared by kFellows lanes each. They exchange what they have, so
  // that each of them has two partial sums of all steps, which are added in the order of the steps.
  template <int kSteps>
  __device__ __forceinline__ float FoldSteps(const float (&steps)[kSteps][kOwn]) const {
    static_assert(kOwn == 2 * kFellows && kSteps * kFellows == kRun / order::kFastRowStep);
    const int fellow = static_cast<int>(threadIdx.x) % kWarp / kLanes;
    float two[2];
    if constexpr (kFellows == 4) {
      // Those of the lower two fellows have steps 0 and 1, and keep the first half of the partial sums.
      float early[4], late[4];
      Exchange(steps[0], fellow & 2, 2 * kLanes, early, late);
      float one[2], other[2], third[2], fourth[2];
      Exchange(early, fellow & 1, kLanes, one, other);
      Exchange(late, fellow & 1, kLanes, third, fourth);
#pragma unroll
      for (int k = 0; k < 2; ++k) two[k] = ((one[k] + other[k]) + third[k]) + fourth[k];
    } else {
      float one[2], other[2], third[2], fourth[2];
      Exchange(steps[0], fellow, kLanes, one, third);
      Exchange(steps[1], fellow, kLanes, other, fourth);
#pragma unroll
      for (int k = 0; k < 2; ++k) two[k] = ((one[k] + other[k]) + third[k]) + fourth[k];
    }
    constexpr int kRotated = kFellows == 4 ? 2 : 1;
    return FoldAdjacent<2, kWarp, kRotated>(lane_ * kFellows + fellow, mask_, two);
  }
  // Gives one half of `own` to the lane `distance` away and takes the other half of that lane's, an upper lane the
  // upper half. `lower` and `upper` are then the values of the lower and of the upper lane.
  template <int kCount>
  __device__ __forceinline__ void Exchange(const float (&own)[kCount], int is_upper, int distance,
                                           float (&lower)[kCount / 2], float (&upper)[kCount / 2]) const {
#pragma unroll
    for (int k = 0; k < kCount / 2; ++k) {
      const float kept = is_upper != 0 ? own[k + kCount / 2] : own[k];
      const float given = is_upper != 0 ? own[k] : own[k + kCount / 2];
      const float taken = __shfl_xor_sync(mask_, given, distance);
      lower[k] = is_upper != 0 ? taken : kept;
      upper[k] = is_upper != 0 ? kept : taken;
    }
  }

  // The sums of the row from those of its runs, folded pairwise by index. Missing runs count as 0, which changes no sum
  // that began with +0.
  __device__ __forceinline__ PairSums Total(PairSums sum) const {
    if constexpr (!kSplit) {
      for (int step = kLanes; step < kLanes * cut_.runs; step *= 2) AddFrom(&sum, step);
    }
    if (!InSeveralWarps()) return sum;
    WarpSums* const mine = sums_;
    if (threadIdx.x % kWarp == 0) {
      mine->first[threadIdx.x / kWarp] = sum.first.hi;
      mine->second[threadIdx.x / kWarp] = sum.second.hi;
    }
    MeetBlocks(cut_.cluster);
    const int warps = cut_.warps * cut_.cluster;
    const int of_lane = warps <= kWarp ? 1 : warps <= 2 * kWarp ? 2 : 4;
    const int first = static_cast<int>(threadIdx.x) % kWarp * of_lane;
    sum = OfWarp(mine, first, warps);
    if (of_lane > 1) AddPlain(sum, OfWarp(mine, first + 1, warps));
    if (of_lane > 2) {
      PairSums other = OfWarp(mine, first + 2, warps);
      AddPlain(other, OfWarp(mine, first + 3, warps));
      AddPlain(sum, other);
    }
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) AddFrom(&sum, step);
    return sum;
  }
  __device__ __forceinline__ void AddFrom(PairSums* sum, int step) const {
    if constexpr (kCentred) sum->first.hi += __shfl_xor_sync(mask_, sum->first.hi, step);
    sum->second.hi += __shfl_xor_sync(mask_, sum->second.hi, step);
  }
  __device__ __forceinline__ PairSums OfWarp(WarpSums* mine, int warp, int warps) const {
    if (warp >= warps) return {};
    const WarpSums* from = mine;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cut_.cluster > 1) {
      from = cooperative_groups::this_cluster().map_shared_rank(mine, static_cast<unsigned>(warp / cut_.warps));
    }
#endif
    return {{kCentred ? from->first[warp % cut_.warps] : 0, 0}, {from->second[warp % cut_.warps], 0}};
  }

  __device__ __forceinline__ int64_t ChannelOf(int i) const {
    const unsigned channel = static_cast<unsigned>(i) / static_cast<unsigned>(range_->index.channel_run);
    return row_ % range_->keep1 * range_->index.channels_per_keep1 + channel;
  }

  const RowLaunch& launch_;
  const Cut& cut_;
  const RowRange* range_;
  int64_t row_;  // in the range
  WarpSums* const sums_;
  int64_t begin_ = 0;        // index of the row's first element
  unsigned mask_;            // the bits of the row's lanes in this warp
  int lane_ = 0;             // index in the run
  int rank_ = 0, warp_ = 0;  // block and warp of the row
  int count_ = 0;            // vectors that this lane has
  int offset_ = 0;           // index in the row of this lane's first element
  bool is_first_ = false;
  uint4 sample_ = {};  // kCentred: this lane's vector of the first kPartials elements
  uint4 data_[kVectors];
  struct Early {
    float weight[kVectors][kOwn], bias[kVectors][kOwn];
  };
  struct Nothing {};
  std::conditional_t<kSplit, Early, Nothing> early_;
};

// 128 registers for a thread, or 96 where that is enough.
template <int kVectors, bool kSplit>
struct LaunchBounds {
  static constexpr bool kWhole = kVectors == kRunVectors;
  static constexpr int kThreads = (kSplit || kWhole ? kMaxWarps : kShortRowWarps) * kWarp;
  static constexpr int kBlocks = kSplit || kWhole ? 1 : kVectors > 4 ? 4 : 5;
};

// The rows that the lanes of one row finish together: each lane finishes one of them.
template <int kVectors, bool kSplit>
inline constexpr int kTogether = !kSplit && kVectors == 2 ? 2 : 1;

// Normalises those rows of a warp that are not in their usual state, of which each is that of one lane, `index`.
template <typename T, bool kCentred>
__device__ __forceinline__ void NormaliseRest(const RowLaunch& launch, bool is_left, int64_t index) {
  unsigned left = __ballot_sync(~0u, is_left);
  while (left != 0) {
    const int64_t i = __shfl_sync(~0u, index, __ffs(static_cast<int>(left)) - 1);
    const RowRange& range = RangeOf(launch, i);
    NormaliseSlowly<T, kCentred>(launch, range, i - range.first_row, nullptr);
    left &= left - 1;
  }
}

// The row with this index, or one that is not there, but has a range.
template <typename Row>
__device__ __forceinline__ Row RowAt(const KernelParameters& p, int64_t index, WarpSums* sums) {
  const bool is_there = index < p.launch.rows;
  if (!is_there) index = p.launch.rows - 1;
  return Row(p, RangeOf(p.launch, index), index, is_there, sums);
}

// One row of several warps, or one of each of a warp's parts.
template <typename T, bool kCentred, int kVectors, bool kSplit>
__device__ __forceinline__ void NormaliseApart(const KernelParameters& p, WarpSums* sums) {
  int64_t index = blockIdx.x;
  if (p.cut.warps > 1 || p.cut.cluster > 1) {
    index = blockIdx.x >> p.cut.cluster_shift;
  } else {
    index = index * p.cut.block_rows + (static_cast<int>(threadIdx.x) >> p.cut.width_shift);
  }
  auto row = RowAt<RegisterRow<T, kCentred, kVectors, kSplit>>(p, index, sums);
  row.LoadParameters();
  WaitForLaunchBefore();
  row.Bring();
  const float shift = row.FirstShift();
  const RowRange& range = row.range();
  const QuickFinish finish = FinishQuickly<kCentred>(p.launch.statistic, range.rule, row.Sums(shift), p.count, shift);
  const bool is_usual = finish.is_usual && range.parameters.fit_f32;
  if (is_usual) {
    if (row.is_first()) StoreQuickly(range.outputs, row.row(), p.count, finish);
    row.Apply(finish.statistics, finish.inverse_std);
  }
  if (!row.InSeveralWarps()) return NormaliseRest<T, kCentred>(p.launch, !is_usual && row.is_first(), index);
  if (!is_usual && row.rank() == 0) {
    NormaliseSlowly<T, kCentred>(p.launch, range, row.row(), reinterpret_cast<NarrowPart*>(sums + 1));
  }
  LeaveBlocks(p.cut.cluster);
}

// Short rows, kRows of them at a time in the same lanes, so that each of these lanes finishes one of them.
template <typename T, bool kCentred, int kVectors, int... kIndices>
__device__ __forceinline__ void NormaliseTogether(const KernelParameters& p,
                                                  std::integer_sequence<int, kIndices...> /*indices*/) {
  constexpr int kRows = sizeof...(kIndices);
  using Row = RegisterRow<T, kCentred, kVectors, false>;
  const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
  const int lane = in_warp & ((1 << p.cut.width_shift) - 1);
  const int step = kWarp >> p.cut.width_shift;  // rows of a warp at one time
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.cut.block_rows +
                        static_cast<int>(threadIdx.x) / kWarp * kRows * step + (in_warp >> p.cut.width_shift);
  Row rows[] = {RowAt<Row>(p, first + kIndices * step, nullptr)...};
  WaitForLaunchBefore();
#pragma unroll
  for (int i = 0; i < kRows; ++i) rows[i].Bring();
  const int own = lane % kRows;
  PairSums sums;
  float shift = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float of_row = rows[i].FirstShift();
    const PairSums row_sums = rows[i].Sums(of_row);
    if (own != i) continue;
    shift = of_row;
    sums = row_sums;
  }
  const int64_t index = first + own * step;
  const bool is_there = index < p.launch.rows;
  const RowRange& range = RangeOf(p.launch, is_there ? index : p.launch.rows - 1);
  const QuickFinish finish = FinishQuickly<kCentred>(p.launch.statistic, range.rule, sums, p.count, shift);
  const bool is_usual = finish.is_usual && range.parameters.fit_f32;
  const bool is_first = is_there && lane < kRows;
  if (is_first && is_usual) StoreQuickly(range.outputs, index - range.first_row, p.count, finish);
  const int first_lane = static_cast<int>(threadIdx.x) % kWarp - lane;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Statistics32 s = {__shfl_sync(~0u, finish.statistics.shift, first_lane + i),
                            __shfl_sync(~0u, finish.statistics.delta, first_lane + i),
                            __shfl_sync(~0u, finish.statistics.inverse, first_lane + i)};
    const double inverse = __shfl_sync(~0u, finish.inverse_std, first_lane + i);
    if (__shfl_sync(~0u, static_cast<int>(is_usual), first_lane + i) != 0) rows[i].Apply(s, inverse);
  }
  NormaliseRest<T, kCentred>(p.launch, is_first && !is_usual, index);
}

template <typename T, bool kCentred, int kVectors, bool kSplit>
__global__ void __launch_bounds__(LaunchBounds<kVectors, kSplit>::kThreads, LaunchBounds<kVectors, kSplit>::kBlocks)
    RegisterRowsKernel(const __grid_constant__ KernelParameters p) {
  constexpr int kRows = kTogether<kVectors, kSplit>;
  NORMD_DYNAMIC_SHARED(shared);
  if constexpr (kRows == 1) {
    NormaliseApart<T, kCentred, kVectors, kSplit>(p, reinterpret_cast<WarpSums*>(shared));
  } else {
    NormaliseTogether<T, kCentred, kVectors>(p, std::make_integer_sequence<int, kRows>());
  }
}

int64_t NextPowerOfTwo(int64_t x) {
  int64_t power = 1;
  while (power < x) power *= 2;
  return power;
}

// The number of runs in a warp.
int RunsOfWarp(DType dtype) { return kWarp * kVectorBytes / static_cast<int>(SizeOf(dtype)) / kPartials; }

// Chooses how to divide rows. Returns false if they do not fit in registers.
bool CutRow(const DeviceLimits& limits, const RowKind& kind, bool has_residual, int64_t rows, Cut* cut) {
  const int64_t runs = order::CeilDiv(kind.n, kRun);
  const int in_warp = RunsOfWarp(kind.dtype);
  const bool is_16bit = SizeOf(kind.dtype) == 2;
  const int max_cluster = limits.has_clusters ? kMaxCluster : 1;
  cut->vectors = kRunVectors;
  for (const int vectors : {12, 8, 4, 2}) {
    if (kind.n <= vectors * kPartials) cut->vectors = vectors;
  }
  const bool is_short = cut->vectors < 12;
  const bool are_few = rows * order::CeilDiv(runs, in_warp) < int64_t{kSplitWarps} * limits.multiprocessors;
  // A lane has room for all of the residual then, next to x: both are under way together.
  const bool adds_residual = has_residual && is_16bit && runs > 1 && runs <= kBlockWarps;
  cut->split = !is_short && (are_few || adds_residual) && runs <= int64_t{kMaxWarps} * max_cluster;
  if (cut->split) cut->vectors = kRunVectors / in_warp;
  if (runs <= (cut->split ? 1 : in_warp)) {
    cut->runs = static_cast<int>(NextPowerOfTwo(runs));
    const int64_t warps = rows * cut->runs / (cut->split ? 1 : in_warp);
    cut->block_warps = warps > int64_t{kShortRowWarps} * limits.multiprocessors ? kShortRowWarps : 1;
    return true;
  }
  cut->runs = cut->split ? 1 : in_warp;
  const int64_t warps = order::CeilDiv(runs, cut->runs);
  const auto of_block = [&] { return static_cast<int>(order::CeilDiv(warps, cut->cluster)); };
  // 16-bit rows of 64 Ki elements are faster in one block than in two.
  const int most = is_16bit || cut->split ? kMaxWarps : kBlockWarps;
  while (cut->cluster < max_cluster && of_block() > most) cut->cluster *= 2;
  // Few rows would not fill the device otherwise.
  while (cut->cluster < max_cluster && rows * cut->cluster < limits.multiprocessors && of_block() > kBlockWarps)
    cut->cluster *= 2;
  cut->warps = cut->block_warps = of_block();
  return cut->warps <= kMaxWarps;
}

int Log2(int power) { return std::countr_zero(static_cast<unsigned>(power)); }

template <typename T, bool kCentred>
cudaError_t LaunchCut(const RowLaunch& launch, Cut cut, cudaStream_t stream) {
  cut.cluster_shift = Log2(cut.cluster);
  cut.width_shift = Log2(cut.split ? kWarp : kRunLanes<T> * cut.runs);
  const int together = !cut.split && cut.vectors == 2 ? kTogether<2, false> : 1;
  cut.block_rows = cut.block_warps * together * (kWarp >> cut.width_shift);
  const KernelParameters parameters = {launch, cut, Count::Of(launch.n)};
  LaunchShape grid = {.threads = cut.block_warps * kWarp, .cluster_blocks = cut.cluster};
  if (cut.warps == 1 && cut.cluster == 1) {
    grid.blocks = order::CeilDiv(launch.rows, cut.block_rows);
  } else {
    grid.blocks = launch.rows * cut.cluster;
    grid.shared_bytes = sizeof(WarpSums) + static_cast<size_t>(order::RowChunks(launch.n)) * sizeof(NarrowPart);
  }
  if (cut.split) {
    return Launch(grid, stream, RegisterRowsKernel<T, kCentred, kRunVectors / kWarpRuns<T>, true>, parameters);
  }
  switch (cut.vectors) {
    case 2:
      return Launch(grid, stream, RegisterRowsKernel<T, kCentred, 2, false>, parameters);
    case 4:
      return Launch(grid, stream, RegisterRowsKernel<T, kCentred, 4, false>, parameters);
    case 8:
      return Launch(grid, stream, RegisterRowsKernel<T, kCentred, 8, false>, parameters);
    case 12:
      return Launch(grid, stream, RegisterRowsKernel<T, kCentred, 12, false>, parameters);
    default:
      return Launch(grid, stream, RegisterRowsKernel<T, kCentred, kRunVectors, false>, parameters);
  }
}

}  // namespace

bool FitsInRegisters(const DeviceLimits& limits, const RowKind& kind, const RowRange& range) {
  if (kind.precision != Precision::kFast || kind.counted != kind.n || kind.n % kPartials != 0) return false;
  if (range.y == nullptr || kind.statistic == Statistic::kAbsSum) return false;
  if (!IsVectorAligned(range.x) || !IsVectorAligned(range.residual) || !IsVectorAligned(range.y) ||
      !IsVectorAligned(range.h))
    return false;
  if (range.residual != nullptr && range.residual_scale != 1) return false;
  const Parameters& parameters = range.parameters;
  const bool each_its_own = range.index.kind == AffineIndex::kElement;
  if (each_its_own && (!IsVectorAligned(parameters.weight32) || !IsVectorAligned(parameters.bias32))) return false;
  if (!each_its_own && !parameters.absent() && range.index.channel_run % (kVectorBytes / SizeOf(kind.dtype)) != 0)
    return false;
  Cut cut;
  return CutRow(limits, kind, range.residual != nullptr, 1, &cut);
}

cudaError_t NormaliseRegisterRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream) {
  Cut cut;
  if (!CutRow(limits, launch, launch.ranges[0].residual != nullptr, launch.rows, &cut)) return cudaErrorInvalidValue;
  return VisitNarrowDType(launch.dtype, [&]<typename T>() {
    return VisitCentred(launch.statistic, [&]<bool kCentred>() { return LaunchCut<T, kCentred>(launch, cut, stream); });
  });
}

}  // namespace normd::cuda
