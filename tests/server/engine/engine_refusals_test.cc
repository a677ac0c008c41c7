// Bad calls: each is refused by name, changes nothing, and the next one is served.
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/constants.h"

namespace normd {
namespace {

using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::Floats;
using engine_test::LayerSpec;
using session_test::BatchSpec;
using session_test::PowerSpec;
using ::testing::IsEmpty;

class EngineRefusalTest : public engine_test::EngineFixture {
 protected:
  void SetUp() override { CreateSession("bn", BatchSpec(), 4); }

  void TearDown() override {
    EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 0);
    EXPECT_THAT(backend_.TakeJobLists(), IsEmpty()) << "a refused call must not reach the backend";
    EXPECT_TRUE(Run(CallTo("bn", x_.View(), Mode::kTraining)).ok()) << "the next call is served";
  }

  // A training call to the session, changed.
  Call Training(const std::function<void(Call&)>& change) {
    Call call = CallTo("bn", x_.View(), Mode::kTraining);
    change(call);
    return call;
  }
  Call Layer(const std::function<void(Call&)>& change) {
    Call call = CallTo(LayerSpec({4}), x_.View());
    change(call);
    return call;
  }
  // BatchNorm inference by spec with the given running values.
  Call Given(const Doubles& mean, const Doubles& var) {
    Call call = CallTo(BatchSpec(), x_.View());
    call.running_mean = mean.View();
    call.running_var = var.View();
    return call;
  }

  const Floats x_ = {.shape = {2, 4}, .elements = {1, 2, 3, 4, 5, 6, 7, 9}};
  const Floats five_ = {.shape = {5}, .elements = {1, 2, 3, 4, 5}};
  const Doubles good_ = {.shape = {4}, .elements = {1, 1, 1, 1}};
};

TEST_F(EngineRefusalTest, XMustBeThereAndHaveItsBytes) {
  EXPECT_EQ(RefusedField(CallTo(LayerSpec({4}), TensorView())), "x");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { --c.x.size_bytes; })), "x");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.x.shape = {2, -4}; })), "x.shape[1]");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.x.shape = {1 << 30, 1 << 30, 1 << 30}; })), "x.shape");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.x.shape = Shape(9, 1); })), "x.shape");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.x.dtype = static_cast<DType>(17); })), "x.dtype");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.x.shape = {}; })), "x.shape");
}

TEST_F(EngineRefusalTest, AHugeShapeWithListedAxesIsRefusedByItsBytesFirst) {
  Call call = CallTo(NormSpec{.attributes = LayerNormSpec{.axes = {1, 0}}}, x_.View());
  call.x.shape = {int64_t{1} << 29, int64_t{1} << 29};
  EXPECT_EQ(RefusedField(std::move(call)), "x");
}

TEST_F(EngineRefusalTest, TheSpecIsChecked) {
  NormSpec spec = LayerSpec({4});
  spec.eps = -1;
  EXPECT_EQ(RefusedField(CallTo(spec, x_.View())), "spec.layer_norm.eps");
  spec = {.attributes = GroupNormSpec{.layout = Layout::kChannelsFirst, .num_groups = 3}};
  EXPECT_EQ(RefusedField(CallTo(spec, x_.View())), "spec.group_norm.num_groups");
  spec = {.attributes = InstanceNormSpec{.layout = Layout::kChannelsFirst, .track_running_statistics = true}};
  EXPECT_EQ(RefusedField(CallTo(spec, x_.View())), "spec.instance_norm.track_running_statistics");
}

TEST_F(EngineRefusalTest, OnlyTheNormOfOrderTwoHasMoments) {
  const auto asking = [this](const LpNormSpec& method) {
    Call call = CallTo(NormSpec{.attributes = method}, x_.View());
    call.outputs = {{OutputKind::kY}, {OutputKind::kMoments}};
    return call;
  };
  EXPECT_EQ(RefusedField(asking({.order = 1})), "spec.lp_norm.order");
  EXPECT_EQ(RefusedField(asking({.order = 3})), "spec.lp_norm.order");
  EXPECT_EQ(RefusedField(asking({.p = 1.5})), "spec.lp_norm.p");
  EXPECT_EQ(RefusedField(asking({.p = std::numeric_limits<double>::infinity()})), "spec.lp_norm.p");
}

TEST_F(EngineRefusalTest, AnUnknownSessionIsNotFound) {
  EXPECT_EQ(Run(CallTo("nobody", x_.View())).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EngineRefusalTest, ASessionHasItsOwnChannelsAndParameters) {
  const Floats wider = {.shape = {1, 5}, .elements = {1, 2, 3, 4, 5}};
  EXPECT_EQ(RefusedField(CallTo("bn", wider.View())), "x");
  EXPECT_EQ(RefusedField(Training([this](Call& c) { c.parameters.bias = good_.View(); })), "parameters");
  EXPECT_EQ(RefusedField(Training([this](Call& c) { c.running_mean = good_.View(); })), "parameters");
}

TEST_F(EngineRefusalTest, StepsBelongToTrainingOnSessionsWithState) {
  const auto step = [](Call& c) { c.step = StepId{"a", 1}; };
  EXPECT_EQ(RefusedField(Layer(step)), "step");
  EXPECT_EQ(RefusedField(Layer([](Call& c) { c.expected_version = 1; })), "expected_version");
  EXPECT_EQ(RefusedField(Training([](Call& c) {
              c.step = StepId{"a", 1};
              c.mode = Mode::kInference;
            })),
            "step");
  EXPECT_EQ(RefusedField(Training([](Call& c) { c.step = StepId{"", 1}; })), "step.client_id");
  EXPECT_EQ(RefusedField(Training([](Call& c) { c.step = StepId{"a", 0}; })), "step.sequence");
  EXPECT_EQ(RefusedField(Training([](Call& c) {
              c.step = StepId{"a", 1};
              c.moments_only = true;
            })),
            "step");
  CreateSession("ln", LayerSpec({4}), 0);
  Call call = CallTo("ln", x_.View(), Mode::kTraining);
  step(call);
  EXPECT_EQ(RefusedField(std::move(call)), "step");
}

TEST_F(EngineRefusalTest, ParametersAreCheckedByLengthShapeAndBytes) {
  EXPECT_EQ(RefusedField(Layer([this](Call& c) { c.parameters.weight = five_.View(); })), "parameters.weight");
  EXPECT_EQ(RefusedField(Layer([this](Call& c) { c.parameters.bias = five_.View(); })), "parameters.bias");
  EXPECT_EQ(RefusedField(Layer([this](Call& c) {
              c.parameters.weight = good_.View();
              c.parameters.weight.size_bytes = 16;
            })),
            "parameters.weight");
  EXPECT_EQ(RefusedField(Layer([this](Call& c) {
              c.parameters.weight = good_.View();
              c.parameters.weight.dtype = static_cast<DType>(5);
            })),
            "parameters.weight.dtype");
  Call call = CallTo(NormSpec{.attributes = LpNormSpec()}, x_.View());
  call.parameters.weight = good_.View();
  EXPECT_EQ(RefusedField(std::move(call)), "parameters.weight");
}

TEST_F(EngineRefusalTest, RunningStatisticsAreNeededWhereTheyAreUsedAndNowhereElse) {
  EXPECT_EQ(RefusedField(CallTo(BatchSpec(), x_.View())), "parameters.running_mean");
  Call only_mean = CallTo(BatchSpec(), x_.View());
  only_mean.running_mean = good_.View();
  EXPECT_EQ(RefusedField(std::move(only_mean)), "parameters.running_var");
  Call training = Given(good_, good_);
  training.mode = Mode::kTraining;
  EXPECT_EQ(RefusedField(std::move(training)), "parameters.running_mean");
  EXPECT_EQ(RefusedField(Layer([this](Call& c) { c.running_var = good_.View(); })), "parameters.running_var");
  EXPECT_EQ(RefusedField(CallTo(PowerSpec(1), x_.View())), "parameters.running_var");
  Call power = CallTo(PowerSpec(1), x_.View());
  power.running_mean = good_.View();
  power.running_var = good_.View();
  EXPECT_EQ(RefusedField(std::move(power)), "parameters.running_mean");
}

TEST_F(EngineRefusalTest, RunningStatisticsAreCheckedByLengthAndValue) {
  const Doubles three = {.shape = {3}, .elements = {1, 1, 1}};
  const Doubles nan = {.shape = {4}, .elements = {1, 1, kNan, 1}};
  const Doubles negative = {.shape = {4}, .elements = {1, -1e-300, 1, 1}};
  EXPECT_EQ(RefusedField(Given(three, good_)), "parameters.running_mean");
  EXPECT_EQ(RefusedField(Given(good_, three)), "parameters.running_var");
  EXPECT_EQ(RefusedField(Given(nan, good_)), "parameters.running_mean[2]");
  EXPECT_EQ(RefusedField(Given(good_, nan)), "parameters.running_var[2]");
  EXPECT_EQ(RefusedField(Given(good_, negative)), "parameters.running_var[1]");
  Call validated = Given(good_, negative);
  validated.validate_only = true;
  EXPECT_EQ(RefusedField(std::move(validated)), "parameters.running_var[1]");
  Call negative_mean = Given(negative, good_);
  negative_mean.validate_only = true;
  EXPECT_TRUE(Run(std::move(negative_mean)).ok());
}

TEST_F(EngineRefusalTest, MasksFitXAndItsMethod) {
  const uint8_t bytes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const auto mask = [&bytes](Shape shape, int64_t size) {
    return [&bytes, shape, size](Call& c) { c.mask = {DType::kF32, shape, bytes, size}; };
  };
  EXPECT_EQ(RefusedField(Training(mask({3}, 3))), "mask");
  EXPECT_EQ(RefusedField(Training(mask({2, 4}, 8))), "mask");
  EXPECT_EQ(RefusedField(Training(mask({2}, 8))), "mask");
  EXPECT_EQ(RefusedField(Layer(mask({2}, 2))), "mask");
  // Channels-last and PowerNorm: the last axis is left out.
  const Floats x = {.shape = {1, 2, 3}, .elements = {1, 2, 3, 4, 5, 6}};
  Call call = CallTo(PowerSpec(1), x.View(), Mode::kTraining);
  mask({1, 3}, 3)(call);
  EXPECT_EQ(RefusedField(std::move(call)), "mask");
  call = CallTo(PowerSpec(1), x.View(), Mode::kTraining);
  mask({1, 2}, 2)(call);
  call.validate_only = true;
  EXPECT_TRUE(Run(std::move(call)).ok());
}

TEST_F(EngineRefusalTest, AResidualHasTheShapeOfX) {
  const Floats turned = {.shape = {4, 2}, .elements = {1, 2, 3, 4, 5, 6, 7, 8}};
  EXPECT_EQ(RefusedField(Layer([&](Call& c) { c.residual = turned.View(); })), "residual.tensor");
  EXPECT_EQ(RefusedField(Layer([&](Call& c) {
              c.residual = x_.View();
              c.residual.size_bytes = 4;
            })),
            "residual.tensor");
}

TEST_F(EngineRefusalTest, OutputsThatCannotBeAreRefused) {
  const auto outputs = [](std::vector<WantedOutput> kinds) { return [kinds](Call& c) { c.outputs = kinds; }; };
  EXPECT_EQ(RefusedField(Layer(outputs({OutputKind::kY, OutputKind::kH}))), "outputs[1].kind");
  EXPECT_EQ(RefusedField(Layer(outputs({OutputKind::kY, OutputKind::kY}))), "outputs[1].kind");
  Call given = Given(good_, good_);
  given.outputs = {OutputKind::kMoments};
  EXPECT_EQ(RefusedField(std::move(given)), "outputs");
  Call call = CallTo(NormSpec{.attributes = LpNormSpec{.order = 1}}, x_.View());
  call.moments_only = true;
  EXPECT_EQ(RefusedField(std::move(call)), "spec.lp_norm.order");
}

TEST_F(EngineRefusalTest, ADeviceThatIsNotThereIsNamed) {
  const absl::Status status = Run(Layer([](Call& c) { c.device = Device::kCuda; })).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->field, "device");
}

class NewSessionTest : public engine_test::EngineFixture {
 protected:
  static Session WithWeight(const NormSpec& spec, int64_t channels, Shape shape) {
    Session session = session_test::NewSession("s", spec, channels);
    OwnedParameters parameters;
    parameters.weight =
        OwnedTensor{.dtype = DType::kF32, .shape = shape, .bytes = std::string(ElementCount(shape) * 4, '\0')};
    session.parameters = std::make_shared<const OwnedParameters>(parameters);
    return session;
  }

  std::string Field(const Session& session) {
    const absl::Status status = engine_.ValidateNewSession(session);
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    return detail.has_value() ? detail->field : std::string(status.message());
  }
  std::string Field(const NormSpec& spec, int64_t channels) {
    return Field(session_test::NewSession("s", spec, channels));
  }
};

TEST_F(NewSessionTest, SpecAndChannelsAreChecked) {
  EXPECT_EQ(Field(BatchSpec(), 4), "");
  EXPECT_EQ(Field(BatchSpec({.momentum = 2}), 4), "spec.batch_norm.running.momentum");
  EXPECT_EQ(Field(BatchSpec(), 0), "num_channels");
  EXPECT_EQ(Field(BatchSpec(), -1), "num_channels");
  EXPECT_EQ(Field(BatchSpec(), int64_t{1} << 61), "num_channels");
  EXPECT_EQ(Field(LayerSpec({4}), 4), "num_channels");
  const PowerNormSpec power = {.num_groups = 3, .warmup_iters = 1};
  EXPECT_EQ(Field(NormSpec{.attributes = power}, 4), "spec.power_norm.num_groups");
}

TEST_F(NewSessionTest, AnLpNormMayListAxesThatSomeRanksTellApart) {
  EXPECT_EQ(Field(NormSpec{.attributes = LpNormSpec{.p = 3.0, .axes = {4, -4}}}, 0), "");
}

TEST_F(NewSessionTest, ParameterLengthsAreCheckedWhereTheyAreKnown) {
  EXPECT_EQ(Field(WithWeight(BatchSpec(), 4, {4})), "");
  EXPECT_EQ(Field(WithWeight(BatchSpec(), 4, {5})), "parameters.weight");
  EXPECT_EQ(Field(WithWeight(LayerSpec({2, 3}), 0, {2, 3})), "");
  EXPECT_EQ(Field(WithWeight(LayerSpec({2, 3}), 0, {6})), "");
  EXPECT_EQ(Field(WithWeight(LayerSpec({2, 3}), 0, {3, 2})), "parameters.weight.shape");
  EXPECT_EQ(Field(WithWeight({.attributes = RmsNormSpec()}, 0, {17})), "");
  EXPECT_EQ(Field(WithWeight({.attributes = ScaleNormSpec()}, 0, {2})), "parameters.weight");
  EXPECT_EQ(Field(WithWeight({.attributes = LpNormSpec()}, 0, {1})), "parameters.weight");
  GroupNormSpec group = {.layout = Layout::kChannelsFirst, .num_groups = 2};
  EXPECT_EQ(Field(WithWeight({.attributes = group}, 4, {4})), "");
  group.affine_per_group = true;
  EXPECT_EQ(Field(WithWeight({.attributes = group}, 4, {4})), "parameters.weight");
}

TEST_F(NewSessionTest, GivenStateAndTtlAreChecked) {
  Session session = session_test::NewSession("s", BatchSpec(), 2);
  session.state.mean = {0, 0};
  session.state.var = {1, -1};
  EXPECT_EQ(Field(session), "state.var[1]");
  session.state.var = {1};
  EXPECT_EQ(Field(session), "state.var");
  session.state.var = {1, 1};
  EXPECT_EQ(Field(session), "");
  session.state.num_batches = uint64_t{1} << 63;
  EXPECT_EQ(Field(session), "state.num_batches");
  session.state = {.num_batches = UINT64_MAX};
  EXPECT_EQ(Field(session), "state.num_batches");
  session.state.num_batches = INT64_MAX;
  EXPECT_EQ(Field(session), "");
  session.ttl = absl::ZeroDuration();
  EXPECT_EQ(Field(session), "ttl");
}

TEST_F(NewSessionTest, APatchIsCheckedAgainstTheSession) {
  const SessionPtr session = CreateSession("s", BatchSpec(), 4);
  SessionPatch patch;
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF32, .shape = {3}, .bytes = std::string(12, '\0')});
  EXPECT_EQ(GetErrorDetail(engine_.ValidatePatch(*session, patch))->field, "parameters.weight");
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF64, .shape = {4}, .bytes = std::string(32, '\0')});
  EXPECT_TRUE(engine_.ValidatePatch(*session, patch).ok());
  patch.ttl.emplace(-absl::Seconds(1));
  EXPECT_EQ(GetErrorDetail(engine_.ValidatePatch(*session, patch))->field, "ttl");
}

}  // namespace
}  // namespace normd
