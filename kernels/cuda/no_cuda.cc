#include "kernels/cuda/backend.h"
#include "kernels/cuda/ipc.h"
#include "kernels/cuda/probe.h"

namespace normd {

std::vector<CudaDeviceInfo> ProbeCudaDevices() { return {{.name = "cuda", .detail = "built without CUDA kernels"}}; }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& /*options*/) {
  return absl::UnavailableError("built without CUDA kernels");
}

absl::StatusOr<CudaIpcMemory> OpenCudaIpc(std::string_view /*handle*/, int /*device*/) {
  return absl::FailedPreconditionError("built without CUDA kernels");
}

absl::Status CloseCudaIpc(void* /*data*/, int /*device*/) {
  return absl::FailedPreconditionError("built without CUDA kernels");
}

absl::StatusOr<void*> OpenCudaIpcEvent(std::string_view /*handle*/, int /*device*/) {
  return absl::FailedPreconditionError("built without CUDA kernels");
}

absl::StatusOr<bool> IsCudaIpcEventCompleted(void* /*event*/, int /*device*/) {
  return absl::FailedPreconditionError("built without CUDA kernels");
}

absl::Status CloseCudaIpcEvent(void* /*event*/, int /*device*/) {
  return absl::FailedPreconditionError("built without CUDA kernels");
}

}  // namespace normd
