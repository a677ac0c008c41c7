#include "kernels/cuda/status.h"

#include "absl/strings/str_cat.h"

namespace normd::cuda {

std::string ErrorText(cudaError_t error, std::string_view what) {
  cudaGetLastError();
  return absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

absl::Status StatusOf(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = ErrorText(error, what);
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  // A launch that was refused leaves the device as it was; a failed one does not.
  const cudaError_t device = cudaDeviceSynchronize();
  if (device == cudaSuccess) return absl::InternalError(text);
  cudaGetLastError();
  return absl::UnavailableError(absl::StrCat("the CUDA device is lost: ", text));
}

}  // namespace normd::cuda
