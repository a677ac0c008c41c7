#include "server/engine/cuda_tensors.h"

#include <string>

#include "kernels/errors.h"
#include "kernels/text.h"
#include "server/base/status_macros.h"

namespace normd {
namespace {

// Takes a tensor's device for the call's.
absl::Status Meet(std::optional<int> device, const std::string& field, std::optional<int>* all) {
  if (!device.has_value()) return absl::OkStatus();
  if (!all->has_value()) *all = device;
  if (*all == device) return absl::OkStatus();
  return OutOfRangeError(field, Concat("memory of CUDA device ", *device),
                         Concat("memory of device ", **all, ", as the request's other CUDA memory"),
                         "DIFFERENT_CUDA_DEVICES");
}

}  // namespace

absl::StatusOr<std::optional<int>> FindCudaDevice(const Call& call) {
  std::optional<int> device = call.x.cuda_device;
  NORMD_RETURN_IF_ERROR(Meet(call.residual.cuda_device, "residual.tensor.shared", &device));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const std::optional<SharedBytes>& shared = call.outputs[i].shared;
    if (shared.has_value())
      NORMD_RETURN_IF_ERROR(Meet(shared->cuda_device, Concat("outputs[", i, "].shared"), &device));
  }
  if (device.has_value() && call.device == Device::kCpu) {
    return OutOfRangeError("device", "DEVICE_CPU", "DEVICE_AUTO or DEVICE_CUDA: tensors lie in CUDA memory",
                           "IN_CUDA_MEMORY");
  }
  return device;
}

}  // namespace normd
