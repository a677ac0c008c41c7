// Results to the nearest value (kernels/nearest.h) as launches beside those of kernels.h: the bounds of groups, the
// apply pass with a test of each element, and the list of what both leave to the host.
// In the path: run.cc starts them; statistics.cu fills in NearestGroup; nearest_jobs.cc reads the list. Host code and
// device code include this header. Functions return the error of the launch and never wait.
#ifndef NORMD_KERNELS_CUDA_NEAREST_H_
#define NORMD_KERNELS_CUDA_NEAREST_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/bounded_group.h"
#include "kernels/certificate.h"
#include "kernels/cuda/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// A group of a job to the nearest value: what is known of its statistics, and how far its elements may be off.
struct NearestGroup : BoundedGroup {  // which BoundGroups sets
  FinishedStatistics finished;
  double shift = 0;      // see SumErrors
  bool is_zero = false;  // see SumErrors
  // Of elements in pairs: the mean, and m2 as in FinishedStatistics. Not where the group is scaled or has no sums.
  DoublePair mean, m2;
  bool has_pairs = false;
};

// What the kernels leave to the host: the index of an element of y, in the order of the plan's extents, or the number
// of elements plus the index of a group whose outputs they do not decide. A group may be there twice.
struct LeftToHost {
  static constexpr int64_t kMost = 2048;
  // Of everything that is left. Only the first kMost are listed, in no order.
  unsigned long long count = 0;
  int64_t items[kMost] = {};
};

// How results of one job are bounded and where those that are undecided go.
struct NearestWork {
  double additions = 0;        // see SumErrors
  double bound_factor = 1;     // see NearestOptions
  ElementErrors elements;      // of x, which may be a sum with a residual that is kept wide
  bool is_given = false;       // the statistics are
  double* moments = nullptr;   // null, or those that BoundGroups writes
  int64_t element_count = 0;   // see LeftToHost
  LeftToHost* left = nullptr;  // `count` is 0 before the first launch
};
// Calculates the bounds of all groups, and leaves those outputs of groups that it does not decide. Writes the moments
// of finite groups, which take elements in pairs; ReduceGroups writes the others, as it does mean and inverse_std.
// REQUIRES: ReduceGroups or TakeGivenStatistics was started before in the stream, with work.nearest; no
// kPowerSum.
cudaError_t BoundGroups(const GroupWork& work, const NearestWork& nearest, cudaStream_t stream);
// ApplyGroups, each element rounded to the nearest value or left to the host. REQUIRES: BoundGroups was started before.
cudaError_t ApplyToNearest(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                           const NearestWork& nearest, cudaStream_t stream);

// An element that was left, of a row that has been summed in pairs of f64.
struct LeftElement {
  int64_t index = 0;  // of y
  int64_t row = 0;    // of the rows that were summed
};
// What became of it: the bits of y where pairs decide it, and y is then written, too.
struct DecidedElement {
  uint64_t y_bits = 0;
  bool is_decided = false;
};
// Decides elements of narrow rows in pairs. `work` has the rows that they are of, widened to f64, one after the other;
// keep1 is that of the plan. REQUIRES: BoundGroups was started before in the stream.
cudaError_t DecideInPairs(const GroupWork& work, const ApplyWork& apply, const NearestWork& nearest, int64_t keep1,
                          const LeftElement* elements, int64_t count, DecidedElement* decided, cudaStream_t stream);

// Rows of one job that are normalised in one launch. Each row is a statistics group of work.reduce1 narrow elements, of
// which the first work.statistic_reduce1 count.
struct NearestRows {
  GroupWork work;
  ApplyWork apply;
  NearestWork nearest;  // `additions` is set by NormaliseRowsToNearest
  // Null, or of x's dtype: then x + residual_scale * residual, rounded once, is normalised instead of x.
  const void* residual = nullptr;
  double residual_scale = 1;
  void* h = nullptr;  // null, or the output of that sum
};
// True if a block of threads can hold a row of n elements: see nearest_rows.cu.
bool FitsNearestRows(const DeviceLimits& limits, DType dtype, int64_t n);
// ReduceGroups, BoundGroups and ApplyToNearest in one launch, without work.results, work.parts and work.nearest.
// REQUIRES: FitsNearestRows, no mask; y is wanted; the statistics are not given. Moments are those of f64 sums, where
// groups are not finite: the caller has the others summed in pairs.
cudaError_t NormaliseRowsToNearest(const DeviceLimits& limits, const NearestRows& rows, cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_NEAREST_H_
