#include "kernels/cuda/prepared_parameters.h"

#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

template <typename Real>
int64_t Bytes(const std::vector<Real>& values) {
  return static_cast<int64_t>(values.size() * sizeof(Real));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DeviceCopy>> DeviceCopy::Make(const HostParameters& host,
                                                                   const DeviceMemory& device_memory,
                                                                   std::shared_ptr<DeferredFree> deferred,
                                                                   cudaStream_t stream) {
  auto made = std::make_shared<DeviceCopy>();
  const int64_t weight_bytes = Bytes(host.weight);
  const int64_t bias_bytes = Bytes(host.bias);
  const int64_t bytes = weight_bytes + bias_bytes + Bytes(host.weight32) + Bytes(host.bias32);
  const absl::StatusOr<void*> memory = device_memory.Take(bytes, stream);
  if (!memory.ok()) return memory.status();
  made->memory_ = static_cast<char*>(*memory);
  made->deferred_ = std::move(deferred);
  char* at = made->memory_;
  const auto put = [&](const auto& values, const auto** pointer) {
    if (values.empty()) return cudaSuccess;
    const auto size = static_cast<size_t>(Bytes(values));
    const cudaError_t error = cudaMemcpyAsync(at, values.data(), size, cudaMemcpyHostToDevice, stream);
    *pointer = reinterpret_cast<std::remove_reference_t<decltype(*pointer)>>(at);
    at += size;
    return error;
  };
  NORMD_CUDA_RETURN_STATUS(put(host.weight, &made->parameters_.weight), "cudaMemcpyAsync of parameters");
  NORMD_CUDA_RETURN_STATUS(put(host.bias, &made->parameters_.bias), "cudaMemcpyAsync of parameters");
  NORMD_CUDA_RETURN_STATUS(put(host.weight32, &made->parameters_.weight32), "cudaMemcpyAsync of parameters");
  NORMD_CUDA_RETURN_STATUS(put(host.bias32, &made->parameters_.bias32), "cudaMemcpyAsync of parameters");
  // Jobs of other streams may be the next to read the copy, and they do not wait for this stream.
  NORMD_CUDA_RETURN_STATUS(cudaStreamSynchronize(stream), "cudaMemcpyAsync of parameters");
  made->parameters_.fit_f32 = host.fit_f32;
  made->parameters_.equal_f32 = host.equal_f32;
  return made;
}

// Any thread may give the parameters up.
DeviceCopy::~DeviceCopy() {
  if (memory_ != nullptr) deferred_->Add(memory_);
}

absl::StatusOr<std::shared_ptr<const DeviceCopy>> CudaParameters::Use(const DeviceMemory& memory,
                                                                      cudaStream_t stream) const {
  const std::lock_guard<std::mutex> lock(mu_);
  const bool is_empty = host().weight.empty() && host().bias.empty();
  if (copy_ != nullptr || ++uses_ < 2 || is_empty) return copy_;
  absl::StatusOr<std::shared_ptr<const DeviceCopy>> made = DeviceCopy::Make(host(), memory, deferred_, stream);
  if (made.ok()) {
    copy_ = *std::move(made);
  } else if (!absl::IsResourceExhausted(made.status())) {
    return made.status();
  }  // else this job takes them along, and the next one tries again
  return copy_;
}

}  // namespace normd::cuda
