// The checks before a store sees a session: what can be said of spec, C and parameters without a tensor.
#include <optional>

#include "kernels/errors.h"
#include "kernels/methods.h"
#include "kernels/text.h"
#include "server/base/status_macros.h"
#include "server/engine/engine.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

absl::Status CheckChannels(const Session& session) {
  const NormSpec& spec = session.spec;
  const int64_t channels = session.num_channels;
  if (channels < 0 || (channels == 0 && spec.HasState())) {
    return OutOfRangeError("num_channels", Concat(channels), "at least 1 for a method with running state",
                           "CHANNELS_OUT_OF_RANGE");
  }
  if (channels != 0 && !TraitsOf(spec.method()).has_channels) {
    return OutOfRangeError("num_channels", Concat(channels),
                           Concat("0: ", Info(spec.method()).name, " has no channels"), "CHANNELS_OUT_OF_RANGE");
  }
  return absl::OkStatus();
}

// The smallest x whose plan has the parameters that every x of this session will have; nothing where they depend on x.
std::optional<Shape> ShapeForParameters(const Session& session) {
  const NormSpec& spec = session.spec;
  if (TraitsOf(spec.method()).has_channels) {
    if (session.num_channels == 0) return std::nullopt;
    return Shape{1, session.num_channels};
  }
  if (const absl::Span<const int64_t> shape = spec.normalized_shape(); !shape.empty()) {
    return Shape(shape.begin(), shape.end());
  }
  const int rank = TraitsOf(spec.method()).parameter_shape_rank;
  return rank == 0 ? std::nullopt : std::optional<Shape>(Shape(static_cast<size_t>(rank), 1));
}

absl::Status CheckTensor(const TensorView& view, std::string_view field) {
  if (!view.present()) return absl::OkStatus();
  if (SizeOf(view.dtype) == 0) return DTypeError(Concat(field, ".dtype"), Concat(static_cast<int>(view.dtype)));
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(view.shape, field));
  const int64_t want = elements * SizeOf(view.dtype);
  return view.size_bytes == want ? absl::OkStatus() : ByteCountError(field, view.size_bytes, want);
}

absl::Status CheckSessionParameters(const Session& session, const std::optional<OwnedTensor>& weight,
                                    const std::optional<OwnedTensor>& bias) {
  ParameterViews views;
  if (weight.has_value()) views.weight = weight->View();
  if (bias.has_value()) views.bias = bias->View();
  NORMD_RETURN_IF_ERROR(CheckTensor(views.weight, "parameters.weight"));
  NORMD_RETURN_IF_ERROR(CheckTensor(views.bias, "parameters.bias"));
  if (!TraitsOf(session.spec.method()).takes_parameters && (views.weight.present() || views.bias.present())) {
    return NotAllowedError(views.weight.present() ? "parameters.weight" : "parameters.bias",
                           Concat(Info(session.spec.method()).name, " takes no parameters"));
  }
  if (const std::optional<Shape> shape = ShapeForParameters(session); shape.has_value()) {
    NORMD_ASSIGN_OR_RETURN(const NormPlan plan,
                           MakePlan(session.spec, DType::kF32, *shape,
                                    {.mode = Mode::kInference, .given_statistics = session.spec.HasState()}));
    return CheckParameters(plan, views);
  }
  if (!views.weight.present() || !views.bias.present()) return absl::OkStatus();
  const int64_t weights = ElementCount(views.weight.shape);
  const int64_t biases = ElementCount(views.bias.shape);
  return weights == biases ? absl::OkStatus() : ParameterLengthError("parameters.bias", biases, weights);
}

absl::Status CheckTtl(const std::optional<absl::Duration>& ttl) {
  if (!ttl.has_value() || *ttl > absl::ZeroDuration()) return absl::OkStatus();
  return OutOfRangeError("ttl", absl::FormatDuration(*ttl), "above 0", "TTL_OUT_OF_RANGE");
}

bool HasVectors(const RunningState& state) { return !state.mean.empty() || !state.var.empty() || !state.phi.empty(); }

}  // namespace

absl::Status Engine::ValidateNewSession(const Session& session) const {
  NORMD_RETURN_IF_ERROR(PrefixField(ValidateSpec(session.spec), "spec"));
  NORMD_RETURN_IF_ERROR(CheckChannels(session));
  const OwnedParameters none;
  const OwnedParameters& parameters = session.parameters == nullptr ? none : *session.parameters;
  // First: a plan for too many channels is refused for the right reason.
  NORMD_RETURN_IF_ERROR(CheckSessionSize(parameters, session.num_channels, sessions_->limits()));
  NORMD_RETURN_IF_ERROR(CheckSessionParameters(session, parameters.weight, parameters.bias));
  if (HasVectors(session.state)) {
    NORMD_RETURN_IF_ERROR(ValidateState(session.spec, session.num_channels, session.state));
  }
  return CheckTtl(session.ttl);
}

absl::Status Engine::ValidatePatch(const Session& session, const SessionPatch& patch) const {
  if (patch.ttl.has_value()) NORMD_RETURN_IF_ERROR(CheckTtl(*patch.ttl));
  return CheckSessionParameters(session, patch.weight.value_or(session.parameters->weight),
                                patch.bias.value_or(session.parameters->bias));
}

}  // namespace normd
