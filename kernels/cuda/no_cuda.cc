// What a build without the CUDA Toolkit says of GPUs.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/probe.h"

namespace normd {
namespace {

constexpr char kWhy[] = "built without the CUDA Toolkit";

}  // namespace

std::vector<CudaDeviceInfo> ProbeCudaDevices() { return {{.name = "cuda", .detail = kWhy}}; }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& /*options*/,
                                                         const Backend* /*host*/) {
  return absl::UnavailableError(kWhy);
}

}  // namespace normd
