// Every refusal of a spec or a shape: the field's path, what was sent, the limit, the reason.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "kernels/methods.h"
#include "kernels/plan.h"
#include "tests/support/constants.h"
#include "tests/support/spec.h"

namespace normd {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Path(Method method, const std::string& field) { return std::string(Info(method).name) + "." + field; }

struct Refusal {
  std::string field, value, limit, reason;
};

void ExpectRefused(const absl::Status& status, const Refusal& refusal) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(detail->field, refusal.field);
  EXPECT_EQ(detail->value, refusal.value) << status;
  EXPECT_EQ(detail->limit, refusal.limit) << status;
  EXPECT_EQ(detail->reason, refusal.reason) << status;
  const std::string message(status.message());
  if (refusal.reason == "NOT_ALLOWED") {
    EXPECT_THAT(message, AnyOf(StartsWith(refusal.field + " is given, but "), StartsWith(refusal.field + " and ")));
    EXPECT_THAT(message, AnyOf(EndsWith("; leave it out"), EndsWith(" are both given; give one of them")));
    return;
  }
  // What a tensor has is said of the tensor: "x has rank 9" for the field x.shape.
  const std::string tensor = refusal.field.substr(0, refusal.field.rfind(".shape"));
  EXPECT_THAT(message, AnyOf(StartsWith(refusal.field + " is "), StartsWith(tensor + " has ")));
  EXPECT_THAT(message, HasSubstr(refusal.value));
  EXPECT_THAT(message, EndsWith((refusal.reason == "MISSING_FIELD" ? "give " : "") + refusal.limit));
}

// Refused without a tensor, and by MakePlan under "spec.".
void ExpectSpecRefused(const NormSpec& spec, Refusal refusal) {
  ExpectRefused(ValidateSpec(spec), refusal);
  refusal.field = "spec." + refusal.field;
  ExpectRefused(MakePlan(spec, DType::kF32, {4, 8}, {}).status(), refusal);
}

// A good spec that this shape refuses.
void ExpectShapeRefused(const NormSpec& spec, const std::vector<int64_t>& shape, const Refusal& refusal,
                        const PlanOptions& options = {}) {
  EXPECT_TRUE(ValidateSpec(spec).ok());
  ExpectRefused(MakePlan(spec, DType::kF32, shape, options).status(), refusal);
}

TEST(ValidateSpec, AcceptsEveryMethodWithItsDefaults) {
  for (const Method method : kAllMethods) EXPECT_TRUE(ValidateSpec(MinimalSpec(method)).ok());
}

TEST(ValidateSpec, RefusesEpsThatIsNegativeOrNotFinite) {
  const std::pair<double, std::string> values[] = {
      {-1e-5, "-1e-05"}, {-5e-324, "-5e-324"}, {kNan, "nan"}, {kInf, "inf"}, {-kInf, "-inf"}};
  for (const Method method : kAllMethods) {
    for (const auto& [eps, text] : values) {
      NormSpec spec = MinimalSpec(method);
      spec.eps = eps;
      ExpectSpecRefused(spec, {Path(method, "eps"), text, "finite and at least 0", "EPS_OUT_OF_RANGE"});
    }
  }
}

TEST(ValidateSpec, RefusesUnknownEnumValuesOfEveryMethod) {
  for (const Method method : kAllMethods) {
    for (const int number : {0, 4, 200}) {
      NormSpec spec = MinimalSpec(method);
      spec.eps_mode = static_cast<EpsMode>(number);
      ExpectSpecRefused(spec,
                        {Path(method, "eps_mode"), std::to_string(number),
                         "EPS_MODE_INSIDE_SQRT, EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT", "UNKNOWN_ENUM_VALUE"});
      if (method == Method::kLpNorm) continue;  // has no cast_order
      spec = MinimalSpec(method);
      spec.cast_order = static_cast<CastOrder>(number);
      ExpectSpecRefused(spec, {Path(method, "cast_order"), std::to_string(number),
                               "CAST_ORDER_AFFINE_THEN_CAST or CAST_ORDER_CAST_THEN_AFFINE", "UNKNOWN_ENUM_VALUE"});
    }
  }
}

TEST(ValidateSpec, RefusesAWeightOffsetOtherThanZeroAndOne) {
  for (const Method method : kAllMethods) {
    NormSpec spec = MinimalSpec(method);
    spec.weight_offset = 1;
    EXPECT_TRUE(ValidateSpec(spec).ok());
    if (method == Method::kLpNorm) continue;  // has none
    for (const auto& [offset, text] :
         {std::pair(0.5, "0.5"), std::pair(-1.0, "-1"), std::pair(2.0, "2"), std::pair(kNan, "nan")}) {
      spec.weight_offset = offset;
      ExpectSpecRefused(spec, {Path(method, "weight_offset"), text, "0 or 1", "WEIGHT_OFFSET_OUT_OF_RANGE"});
    }
  }
}

TEST(ValidateSpec, RefusesALayoutThatIsNotDeclared) {
  const std::string limit = "LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST";
  for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm, Method::kGroupNorm}) {
    ExpectSpecRefused(SpecOf(method), {Path(method, "layout"), "", limit, "MISSING_FIELD"});
    const NormSpec unknown = SpecOf(method, static_cast<Layout>(3));
    ExpectSpecRefused(unknown, {Path(method, "layout"), "3", limit, "UNKNOWN_ENUM_VALUE"});
  }
}

TEST(ValidateSpec, RefusesAMomentumOutsideZeroToOne) {
  for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm}) {
    for (const auto& [momentum, text] : {std::pair(-0.1, "-0.1"), std::pair(1.5, "1.5"), std::pair(kNan, "nan"),
                                         std::pair(kInf, "inf"), std::pair(1.0000000000000002, "1.0000000000000002")}) {
      NormSpec spec = MinimalSpec(method);
      SetRunning(&spec, {.momentum = momentum});
      ExpectSpecRefused(spec, {Path(method, "running.momentum"), text, "between 0 and 1", "MOMENTUM_OUT_OF_RANGE"});
    }
    for (const double momentum : {0.0, 0.1, 1.0}) {
      NormSpec spec = MinimalSpec(method);
      SetRunning(&spec, {.momentum = momentum});
      EXPECT_TRUE(ValidateSpec(spec).ok());
    }
  }
}

TEST(ValidateSpec, RefusesAMomentumBesideCumulative) {
  NormSpec spec = MinimalSpec(Method::kBatchNorm);
  SetRunning(&spec, {.cumulative = true});
  EXPECT_TRUE(ValidateSpec(spec).ok());
  SetRunning(&spec, {.momentum = 0.5, .cumulative = true});
  ExpectSpecRefused(spec, {"batch_norm.running.momentum", "", "absent", "NOT_ALLOWED"});
}

TEST(ValidateSpec, RefusesUnknownEnumValuesOfRunningStatistics) {
  for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm}) {
    NormSpec spec = MinimalSpec(method);
    SetRunning(&spec, {.momentum_of = static_cast<MomentumOf>(3)});
    ExpectSpecRefused(
        spec, {Path(method, "running.momentum_of"), "3", "MOMENTUM_OF_NEW or MOMENTUM_OF_OLD", "UNKNOWN_ENUM_VALUE"});
    SetRunning(&spec, {.variance = static_cast<RunningVariance>(0)});
    ExpectSpecRefused(spec, {Path(method, "running.variance"), "0",
                             "RUNNING_VARIANCE_UNBIASED or RUNNING_VARIANCE_BIASED", "UNKNOWN_ENUM_VALUE"});
    SetRunning(&spec, {.single_value = static_cast<SingleValue>(9)});
    ExpectSpecRefused(spec, {Path(method, "running.single_value"), "9",
                             "SINGLE_VALUE_REFUSE or SINGLE_VALUE_ZERO_VARIANCE", "UNKNOWN_ENUM_VALUE"});
  }
}

TEST(ValidateSpec, RefusesFewerThanOneGroup) {
  for (const Method method : {Method::kGroupNorm, Method::kPowerNorm}) {
    for (const int64_t groups : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      NormSpec spec = MinimalSpec(method);
      SetNumGroups(&spec, groups);
      ExpectSpecRefused(spec,
                        {Path(method, "num_groups"), std::to_string(groups), "at least 1", "NUM_GROUPS_OUT_OF_RANGE"});
    }
  }
}

TEST(ValidateSpec, RefusesLayerNormWithoutOrWithBothWaysOfNamingItsAxes) {
  ExpectSpecRefused({.attributes = LayerNormSpec()},
                    {"layer_norm.normalized_shape", "", "normalized_shape or axes", "MISSING_FIELD"});
  const LayerNormSpec both = {.normalized_shape = {8}, .axes = {-1}};
  ExpectSpecRefused({.attributes = both}, {"layer_norm.axes", "", "absent", "NOT_ALLOWED"});
}

TEST(ValidateSpec, RefusesRmsNormWithBothWaysOfNamingItsAxes) {
  EXPECT_TRUE(ValidateSpec({.attributes = RmsNormSpec()}).ok()) << "the last axis";
  const RmsNormSpec both = {.normalized_shape = {8}, .axes = {-1}};
  ExpectSpecRefused({.attributes = both}, {"rms_norm.axes", "", "absent", "NOT_ALLOWED"});
}

TEST(ValidateSpec, RefusesANormalizedShapeThatNoTensorHas) {
  for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
    NormSpec spec = SpecOf(method);
    SetNormalizedShape(&spec, {4, -3});
    ExpectSpecRefused(spec, {Path(method, "normalized_shape[1]"), "-3", "at least 0", "NEGATIVE_DIMENSION"});
    SetNormalizedShape(&spec, std::vector<int64_t>(9, 1));
    ExpectSpecRefused(spec, {Path(method, "normalized_shape"), "9", "between 1 and 8", "RANK_OUT_OF_RANGE"});
  }
}

TEST(ValidateSpec, RefusesAxesThatNoTensorHas) {
  for (const Method method : {Method::kLayerNorm, Method::kRmsNorm, Method::kLpNorm}) {
    NormSpec spec = MinimalSpec(method);
    for (const int64_t axis : {int64_t{8}, int64_t{-9}, std::numeric_limits<int64_t>::min()}) {
      SetAxes(&spec, {0, axis});
      ExpectSpecRefused(spec, {Path(method, "axes[1]"), std::to_string(axis), "between -8 and 7", "AXIS_OUT_OF_RANGE"});
    }
    SetAxes(&spec, std::vector<int64_t>(9, 0));
    ExpectSpecRefused(spec, {Path(method, "axes"), "9 axes", "at most 8 axes", "AXES_OUT_OF_RANGE"});
  }
  ExpectSpecRefused({.attributes = LpNormSpec{.axis = -9}},
                    {"lp_norm.axis", "-9", "between -8 and 7", "AXIS_OUT_OF_RANGE"});
}

TEST(ValidateSpec, RefusesPartialNormsWithoutExactlyOneOfPAndK) {
  ExpectSpecRefused({.attributes = PRmsNormSpec()}, {"p_rms_norm.p", "", "p or k", "MISSING_FIELD"});
  const PRmsNormSpec both = {.p = 0.5, .k = 1};
  ExpectSpecRefused({.attributes = both}, {"p_rms_norm.k", "", "absent", "NOT_ALLOWED"});
}

TEST(ValidateSpec, RefusesPOutsideZeroToOneAndKUnderOne) {
  for (const auto& [p, text] :
       {std::pair(0.0, "0"), std::pair(-0.0, "-0"), std::pair(-0.5, "-0.5"),
        std::pair(1.0000000000000002, "1.0000000000000002"), std::pair(kNan, "nan"), std::pair(kInf, "inf")}) {
    ExpectSpecRefused({.attributes = PRmsNormSpec{.p = p}},
                      {"p_rms_norm.p", text, "above 0 and at most 1", "P_OUT_OF_RANGE"});
  }
  for (const int64_t k : {0, -3}) {
    ExpectSpecRefused({.attributes = PRmsNormSpec{.k = k}},
                      {"p_rms_norm.k", std::to_string(k), "at least 1", "K_OUT_OF_RANGE"});
  }
  ExpectSpecRefused({.attributes = PRmsNormSpec{.p = 0.5, .k_rounding = static_cast<KRounding>(3)}},
                    {"p_rms_norm.k_rounding", "3", "K_ROUNDING_CEIL or K_ROUNDING_FLOOR", "UNKNOWN_ENUM_VALUE"});
}

TEST(ValidateSpec, RefusesLpOrdersUnderOne) {
  for (const int64_t order : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    ExpectSpecRefused({.attributes = LpNormSpec{.order = order}},
                      {"lp_norm.order", std::to_string(order), "at least 1", "ORDER_OUT_OF_RANGE"});
  }
  for (const int64_t order : {int64_t{1}, int64_t{2}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(ValidateSpec({.attributes = LpNormSpec{.order = order}}).ok()) << order;
  }
}

TEST(ValidateSpec, RefusesLpPowersUnderOne) {
  for (const auto& [p, text] :
       {std::pair(0.5, "0.5"), std::pair(0.9999999999999999, "0.9999999999999999"), std::pair(0.0, "0"),
        std::pair(-2.0, "-2"), std::pair(kNan, "nan"), std::pair(-kInf, "-inf")}) {
    ExpectSpecRefused({.attributes = LpNormSpec{.p = p}}, {"lp_norm.p", text, "at least 1", "P_OUT_OF_RANGE"});
  }
  for (const double p : {1.0, 1.0000000000000002, 1.5, 2.0, 1e300, kInf}) {
    EXPECT_TRUE(ValidateSpec({.attributes = LpNormSpec{.p = p}}).ok()) << p;
  }
}

TEST(ValidateSpec, RefusesASquareRootForEveryNormButTheL2Norm) {
  for (const LpNormSpec& norm : {LpNormSpec{.order = 1}, LpNormSpec{.order = 3}, LpNormSpec{.p = 1.0},
                                 LpNormSpec{.p = 1.5}, LpNormSpec{.p = kInf}}) {
    NormSpec spec = {.eps_mode = EpsMode::kInsideSqrt, .attributes = norm};
    ExpectSpecRefused(spec, {"lp_norm.eps_mode", "EPS_MODE_INSIDE_SQRT",
                             "EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT for an order other than 2, which takes no "
                             "square root",
                             "EPS_MODE_NOT_SUPPORTED"});
    for (const EpsMode mode : {EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      spec.eps_mode = mode;
      EXPECT_TRUE(ValidateSpec(spec).ok());
    }
  }
  for (const LpNormSpec& norm : {LpNormSpec{.order = 2}, LpNormSpec{.p = 2.0}}) {
    EXPECT_TRUE(ValidateSpec({.eps_mode = EpsMode::kInsideSqrt, .attributes = norm}).ok());
  }
}

TEST(ValidateSpec, RefusesWhatPowerNormDoesNotDo) {
  NormSpec spec = MinimalSpec(Method::kPowerNorm);
  spec.eps_mode = EpsMode::kInsideSqrt;
  EXPECT_TRUE(ValidateSpec(spec).ok());
  spec.eps_mode = EpsMode::kAddToRoot;
  ExpectSpecRefused(spec,
                    {"power_norm.eps_mode", "EPS_MODE_ADD_TO_ROOT", "EPS_MODE_INSIDE_SQRT", "EPS_MODE_NOT_SUPPORTED"});
  spec.eps_mode = EpsMode::kClampRoot;
  ExpectSpecRefused(spec,
                    {"power_norm.eps_mode", "EPS_MODE_CLAMP_ROOT", "EPS_MODE_INSIDE_SQRT", "EPS_MODE_NOT_SUPPORTED"});
  for (const auto& [alpha, text] : {std::pair(-0.1, "-0.1"), std::pair(1.1, "1.1"), std::pair(kNan, "nan")}) {
    ExpectSpecRefused({.attributes = PowerNormSpec{.alpha_fwd = alpha}},
                      {"power_norm.alpha_fwd", text, "between 0 and 1", "ALPHA_FWD_OUT_OF_RANGE"});
  }
  ExpectSpecRefused({.attributes = PowerNormSpec{.warmup_iters = -1}},
                    {"power_norm.warmup_iters", "-1", "at least 0", "WARMUP_ITERS_OUT_OF_RANGE"});
}

TEST(MakePlan, RefusesATooSmallOrTooLargeRank) {
  for (const Method method : kAllMethods) {
    const bool channels = method == Method::kBatchNorm || method == Method::kInstanceNorm ||
                          method == Method::kGroupNorm || method == Method::kPowerNorm;
    const std::string limit = channels ? "between 2 and 8" : "between 1 and 8";
    ExpectShapeRefused(MinimalSpec(method), {}, {"x.shape", "0", limit, "RANK_OUT_OF_RANGE"});
    ExpectShapeRefused(MinimalSpec(method), std::vector<int64_t>(9, 1), {"x.shape", "9", limit, "RANK_OUT_OF_RANGE"});
    if (channels) ExpectShapeRefused(MinimalSpec(method), {4}, {"x.shape", "1", limit, "RANK_OUT_OF_RANGE"});
    EXPECT_EQ(MakePlan(MinimalSpec(method), DType::kF32, std::vector<int64_t>(channels ? 2 : 1, 3), {}).status(),
              absl::OkStatus());
    EXPECT_EQ(MakePlan(MinimalSpec(method), DType::kF32, std::vector<int64_t>(8, 2), {}).status(), absl::OkStatus());
  }
}

TEST(MakePlan, RefusesNegativeAndOverflowingDimensionsForEveryMethod) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::string limit = "a product of its non-zero dimensions below 2^60";
  for (const Method method : kAllMethods) {
    const NormSpec spec = MinimalSpec(method);
    ExpectShapeRefused(spec, {2, 4, -3}, {"x.shape[2]", "-3", "at least 0", "NEGATIVE_DIMENSION"});
    ExpectShapeRefused(spec, {-1, 0}, {"x.shape[0]", "-1", "at least 0", "NEGATIVE_DIMENSION"});
    ExpectShapeRefused(spec, {kMax, kMax},
                       {"x.shape", "[9223372036854775807,9223372036854775807]", limit, "SHAPE_OVERFLOW"});
    ExpectShapeRefused(spec, {int64_t{1} << 32, int64_t{1} << 32, 0},
                       {"x.shape", "[4294967296,4294967296,0]", limit, "SHAPE_OVERFLOW"});
    ExpectShapeRefused(spec, {0, int64_t{1} << 32, int64_t{1} << 32},
                       {"x.shape", "[0,4294967296,4294967296]", limit, "SHAPE_OVERFLOW"});
  }
}

TEST(MakePlan, RefusesAnUnknownDTypeOrMode) {
  const NormSpec spec = MinimalSpec(Method::kRmsNorm);
  for (const int number : {0, 5}) {
    ExpectRefused(MakePlan(spec, static_cast<DType>(number), {2, 4}, {}).status(),
                  {"x.dtype", std::to_string(number), "f32, f16, bf16 or f64", "UNSUPPORTED_DTYPE"});
  }
  ExpectShapeRefused(spec, {2, 4}, {"mode", "3", "MODE_INFERENCE or MODE_TRAINING", "UNKNOWN_ENUM_VALUE"},
                     {.mode = static_cast<Mode>(3)});
}

TEST(MakePlan, RefusesANormalizedShapeThatIsNotTrailing) {
  for (const std::vector<int64_t>& wanted :
       {std::vector<int64_t>{4}, {3, 7}, {2, 3}, {8, 3}, {1}, {2, 2, 3, 8}, {3, 8, 1}}) {
    for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
      NormSpec spec = SpecOf(method);
      SetNormalizedShape(&spec, wanted);
      ExpectShapeRefused(spec, {2, 3, 8},
                         {"spec." + Path(method, "normalized_shape"), ShapeText(wanted),
                          "the trailing extents of x, whose shape is [2,3,8]", "SHAPE_MISMATCH"});
    }
  }
}

TEST(MakePlan, RefusesOutOfRangeAndDuplicateAxes) {
  for (const Method method : {Method::kLayerNorm, Method::kRmsNorm, Method::kLpNorm}) {
    NormSpec spec = MinimalSpec(method);
    const std::string prefix = "spec." + Path(method, "");
    SetAxes(&spec, {3});
    ExpectShapeRefused(spec, {2, 3, 8}, {prefix + "axes[0]", "3", "between -3 and 2 for rank 3", "AXIS_OUT_OF_RANGE"});
    SetAxes(&spec, {0, -4});
    ExpectShapeRefused(spec, {2, 3, 8}, {prefix + "axes[1]", "-4", "between -3 and 2 for rank 3", "AXIS_OUT_OF_RANGE"});
    SetAxes(&spec, {1, 1});
    ExpectShapeRefused(spec, {2, 3, 8},
                       {prefix + "axes[1]", "1", "an axis that is not listed before", "DUPLICATE_AXIS"});
    SetAxes(&spec, {2, 0, -1});  // the same axis counted from the end
    ExpectShapeRefused(spec, {2, 3, 8},
                       {prefix + "axes[2]", "-1", "an axis that is not listed before", "DUPLICATE_AXIS"});
  }
  ExpectShapeRefused({.attributes = LpNormSpec{.axis = 3}}, {2, 3, 8},
                     {"spec.lp_norm.axis", "3", "between -3 and 2 for rank 3", "AXIS_OUT_OF_RANGE"});
}

TEST(MakePlan, RefusesGroupsThatDoNotDivideTheChannels) {
  const auto expect_refused = [](Method method, int64_t groups, const std::vector<int64_t>& shape,
                                 const std::string& limit) {
    NormSpec spec = MinimalSpec(method);
    SetNumGroups(&spec, groups);
    const Refusal refusal = {"spec." + Path(method, "num_groups"), std::to_string(groups), limit,
                             "NUM_GROUPS_OUT_OF_RANGE"};
    ExpectShapeRefused(spec, shape, refusal);
    if (method == Method::kPowerNorm) return;
    SetLayout(&spec, Layout::kChannelsLast);
    ExpectShapeRefused(spec, {shape[0], shape[2], shape[1]}, refusal);
  };
  expect_refused(Method::kGroupNorm, 4, {2, 6, 5}, "a divisor of the number of channels, 6");
  expect_refused(Method::kGroupNorm, 12, {2, 6, 5}, "at most the number of channels, 6");
  expect_refused(Method::kPowerNorm, 4, {2, 5, 6}, "a divisor of the number of channels, 6");
  // No channels make no group; PowerNorm's one is no choice of the caller.
  for (const int64_t groups : {1, 2}) {
    expect_refused(Method::kGroupNorm, groups, {2, 0, 5}, "at most the number of channels, 0");
  }
  expect_refused(Method::kPowerNorm, 2, {2, 0}, "at most the number of channels, 0");
  EXPECT_TRUE(MakePlan(MinimalSpec(Method::kPowerNorm), DType::kF32, {2, 0}, {}).ok());
}

TEST(MakePlan, RefusesKPastTheRowAndPThatRoundsToNothing) {
  ExpectShapeRefused({.attributes = PRmsNormSpec{.k = 9}}, {2, 8},
                     {"spec.p_rms_norm.k", "9", "between 1 and the last extent of x, 8", "K_OUT_OF_RANGE"});
  ExpectShapeRefused({.attributes = PRmsNormSpec{.k = 1}}, {2, 0},
                     {"spec.p_rms_norm.k", "1", "between 1 and the last extent of x, 0", "K_OUT_OF_RANGE"});
  for (const auto& [p, text] : {std::pair(0.0625, "0.0625"), std::pair(1e-300, "1e-300")}) {
    EXPECT_TRUE(MakePlan({.attributes = PRmsNormSpec{.p = p}}, DType::kF32, {2, 8}, {}).ok());  // ceil: 1
    ExpectShapeRefused({.attributes = PRmsNormSpec{.p = p, .k_rounding = KRounding::kFloor}}, {2, 8},
                       {"spec.p_rms_norm.p", text, "large enough that floor(p * 8) is at least 1", "K_OUT_OF_RANGE"});
  }
}

TEST(MakePlan, RefusesOneValuePerChannelInBatchNormTraining) {
  const Refusal one = {
      "x.shape", "[1,4]",
      "of more than one value per channel in training, unless single_value is SINGLE_VALUE_ZERO_VARIANCE",
      "SINGLE_VALUE_PER_CHANNEL"};
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    NormSpec spec = SpecOf(Method::kBatchNorm, layout);
    ExpectShapeRefused(spec, {1, 4}, one, {.mode = Mode::kTraining});
    const auto accepted = [&](const std::vector<int64_t>& shape, const PlanOptions& options) {
      return MakePlan(spec, DType::kF32, shape, options).ok();
    };
    EXPECT_TRUE(accepted({1, 4}, {.mode = Mode::kInference, .given_statistics = true}));
    EXPECT_TRUE(accepted({1, 4}, {.mode = Mode::kInference}));  // moments alone
    EXPECT_TRUE(accepted({2, 4}, {.mode = Mode::kTraining}));
    EXPECT_TRUE(accepted({0, 4}, {.mode = Mode::kTraining}));  // a zero-size batch is a step
    EXPECT_TRUE(accepted({1, 3, 4}, {.mode = Mode::kTraining}));
    SetRunning(&spec, {.single_value = SingleValue::kZeroVariance});
    EXPECT_TRUE(accepted({1, 4}, {.mode = Mode::kTraining}));
  }
  NormSpec spec = MinimalSpec(Method::kBatchNorm);
  Refusal four = one;
  four.value = "[1,4,1,1]";
  ExpectShapeRefused(spec, {1, 4, 1, 1}, four, {.mode = Mode::kTraining});
  four.value = "[1,1]";
  ExpectShapeRefused(spec, {1, 1}, four, {.mode = Mode::kTraining});
}

TEST(MakePlan, AcceptsOneValuePerSetOfTheOtherMethods) {
  for (const Method method : kAllMethods) {
    if (method == Method::kBatchNorm) continue;
    EXPECT_TRUE(MakePlan(MinimalSpec(method), DType::kF32, {1, 1}, {.mode = Mode::kTraining}).ok());
  }
}

TEST(MakePlan, RefusesGivenStatisticsOfMethodsWithoutThem) {
  for (const Method method : kAllMethods) {
    const NormSpec spec = MinimalSpec(method);
    if (spec.HasState()) {
      EXPECT_TRUE(MakePlan(spec, DType::kF32, {2, 4}, {.given_statistics = true}).ok());
      continue;
    }
    ExpectShapeRefused(spec, {2, 4}, {"parameters.running_mean", "", "absent", "NOT_ALLOWED"},
                       {.given_statistics = true});
  }
  const InstanceNormSpec tracking = {.layout = Layout::kChannelsFirst, .track_running_statistics = true};
  EXPECT_TRUE(MakePlan({.attributes = tracking}, DType::kF32, {2, 4}, {.given_statistics = true}).ok());
}

}  // namespace
}  // namespace normd
