#include "server/engine/memory_space.h"

#include <optional>
#include <string>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

// Adds the memory space of one tensor to that of the call.
absl::Status Meet(const MemorySpace& space, const std::string& field, MemorySpace* all) {
  if (space.is_host()) return absl::OkStatus();
  if (all->is_host()) *all = space;
  if (*all == space) return absl::OkStatus();
  return OutOfRangeError(field, Concat("memory of CUDA device ", space.index),
                         Concat("memory of device ", all->index, ", as the request's other CUDA memory"),
                         ServerReason("DIFFERENT_CUDA_DEVICES"));
}

}  // namespace

absl::StatusOr<MemorySpace> FindMemorySpace(const Call& call) {
  MemorySpace space = call.x.space;
  NORMD_RETURN_IF_ERROR(Meet(call.residual.space, "residual.tensor.shared", &space));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const std::optional<SharedBytes>& shared = call.outputs[i].shared;
    if (shared.has_value()) NORMD_RETURN_IF_ERROR(Meet(shared->space, Concat("outputs[", i, "].shared"), &space));
  }
  if (!space.is_host() && call.device == Device::kCpu) {
    return OutOfRangeError("device", "DEVICE_CPU", "DEVICE_AUTO or DEVICE_CUDA, because tensors lie in CUDA memory",
                           ServerReason("IN_CUDA_MEMORY"));
  }
  return space;
}

}  // namespace normd
