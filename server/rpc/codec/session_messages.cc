#include "server/rpc/codec/session_messages.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/rpc/codec/decode_tensor.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/session_name.h"
#include "server/session/record/spec_messages.h"
#include "server/session/session_checks.h"

namespace normd::rpc {
namespace {

constexpr size_t kMaxFilterTerms = 64;  // the most labels that a session has

absl::StatusOr<Labels> DecodeLabels(const v1::Session& message) {
  Labels labels(message.labels().begin(), message.labels().end());
  NORMD_RETURN_IF_ERROR(ValidateLabels(labels));
  return labels;
}

absl::StatusOr<std::optional<absl::Duration>> DecodeTtl(const v1::Session& message) {
  if (!message.has_ttl()) return std::nullopt;
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // the range of google.protobuf.Duration
  const google::protobuf::Duration& ttl = message.ttl();
  const absl::Duration duration = absl::Seconds(ttl.seconds()) + absl::Nanoseconds(ttl.nanos());
  if (duration <= absl::ZeroDuration() || ttl.seconds() > kMaxSeconds) {
    return OutOfRangeError("ttl", absl::FormatDuration(duration), "above 0, at most 10000 years",
                           ServerReason("TTL_OUT_OF_RANGE"));
  }
  return duration;
}

absl::StatusOr<std::optional<OwnedTensor>> DecodeOwned(bool has, const v1::Tensor& tensor, std::string_view field) {
  if (!has) return std::nullopt;
  NORMD_ASSIGN_OR_RETURN(const TensorView view, DecodeTensor(tensor, field));
  return OwnedTensor{view.dtype, view.shape, tensor.data()};
}

absl::StatusOr<OwnedParameters> DecodeOwnedParameters(const v1::Session& message) {
  const v1::Parameters& p = message.parameters();
  if (p.has_running_mean()) return NotAllowedError("parameters.running_mean", "a session keeps it in state.mean");
  if (p.has_running_var()) return NotAllowedError("parameters.running_var", "a session keeps it in state.var");
  OwnedParameters parameters;
  NORMD_ASSIGN_OR_RETURN(parameters.weight, DecodeOwned(p.has_weight(), p.weight(), "parameters.weight"));
  NORMD_ASSIGN_OR_RETURN(parameters.bias, DecodeOwned(p.has_bias(), p.bias(), "parameters.bias"));
  return parameters;
}

absl::StatusOr<RunningState> DecodeState(const v1::Session& message) {
  const v1::RunningState& s = message.state();
  RunningState state;
  state.num_batches = s.num_batches();
  if (s.has_mean()) {
    NORMD_ASSIGN_OR_RETURN(state.mean, DecodeF64(s.mean(), "state.mean"));
  }
  if (s.has_var()) {
    NORMD_ASSIGN_OR_RETURN(state.var, DecodeF64(s.var(), "state.var"));
  }
  if (s.has_phi()) {
    NORMD_ASSIGN_OR_RETURN(state.phi, DecodeF64(s.phi(), "state.phi"));
  }
  return state;
}

void SetTimestamp(absl::Time time, google::protobuf::Timestamp* message) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  message->set_seconds(seconds);
  message->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

void SetTensor(const OwnedTensor& tensor, v1::Tensor* message) {
  message->set_dtype(static_cast<v1::DType>(tensor.dtype));
  message->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  message->set_data(tensor.bytes);
}

void SetTensors(const Session& session, v1::Session* message) {
  v1::Parameters* const parameters = message->mutable_parameters();
  if (session.parameters->weight.has_value()) SetTensor(*session.parameters->weight, parameters->mutable_weight());
  if (session.parameters->bias.has_value()) SetTensor(*session.parameters->bias, parameters->mutable_bias());
  if (!session.spec.HasState()) return;
  v1::RunningState* const state = message->mutable_state();
  if (!session.state.mean.empty()) EncodeF64(session.state.mean, state->mutable_mean());
  if (!session.state.var.empty()) EncodeF64(session.state.var, state->mutable_var());
  if (!session.state.phi.empty()) EncodeF64(session.state.phi, state->mutable_phi());
  state->set_num_batches(session.state.num_batches);
}

absl::Status AddToPatch(const std::string& path, const v1::Session& message, SessionPatch& patch) {
  const bool both = path == "parameters";
  if (both || path == "parameters.weight" || path == "parameters.bias") {
    NORMD_ASSIGN_OR_RETURN(OwnedParameters parameters, DecodeOwnedParameters(message));
    if (both || path == "parameters.weight") patch.weight = std::move(parameters.weight);
    if (both || path == "parameters.bias") patch.bias = std::move(parameters.bias);
    return absl::OkStatus();
  }
  if (path == "labels") {
    NORMD_ASSIGN_OR_RETURN(patch.labels, DecodeLabels(message));
    return absl::OkStatus();
  }
  if (path == "ttl") {
    NORMD_ASSIGN_OR_RETURN(patch.ttl, DecodeTtl(message));
    return absl::OkStatus();
  }
  constexpr std::string_view kUpdatable = "parameters, labels and ttl";
  return MakeError(KernelReason("NOT_ALLOWED"),
                   {.field = "update_mask", .value = std::string(path), .limit = std::string(kUpdatable)},
                   Concat("names \"", path, "\", which cannot be updated; ", kUpdatable, " can"));
}

}  // namespace

absl::StatusOr<Session> SessionFromMessage(const v1::Session& message) {
  Session session;
  if (!message.has_spec()) return MissingError("spec", "a method");
  NORMD_ASSIGN_OR_RETURN(session.spec, SpecFromMessage(message.spec(), "spec"));
  session.num_channels = message.num_channels();
  if (message.default_dtype() != v1::DTYPE_UNSPECIFIED) {
    const auto known = std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes), [&message](DType dtype) {
      return static_cast<int>(dtype) == static_cast<int>(message.default_dtype());
    });
    if (known == std::end(kAllDTypes)) return UnknownEnumError("default_dtype", message.default_dtype());
    session.default_dtype = *known;
  }
  NORMD_ASSIGN_OR_RETURN(session.labels, DecodeLabels(message));
  NORMD_ASSIGN_OR_RETURN(OwnedParameters parameters, DecodeOwnedParameters(message));
  session.parameters = std::make_shared<const OwnedParameters>(std::move(parameters));
  NORMD_ASSIGN_OR_RETURN(session.state, DecodeState(message));
  NORMD_ASSIGN_OR_RETURN(session.ttl, DecodeTtl(message));
  return session;
}

void SessionToMessage(const Session& session, Durability durability, v1::SessionView view, v1::Session* message) {
  message->set_name(EncodeSessionName(session.id));
  message->set_uid(session.uid);
  message->set_version(session.version);
  SpecToMessage(session.spec, message->mutable_spec());
  message->set_num_channels(session.num_channels);
  if (session.default_dtype.has_value()) message->set_default_dtype(static_cast<v1::DType>(*session.default_dtype));
  for (const auto& [key, value] : session.labels) (*message->mutable_labels())[key] = value;
  if (view == v1::SESSION_VIEW_FULL) SetTensors(session, message);
  SetTimestamp(session.create_time, message->mutable_create_time());
  SetTimestamp(session.update_time, message->mutable_update_time());
  if (session.ttl.has_value()) SetTimestamp(session.update_time + *session.ttl, message->mutable_expire_time());
  message->set_numerics(session.numerics);
  message->set_durability(static_cast<v1::Durability>(durability));
}

absl::StatusOr<v1::SessionView> DecodeView(int view) {
  if (!v1::SessionView_IsValid(view)) return UnknownEnumError("view", view);
  return view == v1::SESSION_VIEW_FULL ? v1::SESSION_VIEW_FULL : v1::SESSION_VIEW_BASIC;
}

absl::StatusOr<SessionPatch> PatchFromMessage(const v1::UpdateSessionRequest& request) {
  if (request.update_mask().paths().empty()) return MissingError("update_mask", "the fields to update");
  SessionPatch patch;
  for (const std::string& path : request.update_mask().paths()) {
    NORMD_RETURN_IF_ERROR(AddToPatch(path, request.session(), patch));
  }
  if (request.has_expected_version()) patch.expected_version = request.expected_version();
  return patch;
}

absl::StatusOr<Labels> DecodeFilter(const std::string& filter) {
  Labels labels;
  if (filter.empty()) return labels;
  const std::vector<std::string> terms = absl::StrSplit(filter, " AND ");
  if (terms.size() > kMaxFilterTerms) {
    return AmountError("filter", Concat(terms.size(), " terms"), Concat("at most ", kMaxFilterTerms, " terms"),
                       ServerReason("FILTER_FORM"));
  }
  for (const std::string& term : terms) {
    const size_t equals = term.find('=');
    const std::string key = term.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : term.substr(equals + 1);
    if (equals == std::string::npos || key.empty() || !IsLabelText(key) || !IsLabelText(value)) {
      return FormError("filter", term, "key=value terms joined by \" AND \"", ServerReason("FILTER_FORM"));
    }
    if (!labels.emplace(key, value).second) {
      return FormError("filter", term, "each key once", ServerReason("FILTER_FORM"));
    }
  }
  return labels;
}

}  // namespace normd::rpc
