// Calls without running state: what they return, what they echo, and how they travel.
#include "server/engine/engine.h"

#include <cmath>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/constants.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::ElementsOf;
using engine_test::Floats;
using engine_test::LayerSpec;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;

class EngineTest : public engine_test::EngineFixture {
 protected:
  const Floats x_ = {.shape = {1, 4}, .elements = {1, 2, 3, 4}};
};

TEST_F(EngineTest, ASpecCallReturnsYAndEchoesWhatWasUsed) {
  Call call = CallTo(LayerSpec({4}), x_.View());
  call.precision = Precision::kFast;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->outputs.size(), 1);
  EXPECT_EQ(reply->outputs[0].kind, OutputKind::kY);
  EXPECT_EQ(reply->outputs[0].shape, x_.shape);
  EXPECT_THAT(ElementsOf<float>(reply->outputs[0]),
              ElementsAre(FloatNear(-1.3416355f, 1e-6f), FloatNear(-0.4472118f, 1e-6f), FloatNear(0.4472118f, 1e-6f),
                          FloatNear(1.3416355f, 1e-6f)));
  EXPECT_EQ(reply->applied.method, Method::kLayerNorm);
  EXPECT_EQ(reply->applied.eps, 1e-5);
  EXPECT_EQ(reply->applied.precision, Precision::kFast);
  EXPECT_EQ(reply->applied.device, Device::kCpu);
  EXPECT_EQ(reply->applied.kernel.rfind("cpu/", 0), 0);
  EXPECT_EQ(reply->applied.session_version, 0);
  EXPECT_FALSE(reply->state.has_value());
  EXPECT_FALSE(reply->moments.has_value());
  EXPECT_EQ(reply->rows, 1);
}

TEST_F(EngineTest, SaysWhetherResultsAreTheNearest) {
  const auto nearest = [&](const NormSpec& spec, DType dtype, Precision precision, std::optional<DType> kept_wide) {
    const std::string bytes(4 * sizeof(double), '\0');
    Call call = CallTo(spec, {dtype, {1, 4}, bytes.data(), 4 * SizeOf(dtype)});
    call.precision = precision;
    if (kept_wide.has_value()) {
      call.residual = {*kept_wide, {1, 4}, bytes.data(), 4 * SizeOf(*kept_wide)};
      call.residual_rounding = ResidualRounding::kKeepWide;
    }
    const absl::StatusOr<CallReply> reply = Run(std::move(call));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->applied.is_nearest;
  };
  constexpr Precision kExact = Precision::kExact, kFast = Precision::kFast;
  constexpr DType kF32 = DType::kF32, kF64 = DType::kF64;
  constexpr std::optional<DType> kNone;
  const NormSpec layer = LayerSpec({4});
  EXPECT_TRUE(nearest(layer, kF32, kExact, kNone));
  EXPECT_FALSE(nearest(layer, kF32, kFast, kNone));
  EXPECT_TRUE(nearest(layer, kF64, kFast, kNone)) << "f64 has no fast arithmetic";
  EXPECT_TRUE(nearest(layer, kF32, kFast, kF64)) << "nor has a stream that is kept wide";
  const auto power = [](double p) { return NormSpec{.attributes = LpNormSpec{.p = p}}; };
  EXPECT_TRUE(nearest(power(kInf), kF32, kExact, kNone));
  EXPECT_FALSE(nearest(power(2.5), kF32, kExact, kNone));
  EXPECT_TRUE(nearest(power(10), kF32, kExact, kNone));
  EXPECT_FALSE(nearest(power(11), kF32, kExact, kNone));
  EXPECT_TRUE(nearest(power(5), kF32, kExact, kF32));
  EXPECT_FALSE(nearest(power(5), kF32, kExact, kF64));
  EXPECT_FALSE(nearest(power(7), kF64, kExact, kNone));
}

TEST_F(EngineTest, OutputsComeInTheOrderAskedFor) {
  const Floats r = {.shape = {1, 4}, .elements = {1, 1, 1, 1}};
  Call call = CallTo(LayerSpec({4}), x_.View());
  call.residual = r.View();
  call.residual_scale = 2;
  call.outputs = {OutputKind::kMoments, OutputKind::kInverseStd, OutputKind::kH, OutputKind::kMean, OutputKind::kY};
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->outputs.size(), 4);
  EXPECT_EQ(reply->outputs[0].kind, OutputKind::kInverseStd);
  EXPECT_THAT(ElementsOf<float>(reply->outputs[0]), ElementsAre(FloatNear(1 / std::sqrt(1.25f), 1e-5f)));
  EXPECT_THAT(ElementsOf<float>(reply->outputs[1]), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(ElementsOf<float>(reply->outputs[2]), ElementsAre(4.5));
  EXPECT_EQ(reply->outputs[3].kind, OutputKind::kY);
  ASSERT_TRUE(reply->moments.has_value());
  EXPECT_EQ((*reply->moments)[0].mean, 4.5);
  EXPECT_EQ((*reply->moments)[0].m2, 5);
  EXPECT_THAT(reply->moments_shape, ElementsAre(1));
  EXPECT_TRUE(reply->applied.residual_rounding.has_value());
}

TEST_F(EngineTest, MeanIsZeroWhereAMethodSubtractsNone) {
  Call call = CallTo(NormSpec{.attributes = RmsNormSpec()}, x_.View());
  call.outputs = {OutputKind::kMean};
  EXPECT_THAT(ElementsOf<float>(Run(std::move(call))->outputs[0]), ElementsAre(0));
}

TEST_F(EngineTest, ParametersOfAnyDtypeAreUsed) {
  const Doubles w = {.shape = {4}, .elements = {1, 0, 0, 2}};
  const Floats b = {.shape = {4}, .elements = {0, 7, 8, 0}};
  NormSpec spec = {.attributes = RmsNormSpec()};
  spec.eps = 0;
  Call call = CallTo(spec, x_.View());
  call.parameters.weight = w.View();
  call.parameters.bias = b.View();
  const std::vector<float> y = ElementsOf<float>(Run(std::move(call))->outputs[0]);
  EXPECT_EQ(y[1], 7);
  EXPECT_EQ(y[2], 8);
  EXPECT_NEAR(y[3] / y[0], 8, 1e-5);
}

TEST_F(EngineTest, AWeightOffsetOnAnAbsentWeightChangesNothing) {
  NormSpec spec = {.attributes = RmsNormSpec()};
  const std::vector<float> plain = ElementsOf<float>(Run(CallTo(spec, x_.View()))->outputs[0]);
  spec.weight_offset = 1;
  const std::vector<float> offset = ElementsOf<float>(Run(CallTo(spec, x_.View()))->outputs[0]);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(offset[i], plain[i]) << i;
}

TEST_F(EngineTest, EmptyTensorsHaveEmptyOutputs) {
  const Floats none = {.shape = {0, 4}, .elements = {}};
  const absl::StatusOr<CallReply> reply = Run(CallTo(LayerSpec({4}), none.View()));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->outputs[0].bytes.size_bytes(), 0);
  EXPECT_EQ(reply->outputs[0].shape, none.shape);
}

// Shapes that say a lot and hold nothing: no work and no memory in proportion to them.
TEST_F(EngineTest, HugeEmptyShapesCostNothing) {
  const Floats rows = {.shape = {int64_t{1} << 40, 0}, .elements = {}};
  EXPECT_TRUE(Run(CallTo(NormSpec{.attributes = RmsNormSpec()}, rows.View())).ok());
  Call statistics = CallTo(NormSpec{.attributes = RmsNormSpec()}, rows.View());
  statistics.outputs = {OutputKind::kInverseStd};
  EXPECT_EQ(Run(std::move(statistics)).status().code(), absl::StatusCode::kResourceExhausted);
  Call moments = CallTo(NormSpec{.attributes = RmsNormSpec()}, rows.View());
  moments.moments_only = true;
  EXPECT_EQ(Run(std::move(moments)).status().code(), absl::StatusCode::kResourceExhausted);
  NormSpec wide = LayerSpec({int64_t{1} << 40});
  wide.weight_offset = 1;
  const Floats columns = {.shape = {0, int64_t{1} << 40}, .elements = {}};
  EXPECT_TRUE(Run(CallTo(wide, columns.View())).ok());
}

TEST_F(EngineTest, ValidateOnlyChecksAndComputesNothing) {
  Call call = CallTo(LayerSpec({4}), x_.View());
  call.validate_only = true;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->outputs, IsEmpty());
  EXPECT_EQ(reply->applied.eps, 1e-5);
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
  Call wrong = CallTo(LayerSpec({5}), x_.View());
  wrong.validate_only = true;
  EXPECT_EQ(RefusedField(std::move(wrong)), "spec.layer_norm.normalized_shape");
}

TEST_F(EngineTest, BatchNormInferenceTakesItsStatisticsFromTheRequest) {
  const Floats x = {.shape = {2, 2}, .elements = {1, 10, 3, 30}};
  const Doubles mean = {.shape = {2}, .elements = {1, 10}};
  const Floats var = {.shape = {2}, .elements = {4, 100}};
  NormSpec spec = session_test::BatchSpec();
  spec.eps = 0;
  Call call = CallTo(spec, x.View());
  call.running_mean = mean.View();
  call.running_var = var.View();
  EXPECT_THAT(ElementsOf<float>(Run(std::move(call))->outputs[0]), ElementsAre(0, 0, 1, 2));
}

TEST_F(EngineTest, PowerNormInferenceTakesItsPhiFromTheRequest) {
  const Floats x = {.shape = {2, 2}, .elements = {1, 2, 3, 4}};
  const Doubles phi = {.shape = {2}, .elements = {0.58559869, 1.41439654}};
  Call call = CallTo(session_test::PowerSpec(2), x.View());
  call.running_var = phi.View();
  EXPECT_THAT(ElementsOf<float>(Run(std::move(call))->outputs[0]),
              ElementsAre(FloatNear(0.826467f, 2e-6f), FloatNear(1.063584f, 2e-6f), FloatNear(1.108823f, 2e-6f),
                          FloatNear(0.9513f, 2e-6f)));
}

TEST_F(EngineTest, TrainingBySpecUsesTheBatchAndKeepsNothing) {
  const Floats x = {.shape = {2, 2}, .elements = {1, 10, 3, 30}};
  NormSpec spec = session_test::BatchSpec();
  spec.eps = 0;
  const absl::StatusOr<CallReply> reply = Run(CallTo(spec, x.View(), Mode::kTraining));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(ElementsOf<float>(reply->outputs[0]), ElementsAre(-1, -1, 1, 1));
  EXPECT_FALSE(reply->state.has_value());
  EXPECT_EQ(reply->applied.mode, Mode::kTraining);
}

TEST_F(EngineTest, PowerNormTrainingBySpecIsTheFirstStepOfASession) {
  const Floats x = {.shape = {2, 2}, .elements = {1, 2, 3, 4}};
  for (const int64_t warmup : {0, 2}) {
    const NormSpec spec = session_test::PowerSpec(warmup);
    const std::string id = "p" + std::to_string(warmup);
    CreateSession(id, spec, 2);
    const absl::StatusOr<CallReply> by_spec = Run(CallTo(spec, x.View(), Mode::kTraining));
    const absl::StatusOr<CallReply> by_session = Run(CallTo(id, x.View(), Mode::kTraining));
    ASSERT_TRUE(by_spec.ok() && by_session.ok());
    EXPECT_EQ(BytesOf(by_spec->outputs[0]), BytesOf(by_session->outputs[0]));
  }
}

TEST_F(EngineTest, ComputeMomentsReducesAloneAndTouchesNoSession) {
  const Doubles x = {.shape = {2, 2}, .elements = {1, 10, 3, 30}};
  CreateSession("bn", session_test::BatchSpec(), 2);
  Call call = CallTo("bn", x.View());
  call.moments_only = true;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->outputs, IsEmpty());
  ASSERT_TRUE(reply->moments.has_value());
  EXPECT_EQ((*reply->moments)[1].count, 2);
  EXPECT_EQ((*reply->moments)[1].mean, 20);
  EXPECT_EQ((*reply->moments)[1].m2, 200);
  EXPECT_THAT(reply->moments_shape, ElementsAre(2));
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 0);
}

TEST_F(EngineTest, PartialMomentsOfOneValueAreFine) {
  const Doubles x = {.shape = {1, 2}, .elements = {1, 10}};
  Call call = CallTo(session_test::BatchSpec(), x.View(), Mode::kTraining);
  call.moments_only = true;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ((*reply->moments)[0].count, 1);
}

TEST_F(EngineTest, ParametersOfASessionAreConvertedOnce) {
  Session session = session_test::NewSession("s", LayerSpec({4}), 0);
  OwnedParameters parameters;
  const float w[] = {1, 2, 3, 4};
  parameters.weight =
      OwnedTensor{.dtype = DType::kF32, .shape = {4}, .bytes = std::string(reinterpret_cast<const char*>(w), 16)};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  ASSERT_TRUE(session_test::Create(store_, session).ok());
  const std::string first = BytesOf(Run(CallTo("s", x_.View()))->outputs[0]);
  EXPECT_EQ(BytesOf(Run(CallTo("s", x_.View()))->outputs[0]), first);
  EXPECT_EQ(backend_.prepared, 1);

  // New parameters are seen by the next call.
  SessionPatch patch;
  patch.weight.emplace(std::nullopt);
  ASSERT_TRUE(session_test::Wait<SessionPtr>([&](auto done) { store_.Update("s", patch, std::move(done)); }).ok());
  EXPECT_EQ(BytesOf(Run(CallTo("s", x_.View()))->outputs[0]),
            BytesOf(Run(CallTo(LayerSpec({4}), x_.View()))->outputs[0]));
}

TEST_F(EngineTest, TheOwnerOfTheViewsLivesUntilDoneHasReturned) {
  backend_.on_a_thread = true;
  auto owned = std::make_shared<Floats>(x_);
  const std::weak_ptr<Floats> watch = owned;
  Call call = CallTo(LayerSpec({4}), owned->View());
  call.owner = std::move(owned);
  std::promise<bool> alive;
  engine_.Submit(std::move(call),
                 [&](absl::StatusOr<CallReply> reply) { alive.set_value(reply.ok() && !watch.expired()); });
  EXPECT_TRUE(alive.get_future().get());
}

TEST_F(EngineTest, AFailedBackendFailsTheCallAndCommitsNothing) {
  const Floats x = {.shape = {2, 2}, .elements = {1, 10, 3, 30}};
  CreateSession("bn", session_test::BatchSpec(), 2);
  backend_.fail_with = absl::InternalError("lost");
  EXPECT_EQ(Run(CallTo("bn", x.View(), Mode::kTraining)).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 0);
  backend_.fail_with = absl::OkStatus();
  EXPECT_TRUE(Run(CallTo("bn", x.View(), Mode::kTraining)).ok());
}

}  // namespace
}  // namespace normd
