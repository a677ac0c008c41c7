#include "tests/support/case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <variant>

#include "absl/strings/str_join.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "tests/support/random.h"

namespace normd {
namespace {

std::string_view DataName(Data data) {
  switch (data) {
    case Data::kNormal:
      return "normal";
    case Data::kConstant:
      return "constant";
    case Data::kFarMean:
      return "far_mean";
    case Data::kVeryFar:
      return "very_far";
    case Data::kOutliers:
      return "outliers";
    case Data::kHuge:
      return "huge";
    case Data::kTiny:
      return "tiny";
    case Data::kSubnormal:
      return "subnormal";
    case Data::kMixed:
      return "mixed";
    case Data::kSteps:
      return "steps";
    case Data::kZeros:
      return "zeros";
    case Data::kSomeZeros:
      return "some_zeros";
    case Data::kNan:
      return "nan";
    case Data::kInf:
      return "inf";
    case Data::kMinusInf:
      return "minus_inf";
    case Data::kHugeConstant:
      return "huge_constant";
    case Data::kFarOutside:
      return "far_beyond";
  }
  return "";
}

// What the dtype can hold. Indexed by Range(dtype).
struct DTypeRange {
  double far_mean, huge, tiny, subnormal;
  int exponents;  // kMixed: 2^-exponents to 2^exponents
};

DTypeRange Range(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {512, 10800, 2e-6, 2e-6, 9};
    case DType::kBF16:
      return {64, 1e30, 1e-39, 1e-39, 60};
    case DType::kF64:
      return {1e6, 1e160, 1e-160, 1e-310, 300};
    case DType::kF32:
      break;
  }
  return {1e6, 1e30, 1e-39, 1e-39, 60};
}

double Value(Data data, const DTypeRange& range, int64_t i, Random& random) {
  const double n = random.Normal();
  switch (data) {
    case Data::kConstant:
      return 12345.678;
    case Data::kHugeConstant:
      return 1e150;
    case Data::kFarMean:
      return range.far_mean + n;
    case Data::kVeryFar:
      return 1e12 + n;
    case Data::kOutliers:
      return range.far_mean + (i % 997 == 0 ? 1000 : n);
    case Data::kHuge:
      return n * range.huge;
    case Data::kTiny:
    case Data::kFarOutside:
      return n * range.tiny;
    case Data::kSubnormal:
      return n * range.subnormal;
    case Data::kMixed:
      return std::ldexp(n, static_cast<int>(random.Below(2 * range.exponents + 1)) - range.exponents);
    case Data::kSteps:
      return static_cast<double>(random.Below(5) - 2);
    case Data::kZeros:
      return i % 2 == 0 ? 0.0 : -0.0;
    case Data::kSomeZeros:
      return i % 3 == 0 ? -0.0 : 3 * n + 1;
    case Data::kNormal:
    case Data::kNan:
    case Data::kInf:
    case Data::kMinusInf:
      break;
  }
  return 3 * n + 1;
}

void Set(std::string& bytes, DType dtype, int64_t i, double value) {
  oracle::StoreBits(OracleType(dtype), oracle::Encode(OracleType(dtype), value), bytes.data(), i);
}

std::string Uniform(DType dtype, int64_t count, double low, double high, Random& random) {
  std::string bytes(static_cast<size_t>(count * SizeOf(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) Set(bytes, dtype, i, random.Uniform(low, high));
  return bytes;
}

// Axes before and after the channel axis, for masks.
struct MaskExtents {
  int64_t outer = 1, channels = 1, inner = 1;
};

MaskExtents ExtentsOf(const Case& c) {
  const bool last = c.spec.method() == Method::kPowerNorm || c.spec.layout() == Layout::kChannelsLast;
  const size_t axis = last ? c.shape.size() - 1 : 1;
  MaskExtents extents;
  for (size_t i = 0; i < c.shape.size(); ++i) {
    (i < axis ? extents.outer : i == axis ? extents.channels : extents.inner) *= c.shape[i];
  }
  return extents;
}

void MakeMask(const Case& c, Random& random, CaseData* data) {
  const MaskExtents e = ExtentsOf(c);
  data->mask.resize(static_cast<size_t>(e.outer * e.inner));
  for (uint8_t& m : data->mask)
    m = c.mask != Mask::kAll && random.Below(2) == 1 ? static_cast<uint8_t>(1 + random.Below(255)) : 0;
}

// Sets the elements that the statistic leaves out: those that are masked, or behind pRMSNorm's first k.
template <typename ValueOf>
void SetLeftOut(const Case& c, const NormPlan& plan, CaseData* data, ValueOf value_of) {
  const MaskExtents e = data->mask.empty() ? MaskExtents() : ExtentsOf(c);
  for (int64_t i = 0; i < plan.elements; ++i) {
    const int64_t position = i / (e.channels * e.inner) * e.inner + i % e.inner;
    const bool left_out = data->mask.empty() ? plan.k > 0 && i % c.shape.back() >= plan.k
                                             : data->mask[static_cast<size_t>(position)] == 0;
    if (left_out) Set(data->x, c.dtype, i, value_of());
  }
}

std::string SpecText(const Case& c) {
  const NormSpec& s = c.spec;
  std::string text;
  const auto add = [&](const auto&... parts) { text += Concat("/", parts...); };
  if (s.layout() != Layout::kUnspecified) add(s.layout() == Layout::kChannelsLast ? "last" : "first");
  if (!s.normalized_shape().empty()) add("over:", absl::StrJoin(s.normalized_shape(), "x"));
  if (!s.axes().empty()) add("axes:", absl::StrJoin(s.axes(), ","));
  if (s.method() == Method::kGroupNorm || s.method() == Method::kPowerNorm) add("groups:", s.num_groups());
  if (const auto* group = std::get_if<GroupNormSpec>(&s.attributes)) {
    if (group->affine_per_group) add("per_group");
  }
  if (const auto* partial = std::get_if<PRmsNormSpec>(&s.attributes)) {
    if (partial->p.has_value()) add(partial->k_rounding == KRounding::kFloor ? "floor_p:" : "p:", *partial->p);
    if (partial->k.has_value()) add("k:", *partial->k);
  }
  if (const auto* lp = std::get_if<LpNormSpec>(&s.attributes)) {
    const std::string order = lp->p.has_value() ? Concat("p:", *lp->p) : Concat("l", lp->order);
    add(order, lp->axes.empty() ? Concat(":", lp->axis) : "");
  }
  if (s.eps.has_value()) add("eps:", *s.eps);
  if (s.eps_mode.has_value()) add("mode:", static_cast<int>(*s.eps_mode));
  if (s.cast_order == CastOrder::kCastThenAffine) add("cast_first");
  if (s.weight_offset != 0) add("offset");
  return text;
}

}  // namespace

std::string Case::Name() const {
  std::string text =
      Concat(Info(spec.method()).name, "/", normd::Name(dtype), "/", absl::StrJoin(shape, "x"), SpecText(*this));
  const auto add = [&](const auto&... parts) { text += Concat("/", parts...); };
  if (options.mode == Mode::kTraining) add("train");
  if (options.given_statistics) add("given");
  if (options.precision == Precision::kFast) add("fast");
  if (weight.has_value()) add("w:", normd::Name(*weight));
  if (bias.has_value()) add("b:", normd::Name(*bias));
  if (residual.has_value()) {
    add("r:", normd::Name(residual->dtype), "*", residual->scale,
        residual->rounding == ResidualRounding::kKeepWide ? ":wide" : "");
  }
  constexpr std::string_view kMasks[] = {"", "mask", "mask_all", "mask_nan"};
  if (mask != Mask::kNone) add(kMasks[static_cast<int>(mask)]);
  add(DataName(data));
  return text;
}

std::string MakeValues(Data data, DType dtype, int64_t count, uint64_t seed) {
  Random random(seed);
  std::string bytes(static_cast<size_t>(count * SizeOf(dtype)), '\0');
  const DTypeRange range = Range(dtype);
  for (int64_t i = 0; i < count; ++i) Set(bytes, dtype, i, Value(data, range, i, random));
  if (count == 0) return bytes;
  if (data == Data::kNan) Set(bytes, dtype, count / 3, std::numeric_limits<double>::quiet_NaN());
  if (data == Data::kInf) Set(bytes, dtype, count / 3, std::numeric_limits<double>::infinity());
  if (data == Data::kMinusInf) Set(bytes, dtype, count / 3, -std::numeric_limits<double>::infinity());
  return bytes;
}

CaseData MakeData(const Case& c, const NormPlan& plan, uint64_t salt) {
  const uint64_t seed = Fnv1a(c.Name()) ^ salt * 0x9e3779b97f4a7c15;
  Random random(seed + 1);
  CaseData data;
  data.x = MakeValues(c.data, c.dtype, plan.elements, seed);
  if (c.weight.has_value()) data.weight = Uniform(*c.weight, plan.parameter_length, -2, 2, random);
  if (c.bias.has_value()) data.bias = Uniform(*c.bias, plan.parameter_length, -3, 3, random);
  if (c.residual.has_value()) data.residual = Uniform(c.residual->dtype, plan.elements, -5, 5, random);
  if (c.options.given_statistics) {
    const double centre = c.data == Data::kFarMean ? Range(c.dtype).far_mean : 0;
    for (int64_t i = 0; i < plan.num_channels; ++i) {
      if (c.spec.method() != Method::kPowerNorm) data.given_mean.push_back(centre + random.Uniform(-2, 2));
      data.given_variance.push_back(random.Uniform(0.01, 4));
    }
  }
  if (c.mask != Mask::kNone) MakeMask(c, random, &data);
  if (c.mask == Mask::kNanUnder) {
    SetLeftOut(c, plan, &data, [] { return std::numeric_limits<double>::quiet_NaN(); });
  }
  if (c.data == Data::kFarOutside) SetLeftOut(c, plan, &data, [&] { return random.Normal() * 1e140; });
  return data;
}

oracle::Type OracleType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return oracle::Type::kF16;
    case DType::kBF16:
      return oracle::Type::kBF16;
    case DType::kF64:
      return oracle::Type::kF64;
    case DType::kF32:
      break;
  }
  return oracle::Type::kF32;
}

oracle::Bound BoundOf(const NormPlan& plan, DType dtype) {
  return plan.precision == Precision::kFast ? oracle::FastBound() : oracle::ExactBound(OracleType(dtype));
}

oracle::Spec OracleSpec(const Case& c) {
  oracle::Spec spec;
  spec.method = static_cast<oracle::Method>(c.spec.method());  // both number the methods as the wire does
  spec.eps = c.spec.eps;
  if (c.spec.eps_mode.has_value()) spec.eps_mode = static_cast<oracle::EpsMode>(*c.spec.eps_mode);
  spec.cast_then_affine = c.spec.cast_order == CastOrder::kCastThenAffine;
  spec.weight_offset = c.spec.weight_offset;
  spec.channels_last = c.spec.layout() == Layout::kChannelsLast;
  spec.axes.assign(c.spec.axes().begin(), c.spec.axes().end());
  const size_t trailing = c.spec.normalized_shape().size();
  const auto rank = static_cast<int64_t>(c.shape.size());
  for (size_t i = 0; i < trailing; ++i) spec.axes.push_back(rank - static_cast<int64_t>(trailing - i));
  spec.num_groups = c.spec.num_groups();
  if (const auto* group = std::get_if<GroupNormSpec>(&c.spec.attributes)) {
    spec.affine_per_group = group->affine_per_group;
  }
  if (const auto* partial = std::get_if<PRmsNormSpec>(&c.spec.attributes)) {
    if (partial->p.has_value()) {
      spec.k = oracle::PartialLength(*partial->p, c.shape.back(), partial->k_rounding == KRounding::kFloor);
    }
    if (partial->k.has_value()) spec.k = *partial->k;
  }
  if (const auto* lp = std::get_if<LpNormSpec>(&c.spec.attributes)) {
    if (lp->axes.empty()) spec.axes = {lp->axis};
    spec.p = lp->Power();
  }
  return spec;
}

std::vector<oracle::Wide> OracleValues(DType dtype, const std::string& bytes) {
  std::vector<oracle::Wide> values;
  const auto count = static_cast<int64_t>(bytes.size()) / SizeOf(dtype);
  for (int64_t i = 0; i < count; ++i) values.push_back(oracle::Load(OracleType(dtype), bytes.data(), i));
  return values;
}

oracle::Input OracleInput(const Case& c, const CaseData& data) {
  oracle::Input input;
  input.type = OracleType(c.dtype);
  input.shape = c.shape;
  input.x = OracleValues(c.dtype, data.x);
  if (c.weight.has_value()) input.weight = OracleValues(*c.weight, data.weight);
  if (c.bias.has_value()) input.bias = OracleValues(*c.bias, data.bias);
  if (c.residual.has_value()) {
    input.residual = OracleValues(c.residual->dtype, data.residual);
    input.residual_scale = c.residual->scale;
    input.keep_wide = c.residual->rounding == ResidualRounding::kKeepWide;
  }
  input.mask = data.mask;
  input.given_mean.assign(data.given_mean.begin(), data.given_mean.end());
  input.given_variance.assign(data.given_variance.begin(), data.given_variance.end());
  return input;
}

}  // namespace normd
