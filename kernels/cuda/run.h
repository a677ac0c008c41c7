// Jobs whose tensors are in device memory, as launches on a stream: the walk from a plan to kernels, the counterpart of
// kernels/cpu/run_job.cc. Between backend.cc, which brings tensors to the device, and kernels.h.
// Threads: one stream and arena each; nothing here waits.
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
#include "kernels/plan.h"

namespace normd::cuda {

// A Job on the device: every pointer is device memory, aligned to its elements.
struct DeviceJob {
  const NormPlan* plan = nullptr;
  const void* x = nullptr;
  Elements residual;  // data null: none
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  const uint8_t* mask = nullptr;
  CountedPositions positions;
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;
  Parameters parameters;  // in the order of the plan's extents
  void* y = nullptr;
  void* h = nullptr;
  GroupOutputs outputs;
};

// Whether a plan's rows go from sums to elements in one launch. Jobs whose rows lie ready share it with others of the
// same row length.
bool RunsAsWholeRows(const DeviceLimits& limits, const NormPlan& plan);

// Starts all jobs. Scratch comes from `arena`. Results do not depend on which jobs come together.
absl::Status RunJobs(const DeviceLimits& limits, absl::Span<const DeviceJob> jobs, Arena* arena, cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_RUN_H_
