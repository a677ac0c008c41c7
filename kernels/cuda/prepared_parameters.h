// Prepared parameters of the CUDA backend. At the first use the host's parameters are uploaded with the job; from the
// second use on there is a copy in device memory. So the parameters of a session get a copy, and those of a single call
// do not.
// In the path: backend.cc makes them (Backend::Prepare), job_list.cc calls Use for each job. Thread-safe.
#ifndef NORMD_KERNELS_CUDA_PREPARED_PARAMETERS_H_
#define NORMD_KERNELS_CUDA_PREPARED_PARAMETERS_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/deferred_free.h"
#include "kernels/cuda/kernels.h"
#include "kernels/parameters.h"

namespace normd::cuda {

// A copy of HostParameters in device memory: weight, bias, and both as f32. A stream worker frees the memory later.
class DeviceCopy {
 public:
  // Copies `host` to the current device, in `stream`, and waits for the copy. RESOURCE_EXHAUSTED if the device has no
  // room, else what StatusOf says.
  static absl::StatusOr<std::shared_ptr<const DeviceCopy>> Make(const HostParameters& host, const DeviceMemory& memory,
                                                                std::shared_ptr<DeferredFree> deferred,
                                                                cudaStream_t stream);
  DeviceCopy() = default;
  ~DeviceCopy();
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  const Parameters& parameters() const { return parameters_; }

 private:
  char* memory_ = nullptr;
  std::shared_ptr<DeferredFree> deferred_;
  Parameters parameters_;
};

class CudaParameters final : public PreparedParameters {
 public:
  CudaParameters(std::shared_ptr<const HostParameters> host, std::shared_ptr<DeferredFree> deferred)
      : PreparedParameters(std::move(host)), deferred_(std::move(deferred)) {}

  // Counts one more use and returns the copy on the current device; null if the job must upload the host's parameters:
  // at the first use, and while the device has no room. Other errors are those of CUDA. `stream` is that of the job.
  absl::StatusOr<std::shared_ptr<const DeviceCopy>> Use(const DeviceMemory& memory, cudaStream_t stream) const;

 private:
  const std::shared_ptr<DeferredFree> deferred_;
  mutable std::mutex mu_;
  mutable int uses_ = 0;                            // guarded by mu_
  mutable std::shared_ptr<const DeviceCopy> copy_;  // guarded by mu_
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PREPARED_PARAMETERS_H_
