#include "kernels/cuda/backend.h"
#include "kernels/cuda/probe.h"

namespace normd {

std::vector<CudaDeviceInfo> ProbeCudaDevices() {
  return {{.name = "cuda", .detail = "built without the CUDA Toolkit"}};
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& /*options*/,
                                                         const Backend* /*host*/) {
  return absl::UnavailableError("built without the CUDA Toolkit");
}

}  // namespace normd
