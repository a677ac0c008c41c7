// Outputs that the caller wants in its own memory: their sizes, and the check that they overlap neither inputs nor each
// other.
// In the path: CheckTask checks them, PrepareTask allocates by the sizes. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
#define NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "server/engine/call.h"

namespace normd {

// Dtype, shape and size of an output. MEAN and INV_STD have one value per statistics group; Y and H are like x.
// REQUIRES: `kind` is not MOMENTS.
DType OutputDType(const NormPlan& plan, OutputKind kind);
Shape OutputShape(const NormPlan& plan, OutputKind kind);
int64_t OutputBytes(const NormPlan& plan, OutputKind kind);

// Whether any output goes to the caller's memory.
bool HasSharedOutputs(const Call& call);

// INVALID_ARGUMENT naming "outputs[i].shared" if its size is not the output's, or if it overlaps an input or another
// shared output, or if the output is MOMENTS. y may lie exactly at x, because every kernel reads an element for the
// last time before it writes that element.
absl::Status CheckSharedOutputs(const Call& call, const NormPlan& plan);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
