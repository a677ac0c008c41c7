#include "server/engine/shared_outputs.h"

#include <algorithm>
#include <string>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

bool Overlap(const SharedBytes& a, const void* data, int64_t size_bytes) {
  if (data == nullptr) return false;  // absent, or scattered over private memory
  const auto* const begin = static_cast<const std::byte*>(data);
  return a.size_bytes > 0 && size_bytes > 0 && a.data < begin + size_bytes && begin < a.data + a.size_bytes;
}

absl::Status OverlapError(const std::string& field, std::string_view with) {
  constexpr std::string_view kLimit = "a range clear of all others; y may be exactly where x is";
  return MakeError(ServerReason("RANGES_OVERLAP"),
                   {.field = field, .value = Concat("bytes in common with ", with), .limit = std::string(kLimit)},
                   Concat("has bytes in common with ", with, "; it must be ", kLimit));
}

absl::Status CheckClearOfInputs(const Call& call, const WantedOutput& output, const std::string& field) {
  const std::pair<std::string_view, const TensorView*> inputs[] = {{"x", &call.x},
                                                                   {"residual.tensor", &call.residual},
                                                                   {"mask", &call.mask},
                                                                   {"parameters.weight", &call.parameters.weight},
                                                                   {"parameters.bias", &call.parameters.bias},
                                                                   {"parameters.running_mean", &call.running_mean},
                                                                   {"parameters.running_var", &call.running_var}};
  for (const auto& [name, view] : inputs) {
    if (!Overlap(*output.shared, view->data, view->size_bytes)) continue;
    const bool in_place = output.kind == OutputKind::kY && view == &call.x && output.shared->data == view->data &&
                          output.shared->size_bytes == view->size_bytes;
    if (!in_place) return OverlapError(field, name);
  }
  return absl::OkStatus();
}

}  // namespace

bool HasSharedOutputs(const Call& call) {
  return std::any_of(call.outputs.begin(), call.outputs.end(),
                     [](const WantedOutput& output) { return output.shared.has_value(); });
}

absl::Status CheckSharedOutputs(const Call& call, const NormPlan& plan) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const WantedOutput& output = call.outputs[i];
    if (!output.shared.has_value()) continue;
    const std::string field = Concat("outputs[", i, "].shared");
    if (!Info(output.kind).may_be_shared) {
      return NotAllowedError(field, Concat(Info(output.kind).name, " are sent back in the reply"));
    }
    const int64_t want = OutputBytes(plan, output.kind);
    if (output.shared->size_bytes != want) {
      return ByteCountError(Concat(field, ".size_bytes"), output.shared->size_bytes, want,
                            Name(OutputDType(plan, output.kind)), ShapeText(OutputShape(plan, output.kind)));
    }
    NORMD_RETURN_IF_ERROR(CheckClearOfInputs(call, output, field));
    for (size_t j = 0; j < i; ++j) {
      const std::optional<SharedBytes>& other = call.outputs[j].shared;
      if (other.has_value() && Overlap(*output.shared, other->data, other->size_bytes)) {
        return OverlapError(field, Concat("outputs[", j, "].shared"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace normd
