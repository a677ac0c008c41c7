// Lowering: every method's plan, first by what each element is told, then by the extents that kernels rely on.
#include "kernels/lowering.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan.h"
#include "tests/kernels/plan_of.h"
#include "tests/kernels/plan_walk.h"
#include "tests/support/spec.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Indices = std::vector<int64_t>;

NormSpec Layered(const Indices& normalized_shape, Method method = Method::kLayerNorm) {
  NormSpec spec = SpecOf(method);
  SetNormalizedShape(&spec, normalized_shape);
  return spec;
}
NormSpec Over(Method method, const Indices& axes) {
  NormSpec spec = SpecOf(method);
  SetAxes(&spec, axes);
  return spec;
}
NormSpec Channels(Method method, Layout layout, int64_t groups = 1) {
  NormSpec spec = SpecOf(method, layout);
  SetNumGroups(&spec, groups);
  return spec;
}
NormSpec Power(int64_t groups) { return {.attributes = PowerNormSpec{.num_groups = groups}}; }

// What the method's definition says about the element with these indices.
using Definition = std::function<PlannedElement(const Indices&)>;

void ExpectDefinition(const NormPlan& plan, const Definition& definition) {
  const std::vector<PlannedElement> walked = WalkPlan(plan);
  for (int64_t i = 0; i < plan.elements; ++i) {
    const PlannedElement wanted = definition(AxisIndices(plan.shape, i));
    ASSERT_EQ(walked[i].group, wanted.group) << "element " << i << " of " << Geometry(plan);
    ASSERT_EQ(walked[i].counted, wanted.counted) << "element " << i << " of " << Geometry(plan);
    if (plan.parameter_length == 0) continue;
    ASSERT_EQ(walked[i].parameter, wanted.parameter) << "element " << i << " of " << Geometry(plan);
  }
  EXPECT_EQ(ElementCount(plan.statistics_shape), plan.StatisticsGroups());
  EXPECT_EQ(plan.elements, plan.keep0 * plan.reduce0 * plan.keep1 * plan.reduce1);
  EXPECT_EQ(ElementCount(plan.parameter_shape), plan.parameter_length == 0 ? 1 : plan.parameter_length);
}

// Sets by the indices that are not reduced, parameters by those that are, both in the order given.
Definition OverAxes(const Indices& shape, const Indices& axes) {
  return [shape, axes](const Indices& at) {
    PlannedElement element = {.group = 0, .parameter = 0, .counted = true};
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end())
        element.group = element.group * shape[axis] + at[axis];
    }
    for (const int64_t axis : axes) element.parameter = element.parameter * shape[axis] + at[axis];
    return element;
  };
}

size_t ChannelAxisOf(Layout layout, const Indices& shape) {
  return layout == Layout::kChannelsFirst ? 1 : shape.size() - 1;
}

const std::vector<Indices> kChannelShapes = {
    {3, 4},         {5, 8},       {1, 4},          {4, 1},    {1, 1},
    {2, 4, 3},      {2, 4, 1},    {2, 1, 3},       {1, 8, 5}, {2, 4, 3, 5},
    {3, 4, 1, 1},   {2, 1, 3, 1}, {2, 4, 3, 2, 2}, {1, 1, 1}, {2, 4, 1, 2, 1, 3},
    {1, 4, 2, 1, 4}};

// ---- What each element is told ----

TEST(Lowering, BatchNormSetsAreChannels) {
  for (const Layout layout : kBothLayouts) {
    for (const Indices& shape : kChannelShapes) {
      for (const bool given : {false, true}) {
        const NormPlan plan = PlanOf(Channels(Method::kBatchNorm, layout), shape, {.given_statistics = given});
        const size_t axis = ChannelAxisOf(layout, shape);
        ExpectDefinition(plan, [axis](const Indices& at) { return PlannedElement{at[axis], at[axis], true}; });
        EXPECT_EQ(plan.num_channels, shape[axis]);
        EXPECT_EQ(plan.given_statistics, given);
        EXPECT_THAT(plan.parameter_shape, ElementsAre(shape[axis]));
        EXPECT_THAT(plan.statistics_shape, ElementsAre(shape[axis]));
      }
    }
  }
}

TEST(Lowering, InstanceNormSetsAreSamplesAndChannels) {
  for (const Layout layout : kBothLayouts) {
    for (const Indices& shape : kChannelShapes) {
      const NormPlan plan = PlanOf(Channels(Method::kInstanceNorm, layout), shape);
      const size_t axis = ChannelAxisOf(layout, shape);
      ExpectDefinition(plan, [&](const Indices& at) {
        return PlannedElement{at[0] * shape[axis] + at[axis], at[axis], true};
      });
      EXPECT_THAT(plan.statistics_shape, ElementsAre(shape[0], shape[axis]));
      EXPECT_EQ(plan.num_channels, shape[axis]);
    }
  }
}

TEST(Lowering, GroupNormSetsAreSamplesAndContiguousGroupsOfChannels) {
  for (const Layout layout : kBothLayouts) {
    for (const Indices& shape : kChannelShapes) {
      const size_t axis = ChannelAxisOf(layout, shape);
      for (const int64_t groups : {1, 2, 4, 8}) {
        if (shape[axis] % groups != 0) continue;
        for (const bool per_group : {false, true}) {
          const GroupNormSpec group_norm = {.layout = layout, .num_groups = groups, .affine_per_group = per_group};
          const NormPlan plan = PlanOf({.attributes = group_norm}, shape);
          const int64_t group_channels = shape[axis] / groups;
          ExpectDefinition(plan, [&](const Indices& at) {
            const int64_t group = at[axis] / group_channels;
            return PlannedElement{at[0] * groups + group, per_group ? group : at[axis], true};
          });
          EXPECT_EQ(plan.parameter_length, per_group ? groups : shape[axis]);
          EXPECT_THAT(plan.statistics_shape, ElementsAre(shape[0], groups));
          EXPECT_EQ(plan.num_channels, shape[axis]);
        }
      }
    }
  }
}

TEST(Lowering, LayerAndRmsNormOverEverySubsetOfAxesInEveryListedOrder) {
  const std::vector<Indices> shapes = {{6},          {2, 3},       {3, 2, 4},       {2, 1, 3},
                                       {2, 3, 2, 2}, {1, 3, 1, 2}, {2, 3, 2, 3, 2}, {2, 2, 1, 2, 3}};
  for (const Indices& shape : shapes) {
    const size_t rank = shape.size();
    for (size_t subset = 1; subset < (size_t{1} << rank); ++subset) {
      Indices axes;
      for (size_t axis = 0; axis < rank; ++axis) {
        if ((subset >> axis) % 2 == 1) axes.push_back(static_cast<int64_t>(axis));
      }
      do {
        for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
          const NormPlan plan = PlanOf(Over(method, axes), shape);
          ExpectDefinition(plan, OverAxes(shape, axes));
          Indices negative = axes;
          for (int64_t& axis : negative) axis -= static_cast<int64_t>(rank);
          EXPECT_EQ(WalkPlan(PlanOf(Over(method, negative), shape)), WalkPlan(plan));
        }
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
  }
}

TEST(Lowering, RmsNormTakesANormalizedShapeAsLayerNormDoes) {
  const Indices shape = {2, 3, 4};
  for (const Indices& over : {Indices{4}, Indices{3, 4}, Indices{2, 3, 4}}) {
    const NormPlan rms = PlanOf(Layered(over, Method::kRmsNorm), shape);
    EXPECT_EQ(WalkPlan(rms), WalkPlan(PlanOf(Layered(over), shape)));
    EXPECT_EQ(Geometry(rms), Geometry(PlanOf(Layered(over), shape)));
    EXPECT_EQ(rms.parameter_shape, Shape(over.begin(), over.end()));
  }
}

TEST(Lowering, LpNormOverEveryAxis) {
  const Indices shape = {2, 3, 1, 4};
  for (const int64_t order : {1, 2}) {
    for (int64_t axis = -4; axis < 4; ++axis) {
      const NormPlan plan = PlanOf({.attributes = LpNormSpec{.order = order, .axis = axis}}, shape);
      ExpectDefinition(plan, OverAxes(shape, {axis < 0 ? axis + 4 : axis}));
      EXPECT_THAT(plan.permutation, IsEmpty());
      EXPECT_EQ(plan.parameter_length, 0);
      EXPECT_TRUE(plan.zero_norm_gives_zero);
      EXPECT_EQ(plan.statistic, order == 1 ? Statistic::kAbsSum : Statistic::kSumSquares);
    }
  }
}

TEST(Lowering, TheStatisticOfLpNormFollowsThePower) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [p, statistic] :
       {std::pair(1.0, Statistic::kAbsSum), std::pair(1.0000000000000002, Statistic::kPowerSum),
        std::pair(1.5, Statistic::kPowerSum), std::pair(2.0, Statistic::kSumSquares),
        std::pair(3.0, Statistic::kPowerSum), std::pair(1e300, Statistic::kPowerSum),
        std::pair(infinity, Statistic::kMaxAbs)}) {
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      const NormPlan plan = PlanOf({.attributes = LpNormSpec{.p = p}}, {4, 8}, {.precision = precision});
      EXPECT_EQ(plan.statistic, statistic) << p;
      EXPECT_EQ(plan.p, p);
      EXPECT_EQ(plan.precision, SumsPowers(statistic) ? Precision::kExact : precision) << p;
      EXPECT_EQ(plan.eps, 0);
      EXPECT_EQ(plan.eps_mode, EpsMode::kAddToRoot);
      EXPECT_TRUE(plan.zero_norm_gives_zero);
    }
  }
}

TEST(Lowering, LpNormOverSeveralAxesIsLaidOutAsRmsNormButHasNoParameters) {
  for (const Indices& shape : {Indices{6}, Indices{2, 3}, Indices{3, 2, 4}, Indices{2, 1, 3}, Indices{2, 3, 2, 2}}) {
    const size_t rank = shape.size();
    for (size_t subset = 1; subset < (size_t{1} << rank); ++subset) {
      Indices axes;
      for (size_t axis = 0; axis < rank; ++axis) {
        const size_t counted_from = subset % 3 == 0 ? rank : 0;
        if ((subset >> axis) % 2 == 1) axes.push_back(static_cast<int64_t>(axis) - static_cast<int64_t>(counted_from));
      }
      do {
        const NormPlan rms = PlanOf(Over(Method::kRmsNorm, axes), shape);
        for (const double p : {1.0, 2.0, 2.5, std::numeric_limits<double>::infinity()}) {
          const NormPlan plan = PlanOf({.attributes = LpNormSpec{.p = p, .axes = axes}}, shape);
          EXPECT_EQ(Geometry(plan), Geometry(rms));
          EXPECT_EQ(plan.permutation, rms.permutation);
          EXPECT_EQ(plan.statistics_shape, rms.statistics_shape);
          EXPECT_EQ(plan.SetSize(), rms.SetSize());
          EXPECT_EQ(plan.parameter_length, 0);
          EXPECT_THAT(plan.parameter_shape, IsEmpty());
          EXPECT_TRUE(plan.parameter_order.empty());
        }
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
  }
}

TEST(Lowering, PRmsNormCountsTheFirstKElementsOfTheLastAxis) {
  const NormPlan plan = PlanOf({.attributes = PRmsNormSpec{.k = 3}}, {2, 2, 5});
  ExpectDefinition(plan, [](const Indices& at) { return PlannedElement{at[0] * 2 + at[1], at[2], at[2] < 3}; });
  EXPECT_EQ(plan.k, 3);
  EXPECT_EQ(plan.SetSize(), 3);
  EXPECT_EQ(plan.parameter_length, 5);
}

TEST(Lowering, ScaleNormHasOneParameterForAllElements) {
  for (const Indices& shape : {Indices{2, 3, 5}, Indices{4}, Indices{3, 1}}) {
    const NormPlan plan = PlanOf({.attributes = ScaleNormSpec()}, shape);
    const int64_t last = shape.back();
    int64_t next = 0;
    ExpectDefinition(plan, [&](const Indices&) { return PlannedElement{next++ / last, 0, true}; });
    EXPECT_EQ(plan.parameter_length, 1);
    EXPECT_THAT(plan.parameter_shape, ElementsAre(1));
    EXPECT_EQ(plan.channels_per_keep1, 0);
    EXPECT_EQ(plan.channel_run, last);
    EXPECT_EQ(plan.statistic, Statistic::kSumSquares);
    EXPECT_EQ(plan.eps_mode, EpsMode::kAddToRoot);
  }
}

TEST(Lowering, PowerNormSetsAreTheChannelsOfTheLastAxis) {
  for (const Indices& shape : {Indices{3, 4}, Indices{2, 3, 4}, Indices{2, 3, 2, 4}, Indices{3, 1}, Indices{1, 4}}) {
    for (const bool given : {false, true}) {
      const NormPlan plan = PlanOf(Power(1), shape, {.mode = Mode::kTraining, .given_statistics = given});
      ExpectDefinition(plan, [](const Indices& at) { return PlannedElement{at.back(), at.back(), true}; });
      EXPECT_EQ(plan.pattern, Pattern::kColumns);
      EXPECT_EQ(plan.statistic, Statistic::kMeanSquare);
      EXPECT_EQ(plan.power_groups, 1);
      EXPECT_EQ(plan.num_channels, shape.back());
      EXPECT_EQ(plan.given_statistics, given);
      EXPECT_EQ(plan.mode, Mode::kTraining);
    }
  }
  EXPECT_EQ(PlanOf(Power(2), {3, 4}).power_groups, 2);
}

// ---- Extents and patterns ----

TEST(Lowering, TrailingAxesAreRows) {
  EXPECT_EQ(Geometry(PlanOf(Layered({8}), {4, 3, 8})), "12 1 1 8 rows");
  EXPECT_EQ(Geometry(PlanOf(Layered({3, 8}), {4, 3, 8})), "4 1 1 24 rows");
  EXPECT_EQ(Geometry(PlanOf(Layered({4, 3, 8}), {4, 3, 8})), "1 1 1 96 rows");
  EXPECT_EQ(Geometry(PlanOf(Layered({1}), {4, 3, 1})), "12 1 1 1 rows");
  EXPECT_EQ(Geometry(PlanOf({.attributes = RmsNormSpec()}, {4, 3, 8})), "12 1 1 8 rows");
  EXPECT_EQ(Geometry(PlanOf({.attributes = ScaleNormSpec()}, {4, 3, 8})), "12 1 1 8 rows");
  EXPECT_EQ(Geometry(PlanOf({.attributes = PRmsNormSpec{.p = 0.5}}, {4, 3, 8})), "12 1 1 8 rows");
  EXPECT_EQ(Geometry(PlanOf({.attributes = LpNormSpec()}, {4, 3, 8})), "12 1 1 8 rows");
}

TEST(Lowering, AMiddleOrLeadingAxisIsColumns) {
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {1}), {4, 3, 8})), "4 3 8 1 columns");
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kRmsNorm, {0}), {4, 3, 8})), "1 4 24 1 columns");
  EXPECT_EQ(Geometry(PlanOf({.attributes = LpNormSpec{.axis = 1}}, {4, 3, 8})), "4 3 8 1 columns");
  EXPECT_EQ(Geometry(PlanOf({.attributes = LpNormSpec{.axis = 1}}, {4, 3, 1})), "4 1 1 3 rows");
}

TEST(Lowering, TwoReducedRunsAroundAKeptOneAreRows) {
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {0, 2}), {4, 3, 8})), "1 4 3 8 rows");
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {1, 3}), {2, 4, 3, 8})), "2 4 3 8 rows");
}

TEST(Lowering, AxesOfOneElementSeparateNothing) {
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {0, 2}), {4, 1, 8})), "1 1 1 32 rows");
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {1}), {4, 1, 8})), "32 1 1 1 rows");
  EXPECT_EQ(Geometry(PlanOf(Over(Method::kLayerNorm, {0}), {1})), "1 1 1 1 rows");
}

TEST(Lowering, WhatDoesNotFitIsCopiedOnceIntoRows) {
  const NormPlan plan = PlanOf(Over(Method::kLayerNorm, {2, 0}), {2, 3, 4, 5});  // reduce, keep, reduce, keep
  EXPECT_EQ(Geometry(plan), "15 1 1 8 rows");
  EXPECT_THAT(plan.permutation, ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(plan.parameter_shape, ElementsAre(4, 2));
  EXPECT_THAT(plan.statistics_shape, ElementsAre(3, 5));
  EXPECT_THAT(PlanOf(Over(Method::kLayerNorm, {1, 3}), {2, 3, 4, 5, 6}).permutation, ElementsAre(0, 2, 4, 1, 3));
}

TEST(Lowering, ParametersFollowTheListedOrder) {
  EXPECT_TRUE(PlanOf(Over(Method::kLayerNorm, {1, 2}), {2, 2, 3}).parameter_order.empty());
  const NormPlan plan = PlanOf(Over(Method::kLayerNorm, {2, 1}), {2, 2, 3});
  EXPECT_THAT(plan.parameter_order.extents, ElementsAre(2, 3));
  EXPECT_THAT(plan.parameter_order.strides, ElementsAre(1, 2));
  EXPECT_THAT(plan.parameter_shape, ElementsAre(3, 2));
  // Listed out of order, but with one axis of one element: the same memory.
  EXPECT_TRUE(PlanOf(Over(Method::kLayerNorm, {2, 1}), {2, 1, 3}).parameter_order.empty());
}

TEST(Lowering, BatchNormExtents) {
  const auto geometry = [](Layout layout, const Indices& shape) {
    return Geometry(PlanOf(Channels(Method::kBatchNorm, layout), shape));
  };
  EXPECT_EQ(geometry(Layout::kChannelsFirst, {2, 4, 3, 5}), "1 2 4 15 rows");
  EXPECT_EQ(geometry(Layout::kChannelsLast, {2, 3, 5, 4}), "1 30 4 1 columns");
  EXPECT_EQ(geometry(Layout::kChannelsFirst, {6, 4}), "1 6 4 1 columns");
  EXPECT_EQ(geometry(Layout::kChannelsLast, {6, 4}), "1 6 4 1 columns");
  EXPECT_EQ(geometry(Layout::kChannelsFirst, {6, 4, 1}), "1 6 4 1 columns");
  // One channel is one contiguous row, in either layout.
  EXPECT_EQ(geometry(Layout::kChannelsFirst, {2, 1, 3}), "1 1 1 6 rows");
  EXPECT_EQ(geometry(Layout::kChannelsLast, {2, 3, 1}), "1 1 1 6 rows");
}

TEST(Lowering, InstanceAndGroupNormExtents) {
  const auto geometry = [](Method method, Layout layout, const Indices& shape, int64_t groups) {
    return Geometry(PlanOf(Channels(method, layout, groups), shape));
  };
  EXPECT_EQ(geometry(Method::kInstanceNorm, Layout::kChannelsFirst, {2, 4, 3, 5}, 1), "2 1 4 15 rows");
  EXPECT_EQ(geometry(Method::kInstanceNorm, Layout::kChannelsLast, {2, 3, 5, 4}, 1), "2 15 4 1 columns");
  EXPECT_EQ(geometry(Method::kInstanceNorm, Layout::kChannelsFirst, {2, 4}, 1), "2 1 4 1 columns");
  EXPECT_EQ(geometry(Method::kInstanceNorm, Layout::kChannelsLast, {2, 4}, 1), "2 1 4 1 columns");
  EXPECT_EQ(geometry(Method::kGroupNorm, Layout::kChannelsFirst, {2, 4, 3, 5}, 2), "2 1 2 30 rows");
  EXPECT_EQ(geometry(Method::kGroupNorm, Layout::kChannelsLast, {2, 3, 5, 4}, 2), "2 15 2 2 columns");
  EXPECT_EQ(geometry(Method::kGroupNorm, Layout::kChannelsLast, {2, 3, 5, 4}, 1), "2 15 1 4 columns");
}

TEST(Lowering, GroupNormAffineIndices) {
  GroupNormSpec spec = {.layout = Layout::kChannelsFirst, .num_groups = 2};
  NormPlan plan = PlanOf({.attributes = spec}, {2, 6, 5});
  EXPECT_EQ(plan.channels_per_keep1, 3);
  EXPECT_EQ(plan.channel_run, 5);
  spec.affine_per_group = true;
  plan = PlanOf({.attributes = spec}, {2, 6, 5});
  EXPECT_EQ(plan.channels_per_keep1, 1);
  EXPECT_EQ(plan.channel_run, 15);
  spec.layout = Layout::kChannelsLast;
  plan = PlanOf({.attributes = spec}, {2, 5, 6});
  EXPECT_EQ(plan.channels_per_keep1, 1);
  EXPECT_EQ(plan.channel_run, 3);
  spec.affine_per_group = false;
  plan = PlanOf({.attributes = spec}, {2, 5, 6});
  EXPECT_EQ(plan.channels_per_keep1, 3);
  EXPECT_EQ(plan.channel_run, 1);
}

// ---- Methods that are the same plan ----

void ExpectSameExecution(const NormPlan& a, const NormPlan& b) {
  EXPECT_EQ(Geometry(a), Geometry(b));
  EXPECT_EQ(a.statistic_reduce1, b.statistic_reduce1);
  EXPECT_EQ(a.statistic, b.statistic);
  EXPECT_EQ(a.permutation, b.permutation);
  EXPECT_EQ(a.eps, b.eps);
  EXPECT_EQ(a.eps_mode, b.eps_mode);
}

TEST(Lowering, GroupNormOfOneGroupIsLayerNormOverChannelsAndSpace) {
  for (const Indices& shape : kChannelShapes) {
    const Indices trailing(shape.begin() + 1, shape.end());
    ExpectSameExecution(PlanOf(Channels(Method::kGroupNorm, Layout::kChannelsFirst, 1), shape),
                        PlanOf(Layered(trailing), shape));
  }
}

TEST(Lowering, GroupNormOfOneChannelAGroupIsInstanceNorm) {
  for (const Layout layout : kBothLayouts) {
    for (const Indices& shape : kChannelShapes) {
      const int64_t channels = shape[ChannelAxisOf(layout, shape)];
      const NormPlan group = PlanOf(Channels(Method::kGroupNorm, layout, channels), shape);
      const NormPlan instance = PlanOf(Channels(Method::kInstanceNorm, layout), shape);
      ExpectSameExecution(group, instance);
      EXPECT_EQ(WalkPlan(group), WalkPlan(instance));
    }
  }
}

TEST(Lowering, LpNormOfAPowerIsThatOfTheOrderAndOneListedAxisIsTheAxis) {
  for (const int64_t order : {1, 2, 3}) {
    for (int64_t axis = -3; axis < 3; ++axis) {
      const NormPlan by_order = PlanOf({.attributes = LpNormSpec{.order = order, .axis = axis}}, {4, 3, 8});
      for (const LpNormSpec& same :
           {LpNormSpec{.axis = axis, .p = static_cast<double>(order)}, LpNormSpec{.order = order, .axes = {axis}},
            LpNormSpec{.order = 7, .axis = 1, .p = static_cast<double>(order), .axes = {axis}}}) {
        const NormPlan plan = PlanOf({.attributes = same}, {4, 3, 8});
        ExpectSameExecution(plan, by_order);
        EXPECT_EQ(plan.p, by_order.p);
        EXPECT_EQ(plan.precision, by_order.precision);
        EXPECT_EQ(WalkPlan(plan), WalkPlan(by_order));
      }
    }
  }
}

TEST(Lowering, PRmsNormOfEverythingIsRmsNorm) {
  const NormPlan partial = PlanOf({.attributes = PRmsNormSpec{.p = 1.0}}, {3, 7});
  const NormPlan full = PlanOf({.attributes = RmsNormSpec()}, {3, 7});
  ExpectSameExecution(partial, full);
  EXPECT_EQ(WalkPlan(partial), WalkPlan(full));
  EXPECT_EQ(partial.k, 7);
  EXPECT_EQ(full.k, 0);
}

TEST(Lowering, TrackingInstanceNormWithGivenStatisticsIsBatchNorm) {
  for (const Layout layout : kBothLayouts) {
    const NormSpec spec = {.attributes = InstanceNormSpec{.layout = layout, .track_running_statistics = true}};
    const PlanOptions given = {.given_statistics = true};
    const NormPlan instance = PlanOf(spec, {2, 4, 3}, given);
    const NormPlan batch = PlanOf(Channels(Method::kBatchNorm, layout), {2, 4, 3}, given);
    ExpectSameExecution(instance, batch);
    EXPECT_EQ(instance.statistics_shape, batch.statistics_shape);
    EXPECT_TRUE(instance.given_statistics);
    // Training computes its own, per instance.
    EXPECT_EQ(Geometry(PlanOf(spec, {2, 4, 3}, {.mode = Mode::kTraining})),
              Geometry(PlanOf(Channels(Method::kInstanceNorm, layout), {2, 4, 3})));
  }
}

}  // namespace
}  // namespace normd
