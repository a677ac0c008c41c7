#include "server/session/record/spec_messages.h"

#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"

namespace normd {
namespace {

using ::testing::ElementsAre;

std::string FieldOf(const v1::NormSpec& message) {
  const absl::Status status = SpecFromMessage(message, "spec").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field : "";
}

// Every field of every method away from its default.
std::vector<v1::NormSpec> FullMessages() {
  std::vector<v1::NormSpec> all(9);
  const auto common = [](auto* m) {
    m->set_eps(0.25);
    m->set_eps_mode(v1::EPS_MODE_CLAMP_ROOT);
    m->set_cast_order(v1::CAST_ORDER_CAST_THEN_AFFINE);
    m->set_weight_offset(1);
  };
  const auto running = [](v1::RunningStatistics* r) {
    r->set_momentum(0.5);
    r->set_momentum_of(v1::MOMENTUM_OF_OLD);
    r->set_variance(v1::RUNNING_VARIANCE_BIASED);
    r->set_single_value(v1::SINGLE_VALUE_ZERO_VARIANCE);
    r->set_accept_non_finite(true);
  };
  v1::BatchNorm* batch = all[0].mutable_batch_norm();
  common(batch);
  batch->set_layout(v1::LAYOUT_CHANNELS_LAST);
  running(batch->mutable_running());
  v1::LayerNorm* layer = all[1].mutable_layer_norm();
  common(layer);
  layer->add_normalized_shape(3);
  layer->add_normalized_shape(4);
  v1::InstanceNorm* instance = all[2].mutable_instance_norm();
  common(instance);
  instance->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  instance->set_track_running_statistics(true);
  running(instance->mutable_running());
  v1::GroupNorm* group = all[3].mutable_group_norm();
  common(group);
  group->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  group->set_num_groups(4);
  group->set_affine_per_group(true);
  v1::RmsNorm* rms = all[4].mutable_rms_norm();
  common(rms);
  rms->add_axes(-1);
  rms->add_axes(0);
  v1::PRmsNorm* partial = all[5].mutable_p_rms_norm();
  common(partial);
  partial->set_p(0.25);
  partial->set_k_rounding(v1::K_ROUNDING_FLOOR);
  common(all[6].mutable_scale_norm());
  v1::LpNorm* lp = all[7].mutable_lp_norm();
  lp->set_eps(0.25);
  lp->set_eps_mode(v1::EPS_MODE_CLAMP_ROOT);
  lp->set_order(1);
  lp->set_axis(2);
  v1::PowerNorm* power = all[8].mutable_power_norm();
  common(power);
  power->set_alpha_fwd(0);
  power->set_warmup_iters(0);
  power->set_num_groups(2);
  power->set_accept_non_finite(true);
  return all;
}

TEST(SpecMessagesTest, EveryFieldOfEveryMethodMakesTheRoundTrip) {
  for (const v1::NormSpec& message : FullMessages()) {
    const absl::StatusOr<NormSpec> spec = SpecFromMessage(message, "spec");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(static_cast<int>(spec->method()), static_cast<int>(message.method_case()));
    v1::NormSpec back;
    SpecToMessage(*spec, &back);
    // An explicit false is a default: proto3 does not tell them apart.
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equivalent(message, back))
        << message.DebugString() << back.DebugString();
  }
}

TEST(SpecMessagesTest, AbsentFieldsAreTheDocumentedDefaults) {
  v1::NormSpec message;
  message.mutable_batch_norm();
  const NormSpec batch = *SpecFromMessage(message, "spec");
  EXPECT_FALSE(batch.eps.has_value());
  EXPECT_FALSE(batch.eps_mode.has_value());
  EXPECT_EQ(batch.cast_order, CastOrder::kAffineThenCast);
  ASSERT_EQ(batch.method(), Method::kBatchNorm);
  EXPECT_EQ(batch.layout(), Layout::kUnspecified);
  EXPECT_FALSE(batch.running().momentum.has_value());
  EXPECT_EQ(batch.running().variance, RunningVariance::kUnbiased);
  message.mutable_power_norm();
  const PowerNormSpec power = std::get<PowerNormSpec>(SpecFromMessage(message, "spec")->attributes);
  EXPECT_EQ(power.alpha_fwd, 0.9);
  EXPECT_EQ(power.warmup_iters, 10000);
  EXPECT_EQ(power.num_groups, 1);
  message.mutable_lp_norm()->set_order(2);
  EXPECT_EQ(std::get<LpNormSpec>(SpecFromMessage(message, "spec")->attributes).axis, -1);
}

TEST(SpecMessagesTest, AMissingMethodIsRefused) { EXPECT_EQ(FieldOf({}), "spec"); }

TEST(SpecMessagesTest, UnknownEnumNumbersAreRefusedByName) {
  v1::NormSpec message;
  v1::BatchNorm* batch = message.mutable_batch_norm();
  batch->set_eps_mode(static_cast<v1::EpsMode>(4));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.eps_mode");
  batch->clear_eps_mode();
  batch->set_cast_order(static_cast<v1::CastOrder>(-1));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.cast_order");
  batch->clear_cast_order();
  batch->set_layout(static_cast<v1::Layout>(3));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.layout");
  batch->clear_layout();
  batch->mutable_running()->set_momentum_of(static_cast<v1::MomentumOf>(77));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.running.momentum_of");
  batch->mutable_running()->clear_momentum_of();
  batch->mutable_running()->set_variance(static_cast<v1::RunningVariance>(3));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.running.variance");
  batch->mutable_running()->clear_variance();
  batch->mutable_running()->set_single_value(static_cast<v1::SingleValue>(3));
  EXPECT_EQ(FieldOf(message), "spec.batch_norm.running.single_value");
  message.mutable_p_rms_norm()->set_p(1);
  message.mutable_p_rms_norm()->set_k_rounding(static_cast<v1::KRounding>(3));
  EXPECT_EQ(FieldOf(message), "spec.p_rms_norm.k_rounding");
}

TEST(SpecMessagesTest, RmsNormTakesANormalizedShape) {
  v1::NormSpec message;
  message.mutable_rms_norm()->add_normalized_shape(3);
  message.mutable_rms_norm()->add_normalized_shape(4);
  const absl::StatusOr<NormSpec> spec = SpecFromMessage(message, "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->normalized_shape(), ElementsAre(3, 4));
  v1::NormSpec written;
  SpecToMessage(*spec, &written);
  EXPECT_EQ(written.rms_norm().normalized_shape_size(), 2);
}

TEST(SpecMessagesTest, LpNormTakesAnyPowerAndSeveralAxes) {
  for (const double p : {1.0, 1.5, 2.0, 1e300, std::numeric_limits<double>::infinity()}) {
    v1::NormSpec message;
    message.mutable_lp_norm()->set_p(p);
    message.mutable_lp_norm()->add_axes(-1);
    message.mutable_lp_norm()->add_axes(0);
    const absl::StatusOr<NormSpec> spec = SpecFromMessage(message, "spec");
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto& lp = std::get<LpNormSpec>(spec->attributes);
    EXPECT_EQ(lp.p, p);
    EXPECT_EQ(lp.Power(), p);
    EXPECT_THAT(lp.axes, ElementsAre(-1, 0));
    v1::NormSpec written;
    SpecToMessage(*spec, &written);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(message, written)) << written.DebugString();
  }
}

TEST(SpecMessagesTest, LpNormIsWrittenAsItWasGiven) {
  v1::NormSpec message;
  message.mutable_lp_norm()->set_order(3);
  message.mutable_lp_norm()->set_axis(0);
  v1::NormSpec written;
  SpecToMessage(*SpecFromMessage(message, "spec"), &written);
  EXPECT_EQ(written.lp_norm().order(), 3);
  EXPECT_FALSE(written.lp_norm().has_p());
  EXPECT_EQ(written.lp_norm().axis(), 0);
  EXPECT_EQ(written.lp_norm().axes_size(), 0);
  EXPECT_EQ(std::get<LpNormSpec>(SpecFromMessage(written, "spec")->attributes).Power(), 3);
}

TEST(SpecMessagesTest, LpNormRefusesAnOrderBesidePAndAnAxisBesideAxes) {
  v1::NormSpec message;
  message.mutable_lp_norm()->set_order(2);
  message.mutable_lp_norm()->set_p(2);
  EXPECT_EQ(FieldOf(message), "spec.lp_norm.p");
  message.mutable_lp_norm()->clear_order();
  EXPECT_TRUE(SpecFromMessage(message, "spec").ok());
  message.mutable_lp_norm()->set_axis(0);
  message.mutable_lp_norm()->add_axes(0);
  EXPECT_EQ(FieldOf(message), "spec.lp_norm.axes");
  message.mutable_lp_norm()->clear_axis();
  EXPECT_TRUE(SpecFromMessage(message, "spec").ok());
}

TEST(SpecMessagesTest, LpNormWithoutOrderAndPReachesTheKernelsAsOrderZero) {
  v1::NormSpec message;
  message.mutable_lp_norm();
  const absl::StatusOr<NormSpec> spec = SpecFromMessage(message, "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::optional<ErrorDetail> detail = GetErrorDetail(ValidateSpec(*spec));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field, "lp_norm.order");
}

TEST(SpecMessagesTest, FieldsThatExcludeEachOtherAreRefused) {
  v1::NormSpec message;
  message.mutable_layer_norm();
  EXPECT_EQ(FieldOf(message), "spec.layer_norm.normalized_shape");
  message.mutable_layer_norm()->add_normalized_shape(4);
  message.mutable_layer_norm()->add_axes(0);
  EXPECT_EQ(FieldOf(message), "spec.layer_norm.axes");
  message.mutable_rms_norm()->add_normalized_shape(4);
  message.mutable_rms_norm()->add_axes(0);
  EXPECT_EQ(FieldOf(message), "spec.rms_norm.axes");
  message.mutable_p_rms_norm();
  EXPECT_EQ(FieldOf(message), "spec.p_rms_norm.p");
  message.mutable_p_rms_norm()->set_p(0.5);
  message.mutable_p_rms_norm()->set_k(3);
  EXPECT_EQ(FieldOf(message), "spec.p_rms_norm.k");
  message.mutable_instance_norm()->mutable_running()->set_cumulative(true);
  message.mutable_instance_norm()->mutable_running()->set_momentum(0.1);
  EXPECT_EQ(FieldOf(message), "spec.instance_norm.running.momentum");
}

}  // namespace
}  // namespace normd
