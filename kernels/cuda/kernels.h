// The kernels of the CUDA backend as functions that start them on a stream.
// In the path: between run.cc, which walks plans, and the .cu files; both sides include this header. Every pointer is
// device memory unless a comment says otherwise. Functions return the error of the launch and never wait.
// Ownership: pointers borrow and must stay valid until the stream has run the launch. Threads: safe from any thread,
// with one thread per stream.
#ifndef NORMD_KERNELS_CUDA_KERNELS_H_
#define NORMD_KERNELS_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// The elements of one tensor, aligned to their size. `lo` are the low parts of an f64 stream that is kept wide, else
// null.
struct Elements {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  const double* lo = nullptr;
};

// w and b, in f64 and rounded to f32. Null: absent, w = 1 and b = 0.
struct Parameters {
  const double* weight = nullptr;
  const double* bias = nullptr;
  const float* weight32 = nullptr;
  const float* bias32 = nullptr;
  bool fit_f32 = true;     // see HostParameters
  bool equal_f32 = false;  // see HostParameters; f64 then reads weight32 and bias32: half the bytes

  NORMD_HOST_DEVICE bool absent() const { return weight == nullptr && bias == nullptr; }
};

// The index of the parameters of an element: see NormPlan.
struct ParameterIndex {
  AffineIndex kind = AffineIndex::kElement;
  int64_t channels_per_keep1 = 0;
  int64_t channel_run = 1;
};

// Outputs of statistics groups, one value per group; null where not wanted. `mean` and `inverse_std` are f64 for f64
// plans (in_f64), else f32.
struct GroupOutputs {
  void* mean = nullptr;
  void* inverse_std = nullptr;
  double* moments = nullptr;  // count, mean, M2 of each group
  bool in_f64 = false;
};

// The properties of the device that decide how kernels are launched. They never decide results.
struct DeviceLimits {
  int multiprocessors = 1;
  int64_t shared_bytes = 48 << 10;  // shared memory that a block may ask for
  bool has_clusters = false;        // see HasClusters
};

// True if clusters of blocks may share rows on `device`, which is the one in use: the device launches clusters, there
// is room for one of the largest (a part of a GPU, or a share of one, may have none), and the code that runs there was
// compiled for them. A build for 8.0 alone is compiled again by the driver, without them. Without clusters such rows
// are summed in parts, to the same bytes.
bool HasClusters(const DeviceLimits& limits, int device);

// ---- Whole rows: both passes in one launch, each element read once ----

// The rows of one job, which are adjacent. Each row is a statistics group.
struct RowRange {
  const void* x = nullptr;
  // Null, or of x's dtype: then x + residual_scale * residual, rounded once, is normalised instead of x.
  const void* residual = nullptr;
  void* h = nullptr;  // null, or the output of that sum
  void* y = nullptr;
  int64_t first_row = 0;  // the index of its first row in the launch
  double residual_scale = 1;
  DivisorRule rule;
  Parameters parameters;
  ParameterIndex index;
  int64_t keep1 = 1;
  GroupOutputs outputs;
};

// What rows of several jobs that share a launch have in common.
struct RowKind {
  DType dtype = DType::kF32;  // narrow
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kFast;  // of the sums
  int64_t n = 0;                           // elements per row
  int64_t counted = 0;                     // the first `counted` elements enter the statistic; at least 1
};
// The rows of one or several jobs.
struct RowLaunch : RowKind {
  int64_t rows = 0;  // rows of all ranges
  int range_count = 1;
  // In order of first_row. They are parameters of the kernel: memory would have to be filled first, and read by one
  // load after the other.
  static constexpr int kMaxRanges = 16;
  RowRange ranges[kMaxRanges];
};

// True if the rows of a range, whose sums are those of FAST, stay in registers: see register_rows.cu.
bool FitsInRegisters(const DeviceLimits& limits, const RowKind& kind, const RowRange& range);
// Normalises rows that stay in registers. REQUIRES: FitsInRegisters, for all ranges.
cudaError_t NormaliseRegisterRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream);

// True if a row fits on chip (in the shared memory of a block, or of a cluster where the device has them).
bool FitsOnChip(const DeviceLimits& limits, DType dtype, int64_t n);
// Normalises rows that fit on chip. REQUIRES: FitsOnChip.
cudaError_t NormaliseRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream);

// ---- Everything else: sums of parts, then statistics of groups, then elements ----

// How far a group is on its way from sums to statistics.
struct GroupState {
  double shift = 0;  // of the next sums; for SumsPowers() the largest |x|, scaled
  double scale = 1;
  double exact_shift = 0;  // the first shift of EXACT, should FAST not suffice
  Round round = Round::kDone;
};

// The statistics of a group as the apply pass uses them.
struct GroupResult {
  GroupStatistics statistics;
  bool in_f32 = false;      // calculate narrow elements in f32
  bool may_be_nan = false;  // recalculate f32 results that are not finite in f64
  // The ways of kernels/group_statistics.h that the statistics allow to elements that are calculated in f64, where each
  // has parameters of its own or none.
  bool folds = false;     // 3: in one multiply-add about the folded centre
  bool in_pairs = false;  // 4: in pairs of floats, if the parameters allow it, too
};

// The same for narrow elements that are calculated in f32, read in one load.
struct alignas(16) GroupResult32 {
  float shift = 0, delta = 0;
  double inverse = 1;  // NaN: not in f32, see GroupResult

  NORMD_HOST_DEVICE bool in_f32() const { return inverse == inverse; }
};

// The sums of one part of a group of narrow elements: see PairSums.
struct NarrowPart {
  double first = 0, second = 0;
};

// The Magnitude of an f64 group, gathered by atomic operations.
struct GroupMagnitude {
  unsigned long long largest_bits = 0;
  unsigned non_finite = 0;  // bits: +Inf, -Inf, NaN
};

struct NearestGroup;  // nearest.h

// The geometry and memory of one plan, on the way from sums to elements. Extents are those of NormPlan.
struct GroupWork {
  Elements x;
  bool columns = false;  // Pattern::kColumns
  int64_t keep0 = 1, reduce0 = 1, keep1 = 1, reduce1 = 1, statistic_reduce1 = 1;
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kExact;  // of the sums
  DivisorRule rule;
  const uint8_t* mask = nullptr;
  int64_t counted = 0, first_counted = 0;
  bool is_16bit = false;  // x is f16 or bf16
  bool fit_f32 = true;    // see Parameters
  GroupOutputs outputs;

  GroupResult* results = nullptr;      // one per group
  GroupResult32* results32 = nullptr;  // one per group, for narrow elements
  void* parts = nullptr;               // PartsToTake() elements: NarrowPart, or PairSums for f64
  int64_t fold = 1;                    // blocks of positions that make one part, see LeastFold
  // For f64 elements.
  GroupState* states = nullptr;          // one per group
  GroupMagnitude* magnitudes = nullptr;  // one per group, zeroed
  unsigned* pending = nullptr;           // kRounds flags, zeroed: whether any group is in a round
  // Statistics that were given, one for each keep1, and of which ApplyGroups makes the results: see
  // TakesGivenStatistics. The mean may be null: nothing is subtracted. Null variance: results and results32 are there.
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;
  NearestGroup* nearest = nullptr;  // null, or one per group: see nearest.h

  NORMD_HOST_DEVICE int64_t StatisticsGroups() const { return keep0 * keep1; }
  NORMD_HOST_DEVICE int64_t Columns() const { return keep1 * reduce1; }
  NORMD_HOST_DEVICE bool wide() const { return x.dtype == DType::kF64; }
};

// The number of adjacent blocks of positions whose sums of one column make one part where a thread sums columns by
// itself: 1, 2 or 4, and the value that work.fold must have. Several where enough threads remain to fill the device.
int64_t LeastFold(const DeviceLimits& limits, const GroupWork& work);
// The number of elements that work.parts must have. REQUIRES: work.fold is set.
int64_t PartsToTake(const DeviceLimits& limits, const GroupWork& work);

// Computes the statistics of all groups, in as many rounds of sums as they need: writes results and outputs.
cudaError_t ReduceGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);
// The same from given statistics, one for each keep1. `mean` may be null: nothing is subtracted.
cudaError_t TakeGivenStatistics(const GroupWork& work, const double* mean, const double* variance, cudaStream_t stream);

// The output and the parameters of the apply pass.
struct ApplyWork {
  DType y_dtype = DType::kF32;
  void* y = nullptr;
  Parameters parameters;
  ParameterIndex index;
  CastOrder cast_order = CastOrder::kAffineThenCast;
};
// True if ApplyGroups can make the results, and the outputs, of work.given_variance itself, without a launch before it.
bool TakesGivenStatistics(const GroupWork& work, const ApplyWork& apply);
// Runs the apply pass over all groups. REQUIRES: work.given_variance is set and TakesGivenStatistics; or ReduceGroups
// or TakeGivenStatistics was started before in the stream.
cudaError_t ApplyGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream);

// ---- The same in one launch, for narrow groups of several columns that are small and few ----

// True if a block of threads can have a whole group, from sums to elements, and if that is the faster way: see
// column_groups.cu.
bool FitsInBlocks(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply);
// Does what ReduceGroups and ApplyGroups do, without work.results and work.parts. REQUIRES: FitsInBlocks.
cudaError_t NormaliseGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                            cudaStream_t stream);

// ---- The same in one launch, for narrow groups of several segments that fit on chip ----

// True if a block of threads, or a cluster of blocks, can hold whole groups: see group_tiles.cu.
bool FitsInTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply);
// Does what ReduceGroups and ApplyGroups do, without work.results and work.parts. REQUIRES: FitsInTiles.
cudaError_t NormaliseTiles(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                           cudaStream_t stream);

// ---- Elementwise ----

// h = x + scale * r for n elements, rounded once to x's dtype.
cudaError_t AddResidualRounded(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale,
                               int64_t n, void* h, cudaStream_t stream);
// The same kept in f64: hi + lo for f64 x, hi for narrower x, where `lo` is null.
cudaError_t AddResidualWide(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale, int64_t n,
                            double* hi, double* lo, cudaStream_t stream);

// wide[i] = x[i] for n elements, as f64, exactly.
cudaError_t Widen(const DeviceLimits& limits, const Elements& x, int64_t n, double* wide, cudaStream_t stream);

// The same of whole rows of n elements: wide[i * n + j] = x[rows[i] * n + j].
cudaError_t WidenRows(const DeviceLimits& limits, const Elements& x, int64_t n, const int64_t* rows, int64_t count,
                      double* wide, cudaStream_t stream);

// A copy in another order of the axes: to[i] = from[p(i)], or to[p(i)] = from[i] if `back`, where i is an index in the
// permuted order and p(i) the index of the same element in the natural order.
struct PermuteWork {
  static constexpr int kMaxRank = 8;
  int rank = 0;
  int64_t extents[kMaxRank] = {};  // in the order of the permuted copy
  int64_t strides[kMaxRank] = {};  // elements; of each of these axes in the natural order
  int64_t elements = 0;
  int64_t element_bytes = 0;  // 2, 4 or 8
  bool back = false;
};
cudaError_t Permute(const DeviceLimits& limits, const PermuteWork& work, const void* from, void* to,
                    cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_KERNELS_H_
