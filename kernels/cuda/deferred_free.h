// Device memory that is done with, until a worker frees it: freeing waits for the device, and whoever gives parameters
// up must not. Thread-safe.
#ifndef NORMD_KERNELS_CUDA_DEFERRED_FREE_H_
#define NORMD_KERNELS_CUDA_DEFERRED_FREE_H_

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

namespace normd::cuda {

class DeferredFree {
 public:
  DeferredFree() = default;
  ~DeferredFree() { Empty(); }
  DeferredFree(const DeferredFree&) = delete;
  DeferredFree& operator=(const DeferredFree&) = delete;

  // Never waits. REQUIRES: nothing uses `memory`, which cudaMalloc gave.
  void Add(void* memory) {
    const std::lock_guard<std::mutex> lock(mu_);
    memory_.push_back(memory);
  }

  void Empty() {
    std::vector<void*> memory;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      memory.swap(memory_);
    }
    for (void* one : memory) cudaFree(one);
  }

 private:
  std::mutex mu_;
  std::vector<void*> memory_;  // guarded by mu_
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_DEFERRED_FREE_H_
