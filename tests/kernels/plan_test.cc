// MakePlan beside its geometry (lowering_test.cc) and its refusals (plan_refusals_test.cc): attributes, empty and
// huge tensors, running statistics, pRMSNorm's k.
#include "kernels/plan.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/lowering.h"
#include "kernels/methods.h"
#include "tests/kernels/plan_of.h"
#include "tests/kernels/plan_walk.h"
#include "tests/support/spec.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using Indices = std::vector<int64_t>;

// ---- Attributes ----

TEST(MakePlan, DefaultsComeFromTheTableOfMethods) {
  for (const Method method : kAllMethods) {
    const NormPlan plan = PlanOf(MinimalSpec(method), {2, 4});
    EXPECT_EQ(plan.eps, Info(method).default_eps);
    EXPECT_EQ(plan.eps_mode, Info(method).default_eps_mode);
    EXPECT_EQ(plan.cast_order, CastOrder::kAffineThenCast);
    EXPECT_EQ(plan.method, method);
    EXPECT_EQ(plan.statistic == Statistic::kMeanVariance, Info(method).subtracts_mean);
  }
}

TEST(MakePlan, GivenAttributesWin) {
  NormSpec spec = MinimalSpec(Method::kRmsNorm);
  spec.eps = 0.25;
  spec.eps_mode = EpsMode::kClampRoot;
  spec.cast_order = CastOrder::kCastThenAffine;
  const NormPlan plan = PlanOf(spec, {2, 4});
  EXPECT_EQ(plan.eps, 0.25);
  EXPECT_EQ(plan.eps_mode, EpsMode::kClampRoot);
  EXPECT_EQ(plan.cast_order, CastOrder::kCastThenAffine);
}

TEST(MakePlan, EpsMayBeZeroAndMinusZeroIsZero) {
  for (const Method method : kAllMethods) {
    for (const double eps : {0.0, -0.0}) {
      NormSpec spec = MinimalSpec(method);
      spec.eps = eps;
      const NormPlan plan = PlanOf(spec, {2, 4});
      EXPECT_EQ(plan.eps, 0.0);
      EXPECT_FALSE(std::signbit(plan.eps));
    }
  }
}

TEST(MakePlan, StatisticsAreF32ButOfF64Tensors) {
  for (const DType dtype : kAllDTypes) {
    const absl::StatusOr<NormPlan> plan = MakePlan(MinimalSpec(Method::kRmsNorm), dtype, {2, 4}, {});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->dtype, dtype);
    EXPECT_EQ(plan->StatisticsDType(), dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  }
}

// ---- Empty and huge tensors ----

TEST(MakePlan, EmptyTensorsArePlannedForEveryMethodAndAxis) {
  for (const Method method : kAllMethods) {
    for (const Layout layout : kBothLayouts) {
      for (const Indices& shape : {Indices{0, 4}, Indices{2, 0}, Indices{1, 0}, Indices{0, 4, 3}, Indices{2, 0, 3},
                                   Indices{2, 4, 0}, Indices{0, 0, 0}, Indices{2, 4, 0, 5}}) {
        for (const Mode mode : {Mode::kInference, Mode::kTraining}) {
          NormSpec spec = MinimalSpec(method);
          SetLayout(&spec, layout);
          const int64_t channels = shape[static_cast<size_t>(ChannelAxis(layout, static_cast<int64_t>(shape.size())))];
          if (method == Method::kGroupNorm && channels == 0) continue;  // refused: more groups than channels
          const NormPlan plan = PlanOf(spec, shape, {.mode = mode});
          EXPECT_EQ(plan.elements, 0);
          EXPECT_EQ(plan.keep0 * plan.reduce0 * plan.keep1 * plan.reduce1, 0);
          EXPECT_GE(plan.channel_run, 1);
          EXPECT_EQ(ElementCount(plan.statistics_shape), plan.StatisticsGroups());
        }
      }
    }
  }
}

TEST(MakePlan, AnEmptyNormalizedShapeExtentIsFine) {
  const NormPlan plan = PlanOf({.attributes = LayerNormSpec{.normalized_shape = {0}}}, {3, 0});
  EXPECT_EQ(Geometry(plan), "3 1 1 0 rows");
  EXPECT_EQ(plan.parameter_length, 0);
  EXPECT_THAT(plan.statistics_shape, ElementsAre(3));
}

TEST(MakePlan, AnEmptyTensorMayHaveHugeAxes) {
  const int64_t huge = int64_t{1} << 29;
  const NormPlan plan = PlanOf({.attributes = LayerNormSpec{.axes = {2, 1}}}, {0, huge, huge});
  EXPECT_THAT(plan.parameter_order.extents, ElementsAre(huge, huge));
  EXPECT_THAT(plan.parameter_order.strides, ElementsAre(1, huge));
  EXPECT_EQ(plan.parameter_length, huge * huge);
}

TEST(MakePlan, IndicesAreOf64Bits) {
  const int64_t billions = int64_t{3} << 31;
  EXPECT_EQ(Geometry(PlanOf({.attributes = RmsNormSpec()}, {billions, 3})), std::to_string(billions) + " 1 1 3 rows");
  EXPECT_EQ(PlanOf({.attributes = RmsNormSpec()}, {2, billions}).elements, 2 * billions);
  const NormSpec batch = {.attributes = BatchNormSpec{.layout = Layout::kChannelsLast}};
  EXPECT_EQ(Geometry(PlanOf(batch, {1 << 20, 1 << 20, 1 << 10})), "1 1099511627776 1024 1 columns");
}

// ---- RunningSpec ----

TEST(RunningSpec, TheWeightOfTheNewValueFollowsMomentumOf) {
  EXPECT_EQ(RunningSpec{}.NewWeight(7), 0.1);
  EXPECT_EQ((RunningSpec{.momentum = 0.25}).NewWeight(7), 0.25);
  EXPECT_EQ((RunningSpec{.momentum = 0.75, .momentum_of = MomentumOf::kOld}).NewWeight(7), 0.25);
  EXPECT_EQ((RunningSpec{.momentum_of = MomentumOf::kOld}).NewWeight(7), 1 - 0.9);
  EXPECT_EQ((RunningSpec{.momentum = 0.0}).NewWeight(1), 0);
  EXPECT_EQ((RunningSpec{.momentum = 1.0}).NewWeight(1), 1);
}

TEST(RunningSpec, CumulativeWeightsEveryBatchEqually) {
  const RunningSpec cumulative = {.cumulative = true};
  EXPECT_EQ(cumulative.NewWeight(1), 1);
  EXPECT_EQ(cumulative.NewWeight(2), 0.5);
  EXPECT_EQ(cumulative.NewWeight(10), 0.1);
  EXPECT_EQ(cumulative.NewWeight(0), 1);
}

TEST(RunningSpec, TheEchoedMomentumIsTheGivenOrTheDefaultOne) {
  EXPECT_EQ(RunningSpec{}.ResolvedMomentum(), 0.1);
  EXPECT_EQ((RunningSpec{.momentum_of = MomentumOf::kOld}).ResolvedMomentum(), 0.9);
  EXPECT_EQ((RunningSpec{.momentum = 0.0, .momentum_of = MomentumOf::kOld}).ResolvedMomentum(), 0);
}

TEST(NormSpec, BatchPowerAndTrackingInstanceNormHaveState) {
  for (const Method method : kAllMethods) {
    const bool stateful = method == Method::kBatchNorm || method == Method::kPowerNorm;
    EXPECT_EQ(SpecOf(method).HasState(), stateful);
  }
  const NormSpec tracking = {.attributes = InstanceNormSpec{.track_running_statistics = true}};
  EXPECT_TRUE(tracking.HasState());
}

// ---- PartialLength ----

TEST(PartialLength, IsComputedOnTheDecimalValue) {
  struct Case {
    double p;
    int64_t d, ceil, floor;
  };
  const Case cases[] = {
      {0.07, 100, 7, 7},      {0.29, 100, 29, 29},  {0.0625, 512, 32, 32},
      {0.1, 3, 1, 0},         {0.3, 10, 3, 3},      {0.7, 10, 7, 7},
      {0.55, 100, 55, 55},    {0.57, 100, 57, 57},  {0.58, 100, 58, 58},
      {0.14, 50, 7, 7},       {0.5, 7, 4, 3},       {0.333, 1000, 333, 333},
      {0.333, 100, 34, 33},   {1.0, 1, 1, 1},       {1.0, 768, 768, 768},
      {1e-300, 100, 1, 0},    {5e-324, 1000, 1, 0}, {0.999999, 10, 10, 9},
      {0.001, 1000, 1, 1},    {1e-5, 100000, 1, 1}, {0.1 + 0.2, 10, 4, 3},
      {0.06251, 512, 33, 32}, {0.5, 0, 0, 0},       {1.0, 0, 0, 0},
      {1.0 / 3.0, 3, 1, 0},   {2.0 / 3.0, 3, 2, 1}, {0.9999999999999999, 4, 4, 3},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(PartialLength(c.p, c.d, KRounding::kCeil), c.ceil) << c.p << " of " << c.d;
    EXPECT_EQ(PartialLength(c.p, c.d, KRounding::kFloor), c.floor) << c.p << " of " << c.d;
  }
}

TEST(PartialLength, EveryPercentOfAHundredIsExact) {
  for (int percent = 1; percent <= 100; ++percent) {
    EXPECT_EQ(PartialLength(percent / 100.0, 100, KRounding::kCeil), percent);
    EXPECT_EQ(PartialLength(percent / 100.0, 100, KRounding::kFloor), percent);
    EXPECT_EQ(PartialLength(percent / 100.0, 700, KRounding::kCeil), 7 * percent);
  }
}

TEST(PartialLength, IsExactForTheLongestRows) {
  const int64_t d = int64_t{1} << 62;
  EXPECT_EQ(PartialLength(1.0, d, KRounding::kCeil), d);
  EXPECT_EQ(PartialLength(0.5, d, KRounding::kCeil), d / 2);
  EXPECT_EQ(PartialLength(0.1, d, KRounding::kFloor), d / 10);
  EXPECT_EQ(PartialLength(0.1, d, KRounding::kCeil), d / 10 + 1);
  EXPECT_EQ(PartialLength(0.9999999999999999, d, KRounding::kFloor), 4611686018427387442);
}

TEST(PartialLength, ReachesThePlan) {
  PRmsNormSpec partial = {.p = 0.07};
  EXPECT_EQ(PlanOf({.attributes = partial}, {2, 100}).statistic_reduce1, 7);
  partial.p = 0.071;
  EXPECT_EQ(PlanOf({.attributes = partial}, {2, 100}).k, 8);
  partial.k_rounding = KRounding::kFloor;
  EXPECT_EQ(PlanOf({.attributes = partial}, {2, 100}).k, 7);
}

}  // namespace
}  // namespace normd
