#include "kernels/cuda/backend.h"

namespace normd {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& /*options*/,
                                                         const Backend* /*host*/) {
  return absl::UnavailableError("kernels for CUDA are not part of this build");
}

}  // namespace normd
