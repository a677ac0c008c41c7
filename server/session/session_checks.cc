#include "server/session/session_checks.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/base/hidden_text.h"
#include "server/session/running_state.h"
#include "server/session/sample_statistics.h"
#include "server/session/session_changes.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

constexpr size_t kMaxIdBytes = 63;
constexpr size_t kMaxClientIdBytes = 128;
constexpr size_t kMaxChannelNameBytes = 255;
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

absl::Status CheckCounter(uint64_t value, std::string_view field) {
  if (value <= INT64_MAX) return absl::OkStatus();
  return OutOfRangeError(field, absl::StrCat(value), absl::StrCat("at most ", INT64_MAX),
                         ServerReason("COUNTER_OUT_OF_RANGE"));
}

absl::Status ValidateState(const NormSpec& spec, int64_t channels, const RunningState& state) {
  const bool has_phi = spec.HasState() && TraitsOf(spec.method()).state == StateKind::kQuadraticMean;
  const bool has_mean = spec.HasState() && !has_phi;
  const bool has_count = has_mean && spec.running().CountsSamples();
  const bool nan = spec.accepts_non_finite();
  const RunningRule variance = {.negative = false, .nan = nan};
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.mean, has_mean ? channels : 0, {.nan = nan}, "state.mean"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.var, has_mean ? channels : 0, variance, "state.var"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.phi, has_phi ? channels : 0, variance, "state.phi"));
  const int64_t counted = has_count ? channels : 0;
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.count, counted, {.negative = false}, "state.count"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.m2, counted, {.negative = false}, "state.m2"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.min, counted, {.nan = true}, "state.min"));
  NORMD_RETURN_IF_ERROR(CheckRunningValues(state.max, counted, {.nan = true}, "state.max"));
  return CheckLowValues(state, counted);
}

absl::Status ValidateChannelNames(const std::vector<std::string>& names, int64_t channels) {
  const auto count = static_cast<int64_t>(names.size());
  if (count == 0) return absl::OkStatus();
  if (count != channels) return ParameterLengthError("channel_names", count, channels);
  std::unordered_set<std::string_view> known;
  for (size_t c = 0; c < names.size(); ++c) {
    const std::string& name = names[c];
    const std::string field = absl::StrCat("channel_names[", c, "]");
    if (name.empty() || name.size() > kMaxChannelNameBytes) {
      return AmountError(field, absl::StrCat(name.size(), " bytes"), "1 to 255 bytes",
                         ServerReason("CHANNEL_NAME_FORM"));
    }
    if (!known.insert(name).second) return FormError(field, name, "each name once", ServerReason("CHANNEL_NAME_FORM"));
  }
  return absl::OkStatus();
}

absl::Status CheckNotFrozen(const Session& session) {
  if (!session.frozen) return absl::OkStatus();
  const std::string id(IdOf(session.id));
  return MakeError(ServerReason("SESSION_FROZEN"), {.field = "session", .value = id, .limit = "a session that is not"},
                   absl::StrCat(id, " is frozen, for good: it can be read, forked and deleted"));
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

absl::Status CheckSessionSize(const Session& session, const OwnedParameters& parameters, const SessionLimits& limits) {
  const int64_t bytes = ParameterBytes(parameters);
  if (bytes > limits.max_parameter_bytes)
    return LimitExceededError("parameters", bytes, limits.max_parameter_bytes,
                              {.unit = "bytes", .option = "--max_parameter_bytes"});
  const int64_t names = ChannelNameBytes(session);
  if (names > limits.max_parameter_bytes)
    return LimitExceededError("channel_names", names, limits.max_parameter_bytes,
                              {.unit = "bytes", .option = "--max_parameter_bytes"});
  // Vectors with one f64 per channel count as parameters do, so that a huge C cannot allocate: two of them also for a
  // method without state, whose parameters have that length.
  const int64_t vectors = std::max(2, StateVectorsOf(session.spec));
  const int64_t max_channels = limits.max_parameter_bytes / (vectors * SizeOf(DType::kF64));
  if (session.num_channels > max_channels)
    return LimitExceededError("num_channels", session.num_channels, max_channels, {.option = "--max_parameter_bytes"});
  return absl::OkStatus();
}

}  // namespace normd
