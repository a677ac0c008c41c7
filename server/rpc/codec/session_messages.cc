#include "server/rpc/codec/session_messages.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/sha256.h"
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

// One vector of the running state, here and on the wire.
struct StateField {
  std::string_view path;
  std::vector<double> RunningState::*values;
  bool (v1::RunningState::*has)() const;
  const v1::Tensor& (v1::RunningState::*get)() const;
  v1::Tensor* (v1::RunningState::*set)();
};

using State = v1::RunningState;
constexpr StateField kStateFields[] = {
    {"state.mean", &RunningState::mean, &State::has_mean, &State::mean, &State::mutable_mean},
    {"state.var", &RunningState::var, &State::has_var, &State::var, &State::mutable_var},
    {"state.phi", &RunningState::phi, &State::has_phi, &State::phi, &State::mutable_phi},
    {"state.count", &RunningState::count, &State::has_count, &State::count, &State::mutable_count},
    {"state.m2", &RunningState::m2, &State::has_m2, &State::m2, &State::mutable_m2},
    {"state.min", &RunningState::min, &State::has_min, &State::min, &State::mutable_min},
    {"state.max", &RunningState::max, &State::has_max, &State::max, &State::mutable_max},
};

absl::StatusOr<RunningState> DecodeState(const v1::RunningState& message) {
  RunningState state;
  state.num_batches = message.num_batches();
  for (const StateField& field : kStateFields) {
    if (!(message.*field.has)()) continue;
    NORMD_ASSIGN_OR_RETURN(state.*field.values, DecodeF64((message.*field.get)(), field.path));
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
  StateToMessage(session.state, message->mutable_state());
}

void SetChannelNames(const Session& session, v1::Session* message) {
  if (session.channel_names == nullptr) return;
  message->mutable_channel_names()->Add(session.channel_names->begin(), session.channel_names->end());
}

// Moves the fields that the digest is of into a message of their own and back, so that none is copied.
std::string DigestOf(v1::Session* message) {
  v1::Session content;
  const auto move = [](v1::Session* from, v1::Session* to) {
    to->mutable_spec()->Swap(from->mutable_spec());
    to->set_num_channels(from->num_channels());
    to->mutable_parameters()->Swap(from->mutable_parameters());
    if (from->has_state()) to->mutable_state()->Swap(from->mutable_state());
    to->mutable_channel_names()->Swap(from->mutable_channel_names());
  };
  move(message, &content);
  const std::string bytes = content.SerializeAsString();
  move(&content, message);
  const std::optional<Sha256Digest> digest = Sha256(bytes);
  if (!digest.has_value()) return "";
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest->data()), digest->size()});
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
  if (path == "frozen") {
    if (!message.frozen()) return NotAllowedError("frozen", "a session is frozen for good; false is no update");
    patch.freeze = true;
    return absl::OkStatus();
  }
  constexpr std::string_view kUpdatable = "parameters, labels, ttl and frozen";
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
  NORMD_ASSIGN_OR_RETURN(session.state, DecodeState(message.state()));
  if (session.spec.running().CountsSamples()) session.state.var.clear();  // output only: it follows from the rest
  session.frozen = message.frozen();
  if (message.channel_names_size() > 0) {
    session.channel_names = std::make_shared<const std::vector<std::string>>(message.channel_names().begin(),
                                                                             message.channel_names().end());
  }
  NORMD_ASSIGN_OR_RETURN(session.ttl, DecodeTtl(message));
  return session;
}

void StateToMessage(const RunningState& state, v1::RunningState* message) {
  for (const StateField& field : kStateFields) {
    if (!(state.*field.values).empty()) EncodeF64(state.*field.values, (message->*field.set)());
  }
  message->set_num_batches(state.num_batches);
}

void SessionToMessage(const Session& session, Durability durability, v1::SessionView view, v1::Session* message) {
  message->set_name(EncodeSessionName(session.id));
  message->set_uid(session.uid);
  message->set_version(session.version);
  SpecToMessage(session.spec, message->mutable_spec());
  message->set_num_channels(session.num_channels);
  if (session.default_dtype.has_value()) message->set_default_dtype(static_cast<v1::DType>(*session.default_dtype));
  for (const auto& [key, value] : session.labels) (*message->mutable_labels())[key] = value;
  message->set_frozen(session.frozen);
  if (view == v1::SESSION_VIEW_FULL) {
    SetTensors(session, message);
    SetChannelNames(session, message);
    message->set_digest(DigestOf(message));
  }
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
