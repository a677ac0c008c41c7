// Calls whose tensors lie in a device's memory: that it is one device's, and one that the caller allows.
// In the path: one of PlanTask's checks; what it finds goes into the call's jobs. Pure functions.
#ifndef NORMD_SERVER_ENGINE_MEMORY_SPACE_H_
#define NORMD_SERVER_ENGINE_MEMORY_SPACE_H_

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "server/engine/call.h"

namespace normd {

// The memory that the call's tensors lie in besides the host's; the host's where all do. INVALID_ARGUMENT naming
// "device" where the CPU is asked for, "residual.tensor.shared" or "outputs[i].shared" for a tensor in another device's
// memory than those before it.
absl::StatusOr<MemorySpace> FindMemorySpace(const Call& call);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_MEMORY_SPACE_H_
