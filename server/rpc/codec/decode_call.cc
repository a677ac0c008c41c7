#include "server/rpc/codec/decode_call.h"

#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/codec/decode_tensor.h"
#include "server/rpc/codec/session_name.h"
#include "server/session/record/spec_messages.h"
#include "server/session/session_checks.h"

namespace normd::rpc {
namespace {

using Request = WithTensors<v1::NormalizeRequest>;

// A request over defaults. Each accessor returns the one of the two that provides the field.
class Layered {
 public:
  Layered(const Request& own, const Request& defaults) : own_(own), defaults_(defaults) {
    if (defaults_.message == nullptr) defaults_.message = &v1::NormalizeRequest::default_instance();
  }

  const v1::NormalizeRequest& own() const { return *own_.message; }
  const Request& PickIf(bool own_has_it) const { return own_has_it ? own_ : defaults_; }
  bool names_target() const { return own().target_case() != v1::NormalizeRequest::TARGET_NOT_SET; }
  const Request& target() const { return PickIf(names_target()); }
  const Request& parameters() const { return PickIf(own().has_parameters() || names_target()); }

 private:
  Request own_;
  Request defaults_;
};

// Decodes an enum from its wire number; 0 leaves `value` at its default.
template <typename Enum>
absl::Status DecodeEnum(int wire, Enum last, const char* field, Enum& value) {
  if (wire < 0 || wire > static_cast<int>(last)) return UnknownEnumError(field, wire);
  if (wire != 0) value = static_cast<Enum>(wire);
  return absl::OkStatus();
}

// Leaves `view` absent when the message has no such tensor.
absl::Status DecodeOptional(bool has, WithTensors<v1::Tensor> tensor, const char* field, TensorView& view) {
  if (!has) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(view, DecodeTensor(*tensor.message, field, TensorKind::kFloating, tensor.tensors));
  return absl::OkStatus();
}

template <typename Message>
absl::Status DecodeTarget(const Message& request, std::string_view tenant, Call& call) {
  if (request.has_spec()) {
    NORMD_ASSIGN_OR_RETURN(call.target, SpecFromMessage(request.spec(), "spec"));
    return absl::OkStatus();
  }
  if (request.target_case() != Message::kSession) return MissingError("spec", "a spec or a session");
  NORMD_ASSIGN_OR_RETURN(std::string key, DecodeSessionName(request.session(), "session", tenant));
  call.target = SessionTarget{std::move(key)};
  return absl::OkStatus();
}

absl::Status DecodeParameters(const Request& request, Call& call) {
  if (!request.message->has_parameters()) return absl::OkStatus();
  if (std::holds_alternative<SessionTarget>(call.target)) {
    return NotAllowedError("parameters", "a session has its own");
  }
  const v1::Parameters& p = request.message->parameters();
  const auto with = [&](const v1::Tensor& tensor) { return WithTensors<v1::Tensor>{&tensor, request.tensors}; };
  NORMD_RETURN_IF_ERROR(DecodeOptional(p.has_weight(), with(p.weight()), "parameters.weight", call.parameters.weight));
  NORMD_RETURN_IF_ERROR(DecodeOptional(p.has_bias(), with(p.bias()), "parameters.bias", call.parameters.bias));
  NORMD_RETURN_IF_ERROR(
      DecodeOptional(p.has_running_mean(), with(p.running_mean()), "parameters.running_mean", call.running_mean));
  return DecodeOptional(p.has_running_var(), with(p.running_var()), "parameters.running_var", call.running_var);
}

absl::Status DecodeResidual(const Request& request, Call& call) {
  if (!request.message->has_residual()) return absl::OkStatus();
  const v1::Residual& residual = request.message->residual();
  if (!residual.has_tensor()) return MissingError("residual.tensor", "a tensor of the shape of x");
  NORMD_ASSIGN_OR_RETURN(call.residual, DecodeTensorAnywhere(residual.tensor(), "residual.tensor", request.tensors));
  if (residual.has_scale()) call.residual_scale = residual.scale();
  return DecodeEnum(residual.rounding(), ResidualRounding::kKeepWide, "residual.rounding", call.residual_rounding);
}

absl::Status DecodeOutputs(const Request& from, Call& call) {
  const v1::NormalizeRequest& request = *from.message;
  std::bitset<kOutputs.size() + 1> seen;  // keeps a request from multiplying its reply by naming an output many times
  for (int i = 0; i < request.outputs_size(); ++i) {
    const int kind = request.outputs(i).kind();
    const std::string field = absl::StrCat("outputs[", i, "].kind");
    const OutputInfo* const info = FindOutput(kind);
    if (info == nullptr) return UnknownEnumError(field, kind);
    if (seen[static_cast<size_t>(kind)]) {
      const std::string& name = v1::OutputKind_Name(kind);
      return MakeError(ServerReason("DUPLICATE_OUTPUT"), {.field = field, .value = name, .limit = "each output once"},
                       absl::StrCat("is ", name, " again; ask for each output once"));
    }
    seen.set(static_cast<size_t>(kind));
    WantedOutput& output = call.outputs.emplace_back(info->kind);
    if (!request.outputs(i).has_shared()) continue;
    const std::string place = absl::StrCat("outputs[", i, "].shared");
    NORMD_ASSIGN_OR_RETURN(output.shared, from.tensors->FindOutput(request.outputs(i).shared(), place));
    if (!output.shared->space.is_host() && !info->may_be_on_device) return InCudaMemoryError(place);
  }
  return absl::OkStatus();
}

absl::Status DecodeStep(const v1::NormalizeRequest& request, Call& call) {
  if (!request.has_step()) return absl::OkStatus();
  call.step = StepId{request.step().client_id(), request.step().sequence()};
  return ValidateStepId(*call.step);
}

absl::Status DecodeMaxStaleness(const v1::NormalizeRequest& request, Call& call) {
  constexpr int64_t kMaxSeconds = 3600;
  const google::protobuf::Duration& duration = request.max_staleness();
  const bool negative = duration.seconds() < 0 || duration.nanos() < 0;
  if (negative || duration.seconds() > kMaxSeconds || duration.nanos() > 999'999'999) {
    return OutOfRangeError("max_staleness", absl::StrCat(duration.seconds(), " s, ", duration.nanos(), " ns"),
                           "0 to 1 hour", ServerReason("MAX_STALENESS_OUT_OF_RANGE"));
  }
  call.max_staleness = absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  return absl::OkStatus();
}

// Refuses an x of rank 0 before the spec is read: clients derive defaults of the spec from the shape of x, so the spec
// of a scalar is wrong only because x is.
template <typename Message>
absl::Status CheckNoScalar(const Message& request) {
  const bool scalar = request.has_x() && request.x().dtype() != v1::DTYPE_UNSPECIFIED && request.x().shape().empty();
  return scalar ? RankError("x.shape", 0, 1, kMaxRank) : absl::OkStatus();
}

// Decodes everything except x.
absl::StatusOr<Call> DecodeAttributes(const Layered& request, std::string_view tenant) {
  const v1::NormalizeRequest& own = request.own();
  Call call;
  NORMD_RETURN_IF_ERROR(DecodeTarget(*request.target().message, tenant, call));
  NORMD_RETURN_IF_ERROR(
      DecodeEnum(request.PickIf(own.mode() != 0).message->mode(), Mode::kTraining, "mode", call.mode));
  NORMD_RETURN_IF_ERROR(DecodeParameters(request.parameters(), call));
  NORMD_RETURN_IF_ERROR(DecodeResidual(request.PickIf(own.has_residual()), call));
  if (const Request& from = request.PickIf(own.has_mask()); from.message->has_mask()) {
    NORMD_ASSIGN_OR_RETURN(call.mask, DecodeTensor(from.message->mask(), "mask", TensorKind::kMask, from.tensors));
  }
  NORMD_RETURN_IF_ERROR(DecodeOutputs(request.PickIf(own.outputs_size() != 0), call));
  NORMD_RETURN_IF_ERROR(DecodeEnum(request.PickIf(own.precision() != 0).message->precision(), Precision::kFast,
                                   "precision", call.precision));
  NORMD_RETURN_IF_ERROR(
      DecodeEnum(request.PickIf(own.device() != 0).message->device(), Device::kCuda, "device", call.device));
  NORMD_RETURN_IF_ERROR(DecodeStep(own, call));
  const v1::NormalizeRequest& version = *request.PickIf(own.has_expected_version()).message;
  if (version.has_expected_version()) call.expected_version = version.expected_version();
  NORMD_RETURN_IF_ERROR(DecodeMaxStaleness(*request.PickIf(own.has_max_staleness()).message, call));
  call.validate_only = request.PickIf(own.validate_only()).message->validate_only();
  return call;
}

}  // namespace

absl::StatusOr<Call> DecodeCall(Request request, Request defaults, std::string_view tenant) {
  NORMD_RETURN_IF_ERROR(CheckNoScalar(*request.message));
  NORMD_ASSIGN_OR_RETURN(Call call, DecodeAttributes(Layered(request, defaults), tenant));
  if (!request.message->has_x()) return MissingError("x", "a tensor");
  NORMD_ASSIGN_OR_RETURN(call.x, DecodeScatteredTensor(request.message->x(), "x", request.tensors));
  return call;
}

absl::Status TakeChunkedTensors(Request request, Call* call) {
  const v1::Tensor& residual = request.message->residual().tensor();
  if (residual.has_chunked()) {
    NORMD_ASSIGN_OR_RETURN(call->residual,
                           DecodeTensor(residual, "residual.tensor", TensorKind::kFloating, request.tensors));
  }
  if (!request.message->x().has_chunked()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(call->x, DecodeScatteredTensor(request.message->x(), "x", request.tensors));
  return absl::OkStatus();
}

absl::Status CheckDefaults(Request request) {
  constexpr std::string_view kAnyTenant;  // whose session it is does not matter: nothing is looked up
  if (request.message->has_x()) return NotAllowedError("x", "it comes with each call");
  if (request.message->has_step()) return NotAllowedError("step", "a step id belongs to one call");
  if (request.message->target_case() != v1::NormalizeRequest::TARGET_NOT_SET) {
    return DecodeAttributes(Layered(request, {}), kAnyTenant).status();
  }
  // Each call brings its own target, so any spec serves to check the rest.
  v1::NormalizeRequest any_spec;
  any_spec.mutable_spec()->mutable_rms_norm();
  return DecodeAttributes(Layered(request, {&any_spec, request.tensors}), kAnyTenant).status();
}

absl::StatusOr<Call> DecodeComputeMoments(WithTensors<v1::ComputeMomentsRequest> from, std::string_view tenant) {
  const v1::ComputeMomentsRequest& request = *from.message;
  Call call;
  NORMD_RETURN_IF_ERROR(CheckNoScalar(request));
  NORMD_RETURN_IF_ERROR(DecodeTarget(request, tenant, call));
  if (request.has_mask()) {
    NORMD_ASSIGN_OR_RETURN(call.mask, DecodeTensor(request.mask(), "mask", TensorKind::kMask, from.tensors));
  }
  if (!request.has_x()) return MissingError("x", "a tensor");
  NORMD_ASSIGN_OR_RETURN(call.x, DecodeScatteredTensor(request.x(), "x", from.tensors));
  call.mode = Mode::kTraining;  // uses the batch's own statistics, even for methods that have running ones
  call.outputs = {OutputKind::kMoments};
  call.moments_only = true;
  call.want_exact = request.want_exact();
  return call;
}

std::string_view MethodName(const v1::NormSpec& spec) {
  for (const Method method : kAllMethods) {
    if (static_cast<int>(method) == static_cast<int>(spec.method_case())) return Info(method).name;
  }
  return "";
}

}  // namespace normd::rpc
