// One job on the CPU: the state that the walkers of rows and columns share. Between backend.cc, which takes jobs, and
// the vector kernels. A Run lives on one stack; its pieces may run on several threads of the pool.
#ifndef NORMD_KERNELS_CPU_RUN_H_
#define NORMD_KERNELS_CPU_RUN_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/group_statistics.h"
#include "kernels/plan.h"

namespace normd::cpu {

struct Run {
  const NormPlan& plan;
  const Job& job;
  WorkerPool& pool;
  int64_t grain_elements;

  Elements x{};             // what is normalised: x, or h; in the order of the plan's extents
  int64_t x_begin = 0;      // the element that x.data is: 0, or the first of the rows that are together
  void* y = nullptr;        // plan.dtype, same order; null: statistics only
  Parameters parameters{};  // in the order of the plan's extents
  DivisorRule rule{};
  bool stream = false;    // y is too large for the caches: it is written past them
  bool prefetch = false;  // x is too large for the caches of one core

  Elements X(int64_t index) const { return x.At(index - x_begin); }
  bool wide() const { return x.dtype == DType::kF64; }
  bool is_16bit() const { return x.dtype == DType::kF16 || x.dtype == DType::kBF16; }
  // Elements that enter the statistic of a group, masked ones left out.
  int64_t counted = 0;
  // The first position that counts, in the mask's order; 0 without a mask or if none counts.
  int64_t first_counted = 0;

  // f64 streams are calculated in pairs, whatever the plan says.
  Precision precision() const { return wide() ? Precision::kExact : plan.precision; }
  // Folds the sums of `n` parts, `stride` apart, into parts[0] in the fixed order.
  void Fold(PairSums* parts, int64_t n, int64_t stride) const;
  // From sums to statistics, in the arithmetic of x's dtype.
  FinishedStatistics Finish(Statistic statistic, const PairSums& sums, int64_t count, double shift, double scale,
                            Precision precision) const;
  // Of a group without elements that count.
  FinishedStatistics FinishEmpty() const { return Finish(plan.statistic, {}, 0, 0, 1, Precision::kExact); }
  // Writes mean, inverse_std and moments of statistics group `set`, those that are wanted; no moments of given
  // statistics.
  void StoreGroup(int64_t group, const FinishedStatistics& result) const;
  // Tasks of about grain_elements when one item is `elements_per_item`.
  int64_t Grain(int64_t elements_per_item) const;
};

// Sums over contiguous elements, cut into chunks and folded: a whole statistics group of one segment.
// Used for PowerNorm's groups, whose sets are short.
FinishedStatistics ReduceContiguous(const Run& run, Statistic statistic, int64_t offset, int64_t n);

// The terms of kPowerSum of n f64 elements times `scale`, in pairs; 0 where `largest`, that of the group, scaled, is 0
// or not finite.
void PowerTerms(const Elements& x, int64_t n, double scale, double largest, double p, double* high, double* low);

void RunRows(const Run& run);
// The same for an x in pieces: rows that lie in one piece are read there, a row that straddles two is put together.
// REQUIRES: AcceptsScattered(run.plan).
void RunScatteredRows(const Run& run);
void RunColumns(const Run& run);
void RunPowerNorm(const Run& run);

// Plans whose sets are rows one after the other, each read once from memory: nothing is gained by copying x first.
bool AcceptsScattered(const NormPlan& plan);

// Prepares residual, permutation and parameters, then runs the plan's pattern.
void RunJob(const Job& job, WorkerPool& pool, int64_t grain_elements, int64_t stream_bytes);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_RUN_H_
