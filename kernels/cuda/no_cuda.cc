#include "kernels/cuda/probe.h"

namespace normd {

std::vector<CudaDeviceInfo> ProbeCudaDevices() {
  return {{.name = "cuda", .detail = "built without the CUDA Toolkit"}};
}

}  // namespace normd
