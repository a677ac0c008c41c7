// Calls whose tensors lie in CUDA memory: which they are, and that one device can run them.
// In the path: one of PlanTask's checks; what it finds goes into the call's jobs. Pure functions.
#ifndef NORMD_SERVER_ENGINE_CUDA_TENSORS_H_
#define NORMD_SERVER_ENGINE_CUDA_TENSORS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "server/engine/call.h"

namespace normd {

// The device that the call's CUDA tensors are of; nothing where all are the host's. INVALID_ARGUMENT naming "device"
// where the CPU is asked for, "residual.tensor.shared" or "outputs[i].shared" for a tensor of another device than those
// before it.
absl::StatusOr<std::optional<int>> FindCudaDevice(const Call& call);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CUDA_TENSORS_H_
