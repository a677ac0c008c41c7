// Outputs that the caller wants in its own memory: their sizes, and that they are clear of what is read.
// In the path: one of PlanTask's checks. Pure functions.
#ifndef NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
#define NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "server/engine/call.h"

namespace normd {

// MEAN and INV_STD have a value a statistics group, Y and H are like x. Not for MOMENTS.
DType OutputDType(const NormPlan& plan, OutputKind kind);
Shape OutputShape(const NormPlan& plan, OutputKind kind);
int64_t OutputBytes(const NormPlan& plan, OutputKind kind);

// Whether some output goes to the caller's memory.
bool HasSharedOutputs(const Call& call);

// INVALID_ARGUMENT naming "outputs[i].shared": not the output's size, or bytes in common with another range. y may be
// exactly where x is: every kernel reads an element for the last time before it writes it.
absl::Status CheckSharedOutputs(const Call& call, const NormPlan& plan);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_SHARED_OUTPUTS_H_
