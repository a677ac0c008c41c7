// Device memory that is no longer used and waits for a stream worker to give it back: threads that give up parameters
// (any thread of the server) have no stream, and another device may be current there.
// In the path: prepared_parameters.cc adds memory, job_list.cc frees it before each job list. Thread-safe.
#ifndef NORMD_KERNELS_CUDA_DEFERRED_FREE_H_
#define NORMD_KERNELS_CUDA_DEFERRED_FREE_H_

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/device_memory.h"

namespace normd::cuda {

class DeferredFree {
 public:
  explicit DeferredFree(const DeviceMemory& device) : device_(device) {}
  ~DeferredFree() { Empty(nullptr); }
  DeferredFree(const DeferredFree&) = delete;
  DeferredFree& operator=(const DeferredFree&) = delete;

  // Takes ownership of `memory`, which `device` of the constructor gave. Never waits. REQUIRES: nothing uses `memory`
  // any more.
  void Add(void* memory) {
    const std::lock_guard<std::mutex> lock(mu_);
    memory_.push_back(memory);
  }

  // Gives all memory that was added back to the device.
  void Empty(cudaStream_t stream) {
    std::vector<void*> memory;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      memory.swap(memory_);
    }
    for (void* one : memory) device_.GiveBack(one, stream);
  }

 private:
  const DeviceMemory device_;
  std::mutex mu_;
  std::vector<void*> memory_;  // guarded by mu_
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_DEFERRED_FREE_H_
