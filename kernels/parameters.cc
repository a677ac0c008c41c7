#include "kernels/parameters.h"

#include <string>
#include <string_view>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"

namespace normd {

namespace {

absl::Status CheckView(const NormPlan& plan, const TensorView& view, std::string_view field) {
  if (!view.present()) return absl::OkStatus();
  if (!TraitsOf(plan.method).takes_parameters) {
    return NotAllowedError(field, Concat(Info(plan.method).name, " takes no parameters"));
  }
  const absl::StatusOr<int64_t> count = CheckedElementCount(view.shape, field);
  if (!count.ok()) return count.status();
  if (*count != plan.parameter_length) return ParameterLengthError(field, *count, plan.parameter_length);
  if (view.shape.size() == 1 || view.shape == plan.parameter_shape) return absl::OkStatus();
  const Shape flat = {plan.parameter_length};
  std::string want = ShapeText(flat);
  if (plan.parameter_shape != flat) want += Concat(" or ", ShapeText(plan.parameter_shape));
  return ShapeMismatchError(Concat(field, ".shape"), ShapeText(view.shape), want);
}

}  // namespace

absl::Status CheckParameters(const NormPlan& plan, const ParameterViews& parameters) {
  if (absl::Status status = CheckView(plan, parameters.weight, "parameters.weight"); !status.ok()) return status;
  return CheckView(plan, parameters.bias, "parameters.bias");
}

}  // namespace normd
