// MakePlan: a valid spec meets a shape. Geometry is lowered in norm_lower.cc.
#include "kernels/norm.h"

#include <algorithm>
#include <charconv>

#include "kernels/errors.h"
#include "kernels/methods.h"
#include "kernels/norm_lower.h"
#include "kernels/text.h"

namespace normd {

namespace {

constexpr double kMomentumOfNew = 0.1;
constexpr double kMomentumOfOld = 0.9;

std::string Path(const NormSpec& spec, std::string_view field) {
  return Concat("spec.", Info(spec.method).name, ".", field);
}

bool HasChannels(Method method) {
  return method == Method::kBatchNorm || method == Method::kInstanceNorm || method == Method::kGroupNorm ||
         method == Method::kPowerNorm;
}

absl::Status CheckOptions(const NormSpec& spec, const PlanOptions& options) {
  if (options.mode != Mode::kInference && options.mode != Mode::kTraining) {
    return OutOfRangeError("mode", Concat(static_cast<int>(options.mode)), "MODE_INFERENCE or MODE_TRAINING",
                           "UNKNOWN_ENUM_VALUE");
  }
  if (options.given_statistics && !spec.HasState()) {
    return NotAllowedError("parameters.running_mean",
                           Concat(Info(spec.method).name, " of this spec uses no running statistics"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CheckTensor(Method method, DType dtype, absl::Span<const int64_t> shape) {
  if (SizeOf(dtype) == 0) return DTypeError("x.dtype", Concat(static_cast<int>(dtype)));
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t min_rank = HasChannels(method) ? 2 : 1;
  if (rank < min_rank || rank > kMaxRank) return RankError("x.shape", rank, min_rank, kMaxRank);
  return CheckedElementCount(shape, "x");
}

// The axis counted from the front.
absl::StatusOr<int64_t> ResolveAxis(std::string_view path, int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return OutOfRangeError(path, Concat(axis), Concat("between ", -rank, " and ", rank - 1, " for rank ", rank),
                         "AXIS_OUT_OF_RANGE");
}

absl::StatusOr<Shape> ListedAxes(const NormSpec& spec, int64_t rank) {
  Shape axes;
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    const std::string path = Path(spec, Concat("axes[", i, "]"));
    const absl::StatusOr<int64_t> axis = ResolveAxis(path, spec.axes[i], rank);
    if (!axis.ok()) return axis.status();
    if (std::find(axes.begin(), axes.end(), *axis) != axes.end()) {
      return OutOfRangeError(path, Concat(spec.axes[i]), "an axis that is not listed before", "DUPLICATE_AXIS");
    }
    axes.push_back(*axis);
  }
  return axes;
}

absl::StatusOr<Shape> TrailingAxes(const NormSpec& spec, absl::Span<const int64_t> shape) {
  const absl::Span<const int64_t> wanted = spec.normalized_shape;
  const bool fits = wanted.size() <= shape.size();
  const size_t first = fits ? shape.size() - wanted.size() : 0;
  if (!fits || shape.subspan(first) != wanted) {
    return ShapeMismatchError(Path(spec, "normalized_shape"), ShapeText(wanted),
                              Concat("the trailing extents of x, whose shape is ", ShapeText(shape)));
  }
  Shape axes;
  for (size_t axis = first; axis < shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return axes;
}

// The axes that LayerNorm, RMSNorm, pRMSNorm, ScaleNorm and LpNorm reduce, in the order listed.
absl::StatusOr<Shape> ReducedAxes(const NormSpec& spec, absl::Span<const int64_t> shape) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (spec.method == Method::kLayerNorm && !spec.normalized_shape.empty()) return TrailingAxes(spec, shape);
  const bool takes_axes = spec.method == Method::kLayerNorm || spec.method == Method::kRmsNorm;
  if (takes_axes && !spec.axes.empty()) return ListedAxes(spec, rank);
  if (spec.method == Method::kLpNorm) {
    const absl::StatusOr<int64_t> axis = ResolveAxis(Path(spec, "axis"), spec.axis, rank);
    if (!axis.ok()) return axis.status();
    return Shape{*axis};
  }
  return Shape{rank - 1};
}

// pRMSNorm's k for rows of d elements. An empty row has no elements to count, whatever p says.
absl::StatusOr<int64_t> PartialCount(const NormSpec& spec, int64_t d) {
  if (spec.k.has_value()) {
    if (*spec.k <= d) return *spec.k;
    return OutOfRangeError(Path(spec, "k"), Concat(*spec.k), Concat("between 1 and the last extent of x, ", d),
                           "K_OUT_OF_RANGE");
  }
  const int64_t k = PartialLength(*spec.p, d, spec.k_rounding);
  if (k >= 1 || d == 0) return k;
  return OutOfRangeError(Path(spec, "p"), NumberText(*spec.p),
                         Concat("large enough that floor(p * ", d, ") is at least 1"), "K_OUT_OF_RANGE");
}

// PowerNorm's channels are the last axis; the others say.
Layout LayoutOf(const NormSpec& spec) {
  return spec.method == Method::kPowerNorm ? Layout::kChannelsLast : spec.layout;
}

// One group of no channels is what an empty tensor has.
absl::Status CheckGroups(const NormSpec& spec, int64_t channels) {
  if (spec.num_groups <= std::max<int64_t>(1, channels) && channels % spec.num_groups == 0) return absl::OkStatus();
  return OutOfRangeError(Path(spec, "num_groups"), Concat(spec.num_groups),
                         Concat("a divisor of the number of channels, ", channels), "NUM_GROUPS_OUT_OF_RANGE");
}

absl::Status CheckSingleValue(const NormSpec& spec, const NormPlan& plan) {
  const bool computed = plan.mode == Mode::kTraining && !plan.given_statistics && plan.elements > 0;
  if (!computed || plan.SetSize() != 1 || spec.running.single_value != SingleValue::kRefuse) return absl::OkStatus();
  return OutOfRangeError("x.shape", ShapeText(plan.shape),
                         "of more than one value per channel in training, unless single_value is ZERO_VARIANCE",
                         "SINGLE_VALUE_PER_CHANNEL");
}

absl::Status LowerByAxes(const NormSpec& spec, NormPlan* plan) {
  const absl::StatusOr<Shape> axes = ReducedAxes(spec, plan->shape);
  if (!axes.ok()) return axes.status();
  if (spec.method == Method::kPRmsNorm) {
    const absl::StatusOr<int64_t> k = PartialCount(spec, plan->shape.back());
    if (!k.ok()) return k.status();
    plan->k = *k;
  }
  LowerAxes(*axes, plan);
  if (spec.method == Method::kPRmsNorm) plan->statistic_reduce1 = plan->k;
  if (spec.method == Method::kScaleNorm) UseScalarParameter(plan);
  if (spec.method == Method::kLpNorm) {
    plan->zero_norm_gives_zero = true;
    plan->parameter_length = 0;
    plan->parameter_shape.clear();
  }
  return absl::OkStatus();
}

absl::Status LowerByChannels(const NormSpec& spec, NormPlan* plan) {
  const Layout layout = LayoutOf(spec);
  const int64_t channels = plan->shape[ChannelAxis(layout, static_cast<int64_t>(plan->shape.size()))];
  if (spec.method == Method::kGroupNorm || spec.method == Method::kPowerNorm) {
    if (absl::Status status = CheckGroups(spec, channels); !status.ok()) return status;
  }
  if (spec.method == Method::kPowerNorm) {
    LowerPower(spec.num_groups, plan);
  } else if (spec.method == Method::kGroupNorm) {
    LowerGroups(layout, spec.num_groups, spec.affine_per_group, plan);
  } else if (spec.method == Method::kInstanceNorm && !plan->given_statistics) {
    LowerInstances(layout, plan);
  } else {
    LowerChannels(layout, plan);
  }
  return spec.method == Method::kBatchNorm ? CheckSingleValue(spec, *plan) : absl::OkStatus();
}

Statistic StatisticOf(const NormSpec& spec) {
  switch (spec.method) {
    case Method::kRmsNorm:
    case Method::kPRmsNorm:
    case Method::kPowerNorm:
      return Statistic::kMeanSquare;
    case Method::kScaleNorm:
      return Statistic::kSumSquares;
    case Method::kLpNorm:
      return spec.order == 1 ? Statistic::kAbsSum : Statistic::kSumSquares;
    case Method::kBatchNorm:
    case Method::kLayerNorm:
    case Method::kInstanceNorm:
    case Method::kGroupNorm:
      break;
  }
  return Statistic::kMeanVariance;
}

// digits * 10^exponent.
struct Decimal {
  uint64_t digits = 0;
  int exponent = 0;
};

// The shortest decimal that reads back as p. REQUIRES: 0 < p <= 1.
Decimal ShortestDecimal(double p) {
  char text[32];  // "7e-02", "2.9e-01"
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), p, std::chars_format::scientific);
  const char* const e = std::find(text, end.ptr, 'e');
  const char* const point = std::find(static_cast<const char*>(text), e, '.');
  Decimal decimal;
  std::from_chars(e + (e[1] == '+' ? 2 : 1), end.ptr, decimal.exponent);
  for (const char* c = text; c != e; ++c) {
    if (c != point) decimal.digits = decimal.digits * 10 + static_cast<uint64_t>(*c - '0');
  }
  if (point != e) decimal.exponent -= static_cast<int>(e - point) - 1;
  return decimal;
}

}  // namespace

double RunningSpec::ResolvedMomentum() const {
  return momentum.value_or(momentum_of == MomentumOf::kNew ? kMomentumOfNew : kMomentumOfOld);
}

double RunningSpec::NewWeight(uint64_t num_batches) const {
  if (cumulative) return 1.0 / static_cast<double>(std::max<uint64_t>(1, num_batches));
  return momentum_of == MomentumOf::kNew ? ResolvedMomentum() : 1 - ResolvedMomentum();
}

bool NormSpec::HasState() const {
  return method == Method::kBatchNorm || method == Method::kPowerNorm ||
         (method == Method::kInstanceNorm && track_running_statistics);
}

absl::StatusOr<NormPlan> MakePlan(const NormSpec& spec, DType dtype, absl::Span<const int64_t> shape,
                                  const PlanOptions& options) {
  if (absl::Status status = ValidateSpec(spec); !status.ok()) return PrefixField(status, "spec");
  if (absl::Status status = CheckOptions(spec, options); !status.ok()) return status;
  const absl::StatusOr<int64_t> elements = CheckTensor(spec.method, dtype, shape);
  if (!elements.ok()) return elements.status();

  const MethodInfo& info = Info(spec.method);
  NormPlan plan;
  plan.method = spec.method;
  plan.mode = options.mode;
  plan.statistic = StatisticOf(spec);
  plan.given_statistics = options.given_statistics;
  plan.dtype = dtype;
  plan.shape.assign(shape.begin(), shape.end());
  plan.elements = *elements;
  plan.eps = spec.eps.value_or(info.default_eps) + 0.0;  // -0 becomes 0
  plan.eps_mode = spec.eps_mode.value_or(info.default_eps_mode);
  if (spec.method != Method::kLpNorm) plan.cast_order = spec.cast_order;
  const bool has_fast =
      dtype != DType::kF64 && spec.method != Method::kPowerNorm && plan.cast_order == CastOrder::kAffineThenCast;
  if (has_fast) plan.precision = options.precision;
  const absl::Status lowered = HasChannels(spec.method) ? LowerByChannels(spec, &plan) : LowerByAxes(spec, &plan);
  if (!lowered.ok()) return lowered;
  return plan;
}

int64_t PartialLength(double p, int64_t d, KRounding rounding) {
  const Decimal decimal = ShortestDecimal(p);
  // At most 17 digits times d < 2^63: below 2^120.
  __extension__ unsigned __int128 product = static_cast<uint64_t>(d);
  product *= decimal.digits;
  bool exact = true;
  for (int exponent = decimal.exponent; exponent < 0 && product != 0; ++exponent) {
    exact = exact && product % 10 == 0;
    product /= 10;
  }
  const int64_t k = static_cast<int64_t>(product);
  return rounding == KRounding::kCeil && !exact ? k + 1 : k;
}

}  // namespace normd
