// The dtype, shape and size of each kind of output of a plan. Pure functions.
#ifndef NORMD_KERNELS_OUTPUTS_H_
#define NORMD_KERNELS_OUTPUTS_H_

#include <cstdint>

#include "kernels/base/types.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "proto/catalogue/outputs.h"

namespace normd {

// Outputs that are not like x have one value for each statistics group. REQUIRES: `kind` is not MOMENTS, which are a
// structure of their own.
inline DType OutputDType(const NormPlan& plan, OutputKind kind) {
  return Info(kind).is_like_x ? plan.dtype : plan.StatisticsDType();
}
inline const Shape& OutputShape(const NormPlan& plan, OutputKind kind) {
  return Info(kind).is_like_x ? plan.shape : plan.statistics_shape;
}
inline int64_t OutputBytes(const NormPlan& plan, OutputKind kind) {
  return (Info(kind).is_like_x ? plan.elements : plan.StatisticsGroups()) * SizeOf(OutputDType(plan, kind));
}

}  // namespace normd

#endif  // NORMD_KERNELS_OUTPUTS_H_
