// One job list on its way over the device: host tensors laid out and uploaded, jobs run, results downloaded.
// Between backend.cc, whose lanes take job lists one at a time, and run.h.
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
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/trash.h"

namespace normd::cuda {

// What a lane has for itself. Thread-compatible.
struct LaneMemory {
  cudaStream_t stream = nullptr;
  Staging staging;
  Arena arena;

  std::shared_ptr<DeviceTrash> trash;

  LaneMemory(int64_t max_device_bytes, std::shared_ptr<DeviceTrash> the_trash)
      : arena(max_device_bytes), trash(std::move(the_trash)) {}
  ~LaneMemory() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  LaneMemory(const LaneMemory&) = delete;
  LaneMemory& operator=(const LaneMemory&) = delete;
};

// Runs `jobs` from tensors to tensors, in host memory but for those that say otherwise, and waits for them. After an
// error nothing of theirs is left in the stream.
absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, LaneMemory* lane);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_JOB_LIST_H_
