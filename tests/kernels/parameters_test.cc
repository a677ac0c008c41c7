// Affine parameters: checked against a plan, converted to the wide types in the order of a plan, and kept by a backend.
#include "kernels/parameters.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/plan_of.h"

namespace normd {
namespace {

TensorView View(const Shape& shape, DType dtype = DType::kF32) {
  static constexpr char kBytes[1] = {};  // never read
  return {.dtype = dtype, .shape = shape, .data = kBytes, .size_bytes = ElementCount(shape) * SizeOf(dtype)};
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// "" when accepted, else the field, the value and the limit.
std::string Answer(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field + " " + detail->value + " " + detail->limit : "no detail";
}

std::string WeightAnswer(const NormPlan& plan, const Shape& shape) {
  return Answer(CheckParameters(plan, {.weight = View(shape)}));
}

TEST(CheckParameters, AcceptsEitherBothOrNone) {
  const NormPlan plan = PlanOf({.attributes = RmsNormSpec()}, {2, 4});
  EXPECT_EQ(Answer(CheckParameters(plan, {})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4})})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.bias = View({4})})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4}, DType::kF16), .bias = View({4}, DType::kF64)})), "");
}

TEST(CheckParameters, NamesBothLengthsWhenTheyDiffer) {
  const NormPlan plan = PlanOf({.attributes = RmsNormSpec()}, {2, 4});
  EXPECT_EQ(WeightAnswer(plan, {5}), "parameters.weight 5 4");
  EXPECT_EQ(WeightAnswer(plan, {0}), "parameters.weight 0 4");
  EXPECT_EQ(WeightAnswer(plan, {}), "parameters.weight 1 4");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4}), .bias = View({2, 3})})), "parameters.bias 6 4");
}

TEST(CheckParameters, TakesTheFlatFormOrTheMethodsShape) {
  const NormPlan plan = PlanOf({.attributes = LayerNormSpec{.axes = {2, 1}}}, {2, 3, 4});
  EXPECT_EQ(WeightAnswer(plan, {12}), "");
  EXPECT_EQ(WeightAnswer(plan, {4, 3}), "");
  EXPECT_EQ(WeightAnswer(plan, {3, 4}), "parameters.weight.shape [3,4] [12] or [4,3]");
  EXPECT_EQ(WeightAnswer(plan, {1, 12}), "parameters.weight.shape [1,12] [12] or [4,3]");
}

TEST(CheckParameters, NamesAFlatShapeOnce) {
  const NormPlan plan = PlanOf({.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst}}, {3, 2, 5});
  EXPECT_EQ(WeightAnswer(plan, {1, 2}), "parameters.weight.shape [1,2] [2]");
}

TEST(CheckParameters, KnowsTheLengthOfEveryMethod) {
  const Layout first = Layout::kChannelsFirst;
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = BatchNormSpec{.layout = first}}, {2, 6, 5}), {6}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = InstanceNormSpec{.layout = first}}, {2, 6, 5}), {6}), "");
  GroupNormSpec group = {.layout = first, .num_groups = 3};
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = group}, {2, 6, 5}), {6}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = group}, {2, 6, 5}), {3}), "parameters.weight 3 6");
  group.affine_per_group = true;
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = group}, {2, 6, 5}), {3}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = group}, {2, 6, 5}), {6}), "parameters.weight 6 3");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = LayerNormSpec{.normalized_shape = {6, 5}}}, {2, 6, 5}), {6, 5}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = PRmsNormSpec{.k = 2}}, {2, 6, 5}), {5}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = ScaleNormSpec()}, {2, 6, 5}), {1}), "");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = ScaleNormSpec()}, {2, 6, 5}), {5}), "parameters.weight 5 1");
  EXPECT_EQ(WeightAnswer(PlanOf({.attributes = PowerNormSpec()}, {2, 6, 5}), {5}), "");
}

TEST(CheckParameters, RefusesBadShapesBeforeMultiplyingThem) {
  const NormPlan plan = PlanOf({.attributes = RmsNormSpec()}, {2, 4});
  TensorView weight = View({4});
  weight.shape = {-2, -2};
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = weight})), "parameters.weight.shape[0] -2 at least 0");
}

TEST(CheckParameters, RefusesAnyForAMethodWithoutParameters) {
  const NormPlan plan = PlanOf({.attributes = LpNormSpec()}, {2, 4});
  EXPECT_EQ(Answer(CheckParameters(plan, {})), "");
  EXPECT_EQ(WeightAnswer(plan, {4}), "parameters.weight  absent");
  EXPECT_EQ(Answer(CheckParameters(plan, {.bias = View({0})})), "parameters.bias  absent");
}

TEST(WidenToF64, ReadsEveryDTypeAtAnyAddress) {
  const std::vector<double> want = {1.5, -2, 0};
  const auto widened = [](DType dtype, std::string_view bytes) {
    const std::string at_odd_address = Concat("?", bytes);
    TensorView view = View({3}, dtype);
    view.data = at_odd_address.data() + 1;
    return WidenToF64(view);
  };
  EXPECT_EQ(widened(DType::kF16, BytesOf<uint16_t>({0x3E00, 0xC000, 0})), want);
  EXPECT_EQ(widened(DType::kBF16, BytesOf<uint16_t>({0x3FC0, 0xC000, 0})), want);
  EXPECT_EQ(widened(DType::kF32, BytesOf<float>({1.5F, -2, 0})), want);
  EXPECT_EQ(widened(DType::kF64, BytesOf<double>({1.5, -2, 0})), want);
}

TEST(WidenToF64, ReadsAsManyValuesAsTheShapeHas) {
  const std::string bytes = BytesOf<float>({1, 2, 3, 4, 5, 6, 7});
  TensorView view = View({2, 3});
  view.data = bytes.data();
  EXPECT_EQ(WidenToF64(view), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(WidenToF64({}), std::vector<double>()) << "absent";
  EXPECT_EQ(WidenToF64(View({0})), std::vector<double>()) << "empty";
}

// What becomes of a weight and a bias of f64; empty: absent.
HostParameters Converted(const std::vector<double>& weight, const std::vector<double>& bias, double weight_offset = 0,
                         const ParameterOrder& order = {}) {
  const auto view_of = [](const std::vector<double>& values) {
    if (values.empty()) return TensorView();
    TensorView view = View({static_cast<int64_t>(values.size())}, DType::kF64);
    view.data = values.data();
    return view;
  };
  return ConvertParameters({.weight = view_of(weight), .bias = view_of(bias), .order = order}, weight_offset);
}

TEST(ConvertParameters, KeepsEachAsF64AndAsF32) {
  const HostParameters host = Converted({1.5, 0.1}, {-3, 1e-3});
  EXPECT_EQ(host.weight, (std::vector<double>{1.5, 0.1}));
  EXPECT_EQ(host.bias, (std::vector<double>{-3, 1e-3}));
  EXPECT_EQ(host.weight32, (std::vector<float>{1.5F, 0.1F}));
  EXPECT_EQ(host.bias32, (std::vector<float>{-3, 1e-3F}));
  EXPECT_EQ(host.size_bytes(), 4 * (8 + 4));
}

TEST(ConvertParameters, AddsTheOffsetToAWeightThatIsGivenAndToNothingElse) {
  const HostParameters host = Converted({0.5, -1}, {0.5}, 1);
  EXPECT_EQ(host.weight, (std::vector<double>{1.5, 0}));
  EXPECT_EQ(host.weight32, (std::vector<float>{1.5F, 0}));
  EXPECT_EQ(host.bias, (std::vector<double>{0.5}));
  const HostParameters without_weight = Converted({}, {0.5}, 1);
  EXPECT_TRUE(without_weight.weight.empty() && without_weight.weight32.empty());
  EXPECT_EQ(without_weight.bias, (std::vector<double>{0.5}));
}

TEST(ConvertParameters, KeepsTheLargestFiniteMagnitudes) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const HostParameters host = Converted({0.5, -4, kInfinite}, {0, -0.25, -kInfinite}, 1);
  EXPECT_EQ(host.largest_weight, 3);
  EXPECT_EQ(host.largest_bias, 0.25);
  EXPECT_EQ(Converted({-2}, {}).largest_bias, 0);
  EXPECT_EQ(Converted({}, {-2}).largest_weight, 1);
}

TEST(ConvertParameters, LeavesAbsentOnesEmpty) {
  const HostParameters none = ConvertParameters({}, 1);
  EXPECT_TRUE(none.weight.empty() && none.bias.empty() && none.weight32.empty() && none.bias32.empty());
  EXPECT_TRUE(none.fit_f32 && none.equal_f32);
  EXPECT_EQ(none.size_bytes(), 0);
  const HostParameters without_bias = Converted({2}, {});
  EXPECT_EQ(without_bias.weight, std::vector<double>{2});
  EXPECT_TRUE(without_bias.bias.empty() && without_bias.bias32.empty());
}

TEST(ConvertParameters, TakesTheElementsInTheOrderThatIsAskedFor) {
  const HostParameters host =
      Converted({0, 1, 2, 3, 4, 5}, {10, 11, 12, 13, 14, 15}, 100, {.extents = {2, 3}, .strides = {1, 2}});
  EXPECT_EQ(host.weight, (std::vector<double>{100, 102, 104, 101, 103, 105}));
  EXPECT_EQ(host.bias, (std::vector<double>{10, 12, 14, 11, 13, 15}));
  EXPECT_EQ(host.bias32, (std::vector<float>{10, 12, 14, 11, 13, 15}));
  const HostParameters of_three_axes =
      Converted({0, 1, 2, 3, 4, 5, 6, 7}, {}, 0, {.extents = {2, 2, 2}, .strides = {1, 4, 2}});
  EXPECT_EQ(of_three_axes.weight, (std::vector<double>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_TRUE(of_three_axes.bias.empty()) << "there is nothing to order";
}

TEST(ConvertParameters, TakesTheOrderOfAPlanWhoseAxesAreOutOfMemoryOrder) {
  const NormPlan plan = PlanOf({.attributes = LayerNormSpec{.axes = {2, 1}}}, {2, 2, 3});
  // By axis 2, then axis 1; x lies the other way round.
  const HostParameters host = Converted({11, 12, 21, 22, 31, 32}, {}, 0, plan.parameter_order);
  EXPECT_EQ(host.weight, (std::vector<double>{11, 21, 31, 12, 22, 32}));
}

TEST(ConvertParameters, KnowsWhetherF32MayCalculateWithThem) {
  EXPECT_TRUE(Converted({1, 0, -0.0, 0.1, 0x1p-60, -0x1p+60}, {1e38, 1e-37}).fit_f32);
  for (const double outside : {1e-40, -1e-39, 1e39, 1e-60, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_FALSE(Converted({1, outside}, {1}).fit_f32) << "weight " << outside;
    EXPECT_FALSE(Converted({1}, {outside, 1}).fit_f32) << "bias " << outside;
  }
  // The product of a weight and of 1 / D must stay a normal number: see FitF32.
  for (const double outside : {0x0.fp-60, -0x1.1p+60}) EXPECT_FALSE(Converted({1, outside}, {}).fit_f32) << outside;
  EXPECT_FALSE(Converted({-1}, {}, 1 + 1e39).fit_f32) << "with the offset";
}

TEST(ConvertParameters, KnowsWhetherF32HoldsEachExactly) {
  EXPECT_TRUE(Converted({1, 0, 0.5, 1e-3F, 16777216}, {-2}).equal_f32);
  EXPECT_TRUE(Converted({std::ldexp(1.0, -149)}, {}).equal_f32) << "although it does not fit";
  for (const double rounded : {0.1, 16777217.0, 1e39}) {
    EXPECT_FALSE(Converted({1, rounded}, {1}).equal_f32) << "weight " << rounded;
    EXPECT_FALSE(Converted({1}, {rounded, 1}).equal_f32) << "bias " << rounded;
  }
  EXPECT_FALSE(Converted({std::ldexp(1.0, -30)}, {}, 1).equal_f32) << "with the offset";
}

TEST(PreparedParameters, OfTheCpuAreTheHostsThemselves) {
  const auto host = std::make_shared<const HostParameters>(Converted({1, 2}, {3, 4}));
  const std::shared_ptr<const PreparedParameters> prepared = MakeCpuBackend({.threads = 1})->Prepare(host);
  EXPECT_EQ(&prepared->host(), host.get());
}

}  // namespace
}  // namespace normd
