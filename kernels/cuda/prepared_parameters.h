// Prepared parameters of the CUDA backend: the host's, which travel with the first job that uses them, and from the
// second use on a copy in device memory, which a session's parameters get and those of a single call do not.
// In the path: made by backend.cc, asked by job_list.cc for each job. Thread-safe.
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

// Weight, bias, and both as f32 in device memory, one behind the other. Freed by a worker.
class DeviceCopy {
 public:
  static absl::StatusOr<std::shared_ptr<const DeviceCopy>> Make(const HostParameters& host,
                                                                std::shared_ptr<DeferredFree> deferred);
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

  // The copy for one more use, on the current device; null where the host's go along with the job: at the first use,
  // and where the device has no room. Other errors are those of CUDA.
  absl::StatusOr<std::shared_ptr<const DeviceCopy>> Use() const;

 private:
  const std::shared_ptr<DeferredFree> deferred_;
  mutable std::mutex mu_;
  mutable int uses_ = 0;                            // guarded by mu_
  mutable std::shared_ptr<const DeviceCopy> copy_;  // guarded by mu_
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PREPARED_PARAMETERS_H_
