// Scratch memory on the device for the jobs of one stream, which take pieces and give all of them back at once. Memory
// is taken from the device when it is first needed, kept for the next jobs, and bounded.
// In the path: job_list.cc takes the tensors of a job list from it, run.cc the scratch of its jobs. Thread-compatible:
// each stream worker has its own.
#ifndef NORMD_KERNELS_CUDA_ARENA_H_
#define NORMD_KERNELS_CUDA_ARENA_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_memory.h"

namespace normd::cuda {

class Arena {
 public:
  // `stream`, which must outlive the arena, is the one in which the pieces are used.
  Arena(int64_t max_bytes, const DeviceMemory& memory, cudaStream_t stream)
      : max_bytes_(max_bytes), memory_(memory), stream_(stream) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns uninitialised device memory, aligned to 256 bytes, never null, valid until Reset. RESOURCE_EXHAUSTED beyond
  // the bound or beyond the device's memory, else what StatusOf says.
  absl::StatusOr<void*> Take(int64_t bytes);
  // Keeps host memory alive until Reset, for a copy that has been started and still reads it.
  void Keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }
  // Gives back all pieces. REQUIRES: nothing on the device uses them any more.
  void Reset();

 private:
  struct Block {
    char* data = nullptr;
    int64_t size_bytes = 0;
  };
  void Free();

  const int64_t max_bytes_;
  const DeviceMemory memory_;
  const cudaStream_t stream_;
  std::vector<Block> blocks_;  // pieces are taken from the last one
  int64_t used_ = 0;           // bytes taken from the last block
  int64_t held_ = 0;           // bytes of all blocks
  bool refused_ = false;       // a Take has failed since Reset
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_ARENA_H_
