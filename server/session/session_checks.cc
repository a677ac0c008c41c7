#include "server/session/session_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/base/hidden_text.h"
#include "server/session/running_state.h"

namespace normd {

namespace {

constexpr size_t kMaxIdBytes = 63;
constexpr size_t kMaxClientIdBytes = 128;
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxLabelBytes = 63;

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsInner(char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-'; }

bool HasIdForm(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && IsLetterOrDigit(id.front()) && IsLetterOrDigit(id.back()) &&
         std::all_of(id.begin(), id.end(), IsInner);
}

}  // namespace

absl::Status ValidateSessionId(std::string_view id) {
  // Only the beginning of the id is shown, because it is the caller's text.
  const std::string shown(id.substr(0, kMaxIdBytes + 1));
  if (!HasIdForm(id)) {
    return FormError("session_id", shown, "[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", ServerReason("SESSION_ID_FORM"));
  }
  for (const MethodDefinition* method : AllMethods()) {
    if (method->info.name == id)
      return OutOfRangeError("session_id", shown, "another word than a method's name",
                             ServerReason("SESSION_ID_RESERVED"));
  }
  return absl::OkStatus();
}

absl::Status ValidateStepId(const StepId& step) {
  NORMD_RETURN_IF_ERROR(CheckStepIdSize(step));
  if (HidesText(step.client_id)) {
    return FormError("step.client_id", absl::CHexEscape(step.client_id),
                     "no control characters and none that turn the direction of text", ServerReason("CLIENT_ID_FORM"));
  }
  return absl::OkStatus();
}

absl::Status CheckStepIdSize(const StepId& step) {
  if (step.client_id.empty() || step.client_id.size() > kMaxClientIdBytes) {
    return AmountError("step.client_id", absl::StrCat(step.client_id.size(), " bytes"), "1 to 128 bytes",
                       ServerReason("CLIENT_ID_LENGTH"));
  }
  if (step.sequence == 0)
    return OutOfRangeError("step.sequence", "0", "at least 1", ServerReason("SEQUENCE_OUT_OF_RANGE"));
  return absl::OkStatus();
}

absl::Status ValidateState(const NormSpec& spec, int64_t channels, const RunningState& state) {
  const bool has_phi = spec.HasState() && TraitsOf(spec.method()).state == StateKind::kQuadraticMean;
  const bool has_mean = spec.HasState() && !has_phi;
  const bool nan = spec.accepts_non_finite();
  const RunningRule variance = {.negative = false, .nan = nan};
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.mean, has_mean ? channels : 0, {.nan = nan}, "state.mean"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.var, has_mean ? channels : 0, variance, "state.var"));
  return CheckRunningValues(state.phi, has_phi ? channels : 0, variance, "state.phi");
}

bool IsLabelText(std::string_view text) {
  return text.size() <= kMaxLabelBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsInner(c) || (c >= 'A' && c <= 'Z') || c == '/'; });
}

absl::Status ValidateLabels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels) {
    return AmountError("labels", absl::StrCat(labels.size(), " labels"), absl::StrCat("at most ", kMaxLabels),
                       ServerReason("TOO_MANY_LABELS"));
  }
  constexpr std::string_view kForm = "1 to 63 (value: 0 to 63) characters of A-Z a-z 0-9 . _ - /";
  for (const auto& [key, value] : labels) {
    if (key.empty() || !IsLabelText(key)) return FormError("labels", key, kForm, ServerReason("LABEL_FORM"));
    if (!IsLabelText(value)) return FormError("labels." + key, value, kForm, ServerReason("LABEL_FORM"));
  }
  return absl::OkStatus();
}

absl::Status CheckSessionSize(const OwnedParameters& parameters, int64_t channels, const SessionLimits& limits) {
  int64_t bytes = 0;
  for (const std::optional<OwnedTensor>* tensor : {&parameters.weight, &parameters.bias}) {
    if (tensor->has_value()) bytes += static_cast<int64_t>((*tensor)->bytes.size());
  }
  if (bytes > limits.max_parameter_bytes)
    return LimitExceededError("parameters", bytes, limits.max_parameter_bytes,
                              {.unit = "bytes", .option = "--max_parameter_bytes"});
  // Two f64 vectors with one value per channel count as parameters do, so that a huge C cannot allocate.
  const int64_t max_channels = limits.max_parameter_bytes / (2 * SizeOf(DType::kF64));
  if (channels > max_channels)
    return LimitExceededError("num_channels", channels, max_channels, {.option = "--max_parameter_bytes"});
  return absl::OkStatus();
}

}  // namespace normd
