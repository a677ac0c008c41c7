// The kernels of the CUDA backend as functions that start them on a stream: what backend code and device code share.
// Between run.cc, which walks plans, and the .cu files. Every pointer is device memory unless it says otherwise;
// nothing here waits. Threads: safe from any thread, one stream each.
#ifndef NORMD_KERNELS_CUDA_KERNELS_H_
#define NORMD_KERNELS_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// Elements of one tensor; aligned to their size. `lo`: the low halves of an f64 stream kept wide, else null.
struct Elements {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  const double* lo = nullptr;
};

// w and b, in f64 and rounded to f32. Null: absent.
struct Parameters {
  const double* weight = nullptr;
  const double* bias = nullptr;
  const float* weight32 = nullptr;
  const float* bias32 = nullptr;
  bool fit_f32 = true;     // see HostParameters
  bool equal_f32 = false;  // the same; then f64 is calculated with the f32 ones, which are half the bytes

  NORMD_HOST_DEVICE bool absent() const { return weight == nullptr && bias == nullptr; }
};

// Where the parameters of an element are: see NormPlan.
struct ParameterIndex {
  AffineIndex kind = AffineIndex::kElement;
  int64_t channels_per_keep1 = 0;
  int64_t channel_run = 1;
};

// Outputs of statistics groups, one a group; null where not wanted. mean and inverse_std are f32, f64 for f64 plans.
struct GroupOutputs {
  void* mean = nullptr;
  void* inverse_std = nullptr;
  double* moments = nullptr;  // count, mean, M2 of each group
  bool in_f64 = false;
};

// What the device is, as far as it decides how to launch. Never what results are.
struct DeviceLimits {
  int multiprocessors = 1;
  int64_t shared_bytes = 48 << 10;  // that a block may ask for
  bool has_clusters = false;        // and so has the code that runs there: see HasClusters
};

// Whether rows may be a cluster's on the device in use, which is of compute capability `major`: the code that runs
// there must have been compiled for clusters, too. A build for 8.0 alone is compiled again by the driver, without them.
bool HasClusters(int major);

// ---- Whole rows: from sums to elements in one launch, each element read once ----

// Rows of one job. They lie one after the other, each its own statistics group.
struct RowRange {
  const void* x = nullptr;
  const void* residual = nullptr;  // null, or of x's dtype: x + residual_scale * residual, rounded, is normalised
  void* h = nullptr;               // null, or where that goes
  void* y = nullptr;
  int64_t first_row = 0;  // of the launch's rows
  double residual_scale = 1;
  DivisorRule rule;
  Parameters parameters;
  ParameterIndex index;
  int64_t keep1 = 1;
  GroupOutputs outputs;
};

struct RowLaunch {
  DType dtype = DType::kF32;  // narrow
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kExact;
  int64_t n = 0;                     // elements of a row
  int64_t counted = 0;               // the first so many enter the statistic; at least 1
  int64_t rows = 0;                  // of all ranges
  RowRange one;                      // the range, if there is one
  const RowRange* ranges = nullptr;  // else `range_count` of them, in order
  int range_count = 1;
};

// Whether the rows of a range are such that FAST keeps them in registers: see register_rows.cu.
bool FitsInRegisters(const DeviceLimits& limits, const RowLaunch& launch, const RowRange& range);
// REQUIRES: FitsInRegisters, for all ranges.
cudaError_t NormaliseRegisterRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream);

// Whether a row fits on chip, with clusters where there are some.
bool FitsOnChip(const DeviceLimits& limits, DType dtype, int64_t n);
// REQUIRES: FitsOnChip.
cudaError_t NormaliseRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream);

// ---- Everything else: sums of parts, groups, elements ----

struct GroupState {
  double shift = 0;  // where powers are summed the largest |x|, scaled
  double scale = 1;
  double exact_shift = 0;  // where EXACT begins, should FAST not do
  Round round = Round::kDone;
};

// What Apply needs of a group.
struct GroupResult {
  GroupStatistics statistics;
  bool in_f32 = false;      // narrow elements are calculated in f32
  bool may_be_nan = false;  // f32 results that are not finite are done again in f64
};

// The same in f32, in one load; of no use where it says so.
struct alignas(16) GroupResult32 {
  float shift = 0, delta = 0, inverse = 1;
  unsigned in_f32 = 0;  // as GroupResult
};

// Sums of one part of a group of narrow elements.
struct NarrowPart {
  double first = 0, second = 0;
};

// How large the elements of an f64 group are, gathered by atomic operations.
struct GroupMagnitude {
  unsigned long long largest_bits = 0;
  unsigned non_finite = 0;  // bits: +Inf, -Inf, NaN
};

// One plan's geometry and memory, on the way from sums to elements. Extents as in NormPlan.
struct GroupWork {
  Elements x;
  bool columns = false;  // Pattern::kColumns
  int64_t keep0 = 1, reduce0 = 1, keep1 = 1, reduce1 = 1, statistic_reduce1 = 1;
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kExact;
  DivisorRule rule;
  const uint8_t* mask = nullptr;
  int64_t counted = 0, first_counted = 0;
  bool is_16bit = false;  // x is f16 or bf16
  bool fit_f32 = true;    // of the parameters
  GroupOutputs outputs;
  // PowerNorm: the results of the groups of each position, `groups` a position.
  const GroupResult* pre = nullptr;
  int64_t groups = 0;

  GroupState* states = nullptr;          // one a group
  GroupResult* results = nullptr;        // one a group
  GroupResult32* results32 = nullptr;    // one a group, of narrow elements
  GroupMagnitude* magnitudes = nullptr;  // one a group, f64 only; zero
  void* parts = nullptr;                 // room for PartsOf(work) of NarrowPart, or of PairSums for f64
  int64_t fold = 1;                      // blocks of columns that are one part: a power of two
  unsigned* pending = nullptr;           // kRounds counters, zero

  NORMD_HOST_DEVICE int64_t StatisticsGroups() const { return keep0 * keep1; }
  NORMD_HOST_DEVICE int64_t Columns() const { return keep1 * reduce1; }
  NORMD_HOST_DEVICE bool wide() const { return x.dtype == DType::kF64; }
};

// Parts of all groups together: chunks of rows, or blocks of columns.
int64_t PartsOf(const GroupWork& work);

// Statistics of all groups, by sums in as many rounds as they need: results and outputs.
cudaError_t ReduceGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);
// Statistics that are given, one a keep1: the same. `mean` may be null.
cudaError_t TakeGivenStatistics(const GroupWork& work, const double* mean, const double* variance, cudaStream_t stream);

struct ApplyWork {
  DType y_dtype = DType::kF32;
  void* y = nullptr;
  Parameters parameters;
  ParameterIndex index;
  CastOrder cast_order = CastOrder::kAffineThenCast;
};
cudaError_t ApplyGroups(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream);

// ---- Elementwise ----

// h = x + scale * r, rounded once to x's dtype.
cudaError_t AddResidualRounded(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale,
                               int64_t n, void* h, cudaStream_t stream);
// The same kept in f64: hi, and lo for f64 x (else null). `h` of x's dtype: null, or hi rounded.
cudaError_t AddResidualWide(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale, int64_t n,
                            double* hi, double* lo, void* h, cudaStream_t stream);

// The elements as f64.
cudaError_t Widen(const DeviceLimits& limits, const Elements& x, int64_t n, double* wide, cudaStream_t stream);

// A copy in another order of the axes: to[i] = from[p(i)], or to[p(i)] = from[i] if `back`.
struct PermuteWork {
  static constexpr int kMaxRank = 8;
  int rank = 0;
  int64_t extents[kMaxRank] = {};  // in the order of the permuted copy
  int64_t strides[kMaxRank] = {};  // of each in the natural one, elements
  int64_t elements = 0;
  int64_t element_bytes = 0;  // 2, 4 or 8
  bool back = false;
};
cudaError_t Permute(const DeviceLimits& limits, const PermuteWork& work, const void* from, void* to,
                    cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_KERNELS_H_
