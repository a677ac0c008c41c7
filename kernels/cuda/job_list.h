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
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/staging.h"
#include "kernels/nearest.h"

namespace normd::cuda {

// The resources of one stream worker: its stream, its staging and its scratch. Thread-compatible.
struct WorkerMemory {
  const OwnedStream owned_stream;  // outlives what is used in it
  const DeviceMemory memory;
  const std::shared_ptr<DeferredFree> deferred;
  Staging staging;
  Arena arena;

  WorkerMemory(OwnedStream stream, int64_t max_device_bytes, const DeviceMemory& device_memory,
               std::shared_ptr<DeferredFree> the_deferred)
      : owned_stream(std::move(stream)),
        memory(device_memory),
        deferred(std::move(the_deferred)),
        arena(max_device_bytes, memory, owned_stream.get()) {}

  cudaStream_t stream() const { return owned_stream.get(); }
};

// Runs `jobs` and waits for them. Tensors lie in host memory unless a job says otherwise. After an error nothing of the
// jobs is left in the stream. `worker` is used by this call alone. `nearest` decides what kernels leave of jobs to the
// nearest value.
absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, NearestHost* nearest,
                        WorkerMemory* worker);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_JOB_LIST_H_
