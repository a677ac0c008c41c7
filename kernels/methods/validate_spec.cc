// ValidateSpec: the checks of a spec that hold for every tensor.
#include <cmath>

#include "kernels/methods/common.h"

namespace normd {
namespace {

using methods::CheckEnum;
using methods::SpecPath;

// Checks the attributes that every method has, or every method with parameters.
absl::Status CheckCommon(const NormSpec& spec) {
  if (spec.eps.has_value() && !(std::isfinite(*spec.eps) && *spec.eps >= 0)) {
    return EpsError(SpecPath(spec, "eps"), *spec.eps);
  }
  if (spec.eps_mode.has_value()) {
    absl::Status status = CheckEnum(spec, "eps_mode", *spec.eps_mode, EpsMode::kClampRoot,
                                    "EPS_MODE_INSIDE_SQRT, EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT");
    if (!status.ok()) return status;
  }
  if (!TraitsOf(spec.method()).takes_parameters) return absl::OkStatus();  // the fields below are ignored
  if (spec.weight_offset != 0 && spec.weight_offset != 1) {
    return OutOfRangeError(SpecPath(spec, "weight_offset"), NumberText(spec.weight_offset), "0 or 1",
                           KernelReason("WEIGHT_OFFSET_OUT_OF_RANGE"));
  }
  return CheckEnum(spec, "cast_order", spec.cast_order, CastOrder::kCastThenAffine,
                   "CAST_ORDER_AFFINE_THEN_CAST or CAST_ORDER_CAST_THEN_AFFINE");
}

}  // namespace

absl::Status ValidateSpec(const NormSpec& spec) {
  if (absl::Status status = CheckCommon(spec); !status.ok()) return status;
  return DefinitionOf(spec.method()).validate(spec);
}

}  // namespace normd
