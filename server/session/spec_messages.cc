#include "server/session/spec_messages.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "kernels/methods.h"

namespace normd {

namespace {

// Reads one method's message into a spec. The first mistake is kept; what is read after it does not matter.
class SpecReader {
 public:
  SpecReader(std::string_view field, Method method) : path_(std::string(field) + "." + std::string(Info(method).name)) {
    spec_.method = method;
  }

  void Read(const v1::BatchNorm& message) {
    ReadCommon(message);
    ReadLayout(message.layout());
    ReadRunning(message.running());
  }

  void Read(const v1::LayerNorm& message) {
    ReadCommon(message);
    spec_.normalized_shape.assign(message.normalized_shape().begin(), message.normalized_shape().end());
    spec_.axes.assign(message.axes().begin(), message.axes().end());
    ReadExactlyOne("normalized_shape", !spec_.normalized_shape.empty(), "axes", !spec_.axes.empty());
  }

  void Read(const v1::InstanceNorm& message) {
    ReadCommon(message);
    ReadLayout(message.layout());
    spec_.track_running_statistics = message.track_running_statistics();
    ReadRunning(message.running());
  }

  void Read(const v1::GroupNorm& message) {
    ReadCommon(message);
    ReadLayout(message.layout());
    spec_.num_groups = message.num_groups();
    spec_.affine_per_group = message.affine_per_group();
  }

  void Read(const v1::RmsNorm& message) {
    ReadCommon(message);
    spec_.normalized_shape.assign(message.normalized_shape().begin(), message.normalized_shape().end());
    spec_.axes.assign(message.axes().begin(), message.axes().end());
    ReadAtMostOne("normalized_shape", !spec_.normalized_shape.empty(), "axes", !spec_.axes.empty());
  }

  void Read(const v1::PRmsNorm& message) {
    ReadCommon(message);
    if (message.has_p()) spec_.p = message.p();
    if (message.has_k()) spec_.k = message.k();
    ReadEnum("k_rounding", message.k_rounding(), v1::KRounding_MAX, &spec_.k_rounding);
    ReadExactlyOne("p", message.has_p(), "k", message.has_k());
  }

  void Read(const v1::ScaleNorm& message) { ReadCommon(message); }

  void Read(const v1::LpNorm& message) {
    ReadEps(message);
    spec_.order = message.order();
    if (message.has_axis()) spec_.axis = message.axis();
  }

  void Read(const v1::PowerNorm& message) {
    ReadCommon(message);
    if (message.has_alpha_fwd()) spec_.alpha_fwd = message.alpha_fwd();
    if (message.has_warmup_iters()) spec_.warmup_iters = message.warmup_iters();
    if (message.has_num_groups()) spec_.num_groups = message.num_groups();
    spec_.running.accept_non_finite = message.accept_non_finite();
  }

  absl::StatusOr<NormSpec> Finish() && {
    if (!status_.ok()) return status_;
    return std::move(spec_);
  }

 private:
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  std::string Path(std::string_view name) const { return path_ + "." + std::string(name); }

  // 0 leaves the default in `value`. The domain's enumerators equal the wire's numbers, which have no gaps.
  template <typename Domain>
  void ReadEnum(std::string_view name, int wire, int last, Domain* value) {
    if (wire < 0 || wire > last) {
      Fail(OutOfRangeError(Path(name), absl::StrCat(wire), absl::StrCat("a known value, 0 to ", last),
                           "UNKNOWN_ENUM_VALUE"));
    } else if (wire != 0) {
      *value = static_cast<Domain>(wire);
    }
  }

  template <typename Message>
  void ReadEps(const Message& message) {
    if (message.has_eps()) spec_.eps = message.eps();
    EpsMode mode = EpsMode::kInsideSqrt;
    ReadEnum("eps_mode", message.eps_mode(), v1::EpsMode_MAX, &mode);
    if (message.eps_mode() != v1::EPS_MODE_UNSPECIFIED) spec_.eps_mode = mode;
  }

  // Everything all methods but LpNorm have.
  template <typename Message>
  void ReadCommon(const Message& message) {
    ReadEps(message);
    ReadEnum("cast_order", message.cast_order(), v1::CastOrder_MAX, &spec_.cast_order);
    if (message.has_weight_offset()) spec_.weight_offset = message.weight_offset();
  }

  void ReadLayout(int wire) { ReadEnum("layout", wire, v1::Layout_MAX, &spec_.layout); }

  void ReadRunning(const v1::RunningStatistics& message) {
    RunningSpec& running = spec_.running;
    if (message.has_momentum()) running.momentum = message.momentum();
    ReadEnum("running.momentum_of", message.momentum_of(), v1::MomentumOf_MAX, &running.momentum_of);
    running.cumulative = message.cumulative();
    ReadEnum("running.variance", message.variance(), v1::RunningVariance_MAX, &running.variance);
    ReadEnum("running.single_value", message.single_value(), v1::SingleValue_MAX, &running.single_value);
    running.accept_non_finite = message.accept_non_finite();
    if (running.cumulative && running.momentum.has_value()) {
      Fail(NotAllowedError(Path("running.momentum"), "momentum together with cumulative"));
    }
  }

  void ReadAtMostOne(const std::string& first, bool has_first, const std::string& second, bool has_second) {
    if (has_first && has_second) Fail(NotAllowedError(Path(second), absl::StrCat(second, " together with ", first)));
  }

  void ReadExactlyOne(const std::string& first, bool has_first, const std::string& second, bool has_second) {
    ReadAtMostOne(first, has_first, second, has_second);
    if (!has_first && !has_second) {
      Fail(MissingError(Path(first), absl::StrCat("exactly one of ", first, " and ", second)));
    }
  }

  const std::string path_;
  NormSpec spec_;
  absl::Status status_;
};

template <typename Message>
absl::StatusOr<NormSpec> ReadMethod(const Message& message, std::string_view field, Method method) {
  SpecReader reader(field, method);
  reader.Read(message);
  return std::move(reader).Finish();
}

template <typename Message>
void WriteEps(const NormSpec& spec, Message* message) {
  if (spec.eps.has_value()) message->set_eps(*spec.eps);
  if (spec.eps_mode.has_value()) message->set_eps_mode(static_cast<v1::EpsMode>(*spec.eps_mode));
}

template <typename Message>
void WriteCommon(const NormSpec& spec, Message* message) {
  WriteEps(spec, message);
  message->set_cast_order(static_cast<v1::CastOrder>(spec.cast_order));
  if (spec.weight_offset != 0) message->set_weight_offset(spec.weight_offset);
}

void WriteRunning(const RunningSpec& running, v1::RunningStatistics* message) {
  if (running.momentum.has_value()) message->set_momentum(*running.momentum);
  message->set_momentum_of(static_cast<v1::MomentumOf>(running.momentum_of));
  message->set_cumulative(running.cumulative);
  message->set_variance(static_cast<v1::RunningVariance>(running.variance));
  message->set_single_value(static_cast<v1::SingleValue>(running.single_value));
  message->set_accept_non_finite(running.accept_non_finite);
}

void Write(const NormSpec& spec, v1::BatchNorm* message) {
  WriteCommon(spec, message);
  message->set_layout(static_cast<v1::Layout>(spec.layout));
  WriteRunning(spec.running, message->mutable_running());
}

void Write(const NormSpec& spec, v1::LayerNorm* message) {
  WriteCommon(spec, message);
  message->mutable_normalized_shape()->Add(spec.normalized_shape.begin(), spec.normalized_shape.end());
  message->mutable_axes()->Add(spec.axes.begin(), spec.axes.end());
}

void Write(const NormSpec& spec, v1::InstanceNorm* message) {
  WriteCommon(spec, message);
  message->set_layout(static_cast<v1::Layout>(spec.layout));
  message->set_track_running_statistics(spec.track_running_statistics);
  WriteRunning(spec.running, message->mutable_running());
}

void Write(const NormSpec& spec, v1::GroupNorm* message) {
  WriteCommon(spec, message);
  message->set_layout(static_cast<v1::Layout>(spec.layout));
  message->set_num_groups(spec.num_groups);
  message->set_affine_per_group(spec.affine_per_group);
}

void Write(const NormSpec& spec, v1::RmsNorm* message) {
  WriteCommon(spec, message);
  message->mutable_normalized_shape()->Add(spec.normalized_shape.begin(), spec.normalized_shape.end());
  message->mutable_axes()->Add(spec.axes.begin(), spec.axes.end());
}

void Write(const NormSpec& spec, v1::PRmsNorm* message) {
  WriteCommon(spec, message);
  if (spec.p.has_value()) message->set_p(*spec.p);
  if (spec.k.has_value()) message->set_k(*spec.k);
  message->set_k_rounding(static_cast<v1::KRounding>(spec.k_rounding));
}

void Write(const NormSpec& spec, v1::ScaleNorm* message) { WriteCommon(spec, message); }

void Write(const NormSpec& spec, v1::LpNorm* message) {
  WriteEps(spec, message);
  message->set_order(spec.order);
  message->set_axis(spec.axis);
}

void Write(const NormSpec& spec, v1::PowerNorm* message) {
  WriteCommon(spec, message);
  message->set_alpha_fwd(spec.alpha_fwd);
  message->set_warmup_iters(spec.warmup_iters);
  message->set_num_groups(spec.num_groups);
  message->set_accept_non_finite(spec.running.accept_non_finite);
}

}  // namespace

absl::StatusOr<NormSpec> SpecFromMessage(const v1::NormSpec& message, std::string_view field) {
  switch (message.method_case()) {
    case v1::NormSpec::kBatchNorm:
      return ReadMethod(message.batch_norm(), field, Method::kBatchNorm);
    case v1::NormSpec::kLayerNorm:
      return ReadMethod(message.layer_norm(), field, Method::kLayerNorm);
    case v1::NormSpec::kInstanceNorm:
      return ReadMethod(message.instance_norm(), field, Method::kInstanceNorm);
    case v1::NormSpec::kGroupNorm:
      return ReadMethod(message.group_norm(), field, Method::kGroupNorm);
    case v1::NormSpec::kRmsNorm:
      return ReadMethod(message.rms_norm(), field, Method::kRmsNorm);
    case v1::NormSpec::kPRmsNorm:
      return ReadMethod(message.p_rms_norm(), field, Method::kPRmsNorm);
    case v1::NormSpec::kScaleNorm:
      return ReadMethod(message.scale_norm(), field, Method::kScaleNorm);
    case v1::NormSpec::kLpNorm:
      return ReadMethod(message.lp_norm(), field, Method::kLpNorm);
    case v1::NormSpec::kPowerNorm:
      return ReadMethod(message.power_norm(), field, Method::kPowerNorm);
    case v1::NormSpec::METHOD_NOT_SET:
      break;
  }
  return MissingError(field, "a method");
}

void SpecToMessage(const NormSpec& spec, v1::NormSpec* message) {
  switch (spec.method) {
    case Method::kBatchNorm:
      return Write(spec, message->mutable_batch_norm());
    case Method::kLayerNorm:
      return Write(spec, message->mutable_layer_norm());
    case Method::kInstanceNorm:
      return Write(spec, message->mutable_instance_norm());
    case Method::kGroupNorm:
      return Write(spec, message->mutable_group_norm());
    case Method::kRmsNorm:
      return Write(spec, message->mutable_rms_norm());
    case Method::kPRmsNorm:
      return Write(spec, message->mutable_p_rms_norm());
    case Method::kScaleNorm:
      return Write(spec, message->mutable_scale_norm());
    case Method::kLpNorm:
      return Write(spec, message->mutable_lp_norm());
    case Method::kPowerNorm:
      return Write(spec, message->mutable_power_norm());
  }
}

}  // namespace normd
