// Runs one job list on the device: lays out and uploads host tensors, runs the jobs, downloads the results.
// In the path: backend.cc's stream workers call RunJobList, one job list at a time; it calls RunJobs of run.h.
// Ownership: jobs are borrowed until the call returns. Thread-compatible: each stream worker has a WorkerMemory of its
// own.
#ifndef NORMD_KERNELS_CUDA_JOB_LIST_H_
#define NORMD_KERNELS_CUDA_JOB_LIST_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/deferred_free.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/staging.h"

namespace normd::cuda {

// The resources of one stream worker: its stream, its staging and its scratch. Thread-compatible.
struct WorkerMemory {
  cudaStream_t stream = nullptr;
  Staging staging;
  Arena arena;

  std::shared_ptr<DeferredFree> deferred;

  WorkerMemory(int64_t max_device_bytes, std::shared_ptr<DeferredFree> the_deferred)
      : arena(max_device_bytes), deferred(std::move(the_deferred)) {}
  ~WorkerMemory() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  WorkerMemory(const WorkerMemory&) = delete;
  WorkerMemory& operator=(const WorkerMemory&) = delete;
};

// Runs `jobs` and waits for them. Tensors lie in host memory unless a job says otherwise. After an error nothing of the
// jobs is left in the stream. `worker` is used by this call alone.
absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, WorkerMemory* worker);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_JOB_LIST_H_
