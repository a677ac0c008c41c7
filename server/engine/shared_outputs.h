// Outputs that the caller wants in its own memory: the check that they overlap neither inputs nor each other.
// In the path: CheckTask. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
#define NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "server/engine/call.h"

namespace normd {

// Whether any output goes to the caller's memory.
bool HasSharedOutputs(const Call& call);

// INVALID_ARGUMENT naming "outputs[i].shared" if its size is not the output's, or if it overlaps an input or another
// shared output, or if the output is MOMENTS. y may lie exactly at x, because every kernel reads an element for the
// last time before it writes that element.
absl::Status CheckSharedOutputs(const Call& call, const NormPlan& plan);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
