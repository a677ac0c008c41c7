#include "client/cli/spec_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace normd::client {
namespace {

absl::StatusOr<v1::NormSpec> Build(const std::string& method, std::vector<std::string> arguments,
                                   const std::optional<std::vector<int64_t>>& shape = std::nullopt) {
  CommandSpec spec;
  spec.flags = SpecFlags("");
  const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
  if (!args.ok()) return args.status();
  return BuildSpec(method, *args, shape);
}

TEST(SpecFlags, KnowsTheNineMethods) {
  EXPECT_EQ(MethodNames().size(), 9u);
  EXPECT_EQ(MethodField("layer-norm"), "layer_norm");
  EXPECT_EQ(MethodField("p_rms_norm"), "p_rms_norm");
  EXPECT_FALSE(MethodField("soft-norm").has_value());
}

TEST(SpecFlags, SetsFieldsOfEveryType) {
  const auto layer = Build("layer_norm", {"--eps", "1e-6", "--eps-mode", "add", "--axes", "1,-1", "--cast-order",
                                          "cast-then-affine", "--weight-offset", "1"});
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->layer_norm().eps(), 1e-6);
  EXPECT_EQ(layer->layer_norm().eps_mode(), v1::EPS_MODE_ADD_TO_ROOT);
  EXPECT_EQ(layer->layer_norm().cast_order(), v1::CAST_ORDER_CAST_THEN_AFFINE);
  EXPECT_EQ(layer->layer_norm().weight_offset(), 1);
  ASSERT_EQ(layer->layer_norm().axes_size(), 2);
  EXPECT_EQ(layer->layer_norm().axes(1), -1);
  const auto group = Build("group_norm", {"--groups", "32", "--layout", "channels-first", "--affine-per-group"});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->group_norm().num_groups(), 32);
  EXPECT_EQ(group->group_norm().layout(), v1::LAYOUT_CHANNELS_FIRST);
  EXPECT_TRUE(group->group_norm().affine_per_group());
}

TEST(SpecFlags, ReachesTheRunningStatistics) {
  const auto spec = Build("batch_norm", {"--momentum", "0.9", "--momentum-of", "old", "--variance", "biased",
                                         "--single-value", "zero-variance", "--layout", "channels_last"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const v1::RunningStatistics& running = spec->batch_norm().running();
  EXPECT_EQ(running.momentum(), 0.9);
  EXPECT_EQ(running.momentum_of(), v1::MOMENTUM_OF_OLD);
  EXPECT_EQ(running.variance(), v1::RUNNING_VARIANCE_BIASED);
  EXPECT_EQ(running.single_value(), v1::SINGLE_VALUE_ZERO_VARIANCE);
  const auto plain = Build("batch_norm", {"--layout", "channels-last"});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->batch_norm().has_running());
}

TEST(SpecFlags, AbsentAndZeroEpsDiffer) {
  EXPECT_FALSE(Build("rms_norm", {})->rms_norm().has_eps());
  const auto zero = Build("rms_norm", {"--eps", "0"});
  EXPECT_TRUE(zero->rms_norm().has_eps());
  EXPECT_EQ(zero->rms_norm().eps(), 0);
}

TEST(SpecFlags, FillsInWhatTheShapeDecides) {
  EXPECT_EQ(Build("layer_norm", {}, {{2, 3, 4}})->layer_norm().normalized_shape(0), 4);
  EXPECT_EQ(Build("layer_norm", {"--axes", "0"}, {{2, 3}})->layer_norm().normalized_shape_size(), 0);
  EXPECT_EQ(Build("batch_norm", {}, {{5, 6}})->batch_norm().layout(), v1::LAYOUT_CHANNELS_LAST);
  EXPECT_EQ(Build("batch_norm", {}, {{5, 6, 7}})->batch_norm().layout(), v1::LAYOUT_UNSPECIFIED);
  EXPECT_EQ(Build("lp_norm", {}, {{5, 6}})->lp_norm().order(), 2);
}

TEST(SpecFlags, LpNormTakesAPowerAndAxes) {
  const std::optional<std::vector<int64_t>> shape = {{2, 3, 4}};
  const auto cubic = Build("lp_norm", {"--p=3", "--axes=0,1"}, shape);
  ASSERT_TRUE(cubic.ok()) << cubic.status();
  EXPECT_EQ(cubic->lp_norm().p(), 3);
  EXPECT_EQ(cubic->lp_norm().order(), 0) << "no default beside p";
  ASSERT_EQ(cubic->lp_norm().axes_size(), 2);
  EXPECT_EQ(cubic->lp_norm().axes(0), 0);
  EXPECT_EQ(cubic->lp_norm().axes(1), 1);
  EXPECT_FALSE(cubic->lp_norm().has_axis());
  for (const char* text : {"--p=inf", "--p=Infinity"}) {
    const auto maximum = Build("lp_norm", {text}, shape);
    ASSERT_TRUE(maximum.ok()) << maximum.status();
    EXPECT_EQ(maximum->lp_norm().p(), std::numeric_limits<double>::infinity());
    EXPECT_EQ(maximum->lp_norm().order(), 0);
  }
  const auto by_order = Build("lp_norm", {"--order=3", "--axis", "0"}, shape);
  ASSERT_TRUE(by_order.ok()) << by_order.status();
  EXPECT_EQ(by_order->lp_norm().order(), 3);
  EXPECT_FALSE(by_order->lp_norm().has_p());
  EXPECT_EQ(by_order->lp_norm().axis(), 0);
  const auto over_axes = Build("lp_norm", {"--axes=-1,0"}, shape);
  ASSERT_TRUE(over_axes.ok()) << over_axes.status();
  EXPECT_EQ(over_axes->lp_norm().order(), 2) << "the default without --p";
  EXPECT_TRUE(IsUsageError(Build("lp_norm", {"--p=three"}, shape).status()));
}

TEST(SpecFlags, RefusesFlagsTheMethodDoesNotHave) {
  for (const auto& [method, flag] : {std::pair{"layer_norm", "--groups"},
                                     {"rms_norm", "--momentum"},
                                     {"scale_norm", "--p"},
                                     {"lp_norm", "--weight-offset"}}) {
    const auto spec = Build(method, {flag, "1"});
    ASSERT_FALSE(spec.ok()) << method << " " << flag;
    EXPECT_TRUE(IsUsageError(spec.status()));
    EXPECT_NE(spec.status().message().find("does not apply"), absl::string_view::npos);
  }
  EXPECT_TRUE(IsUsageError(Build("soft_norm", {}).status()));
  const auto mode = Build("layer_norm", {"--eps-mode", "outside"});
  EXPECT_NE(mode.status().message().find("inside-sqrt or add-to-root or clamp-root"), absl::string_view::npos)
      << mode.status();
}

TEST(SpecFlags, EveryFieldOfEveryMethodHasAFlag) {
  const std::vector<FlagSpec> flags = SpecFlags("");
  const auto has_flag = [&](std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return std::any_of(flags.begin(), flags.end(), [&](const FlagSpec& flag) { return flag.name == name; });
  };
  const google::protobuf::Descriptor& spec = *v1::NormSpec::descriptor();
  for (int i = 0; i < spec.field_count(); ++i) {
    const google::protobuf::Descriptor& method = *spec.field(i)->message_type();
    for (int j = 0; j < method.field_count(); ++j) {
      const std::string& name = method.field(j)->name();
      EXPECT_TRUE(name == "running" || has_flag(name)) << method.field(j)->full_name();
    }
  }
  const google::protobuf::Descriptor& running = *v1::RunningStatistics::descriptor();
  for (int j = 0; j < running.field_count(); ++j)
    EXPECT_TRUE(has_flag(running.field(j)->name())) << running.field(j)->name();
}

TEST(SpecFlags, KnowsLayoutsByTheirUsualNames) {
  for (const auto& [name, layout] :
       std::vector<std::pair<std::string, v1::Layout>>{{"NCHW", v1::LAYOUT_CHANNELS_FIRST},
                                                       {"nchw", v1::LAYOUT_CHANNELS_FIRST},
                                                       {"NHWC", v1::LAYOUT_CHANNELS_LAST},
                                                       {"NCL", v1::LAYOUT_CHANNELS_FIRST},
                                                       {"Nlc", v1::LAYOUT_CHANNELS_LAST},
                                                       {"NCDHW", v1::LAYOUT_CHANNELS_FIRST},
                                                       {"NDHWC", v1::LAYOUT_CHANNELS_LAST}}) {
    const auto spec = Build("batch_norm", {"--layout", name});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->batch_norm().layout(), layout) << name;
  }
  EXPECT_TRUE(Build("batch_norm", {"--layout", "NCHW"}, {{2, 3, 4, 4}}).ok());
  EXPECT_EQ(Build("batch_norm", {"--layout", "NCHW"}, {{2, 3, 4}}).status().message(),
            "--layout NCHW is of 4 axes, and x has 3 (shape [2, 3, 4])");
  EXPECT_EQ(
      Build("batch_norm", {"--layout", "CHWN"}).status().message(),
      "--layout is CHWN; it must be channels-first or channels-last or NCL or NLC or NCHW or NHWC or NCDHW or NDHWC");
}

TEST(SpecFlags, AWordThatIsNoMethodIsAnsweredWithTheOneThatWasMeant) {
  EXPECT_EQ(Build("layernorm", {}).status().message(), "unknown method layernorm: did you mean layer-norm?");
  EXPECT_EQ(Build("frobnicate", {}).status().message(), "unknown method frobnicate");
}

TEST(SpecFlags, ShapesAreJoinedByCommaOrX) {
  for (const char* shape : {"4,8", "4x8"}) {
    const auto spec = Build("layer_norm", {"--normalized-shape", shape});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layer_norm().normalized_shape_size(), 2) << shape;
    EXPECT_EQ(spec->layer_norm().normalized_shape(1), 8) << shape;
  }
}

}  // namespace
}  // namespace normd::client
