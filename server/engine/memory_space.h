// Finds the device memory that tensors of a call lie in, and checks that it is one device's and that the call allows
// it.
// In the path: one of CheckTask's checks; CheckTask chooses the device by the result. Pure functions, safe from any
// thread.
#ifndef NORMD_SERVER_ENGINE_MEMORY_SPACE_H_
#define NORMD_SERVER_ENGINE_MEMORY_SPACE_H_

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "server/engine/call.h"

namespace normd {

// The space of the tensors that do not lie in host memory, or the host's if all do. INVALID_ARGUMENT naming "device" if
// the call asks for the CPU and a tensor lies in device memory, "residual.tensor.shared" or "outputs[i].shared" if that
// tensor lies in another device's memory than the tensors before it.
absl::StatusOr<MemorySpace> FindMemorySpace(const Call& call);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_MEMORY_SPACE_H_
