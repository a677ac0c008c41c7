// Device memory that is no longer used and waits for a stream worker to free it. Freeing waits for the device, and
// threads that give up parameters (any thread of the server) must not wait.
// In the path: prepared_parameters.cc adds memory, job_list.cc frees it before each job list. Thread-safe.
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

  // Takes ownership of `memory`, which cudaMalloc returned. Never waits. REQUIRES: nothing uses `memory` any more.
  void Add(void* memory) {
    const std::lock_guard<std::mutex> lock(mu_);
    memory_.push_back(memory);
  }

  // Frees all memory that was added. May wait for the device.
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
