// CheckParameters and CheckLayer: parameters against a plan.
#include "kernels/backend.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/errors.h"

namespace normd {
namespace {

NormPlan Plan(const NormSpec& spec, const std::vector<int64_t>& shape) {
  absl::StatusOr<NormPlan> plan = MakePlan(spec, DType::kF32, shape, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : NormPlan{};
}

TensorView View(const Shape& shape, DType dtype = DType::kF32) {
  static constexpr char kBytes[1] = {};  // never read
  return {.dtype = dtype, .shape = shape, .data = kBytes, .size_bytes = ElementCount(shape) * SizeOf(dtype)};
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
  const NormPlan plan = Plan({.attributes = RmsNormSpec()}, {2, 4});
  EXPECT_EQ(Answer(CheckParameters(plan, {})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4})})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.bias = View({4})})), "");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4}, DType::kF16), .bias = View({4}, DType::kF64)})), "");
}

TEST(CheckParameters, NamesBothLengthsWhenTheyDiffer) {
  const NormPlan plan = Plan({.attributes = RmsNormSpec()}, {2, 4});
  EXPECT_EQ(WeightAnswer(plan, {5}), "parameters.weight 5 4");
  EXPECT_EQ(WeightAnswer(plan, {0}), "parameters.weight 0 4");
  EXPECT_EQ(WeightAnswer(plan, {}), "parameters.weight 1 4");
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = View({4}), .bias = View({2, 3})})), "parameters.bias 6 4");
}

TEST(CheckParameters, TakesTheFlatFormOrTheMethodsShape) {
  const NormPlan plan = Plan({.attributes = LayerNormSpec{.axes = {2, 1}}}, {2, 3, 4});
  EXPECT_EQ(WeightAnswer(plan, {12}), "");
  EXPECT_EQ(WeightAnswer(plan, {4, 3}), "");
  EXPECT_EQ(WeightAnswer(plan, {3, 4}), "parameters.weight.shape [3,4] [12] or [4,3]");
  EXPECT_EQ(WeightAnswer(plan, {1, 12}), "parameters.weight.shape [1,12] [12] or [4,3]");
}

TEST(CheckParameters, NamesAFlatShapeOnce) {
  const NormPlan plan = Plan({.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst}}, {3, 2, 5});
  EXPECT_EQ(WeightAnswer(plan, {1, 2}), "parameters.weight.shape [1,2] [2]");
}

TEST(CheckParameters, KnowsTheLengthOfEveryMethod) {
  const Layout first = Layout::kChannelsFirst;
  EXPECT_EQ(WeightAnswer(Plan({.attributes = BatchNormSpec{.layout = first}}, {2, 6, 5}), {6}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = InstanceNormSpec{.layout = first}}, {2, 6, 5}), {6}), "");
  GroupNormSpec group = {.layout = first, .num_groups = 3};
  EXPECT_EQ(WeightAnswer(Plan({.attributes = group}, {2, 6, 5}), {6}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = group}, {2, 6, 5}), {3}), "parameters.weight 3 6");
  group.affine_per_group = true;
  EXPECT_EQ(WeightAnswer(Plan({.attributes = group}, {2, 6, 5}), {3}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = group}, {2, 6, 5}), {6}), "parameters.weight 6 3");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = LayerNormSpec{.normalized_shape = {6, 5}}}, {2, 6, 5}), {6, 5}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = PRmsNormSpec{.k = 2}}, {2, 6, 5}), {5}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = ScaleNormSpec()}, {2, 6, 5}), {1}), "");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = ScaleNormSpec()}, {2, 6, 5}), {5}), "parameters.weight 5 1");
  EXPECT_EQ(WeightAnswer(Plan({.attributes = PowerNormSpec()}, {2, 6, 5}), {5}), "");
}

TEST(CheckParameters, RefusesBadShapesBeforeMultiplyingThem) {
  const NormPlan plan = Plan({.attributes = RmsNormSpec()}, {2, 4});
  TensorView weight = View({4});
  weight.shape = {-2, -2};
  EXPECT_EQ(Answer(CheckParameters(plan, {.weight = weight})), "parameters.weight.shape[0] -2 at least 0");
}

TEST(CheckParameters, RefusesAnyForAMethodWithoutParameters) {
  const NormPlan plan = Plan({.attributes = LpNormSpec()}, {2, 4});
  EXPECT_EQ(Answer(CheckParameters(plan, {})), "");
  EXPECT_EQ(WeightAnswer(plan, {4}), "parameters.weight given absent");
  EXPECT_EQ(Answer(CheckParameters(plan, {.bias = View({0})})), "parameters.bias given absent");
}

TEST(CheckLayer, ComparesLengths) {
  const NormPlan plan = Plan({.attributes = RmsNormSpec()}, {2, 4});
  Layer layer;
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "");
  layer.weight.assign(4, 1.0);
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "");
  layer.bias.assign(3, 0.0);
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "parameters.bias 3 4");
  layer.weight.assign(9, 1.0);
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "parameters.weight 9 4");
}

TEST(CheckLayer, RefusesAnyForAMethodWithoutParameters) {
  const NormPlan plan = Plan({.attributes = LpNormSpec()}, {2, 4});
  Layer layer;
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "");
  layer.weight.assign(4, 1.0);
  EXPECT_EQ(Answer(CheckLayer(plan, layer)), "parameters.weight given absent");
}

}  // namespace
}  // namespace normd
