#include "kernels/cuda/probe.h"

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace normd {
namespace {

// "CUDA driver 12.4" for the driver's 12040, or "no CUDA driver".
std::string DriverVersion() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return "no CUDA driver";
  return absl::StrCat("CUDA driver ", version / 1000, ".", version % 1000 / 10);
}

CudaDeviceInfo Describe(int device) {
  CudaDeviceInfo info{.name = absl::StrCat("cuda:", device)};
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {
    info.detail = absl::StrCat(cudaGetErrorString(error), " (", DriverVersion(), ")");
    return info;
  }
  info.detail =
      absl::StrFormat("%s, compute capability %d.%d, %.1f GiB, %s", properties.name, properties.major, properties.minor,
                      static_cast<double>(properties.totalGlobalMem) / (1024.0 * 1024.0 * 1024.0), DriverVersion());
  return info;
}

}  // namespace

std::vector<CudaDeviceInfo> ProbeCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return {{.name = "cuda", .detail = DriverVersion()}};
  }
  std::vector<CudaDeviceInfo> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) devices.push_back(Describe(device));
  return devices;
}

}  // namespace normd
