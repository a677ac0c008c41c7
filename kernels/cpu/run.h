// One job on the CPU, as the walkers see it: Run is the state that run_job.cc sets up and that run_rows.cc,
// run_channels.cc and run_columns.cc read.
// In the path: backend.cc calls RunJob; RunJob prepares residual, permutation and parameters and calls the walker of
// the plan's pattern; the walker calls the vector kernels of kernels.h.
// Ownership: a Run lives on the stack of RunJob and borrows everything. Threads: the walkers share the Run among the
// threads of the pool, which only read it.
#ifndef NORMD_KERNELS_CPU_RUN_H_
#define NORMD_KERNELS_CPU_RUN_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/exact_sums/exact_sums.h"
#include "kernels/group_statistics.h"
#include "kernels/plan.h"

namespace normd::cpu {

struct KnownChannels;  // nearest_channels.h

inline DivisorRule RuleOf(const NormPlan& plan) { return {plan.eps, plan.eps_mode, plan.zero_norm_gives_zero, plan.p}; }

// The state of one job. The constant part (plan, job, pool) comes from the caller of RunJob. RunJob fills the rest in
// this order, before the walker starts: x and y from the job; x from x_buffer, from h, from the f64 copy or from the
// permuted copy, where the job needs one of these; parameters, rule and counts from plan and job. RunScatteredRows
// alone gives its tasks copies of the Run, in which `x` and `x_begin` move along the pieces of x.
struct Run {
  const NormPlan& plan;
  const Job& job;
  WorkerPool& pool;
  // The number of elements a task should have, so that large work splits evenly. The bits never depend on it.
  int64_t grain_elements;

  // The tensor that is normalised, x or h, in the order of the plan's extents. `x.data` is null while x is scattered.
  Elements x{};
  // The index, in the whole tensor, of the element at x.data: 0, but the first element of the current rows while a task
  // of RunScatteredRows walks the pieces of x. X() subtracts it.
  int64_t x_begin = 0;
  void* y = nullptr;        // plan.dtype, in the order of x; null: statistics only
  Parameters parameters{};  // w and b, in the order of the plan's extents
  DivisorRule rule{};
  // The elements as they were given, in the order of x, and the residual that x contains where it is kept wide: what
  // the slow road calculates with.
  Elements given_x{}, given_residual{};
  // The prepared form of given statistics in f32, if the job wants no mean and no inverse_std and PrepareGiven()
  // returned it.
  std::optional<GivenGroups> given{};
  // The largest finite magnitudes of w and b; of absent ones 1 and 0.
  double largest_weight = 1, largest_bias = 0;
  bool to_nearest = false;  // GivesNearest(job), or a job or group that FAST leaves: see beyond_fast.h
  NearestOptions nearest{};
  // Null, or the statistics of all channels: of a job without other outputs than y whose moments were summed first.
  const KnownChannels* known = nullptr;
  bool stream = false;    // y is too large for the caches and is written past them
  bool prefetch = false;  // x is too large for the caches of one core and is fetched ahead

  // The index of element (k0, r0, k1, r1) in memory.
  int64_t IndexOf(int64_t k0, int64_t r0, int64_t k1, int64_t r1) const {
    return ((k0 * plan.reduce0 + r0) * plan.keep1 + k1) * plan.reduce1 + r1;
  }
  // The elements from index `index` of the whole tensor on.
  Elements X(int64_t index) const { return x.At(index - x_begin); }
  Elements GivenX(int64_t index) const { return given_x.At(index - x_begin); }
  // True if the elements are f64 and are therefore calculated in pairs: x is f64, or h is kept wide, or x was widened
  // for a power sum.
  bool wide() const { return x.dtype == DType::kF64; }
  bool is_16bit() const { return x.dtype == DType::kF16 || x.dtype == DType::kBF16; }
  // The number of the first group among those of the job's parameters: not 0 in a NearestRun of some groups alone.
  int64_t first_k1 = 0;
  // The number of elements that enter the statistic of a group, without masked ones.
  int64_t counted = 0;
  // The first position that the mask counts; 0 without a mask, or if the mask counts none.
  int64_t first_counted = 0;

  // The precision of the sums. f64 elements are calculated in pairs, whatever the plan says.
  Precision precision() const { return wide() || to_nearest ? Precision::kExact : plan.precision; }
  // Folds the sums of n parts, `stride` apart, into parts[0] in the fixed order of summation_order.h.
  void Fold(PairSums* parts, int64_t n, int64_t stride) const;
  // The statistics of group k1 of the kept axes, where plan.given_statistics, ready for the apply pass.
  FinishedStatistics Given(int64_t k1) const;
  // Makes statistics of the sums of `count` elements, in the arithmetic of x's dtype: FinishWide or FinishNarrow.
  FinishedStatistics Finish(Statistic statistic, const PairSums& sums, int64_t count, double shift, double scale,
                            Precision precision) const;
  // The statistics of a group in which no element counts.
  FinishedStatistics FinishEmpty() const { return Finish(plan.statistic, {}, 0, 0, 1, Precision::kExact); }
  // Writes the outputs of statistics group `group` that the job wants: mean, inverse_std, moments. Moments are not
  // written if the plan gives the statistics.
  void StoreGroup(int64_t group, const FinishedStatistics& result) const;
  // The same for the channels [begin, end) of `channels`; the channel at `begin` is group `group`.
  void StoreChannels(int64_t group, const ChannelStatistics& channels, int64_t begin, int64_t end) const;
  // True if the job wants any of these outputs.
  bool StoresGroups() const { return job.mean != nullptr || job.inverse_std != nullptr || job.moments != nullptr; }
  // True if each of `tasks` tasks should be split among the threads, one task after the other, instead of being run by
  // one thread. All threads then wait for one another twice a task, so this is done only where they would be idle
  // otherwise.
  bool SplitsTasks(int64_t tasks, int64_t elements_per_task) const;
  // The number of items in a task of about grain_elements, where an item has `elements_per_item`.
  int64_t Grain(int64_t elements_per_item) const;
};

// The groups [begin, end).
struct GroupRange {
  int64_t begin = 0, end = 0;
};

// The statistics of n contiguous elements from index `offset` on, in one thread: a group of one segment. Used for the
// groups of channels that PowerNorm scales, which are short.
FinishedStatistics ReduceContiguous(const Run& run, Statistic statistic, int64_t offset, int64_t n);

// How the terms of kPowerSum are made: x is multiplied by `scale` and divided by `largest`, the largest |x * scale| of
// the group, before it is raised to the power p: by products if p is whole and the result is rounded to the nearest
// value (kernels/slow_road/whole_power.h), else by logarithms (kernels/power_sum.h).
struct PowerScale {
  double scale = 1;
  double largest = 0;
  double p = 2;
  bool by_products = false;
};
// The terms of n f64 elements as pairs (high[i], low[i]). If `largest` is 0 or not finite, all terms are 0.
void PowerTerms(const Elements& x, int64_t n, const PowerScale& by, double* high, double* low);

// Walks Pattern::kRows.
void RunRows(const Run& run);
// True if RunRows reads each row before it writes its y, and never again, so that y may be x although single elements
// are decided from their whole row: see Run::nearest.
bool ReadsRowsOnce(const Run& run);
// Runs the groups [begin, end), which are adjacent rows, in blocks like `block`, to the nearest value. `one` runs a row
// by itself that the block kernel leaves, with a Run whose x is not y.
void RunNearestRows(const Run& run, RowBlock block, GroupRange groups,
                    absl::FunctionRef<void(const Run&, int64_t)> one);
// Walks Pattern::kRows with a scattered x. A row that lies in one piece is read there; a row that straddles two is
// first copied to a buffer. REQUIRES: AcceptsScattered(run.plan).
void RunScatteredRows(const Run& run);
// True if the groups are adjacent channels that are small enough for blocks, whose elements RunChannels applies in the
// order of memory.
bool TakesChannels(const Run& run);
// Runs the groups [begin, end), applying those of a block in the order of memory; `one` runs a group by itself that is
// not settled (see ChannelStatistics). REQUIRES: TakesChannels(run).
void RunChannels(const Run& run, int64_t begin, int64_t end, absl::FunctionRef<void(int64_t)> one);
// True if the groups are channels whose statistics are given or known and whose elements RunGivenChannels applies in
// the order of memory.
bool TakesGivenChannels(const Run& run);
// Applies given or known statistics to all channels, from the first byte to the last. REQUIRES:
// TakesGivenChannels(run).
void RunGivenChannels(const Run& run);
// Walks Pattern::kColumns.
void RunColumns(const Run& run);
// Walks PowerNorm: the scales of each position's groups first, then Pattern::kColumns with these scales.
void RunPowerNorm(const Run& run);
// The same to the nearest value, element by element. REQUIRES: run.to_nearest.
void RunNearestPowerNorm(const Run& run);

// Limits the job's y as plan.clip says. REQUIRES: the job has y, the plan a clip.
void ClipY(const Run& run);
// Writes job.min and job.max. REQUIRES: plan.counts_samples, and the job wants them.
void StoreExtremes(const Run& run);
// Computes the moments of channels with a NaN again, without it. REQUIRES: plan.skips_nan, a job with moments, which
// are written, and without y, which may be x.
void LeaveOutNan(const Run& run);

// Adds the samples of one channel that are no NaN. REQUIRES: plan.skips_nan; the range of x.
void AddWithoutNan(const Run& run, int64_t channel, NarrowExactSums* sums);
void AddWithoutNan(const Run& run, int64_t channel, WideExactSums* sums);
// Writes the job's exact sums, and the moments that are nearest to them. REQUIRES: the job wants exact sums.
void SumExactly(const Run& run);
// True if the moments of a job to the nearest value come from exact sums, which vector kernels make in 0.25 ns an
// element: then RunWithExactMoments runs the job, its moments first.
bool SumsMomentsExactly(const Job& job);
void RunWithExactMoments(const Job& job, WorkerPool& pool, int64_t grain_elements, const CpuBackendOptions& options);

// True if RunScatteredRows can run the plan: its groups are adjacent rows, each read once from memory, so that a copy
// of x would gain nothing.
bool AcceptsScattered(const NormPlan& plan);

// Runs one job to its end: prepares residual, permutation and parameters, then walks the plan's pattern. Large work
// uses `pool`. `grain_elements` is the size of a task; of `options`, stream_bytes and nearest are used. `known`: see
// Run.
void RunJob(const Job& job, WorkerPool& pool, int64_t grain_elements, const CpuBackendOptions& options,
            const KnownChannels* known = nullptr);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_RUN_H_
