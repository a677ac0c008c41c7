#include "kernels/backend.h"

#include <algorithm>

#include "kernels/errors.h"
#include "kernels/methods.h"
#include "kernels/text.h"

namespace normd {

namespace {

constexpr std::string_view kWeight = "parameters.weight";
constexpr std::string_view kBias = "parameters.bias";

absl::Status TakesNone(const NormPlan& plan, std::string_view field) {
  return NotAllowedError(field, Concat(Info(plan.method).name, " takes no parameters"));
}

absl::Status CheckView(const NormPlan& plan, const TensorView& view, std::string_view field) {
  if (!view.present()) return absl::OkStatus();
  if (!TraitsOf(plan.method).takes_parameters) return TakesNone(plan, field);
  const absl::StatusOr<int64_t> count = CheckedElementCount(view.shape, field);
  if (!count.ok()) return count.status();
  if (*count != plan.parameter_length) return ParameterLengthError(field, *count, plan.parameter_length);
  if (view.shape.size() == 1 || view.shape == plan.parameter_shape) return absl::OkStatus();
  const Shape flat = {plan.parameter_length};
  std::string want = ShapeText(flat);
  if (plan.parameter_shape != flat) want += Concat(" or ", ShapeText(plan.parameter_shape));
  return ShapeMismatchError(Concat(field, ".shape"), ShapeText(view.shape), want);
}

absl::Status CheckLength(const NormPlan& plan, const std::vector<double>& values, std::string_view field) {
  if (values.empty()) return absl::OkStatus();
  if (!TraitsOf(plan.method).takes_parameters) return TakesNone(plan, field);
  const int64_t length = static_cast<int64_t>(values.size());
  if (length != plan.parameter_length) return ParameterLengthError(field, length, plan.parameter_length);
  return absl::OkStatus();
}

}  // namespace

CountedPositions CountPositions(const NormPlan& plan, const uint8_t* mask) {
  if (mask == nullptr) return {.counted = plan.SetSize()};
  // Masks exist where channels are kept: a position is one element of each set.
  const int64_t positions = plan.reduce0 * plan.reduce1;
  const uint8_t* const end = mask + positions;
  const uint8_t* const first = std::find_if(mask, end, [](uint8_t m) { return m != 0; });
  return {.counted = positions - std::count(mask, end, 0), .first = first == end ? 0 : first - mask};
}

absl::StatusOr<Executed> Backend::Choose(const NormPlan& plan, Device device) const {
  if (device == Device::kCuda) return DeviceNotAvailableError("this server has no CUDA backend");
  return Executed{.device = Device::kCpu, .kernel = KernelName(plan)};
}

absl::Status CheckParameters(const NormPlan& plan, const ParameterViews& parameters) {
  if (absl::Status status = CheckView(plan, parameters.weight, kWeight); !status.ok()) return status;
  return CheckView(plan, parameters.bias, kBias);
}

absl::Status CheckLayer(const NormPlan& plan, const Layer& layer) {
  if (absl::Status status = CheckLength(plan, layer.weight, kWeight); !status.ok()) return status;
  return CheckLength(plan, layer.bias, kBias);
}

}  // namespace normd
