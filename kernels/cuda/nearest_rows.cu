// Both passes over rows to the nearest value: one read from memory, sums in f64 and elements from shared memory, one
// write. No order of sums enters the result, only the number of additions that a term passes through: thread t of a row
// sums elements t, t + threads and so on. A warp has a short row, a block a longer one.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/nearest_elements.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;              // of a block that has one row
constexpr int kShortRowWarps = 4;          // of a block whose warps have rows of their own
constexpr int64_t kShortRow = 32 * kWarp;  // elements
constexpr int kWarps = kThreads / kWarp;

// What the threads of a row share, before its elements.
struct alignas(kVectorBytes) RowState {
  NearestGroup group;
  double shift = 0;  // of the next sums
  bool is_done = false;
  NarrowPart parts[kWarps];
};

int64_t RowBytes(DType dtype, int64_t n) {
  const int64_t bytes = n * SizeOf(dtype);
  return static_cast<int64_t>(sizeof(RowState)) + order::CeilDiv(bytes, kVectorBytes) * kVectorBytes;
}

template <typename T, bool kCentred, typename Threads>
class NearestRow {
 public:
  using S = typename T::Storage;

  __device__ __forceinline__ NearestRow(const NearestRows& rows, int64_t row, unsigned char* shared)
      : rows_(rows),
        work_(rows.work),
        row_(row),
        n_(static_cast<int>(rows.work.reduce1)),
        counted_(static_cast<int>(rows.work.statistic_reduce1)),
        begin_(row * rows.work.reduce1),
        state_(reinterpret_cast<RowState*>(shared)),
        staged_(reinterpret_cast<S*>(shared + sizeof(RowState))) {}

  __device__ __forceinline__ void Normalise() const {
    Bring();
    Threads::Sync();
    double shift = kCentred ? ExactShiftOf(counted_, [&](int64_t i) { return Value(static_cast<int>(i)); }) : 0;
    for (Round round = Round::kExact;; round = Round::kExactAgain) {
      const NarrowPart sums = Sum(shift);
      if (Threads::Index() == 0) Finish(sums, shift, round);
      Threads::Sync();
      if (state_->is_done) break;
      shift = state_->shift;
    }
    Apply();
  }

 private:
  __device__ __forceinline__ double Value(int i) const { return T::Widen(staged_[i]); }

  // Brings the row to shared memory, with the residual if there is one.
  __device__ __forceinline__ void Bring() const {
    const S* const x = static_cast<const S*>(work_.x.data) + begin_;
    const S* const residual = rows_.residual == nullptr ? nullptr : static_cast<const S*>(rows_.residual) + begin_;
    S* const h = rows_.h == nullptr ? nullptr : static_cast<S*>(rows_.h) + begin_;
    int done = 0;
    if (residual == nullptr && IsVectorAligned(x)) {
      const int vectors = n_ / kVector<T>;
      for (int v = Threads::Index(); v < vectors; v += Threads::Count()) {
        reinterpret_cast<uint4*>(staged_)[v] = LoadStreaming(x + v * kVector<T>);
      }
      done = vectors * kVector<T>;
    }
    for (int i = done + Threads::Index(); i < n_; i += Threads::Count()) {
      const S value = residual == nullptr ? x[i] : AddElement<T>(rows_.residual_scale, x[i], residual[i]);
      staged_[i] = value;
      if (h != nullptr) h[i] = value;
    }
  }

  // The sums about `shift`. The first thread has the result.
  __device__ __forceinline__ NarrowPart Sum(double shift) const {
    const bool is_abs = work_.statistic == Statistic::kAbsSum;
    NarrowSums<double> own;
    for (int i = Threads::Index(); i < counted_; i += Threads::Count()) {
      own.template Take<kCentred>(kCentred ? Value(i) - shift : Value(i), is_abs);
    }
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      if constexpr (kCentred) own.first += __shfl_xor_sync(~0u, own.first, step);
      own.second += __shfl_xor_sync(~0u, own.second, step);
    }
    if (Threads::Count() == kWarp) return {own.first, own.second};
    if (Threads::Index() % kWarp == 0) state_->parts[Threads::Index() / kWarp] = {own.first, own.second};
    Threads::Sync();
    NarrowPart total;
    for (int i = 0; i < Threads::Count() / kWarp; ++i) AddNarrow()(total, state_->parts[i]);
    return total;
  }

  // Makes the statistics, or the shift of another round of sums. One thread calls it.
  __device__ __forceinline__ void Finish(const NarrowPart& sums, double shift, Round round) const {
    const FinishedStatistics finished = FinishNarrow(work_.statistic, work_.rule, AsSums(sums),
                                                     static_cast<double>(counted_), shift, Precision::kExact);
    state_->is_done = NextRound(round, finished) == Round::kDone;
    state_->shift = finished.better_shift;
    if (!state_->is_done) return;
    StoreOutputs(work_.outputs, row_, static_cast<double>(counted_), finished);
    NearestGroup group;
    group.finished = finished;
    group.shift = shift;
    group.is_zero = sums.second == 0;
    SetBound(work_, rows_.nearest, &group);
    state_->group = group;
    if (group.is_finite) DecideOutputs(work_, rows_.nearest, row_, group);
  }

  __device__ __forceinline__ int64_t ParameterOf(int i, int64_t first) const {
    const ParameterIndex& index = rows_.apply.index;
    return index.kind == AffineIndex::kElement ? i : first + static_cast<unsigned>(i) / index.channel_run;
  }

  // Writes the elements of y.
  __device__ __forceinline__ void Apply() const {
    const ApplyWork& apply = rows_.apply;
    const NearestGroup& group = state_->group;
    const bool absent = apply.parameters.absent();
    const int64_t first = row_ % work_.keep1 * apply.index.channels_per_keep1;
    const double rounding = RoundingOf(rows_.nearest);
    S* const y = static_cast<S*>(apply.y) + begin_;
    for (int i = Threads::Index(); i < n_; i += Threads::Count()) {
      const double x = Value(i);
      const Affine<double> affine =
          absent ? Affine<double>() : AffineAt<double>(apply.parameters, ParameterOf(i, first));
      const ElementBound bound = BoundOf(work_, apply, rows_.nearest, group, affine, false);
      const NearestValue value =
          NarrowValue(T(), x, group.finished.statistics, BeforeRounding(apply.cast_order, affine), bound, rounding);
      y[i] = Rounded(T(), apply.cast_order, value.y, affine);
      if (value.is_doubtful) LeaveElement(rows_.nearest, group, begin_ + i, x);
    }
  }

  const NearestRows& rows_;
  const GroupWork& work_;
  const int64_t row_;
  const int n_, counted_;
  const int64_t begin_;
  RowState* const state_;
  S* const staged_;
};

template <typename T, bool kCentred, typename Threads>
__global__ void __launch_bounds__(kThreads)
    NearestRowsKernel(const __grid_constant__ NearestRows rows, int64_t row_bytes) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  constexpr bool kByWarps = std::is_same_v<Threads, WarpThreads>;
  const int warp = kByWarps ? static_cast<int>(threadIdx.x) / kWarp : 0;
  const int64_t row = kByWarps ? static_cast<int64_t>(blockIdx.x) * kShortRowWarps + warp : blockIdx.x;
  if (row >= rows.work.StatisticsGroups()) return;  // whole warps leave
  NearestRow<T, kCentred, Threads>(rows, row, shared + warp * row_bytes).Normalise();
}

// The additions that a term passes through: those of its thread, of its warp, and of the warps.
double AdditionsInThreads(int64_t counted, int64_t threads) {
  const int64_t additions = order::CeilDiv(counted, threads) + 5 + threads / kWarp;
  return static_cast<double>(additions);
}

}  // namespace

bool FitsNearestRows(const DeviceLimits& limits, DType dtype, int64_t n) {
  return RowBytes(dtype, n) <= limits.shared_bytes;
}

cudaError_t NormaliseRowsToNearest(const DeviceLimits& limits, const NearestRows& rows, cudaStream_t stream) {
  NearestRows launched = rows;
  const GroupWork& work = rows.work;
  const int64_t row_bytes = RowBytes(work.x.dtype, work.reduce1);
  const bool by_warps = work.reduce1 <= kShortRow;
  launched.nearest.additions = AdditionsInThreads(work.statistic_reduce1, by_warps ? kWarp : kThreads);
  const LaunchShape shape = {
      .blocks = by_warps ? order::CeilDiv(work.StatisticsGroups(), kShortRowWarps) : work.StatisticsGroups(),
      .threads = by_warps ? kShortRowWarps * kWarp : kThreads,
      .shared_bytes = by_warps ? kShortRowWarps * row_bytes : row_bytes,
      .shared_limit = limits.shared_bytes};
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return VisitCentred(work.statistic, [&]<bool kCentred>() {
      return by_warps ? Launch(shape, stream, NearestRowsKernel<T, kCentred, WarpThreads>, launched, row_bytes)
                      : Launch(shape, stream, NearestRowsKernel<T, kCentred, BlockThreads>, launched, row_bytes);
    });
  });
}

}  // namespace normd::cuda
