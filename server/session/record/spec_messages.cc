#include "server/session/record/spec_messages.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"

namespace normd {

namespace {

// Reads one method's message into a spec. The first mistake is kept; what is read after it does not matter.
class SpecReader {
 public:
  SpecReader(std::string_view field, Method method) : path_(Concat(field, ".", Info(method).name)) {}

  BatchNormSpec Read(const v1::BatchNorm& message) {
    ReadCommon(message);
    return {.layout = ReadLayout(message), .running = ReadRunning(message.running())};
  }

  LayerNormSpec Read(const v1::LayerNorm& message) {
    ReadCommon(message);
    ReadExactlyOne("normalized_shape", message.normalized_shape_size() > 0, "axes", message.axes_size() > 0);
    return {.normalized_shape = ToVector(message.normalized_shape()), .axes = ToVector(message.axes())};
  }

  InstanceNormSpec Read(const v1::InstanceNorm& message) {
    ReadCommon(message);
    return {.layout = ReadLayout(message),
            .track_running_statistics = message.track_running_statistics(),
            .running = ReadRunning(message.running())};
  }

  GroupNormSpec Read(const v1::GroupNorm& message) {
    ReadCommon(message);
    return {.layout = ReadLayout(message),
            .num_groups = message.num_groups(),
            .affine_per_group = message.affine_per_group()};
  }

  RmsNormSpec Read(const v1::RmsNorm& message) {
    ReadCommon(message);
    ReadAtMostOne("normalized_shape", message.normalized_shape_size() > 0, "axes", message.axes_size() > 0);
    return {.normalized_shape = ToVector(message.normalized_shape()), .axes = ToVector(message.axes())};
  }

  PRmsNormSpec Read(const v1::PRmsNorm& message) {
    ReadCommon(message);
    PRmsNormSpec method;
    if (message.has_p()) method.p = message.p();
    if (message.has_k()) method.k = message.k();
    ReadEnum("k_rounding", message.k_rounding(), v1::KRounding_MAX, &method.k_rounding);
    ReadExactlyOne("p", message.has_p(), "k", message.has_k());
    return method;
  }

  ScaleNormSpec Read(const v1::ScaleNorm& message) {
    ReadCommon(message);
    return {};
  }

  LpNormSpec Read(const v1::LpNorm& message) {
    ReadEps(message);
    LpNormSpec method = {.order = message.order(), .axes = ToVector(message.axes())};
    if (message.has_axis()) method.axis = message.axis();
    if (message.has_p()) method.p = message.p();
    ReadAtMostOne("order", message.order() != 0, "p", message.has_p());
    ReadAtMostOne("axis", message.has_axis(), "axes", message.axes_size() > 0);
    return method;
  }

  PowerNormSpec Read(const v1::PowerNorm& message) {
    ReadCommon(message);
    PowerNormSpec method;
    if (message.has_alpha_fwd()) method.alpha_fwd = message.alpha_fwd();
    if (message.has_warmup_iters()) method.warmup_iters = message.warmup_iters();
    if (message.has_num_groups()) method.num_groups = message.num_groups();
    method.accept_non_finite = message.accept_non_finite();
    return method;
  }

  // The spec with these attributes and what all methods have; or the first mistake.
  absl::StatusOr<NormSpec> Finish(MethodSpec attributes) && {
    if (!status_.ok()) return status_;
    spec_.attributes = std::move(attributes);
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
                           KernelReason("UNKNOWN_ENUM_VALUE")));
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

  // Reads what all methods but LpNorm have.
  template <typename Message>
  void ReadCommon(const Message& message) {
    ReadEps(message);
    ReadEnum("cast_order", message.cast_order(), v1::CastOrder_MAX, &spec_.cast_order);
    if (message.has_weight_offset()) spec_.weight_offset = message.weight_offset();
  }

  template <typename Message>
  Layout ReadLayout(const Message& message) {
    Layout layout = Layout::kUnspecified;
    ReadEnum("layout", message.layout(), v1::Layout_MAX, &layout);
    return layout;
  }

  RunningSpec ReadRunning(const v1::RunningStatistics& message) {
    RunningSpec running;
    ReadEnum("running.weighting", message.weighting(), v1::Weighting_MAX, &running.weighting);
    if (running.CountsSamples()) {
      running.variance = RunningVariance::kBiased;
      running.normalize_with = NormalizeWith::kRunning;
    }
    ReadSamples(message, &running);
    if (message.has_clip()) running.clip = message.clip();
    ReadEnum("running.nan_policy", message.nan_policy(), v1::NanPolicy_MAX, &running.nan_policy);
    if (message.has_momentum()) running.momentum = message.momentum();
    ReadEnum("running.momentum_of", message.momentum_of(), v1::MomentumOf_MAX, &running.momentum_of);
    running.cumulative = message.cumulative();
    ReadEnum("running.variance", message.variance(), v1::RunningVariance_MAX, &running.variance);
    ReadEnum("running.single_value", message.single_value(), v1::SingleValue_MAX, &running.single_value);
    running.accept_non_finite = message.accept_non_finite();
    if (running.cumulative && running.momentum.has_value()) {
      Fail(ExclusiveError(Path("running.momentum"), "cumulative"));
    }
    return running;
  }

  // ValidateSpec refuses the fields of one weighting with the other.
  void ReadSamples(const v1::RunningStatistics& message, RunningSpec* running) {
    SampleSpec& samples = running->samples;
    if (message.has_prior_count()) samples.prior_count = message.prior_count();
    if (message.has_prior_mean()) samples.prior_mean = message.prior_mean();
    if (message.has_prior_variance()) samples.prior_variance = message.prior_variance();
    if (message.has_decay()) samples.decay = message.decay();
    if (message.has_max_count()) samples.max_count = message.max_count();
    ReadEnum("running.normalize_with", message.normalize_with(), v1::NormalizeWith_MAX, &running->normalize_with);
  }

  static std::vector<int64_t> ToVector(const google::protobuf::RepeatedField<int64_t>& values) {
    return {values.begin(), values.end()};
  }

  void ReadAtMostOne(const std::string& first, bool has_first, const std::string& second, bool has_second) {
    if (has_first && has_second) Fail(ExclusiveError(Path(second), first));
  }

  void ReadExactlyOne(const std::string& first, bool has_first, const std::string& second, bool has_second) {
    ReadAtMostOne(first, has_first, second, has_second);
    if (!has_first && !has_second) {
      Fail(MissingError(Path(first), absl::StrCat(first, " or ", second)));
    }
  }

  std::string path_;
  NormSpec spec_;
  absl::Status status_;
};

template <typename Message>
absl::StatusOr<NormSpec> ReadMethod(const Message& message, std::string_view field, Method method) {
  SpecReader reader(field, method);
  MethodSpec attributes = reader.Read(message);
  return std::move(reader).Finish(std::move(attributes));
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

void WriteSamples(const RunningSpec& running, v1::RunningStatistics* message) {
  const SampleSpec& samples = running.samples;
  message->set_variance(static_cast<v1::RunningVariance>(running.variance));
  message->set_weighting(v1::WEIGHTING_SAMPLES);
  message->set_prior_count(samples.prior_count);
  message->set_prior_mean(samples.prior_mean);
  message->set_prior_variance(samples.prior_variance);
  message->set_decay(samples.decay);
  if (samples.max_count.has_value()) message->set_max_count(*samples.max_count);
  message->set_normalize_with(static_cast<v1::NormalizeWith>(running.normalize_with));
  message->set_nan_policy(static_cast<v1::NanPolicy>(running.nan_policy));
}

// Does not name the weighting of steps, which older servers do not know.
void WriteRunning(const RunningSpec& running, v1::RunningStatistics* message) {
  if (running.clip.has_value()) message->set_clip(*running.clip);
  if (running.CountsSamples()) return WriteSamples(running, message);
  if (running.momentum.has_value()) message->set_momentum(*running.momentum);
  message->set_momentum_of(static_cast<v1::MomentumOf>(running.momentum_of));
  message->set_cumulative(running.cumulative);
  message->set_variance(static_cast<v1::RunningVariance>(running.variance));
  message->set_single_value(static_cast<v1::SingleValue>(running.single_value));
  message->set_accept_non_finite(running.accept_non_finite);
}

// Writes the fields of `method` and, from `spec`, those that all methods have.
void Write(const NormSpec& spec, const BatchNormSpec& method, v1::NormSpec* message) {
  v1::BatchNorm& out = *message->mutable_batch_norm();
  WriteCommon(spec, &out);
  out.set_layout(static_cast<v1::Layout>(method.layout));
  WriteRunning(method.running, out.mutable_running());
}

void Write(const NormSpec& spec, const LayerNormSpec& method, v1::NormSpec* message) {
  v1::LayerNorm& out = *message->mutable_layer_norm();
  WriteCommon(spec, &out);
  out.mutable_normalized_shape()->Add(method.normalized_shape.begin(), method.normalized_shape.end());
  out.mutable_axes()->Add(method.axes.begin(), method.axes.end());
}

void Write(const NormSpec& spec, const InstanceNormSpec& method, v1::NormSpec* message) {
  v1::InstanceNorm& out = *message->mutable_instance_norm();
  WriteCommon(spec, &out);
  out.set_layout(static_cast<v1::Layout>(method.layout));
  out.set_track_running_statistics(method.track_running_statistics);
  WriteRunning(method.running, out.mutable_running());
}

void Write(const NormSpec& spec, const GroupNormSpec& method, v1::NormSpec* message) {
  v1::GroupNorm& out = *message->mutable_group_norm();
  WriteCommon(spec, &out);
  out.set_layout(static_cast<v1::Layout>(method.layout));
  out.set_num_groups(method.num_groups);
  out.set_affine_per_group(method.affine_per_group);
}

void Write(const NormSpec& spec, const RmsNormSpec& method, v1::NormSpec* message) {
  v1::RmsNorm& out = *message->mutable_rms_norm();
  WriteCommon(spec, &out);
  out.mutable_normalized_shape()->Add(method.normalized_shape.begin(), method.normalized_shape.end());
  out.mutable_axes()->Add(method.axes.begin(), method.axes.end());
}

void Write(const NormSpec& spec, const PRmsNormSpec& method, v1::NormSpec* message) {
  v1::PRmsNorm& out = *message->mutable_p_rms_norm();
  WriteCommon(spec, &out);
  if (method.p.has_value()) out.set_p(*method.p);
  if (method.k.has_value()) out.set_k(*method.k);
  out.set_k_rounding(static_cast<v1::KRounding>(method.k_rounding));
}

void Write(const NormSpec& spec, const ScaleNormSpec& /*method*/, v1::NormSpec* message) {
  WriteCommon(spec, message->mutable_scale_norm());
}

void Write(const NormSpec& spec, const LpNormSpec& method, v1::NormSpec* message) {
  v1::LpNorm& out = *message->mutable_lp_norm();
  WriteEps(spec, &out);
  if (method.p.has_value()) {
    out.set_p(*method.p);
  } else {
    out.set_order(method.order);
  }
  if (method.axes.empty()) {
    out.set_axis(method.axis);
  } else {
    out.mutable_axes()->Add(method.axes.begin(), method.axes.end());
  }
}

void Write(const NormSpec& spec, const PowerNormSpec& method, v1::NormSpec* message) {
  v1::PowerNorm& out = *message->mutable_power_norm();
  WriteCommon(spec, &out);
  out.set_alpha_fwd(method.alpha_fwd);
  out.set_warmup_iters(method.warmup_iters);
  out.set_num_groups(method.num_groups);
  out.set_accept_non_finite(method.accept_non_finite);
}

}  // namespace

absl::StatusOr<NormSpec> SpecFromMessage(const v1::NormSpec& message, std::string_view field) {
  const auto method = static_cast<Method>(message.method_case());
  switch (message.method_case()) {
    case v1::NormSpec::kBatchNorm:
      return ReadMethod(message.batch_norm(), field, method);
    case v1::NormSpec::kLayerNorm:
      return ReadMethod(message.layer_norm(), field, method);
    case v1::NormSpec::kInstanceNorm:
      return ReadMethod(message.instance_norm(), field, method);
    case v1::NormSpec::kGroupNorm:
      return ReadMethod(message.group_norm(), field, method);
    case v1::NormSpec::kRmsNorm:
      return ReadMethod(message.rms_norm(), field, method);
    case v1::NormSpec::kPRmsNorm:
      return ReadMethod(message.p_rms_norm(), field, method);
    case v1::NormSpec::kScaleNorm:
      return ReadMethod(message.scale_norm(), field, method);
    case v1::NormSpec::kLpNorm:
      return ReadMethod(message.lp_norm(), field, method);
    case v1::NormSpec::kPowerNorm:
      return ReadMethod(message.power_norm(), field, method);
    case v1::NormSpec::METHOD_NOT_SET:
      break;
  }
  return MissingError(field, "a method");
}

void SpecToMessage(const NormSpec& spec, v1::NormSpec* message) {
  std::visit([&](const auto& method) { Write(spec, method, message); }, spec.attributes);
}

}  // namespace normd
