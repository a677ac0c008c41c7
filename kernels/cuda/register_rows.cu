// Both passes over FAST rows, and EXACT ones that are summed as those (NormPlan::SumPrecision), whose elements stay in
// registers between the sums and y: one read from memory, one write, and shared memory only for sums that warps
// exchange. A chunk of kernels/summation_order.h, here a run, belongs to 8 lanes (16 where elements have four bytes): a
// vector of 16 bytes holds one lane's partial sums of 64 elements, so that loads are whole vectors and nothing is
// exchanged before the run is summed. Where few rows would leave the device idle, a run belongs to a whole warp, which
// shares its steps. fused_rows.cu takes the rows that FitsInRegisters() refuses.
#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_ranges.cuh"
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
// The warps of a block whose warps have rows of their own.
constexpr int kShortRowWarps = 4;
// Runs are split if there would be fewer warps than this for each multiprocessor.
constexpr int kSplitWarps = 4;

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
};

struct KernelParameters {
  RowLaunch launch;
  Cut cut;
};

// Folds partial sums by halves in the order of FoldPartials, where lane l has partial sums kOwn * l and the following.
// The kLanes lanes are those of `mask`, and this lane is number `lane` of them. All lanes have the result. While a lane
// has several values, it gives half of them away and receives half of another lane's; the values of one lane are then
// folded by halves among the lanes that have them.
template <int kOwn, int kLanes>
__device__ __forceinline__ float FoldOwn(int lane, unsigned mask, const float (&own)[kOwn]) {
  float half[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) half[k] = own[k];
  int step = kLanes / 2;
#pragma unroll
  for (int keep = kOwn / 2; keep > 0; keep /= 2, step /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int k = 0; k < keep; ++k) {
      const float given = upper ? half[k] : half[k + keep];
      const float kept = upper ? half[k + keep] : half[k];
      half[k] = kept + __shfl_xor_sync(mask, given, step);
    }
  }
  float sum = half[0];
#pragma unroll
  for (; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
#pragma unroll
  for (int keep = kOwn / 2, bit = kLanes / 2; keep > 0; keep /= 2, bit /= 2) {
    sum += __shfl_xor_sync(mask, sum, bit);
  }
  return sum;
}

// The sums that the warps of a row exchange. A row has two of these, so that one is written while the other is still
// read.
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
  static_assert(!kSplit || kVectors * kWarpRuns<T> == kRunVectors);

  __device__ __forceinline__ RegisterRow(const KernelParameters& p, const RowRange& range, int64_t row, WarpSums* sums)
      : launch_(p.launch), cut_(p.cut), range_(range), row_(row - range.first_row), sums_(sums) {
    const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
    lane_ = in_warp % kLanes;
    const int width = kSplit ? kWarp : kLanes * cut_.runs;
    mask_ = width == kWarp ? ~0u : ((1u << width) - 1) << (in_warp - in_warp % width);
    if (cut_.cluster > 1) rank_ = static_cast<int>(blockIdx.x) % cut_.cluster;
    if (InSeveralWarps()) warp_ = rank_ * cut_.warps + static_cast<int>(threadIdx.x) / kWarp;
    // The lanes that share a part have kVectors * kPartials contiguous elements.
    const int part = kSplit ? warp_ * kWarpRuns<T> + in_warp / kLanes : warp_ * cut_.runs + in_warp % width / kLanes;
    constexpr int kPart = kSplit ? kVectors * kPartials : kRun;
    const int64_t left = launch_.n - static_cast<int64_t>(part) * kPart;
    count_ = left <= 0 ? 0 : static_cast<int>(left < kPart ? left : kPart) / kPartials;
    offset_ = part * kPart + lane_ * kOwn;
    is_first_ = part == 0 && lane_ == 0;
  }

  __device__ __forceinline__ void Normalise() {
    const int64_t begin = row_ * launch_.n;
    const S* const x = static_cast<const S*>(range_.x) + begin;
    const S* const residual = range_.residual == nullptr ? nullptr : static_cast<const S*>(range_.residual) + begin;
    float sample[kOwn];
    if constexpr (kCentred) UnpackVector<T>(Load(x, residual, lane_ * kOwn), sample);
    LoadAll(x + offset_);
    if (residual != nullptr) {
      // h may overwrite the elements that other lanes sample.
      if constexpr (kCentred) {
        if (InSeveralWarps()) {
          Meet();
        } else {
          __syncwarp(mask_);
        }
      }
      AddResidual(residual + offset_, range_.h == nullptr ? nullptr : static_cast<S*>(range_.h) + begin + offset_);
    }

    const auto shift_of = [&](Precision precision) {
      if constexpr (!kCentred) return 0.0;
      return precision == Precision::kFast ? FastShift(sample) : FirstExactShift(InMemory(x, residual, begin));
    };
    int turn = 0;
    const auto sums_of = [&](Precision precision, double shift) {
      turn ^= 1;
      if (precision == Precision::kFast) return Total(FastSums(static_cast<float>(shift)), turn);
      return Total(ExactSums(InMemory(x, residual, begin), shift), turn);
    };
    const Statistic statistic = kCentred ? Statistic::kMeanVariance : launch_.statistic;
    FinishedStatistics finished =
        FinishNarrowGroup(statistic, range_.rule, Precision::kFast, static_cast<double>(launch_.n), shift_of, sums_of);
    if (is_first_) StoreOutputs(range_.outputs, row_, static_cast<double>(launch_.n), finished);
    if constexpr (!std::is_same_v<T, F32>) Calculate16BitInF32(&finished);
    StayPacked();
    Apply(finished, static_cast<S*>(range_.y) + begin + offset_);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    // A block must not end while other blocks may read its shared memory.
    if (cut_.cluster > 1) cooperative_groups::this_cluster().sync();
#endif
  }

 private:
  // Calls body(v) for the vectors that this lane has.
  template <typename Body>
  __device__ __forceinline__ void ForVectors(Body body) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v < count_) body(v);
    }
  }
  // Loads all vectors, without a condition for each load in the usual case.
  __device__ __forceinline__ void LoadAll(const S* x) {
    if (count_ == kVectors) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) data_[v] = LoadStreaming(x + v * kPartials);
    } else {
      ForVectors([&](int v) { data_[v] = LoadStreaming(x + v * kPartials); });
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

  // The first shift of FAST: see FastShiftOf. `sample` has the row's first elements, in the lanes of every run.
  __device__ __forceinline__ double FastShift(const float (&sample)[kOwn]) const {
    const double shift = static_cast<float>(static_cast<double>(Fold(sample)) / kPartials);
    return std::isfinite(shift) ? shift : 0;
  }

  // The row in memory, which still has it: x, or h where that was written. `added` is null, or has the residual.
  struct Memory {
    const S* from;
    const S* added;

    __device__ __forceinline__ double At(int64_t i) const {
      S value = from[i];
      if (added != nullptr) value = AddElement<T>(1, value, added[i]);
      return LoadAs<double>(T(), &value);
    }
  };
  __device__ __forceinline__ Memory InMemory(const S* x, const S* residual, int64_t begin) const {
    if (range_.h == nullptr) return {x, residual};
    return {static_cast<const S*>(range_.h) + begin, nullptr};
  }

  // The first shift of EXACT, should FAST not suffice. The threads of the row have met since they have written h.
  __device__ __forceinline__ double FirstExactShift(const Memory& memory) const {
    __syncwarp(mask_);
    return ExactShiftOf(launch_.n, [&](int64_t i) { return memory.At(i); });
  }

  __device__ __forceinline__ float Fold(const float (&own)[kOwn]) const {
    return FoldOwn<kOwn, kLanes>(lane_, mask_, own);
  }

  // Keeps the compiler from holding unpacked elements, which take twice the registers.
  __device__ __forceinline__ void StayPacked() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      asm volatile("" : "+r"(data_[v].x), "+r"(data_[v].y), "+r"(data_[v].z), "+r"(data_[v].w));
    }
  }

  // The sums of the run about `shift`. Every lane of the run has the result.
  __device__ __forceinline__ PairSums FastSums(float shift) {
    StayPacked();
    if (!kCentred && launch_.statistic == Statistic::kAbsSum) return FastSumsOf<true>(shift);
    return FastSumsOf<false>(shift);
  }
  template <bool kIsAbs>
  __device__ __forceinline__ PairSums FastSumsOf(float shift) const {
    float first[kOwn], second[kOwn];
    // Four partial sums at a time need fewer registers than all of a vector's.
    constexpr int kUnrolled = 4;
#pragma unroll
    for (int from = 0; from < kOwn; from += kUnrolled) {
      NarrowSums<float> totals[kUnrolled];
      // Sums this lane's vectors of the step that begins at vector `begin`.
      const auto sum_step = [&](int begin, NarrowSums<float>(&sums)[kUnrolled]) {
#pragma unroll
        for (int v = begin; v < begin + kStepVectors && v < kVectors; ++v) {
          if (v >= count_) continue;
          float x[kOwn];
          UnpackVector<T>(data_[v], x);
#pragma unroll
          for (int k = 0; k < kUnrolled; ++k) {
            sums[k].template Take<kCentred>(kCentred ? x[from + k] - shift : x[from + k], kIsAbs);
          }
        }
      };
      if constexpr (kSplit) {
        // Adds the steps in their order, whichever lanes have summed them.
        constexpr int kSteps = kVectors / kStepVectors;
        NarrowSums<float> steps[kSteps][kUnrolled];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) sum_step(step * kStepVectors, steps[step]);
#pragma unroll
        for (int fellow = 0; fellow < kWarpRuns<T>; ++fellow) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int k = 0; k < kUnrolled; ++k) totals[k].AddAll(FromFellow(steps[step][k], fellow));
          }
        }
      } else {
#pragma unroll
        for (int v = 0; v < kVectors; v += kStepVectors) {
          NarrowSums<float> sums[kUnrolled];
          sum_step(v, sums);
#pragma unroll
          for (int k = 0; k < kUnrolled; ++k) totals[k].AddAll(sums[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kUnrolled; ++k) {
        first[from + k] = totals[k].first;
        second[from + k] = totals[k].second;
      }
    }
    return {{kCentred ? static_cast<double>(Fold(first)) : 0, 0}, {static_cast<double>(Fold(second)), 0}};
  }
  // The sums of the lane that has the same partial sums in part `fellow` of the warp.
  __device__ __forceinline__ NarrowSums<float> FromFellow(const NarrowSums<float>& sums, int fellow) const {
    NarrowSums<float> theirs;
    if constexpr (kCentred) theirs.first = __shfl_sync(mask_, sums.first, fellow * kLanes + lane_);
    theirs.second = __shfl_sync(mask_, sums.second, fellow * kLanes + lane_);
    return theirs;
  }

  // The EXACT sums of the run, which are rarely needed. Every lane of the run has the result.
  __device__ __forceinline__ PairSums ExactSums(const Memory& memory, double shift) const {
    __syncwarp(mask_);  // h has been written
    constexpr int kShared = kSplit ? kWarp : kLanes;
    const auto lanes = LaneGroup<kShared>::This();
    const int run = kSplit ? warp_ : warp_ * cut_.runs + static_cast<int>(threadIdx.x) % (kLanes * cut_.runs) / kLanes;
    const int64_t at = int64_t{run} * kRun;
    if (at >= launch_.n) return {};
    const int64_t left = launch_.n - at;
    const bool is_abs = !kCentred && launch_.statistic == Statistic::kAbsSum;
    const auto take = [&](int i, NarrowSums<double>& sums) {
      const double value = memory.At(at + i);
      sums.template Take<kCentred>(kCentred ? value - shift : value, is_abs);
    };
    return lanes.FromFirst(
        SumChunk<kCentred, NarrowSums<double>, true>(lanes, static_cast<int>(left < kRun ? left : kRun), take));
  }

  // The sums of the row from those of its runs, folded pairwise by index. Missing runs count as 0, which changes no sum
  // that began with +0.
  __device__ __forceinline__ PairSums Total(PairSums sum, int turn) const {
    if constexpr (!kSplit) {
      for (int step = kLanes; step < kLanes * cut_.runs; step *= 2) AddFrom(&sum, step);
    }
    if (!InSeveralWarps()) return sum;
    WarpSums* const mine = sums_ + turn;
    if (threadIdx.x % kWarp == 0) {
      mine->first[threadIdx.x / kWarp] = sum.first.hi;
      mine->second[threadIdx.x / kWarp] = sum.second.hi;
    }
    Meet();
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
  __device__ __forceinline__ bool InSeveralWarps() const { return cut_.warps > 1 || cut_.cluster > 1; }
  __device__ __forceinline__ void Meet() const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cut_.cluster > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }

  // Writes the elements of y. `y` is the place of this lane's first element.
  __device__ __forceinline__ void Apply(const FinishedStatistics& finished, S* y) const {
    const Parameters& parameters = range_.parameters;
    if (!finished.finite || !parameters.fit_f32 || !finished.elements_in_f32) return ApplySlowly(finished, y);
    Statistics32 s = ToF32(finished.statistics);
    // The weight is the factor then, and a product with 1 is exact.
    if (kCentred && ScalesChannels(launch_.statistic, parameters, range_.index)) s.inverse = 1;
    WithAffine<T, float, kCentred>(
        parameters, range_.index.kind == AffineIndex::kElement, finished.statistics.inverse.hi,
        [&](int i) { return ChannelOf(i); },
        [&](auto affine) {
          ForVectors([&](int v) {
            float x[kOwn], weight[kOwn], bias[kOwn];
            affine(offset_ + v * kPartials, weight, bias);
            UnpackVector<T>(data_[v], x);
#pragma unroll
            for (int k = 0; k < kOwn; ++k) {
              x[k] = PlainElement<kCentred>(x[k], s, weight[k], bias[k]);
            }
            StoreStreaming(y + v * kPartials, PackVector<T>(x));
          });
        });
  }
  __device__ __forceinline__ int64_t ChannelOf(int i) const {
    const unsigned channel = static_cast<unsigned>(i) / static_cast<unsigned>(range_.index.channel_run);
    return row_ % range_.keep1 * range_.index.channels_per_keep1 + channel;
  }

  // The rare case of values that are not finite or not in the range of f32. The elements are stored to y first and
  // recalculated from there one by one, so that no register is indexed by a run-time value.
  __device__ __forceinline__ void ApplySlowly(const FinishedStatistics& finished, S* y) const {
    const GroupResult applied = ResultOf(finished, kCentred, range_.parameters.fit_f32, true);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v < count_) *reinterpret_cast<uint4*>(y + v * kPartials) = data_[v];
    }
    const bool per_element = range_.index.kind == AffineIndex::kElement;
    const NarrowElements<T, false> elements(
        applied, range_.parameters, kCentred && ScalesChannels(launch_.statistic, range_.parameters, range_.index));
#pragma unroll 1
    for (int v = 0; v < count_; ++v) {
#pragma unroll 1
      for (int k = 0; k < kOwn; ++k) {
        const int i = v * kPartials + k;
        const int64_t parameter = range_.parameters.absent() ? 0 : per_element ? offset_ + i : ChannelOf(offset_ + i);
        y[i] = elements.One(y[i], parameter);
      }
    }
  }

  const RowLaunch& launch_;
  const Cut& cut_;
  const RowRange& range_;
  const int64_t row_;  // in the range
  WarpSums* const sums_;
  unsigned mask_;            // the bits of the row's lanes in this warp
  int lane_ = 0;             // index in the run
  int rank_ = 0, warp_ = 0;  // block and warp of the row
  int count_ = 0;            // vectors that this lane has
  int offset_ = 0;           // index in the row of this lane's first element
  bool is_first_ = false;
  uint4 data_[kVectors];
};

// Rows of few vectors need few registers, and gain from more threads instead.
template <int kVectors, bool kSplit>
struct LaunchBounds {
  static constexpr bool kWhole = kVectors == kRunVectors;
  static constexpr int kThreads = (kSplit ? kBlockWarps : kWhole ? kMaxWarps : kShortRowWarps) * kWarp;
  static constexpr int kBlocks = kSplit || kWhole ? 1 : kVectors > 4 ? 4 : kVectors > 2 ? 6 : 8;
};

template <typename T, bool kCentred, int kVectors, bool kSplit>
__global__ void __launch_bounds__(LaunchBounds<kVectors, kSplit>::kThreads, LaunchBounds<kVectors, kSplit>::kBlocks)
    RegisterRowsKernel(const __grid_constant__ KernelParameters p) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  int64_t row = blockIdx.x;
  if (p.cut.warps > 1 || p.cut.cluster > 1) {
    row = blockIdx.x / static_cast<unsigned>(p.cut.cluster);
  } else {
    const int width = kSplit ? kWarp : kRunLanes<T> * p.cut.runs;
    row = row * (p.cut.block_warps * (kWarp / width)) + static_cast<int>(threadIdx.x) / width;
  }
  if (row >= p.launch.rows) return;  // all lanes of the row leave together
  RegisterRow<T, kCentred, kVectors, kSplit>(p, RangeOf(p.launch, row), row, reinterpret_cast<WarpSums*>(shared))
      .Normalise();
}

int64_t NextPowerOfTwo(int64_t x) {
  int64_t power = 1;
  while (power < x) power *= 2;
  return power;
}

// The number of runs in a warp.
int RunsOfWarp(DType dtype) { return kWarp * kVectorBytes / static_cast<int>(SizeOf(dtype)) / kPartials; }

// Chooses how to divide rows of n elements. Returns false if they do not fit in registers.
bool CutRow(const DeviceLimits& limits, DType dtype, int64_t n, int64_t rows, Cut* cut) {
  const int64_t runs = order::CeilDiv(n, kRun);
  const int in_warp = RunsOfWarp(dtype);
  const int max_cluster = limits.has_clusters ? kMaxCluster : 1;
  cut->vectors = kRunVectors;
  for (const int vectors : {12, 8, 4, 2}) {
    if (n <= vectors * kPartials) cut->vectors = vectors;
  }
  const bool is_short = cut->vectors < 12;
  cut->split = !is_short && rows * order::CeilDiv(runs, in_warp) < int64_t{kSplitWarps} * limits.multiprocessors &&
               runs <= int64_t{kBlockWarps} * max_cluster;
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
  const int most = dtype == DType::kF32 || cut->split ? kBlockWarps : kMaxWarps;
  while (cut->cluster < max_cluster && of_block() > most) cut->cluster *= 2;
  // Few rows would not fill the device otherwise.
  while (cut->cluster < max_cluster && rows * cut->cluster < limits.multiprocessors && of_block() > 1)
    cut->cluster *= 2;
  cut->warps = cut->block_warps = of_block();
  return cut->warps <= kMaxWarps;
}

template <typename T, bool kCentred>
cudaError_t LaunchCut(const RowLaunch& launch, const Cut& cut, cudaStream_t stream) {
  const KernelParameters parameters = {launch, cut};
  LaunchShape grid = {.threads = cut.block_warps * kWarp, .cluster_blocks = cut.cluster};
  if (cut.warps == 1 && cut.cluster == 1) {
    const int in_warp = cut.split ? 1 : kWarpRuns<T> / cut.runs;
    grid.blocks = order::CeilDiv(launch.rows, cut.block_warps * in_warp);
  } else {
    grid.blocks = launch.rows * cut.cluster;
    grid.shared_bytes = 2 * sizeof(WarpSums);
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

bool FitsInRegisters(const DeviceLimits& limits, const RowLaunch& launch, const RowRange& range) {
  if (launch.precision != Precision::kFast || launch.counted != launch.n || launch.n % kPartials != 0) return false;
  if (range.y == nullptr) return false;
  if (!IsVectorAligned(range.x) || !IsVectorAligned(range.residual) || !IsVectorAligned(range.y) ||
      !IsVectorAligned(range.h))
    return false;
  if (range.residual != nullptr && range.residual_scale != 1) return false;
  const Parameters& parameters = range.parameters;
  const bool each_its_own = range.index.kind == AffineIndex::kElement;
  if (each_its_own && (!IsVectorAligned(parameters.weight32) || !IsVectorAligned(parameters.bias32))) return false;
  if (!each_its_own && !parameters.absent() && range.index.channel_run % (kVectorBytes / SizeOf(launch.dtype)) != 0)
    return false;
  Cut cut;
  return CutRow(limits, launch.dtype, launch.n, 1, &cut);
}

cudaError_t NormaliseRegisterRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream) {
  Cut cut;
  if (!CutRow(limits, launch.dtype, launch.n, launch.rows, &cut)) return cudaErrorInvalidValue;
  return VisitNarrowDType(launch.dtype, [&]<typename T>() {
    return VisitCentred(launch.statistic, [&]<bool kCentred>() { return LaunchCut<T, kCentred>(launch, cut, stream); });
  });
}

}  // namespace normd::cuda
