// Device memory that one stream's jobs take and give back all at once: allocated when it is first needed, kept for the
// next job, bounded. Thread-compatible: one worker of the backend's.
#ifndef NORMD_KERNELS_CUDA_ARENA_H_
#define NORMD_KERNELS_CUDA_ARENA_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd::cuda {

class Arena {
 public:
  explicit Arena(int64_t max_bytes) : max_bytes_(max_bytes) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialised, aligned to 256 bytes; never null. RESOURCE_EXHAUSTED over the bound or what the device has, else
  // what StatusOf says.
  absl::StatusOr<void*> Take(int64_t bytes);
  // Keeps host memory until Reset: what a copy that was started still reads.
  void Keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }
  // REQUIRES: nothing uses what was taken any more.
  void Reset();

 private:
  struct Block {
    char* data = nullptr;
    int64_t size_bytes = 0;
  };
  void Free();

  const int64_t max_bytes_;
  std::vector<Block> blocks_;  // the last one is taken from
  int64_t used_ = 0;           // of the last one
  int64_t held_ = 0;           // bytes of all
  bool refused_ = false;       // since Reset
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_ARENA_H_
