// Runs jobs whose tensors are in device memory, as launches on a stream: the walk from a plan to kernels, the
// counterpart of kernels/cpu/run_job.cc.
// In the path: job_list.cc calls RunJobs once tensors are on the device; run.cc calls the functions of kernels.h.
// Threads: each thread needs a stream and an arena of its own. Nothing here waits.
#ifndef NORMD_KERNELS_CUDA_RUN_H_
#define NORMD_KERNELS_CUDA_RUN_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/nearest.h"
#include "kernels/plan.h"

namespace normd::cuda {

// A Job (kernels/backend.h) on the device: every pointer is device memory, aligned to its elements.
struct DeviceJob {
  const NormPlan* plan = nullptr;
  const void* x = nullptr;
  Elements residual;  // data is null: none
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  const uint8_t* mask = nullptr;
  CountedPositions positions;
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;
  Parameters parameters;  // w and b, in the order of the plan's extents
  void* y = nullptr;
  void* h = nullptr;
  GroupOutputs outputs;
  // Not null: results are rounded to the nearest value, and those that are undecided are listed here. REQUIRES: not
  // null unless the plan is FAST or LpNorm of an order without one (GivesNearest); as BoundGroups; x is not y, and
  // neither it nor the residual is h where the residual is kept wide; no PowerNorm.
  LeftToHost* left = nullptr;
  double bound_factor = 1;  // see NearestOptions
};

// Elements that RunJobs has left of a job, and the rows that they are of, each once.
struct LeftOfRows {
  std::vector<int64_t> rows;
  std::vector<LeftElement> elements;  // LeftElement::row is an index of `rows`
};
// True if DecideLeftInPairs takes elements of a job: narrow rows whose x is what was normalised.
bool DecidesInPairs(const DeviceJob& job);
// Starts what decides them in pairs of f64, which leaves one in a billion: writes y, and what became of each element to
// `decided`, one for each element, which is device memory of the arena. Errors are those of RunJobs. `left` is read
// until the stream has run it. REQUIRES: DecidesInPairs; RunJobs has run the job.
absl::Status DecideLeftInPairs(const DeviceLimits& limits, const DeviceJob& job, const LeftOfRows& left, Arena* arena,
                               cudaStream_t stream, const DecidedElement** decided);

// True if one fused kernel runs both passes over the rows of a FAST plan. Such jobs of equal row length, dtype and
// statistic are launched together.
bool RunsAsWholeRows(const DeviceLimits& limits, const NormPlan& plan);

// True if one kernel runs both passes over the rows of an EXACT plan, to the nearest value, unless a mask or a residual
// that is kept wide forbids it.
bool RunsAsNearestRows(const DeviceLimits& limits, const NormPlan& plan);

// Starts all jobs on `stream`, with scratch from `arena`. RESOURCE_EXHAUSTED if the arena has too little room, else
// what StatusOf says. Results do not depend on which jobs come together. REQUIRES: the arena is not reset until the
// stream has run the jobs.
absl::Status RunJobs(const DeviceLimits& limits, absl::Span<const DeviceJob> jobs, Arena* arena, cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_RUN_H_
