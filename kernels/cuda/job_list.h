// One job list on its way over the device: host tensors laid out and uploaded, jobs run, results downloaded.
// Between backend.cc, whose workers take job lists one at a time, and run.h.
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

// What a worker has for itself. Thread-compatible.
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

// Runs `jobs` from tensors to tensors, in host memory but for those that say otherwise, and waits for them. After an
// error nothing of theirs is left in the stream.
absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, WorkerMemory* worker);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_JOB_LIST_H_
