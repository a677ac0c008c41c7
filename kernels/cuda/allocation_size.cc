#include "kernels/cuda/allocation_size.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace normd {
namespace {

using GetAddressRange = decltype(&cuMemGetAddressRange);

// The CUDA version whose form of the function <cuda.h> declares.
constexpr unsigned kFormVersion = 3020;

absl::StatusOr<GetAddressRange> FindGetAddressRange() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, kFormVersion, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) return reinterpret_cast<GetAddressRange>(found);
  cudaGetLastError();  // else the next kernel launch would report this error
  return absl::UnavailableError(absl::StrCat("cuMemGetAddressRange: ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<int64_t> CudaBytesFrom(const void* data) {
  const absl::StatusOr<GetAddressRange> get_address_range = FindGetAddressRange();
  if (!get_address_range.ok()) return get_address_range.status();
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUdeviceptr base = 0;
  size_t size_bytes = 0;
  const CUresult result = (*get_address_range)(&base, &size_bytes, address);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("cuMemGetAddressRange: CUDA driver error ", static_cast<int>(result)));
  }
  return static_cast<int64_t>(size_bytes - (address - base));
}

}  // namespace normd
