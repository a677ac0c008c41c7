#include "kernels/python/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "kernels/methods.h"
#include "kernels/outputs.h"
#include "kernels/plan.h"
#include "kernels/python/exact_values.h"

namespace normd {
namespace {

// The C interface passes on the sentence alone, so that its own mistakes need no reason for programs.
absl::Status OutOfRange(std::string_view field, std::string_view value, std::string_view limit) {
  return absl::InvalidArgumentError(Concat(field, " is ", value, "; it must be ", limit));
}

// The number as an enumerator of E, 0 as `absent`. `last` is the largest enumerator.
template <typename E>
absl::StatusOr<E> EnumOf(int32_t number, E absent, E last, std::string_view field) {
  if (number == 0) return absent;
  const auto most = static_cast<int32_t>(last);
  if (number < 0 || number > most) {
    return OutOfRange(field, Concat(number), Concat("between 0 and ", most));
  }
  return static_cast<E>(number);
}

absl::StatusOr<std::vector<int64_t>> Extents(const int64_t* extents, int32_t count, std::string_view field) {
  if (count < 0 || count > kMaxRank) {
    return OutOfRange(field, Concat(count, " values"), Concat("at most ", kMaxRank));
  }
  return std::vector<int64_t>(extents, extents + count);
}

absl::StatusOr<TensorView> ViewOf(const normd_golden_tensor& tensor, std::string_view field) {
  TensorView view;
  if (tensor.dtype == NORMD_ABSENT) return view;
  if (tensor.dtype < NORMD_F32 || tensor.dtype > NORMD_F64) {
    return DTypeError(Concat(field, ".dtype"), Concat(tensor.dtype));
  }
  if (tensor.rank < 0 || tensor.rank > kMaxRank) return RankError(Concat(field, ".shape"), tensor.rank, 0, kMaxRank);
  view.dtype = static_cast<DType>(tensor.dtype);
  view.shape = Shape(tensor.shape, tensor.shape + tensor.rank);
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(view.shape, field));
  view.size_bytes = elements * SizeOf(view.dtype);
  // Null stands for an absent tensor, so an empty one needs an address.
  view.data = tensor.data == nullptr && elements == 0 ? static_cast<const void*>(&tensor) : tensor.data;
  if (view.data == nullptr) return MissingError(Concat(field, ".data"), "an address");
  return view;
}

absl::StatusOr<MethodSpec> RowsOf(const normd_golden_spec& from) {
  NORMD_ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                         Extents(from.normalized_shape, from.normalized_rank, "normalized_shape"));
  NORMD_ASSIGN_OR_RETURN(std::vector<int64_t> axes, Extents(from.axes, from.num_axes, "axes"));
  switch (from.method) {
    case NORMD_LAYER_NORM:
      return LayerNormSpec{.normalized_shape = std::move(shape), .axes = std::move(axes)};
    case NORMD_RMS_NORM:
      return RmsNormSpec{.normalized_shape = std::move(shape), .axes = std::move(axes)};
    default:
      break;
  }
  LpNormSpec lp;
  lp.axes = std::move(axes);
  if (from.has_p != 0) lp.p = from.p;
  return lp;
}

absl::StatusOr<MethodSpec> PRmsOf(const normd_golden_spec& from) {
  PRmsNormSpec spec;
  if (from.has_p != 0) spec.p = from.p;
  if (from.k != 0) spec.k = from.k;
  NORMD_ASSIGN_OR_RETURN(spec.k_rounding, EnumOf(from.k_rounding, KRounding::kCeil, KRounding::kFloor, "k_rounding"));
  return spec;
}

// For the methods with channels, whose layout has no default.
absl::StatusOr<Layout> LayoutOf(const normd_golden_spec& from) {
  const bool has_channels =
      from.method == NORMD_BATCH_NORM || from.method == NORMD_INSTANCE_NORM || from.method == NORMD_GROUP_NORM;
  if (!has_channels) return Layout::kUnspecified;
  if (from.layout == NORMD_CHANNELS_FIRST) return Layout::kChannelsFirst;
  if (from.layout == NORMD_CHANNELS_LAST) return Layout::kChannelsLast;
  return OutOfRange("layout", Concat(from.layout), "NORMD_CHANNELS_FIRST or NORMD_CHANNELS_LAST");
}

absl::StatusOr<MethodSpec> AttributesOf(const normd_golden_spec& from) {
  NORMD_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(from));
  const int64_t groups = from.num_groups == 0 ? 1 : from.num_groups;
  switch (from.method) {
    case NORMD_BATCH_NORM:
      return BatchNormSpec{.layout = layout, .running = {.single_value = SingleValue::kZeroVariance}};
    case NORMD_INSTANCE_NORM:
      return InstanceNormSpec{.layout = layout};
    case NORMD_GROUP_NORM:
      return GroupNormSpec{.layout = layout, .num_groups = groups, .affine_per_group = from.affine_per_group != 0};
    case NORMD_LAYER_NORM:
    case NORMD_RMS_NORM:
    case NORMD_LP_NORM:
      return RowsOf(from);
    case NORMD_P_RMS_NORM:
      return PRmsOf(from);
    case NORMD_SCALE_NORM:
      return ScaleNormSpec();
    case NORMD_POWER_NORM:
      return PowerNormSpec{.num_groups = groups};
    default:
      return OutOfRange("method", Concat(from.method), "between 1 and 9");
  }
}

absl::StatusOr<NormSpec> SpecOf(const normd_golden_spec& from) {
  NormSpec spec;
  if (from.has_eps != 0) spec.eps = from.eps;
  spec.weight_offset = from.weight_offset;
  if (from.eps_mode != 0) {
    NORMD_ASSIGN_OR_RETURN(spec.eps_mode, EnumOf(from.eps_mode, EpsMode::kInsideSqrt, EpsMode::kClampRoot, "eps_mode"));
  }
  NORMD_ASSIGN_OR_RETURN(spec.cast_order,
                         EnumOf(from.cast_order, CastOrder::kAffineThenCast, CastOrder::kCastThenAffine, "cast_order"));
  NORMD_ASSIGN_OR_RETURN(spec.attributes, AttributesOf(from));
  return spec;
}

// A call whose numbers have been checked. Its views borrow from the call.
struct CheckedCall {
  NormSpec spec;
  NormPlan plan;
  ParameterViews parameters;
  TensorView residual;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
};

absl::Status CheckGiven(const normd_golden_call& call, const NormPlan& plan) {
  if (!plan.given_statistics) return absl::OkStatus();
  if (call.num_given != plan.keep1) return ParameterLengthError("running_var", call.num_given, plan.keep1);
  if (call.given_mean == nullptr && plan.power_groups == 0) {
    return MissingError("running_mean", "the means of running_var");
  }
  for (int64_t i = 0; i < call.num_given; ++i) {
    if (call.given_variance[i] >= 0) continue;  // NaN is refused, too
    return OutOfRange(Concat("running_var[", i, "]"), Concat(call.given_variance[i]), "at least 0");
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const normd_golden_call& call, const NormPlan& plan) {
  if (call.mask == nullptr) return absl::OkStatus();
  if (!Info(plan.method).takes_mask || plan.given_statistics) {
    return NotAllowedError("mask", Concat(Info(plan.method).name, " takes a mask in training alone, if at all"));
  }
  const int64_t positions = plan.num_channels == 0 ? 0 : plan.elements / plan.num_channels;
  if (call.num_positions != positions) return ParameterLengthError("mask", call.num_positions, positions);
  return absl::OkStatus();
}

// The inference of methods with running state has no statistics of its own.
absl::StatusOr<PlanOptions> OptionsOf(const normd_golden_call& call) {
  const bool has_state = call.spec.method == NORMD_BATCH_NORM || call.spec.method == NORMD_POWER_NORM;
  const bool given = call.given_variance != nullptr && has_state && call.training == 0;
  if (has_state && call.training == 0 && !given) {
    return MissingError("running_var", "the statistics, or training=True");
  }
  return PlanOptions{.mode = call.training != 0 ? Mode::kTraining : Mode::kInference, .given_statistics = given};
}

absl::StatusOr<CheckedCall> Check(const normd_golden_call& call) {
  CheckedCall checked;
  NORMD_ASSIGN_OR_RETURN(checked.spec, SpecOf(call.spec));
  NORMD_ASSIGN_OR_RETURN(const TensorView x, ViewOf(call.x, "x"));
  if (!x.present()) return MissingError("x", "a tensor");
  NORMD_ASSIGN_OR_RETURN(const PlanOptions options, OptionsOf(call));
  NORMD_ASSIGN_OR_RETURN(checked.plan, MakePlan(checked.spec, x.dtype, x.shape, options));
  NORMD_ASSIGN_OR_RETURN(checked.parameters.weight, ViewOf(call.weight, "weight"));
  NORMD_ASSIGN_OR_RETURN(checked.parameters.bias, ViewOf(call.bias, "bias"));
  checked.parameters.order = checked.plan.parameter_order;
  NORMD_RETURN_IF_ERROR(CheckParameters(checked.plan, checked.parameters));
  NORMD_ASSIGN_OR_RETURN(checked.residual, ViewOf(call.residual, "residual"));
  if (checked.residual.present() && checked.residual.shape != x.shape) {
    return ShapeMismatchError("residual", ShapeText(checked.residual.shape), ShapeText(x.shape));
  }
  NORMD_ASSIGN_OR_RETURN(checked.residual_rounding, EnumOf(call.residual_rounding, ResidualRounding::kRoundFirst,
                                                           ResidualRounding::kKeepWide, "residual_rounding"));
  if (!std::isfinite(call.residual_scale)) {
    return OutOfRange("residual_scale", Concat(call.residual_scale), "finite");
  }
  NORMD_RETURN_IF_ERROR(CheckGiven(call, checked.plan));
  NORMD_RETURN_IF_ERROR(CheckMask(call, checked.plan));
  return checked;
}

Job MakeJob(const normd_golden_call& call, const CheckedCall& checked, const PreparedParameters* parameters) {
  Job job;
  job.plan = &checked.plan;
  job.parameters = parameters;
  job.x = call.x.data == nullptr ? &call : call.x.data;  // an empty tensor
  job.residual = checked.residual;
  job.residual_scale = call.residual_scale;
  job.residual_rounding = checked.residual_rounding;
  job.mask = call.mask;
  if (checked.plan.given_statistics) {
    job.given_mean = call.given_mean;
    job.given_variance = call.given_variance;
  }
  job.y = call.y;
  job.h = checked.residual.present() ? call.h : nullptr;
  job.mean = call.mean;
  job.inverse_std = call.inverse_std;
  return job;
}

// On the caller's thread, whatever the work: the process may fork, and has its own threads.
absl::Status Run(const normd_golden_call& call) {
  NORMD_ASSIGN_OR_RETURN(const CheckedCall checked, Check(call));
  const std::unique_ptr<Backend> backend =
      MakeCpuBackend({.threads = 1, .inline_elements = std::numeric_limits<int64_t>::max()});
  const auto parameters = backend->Prepare(
      std::make_shared<const HostParameters>(ConvertParameters(checked.parameters, checked.spec.weight_offset)));
  absl::Status result;
  backend->Submit({MakeJob(call, checked, parameters.get())}, [&result](absl::Status status) { result = status; });
  return result;
}

absl::Status Exact(const normd_golden_call& call, const normd_golden_exact_values& values) {
  NORMD_ASSIGN_OR_RETURN(const CheckedCall checked, Check(call));
  for (const normd_golden_tensor* tensor : {&call.x, &call.residual}) {
    if (tensor->dtype == NORMD_ABSENT || tensor->dtype == NORMD_F64) continue;
    return OutOfRange(tensor == &call.x ? "x.dtype" : "residual.dtype", Concat(tensor->dtype), "NORMD_F64");
  }
  if (checked.plan.cast_order != CastOrder::kAffineThenCast) {
    return OutOfRange("cast_order", Concat(call.spec.cast_order), "NORMD_AFFINE_THEN_CAST");
  }
  std::vector<int64_t> all;
  if (values.elements == nullptr) {
    all.resize(static_cast<size_t>(checked.plan.elements));
    std::iota(all.begin(), all.end(), 0);
  }
  const absl::Span<const int64_t> wanted =
      values.elements == nullptr ? all : absl::MakeConstSpan(values.elements, static_cast<size_t>(values.count));
  for (const int64_t index : wanted) {
    if (index >= 0 && index < checked.plan.elements) continue;
    return OutOfRange("elements", Concat(index), Concat("at least 0 and below ", checked.plan.elements));
  }
  FindLowParts(MakeJob(call, checked, nullptr), ConvertParameters(checked.parameters, checked.spec.weight_offset),
               {wanted, static_cast<const double*>(call.y), values.low, values.bound});
  return absl::OkStatus();
}

int32_t CopyShape(const Shape& shape, int64_t* to) {
  std::copy(shape.begin(), shape.end(), to);
  return static_cast<int32_t>(shape.size());
}

absl::Status Describe(const normd_golden_call& call, normd_golden_plan_info* info) {
  NORMD_ASSIGN_OR_RETURN(const CheckedCall checked, Check(call));
  const NormPlan& plan = checked.plan;
  *info = {};
  info->nearest = GivesNearest(MakeJob(call, checked, nullptr)) ? 1 : 0;
  info->statistics_dtype = static_cast<int32_t>(plan.StatisticsDType());
  info->statistics_rank = CopyShape(plan.statistics_shape, info->statistics_shape);
  const Shape flat = {plan.parameter_length};
  if (TraitsOf(plan.method).takes_parameters) {
    info->parameter_rank = CopyShape(plan.parameter_shape.empty() ? flat : plan.parameter_shape, info->parameter_shape);
  }
  info->k = plan.k;
  return absl::OkStatus();
}

int Report(const absl::Status& status, char* error, size_t error_bytes) {
  if (status.ok()) return 0;
  if (error_bytes > 0) {
    const size_t n = std::min(error_bytes - 1, status.message().size());
    std::memcpy(error, status.message().data(), n);
    error[n] = '\0';
  }
  return 1;
}

}  // namespace
}  // namespace normd

int normd_golden_plan(const normd_golden_call* call, normd_golden_plan_info* info, char* error, size_t error_bytes) {
  return normd::Report(normd::Describe(*call, info), error, error_bytes);
}

int normd_golden_run(const normd_golden_call* call, char* error, size_t error_bytes) {
  return normd::Report(normd::Run(*call), error, error_bytes);
}

int normd_golden_exact(const normd_golden_call* call, const normd_golden_exact_values* values, char* error,
                       size_t error_bytes) {
  return normd::Report(normd::Exact(*call, *values), error, error_bytes);
}

size_t normd_golden_call_bytes(void) { return sizeof(normd_golden_call); }

size_t normd_golden_plan_info_bytes(void) { return sizeof(normd_golden_plan_info); }
