// Parameters on their way into a plan, stateless and through the parameter cache: an absent weight, and a weight whose
// order depends on the shape of x.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "server/base/steady_time.h"
#include "server/engine/prepared_call.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/case.h"
#include "tests/support/compare.h"
#include "tests/support/run_case.h"
#include "tests/support/spec.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Floats;

TensorView ViewOf(const std::string& bytes, DType dtype, const Shape& shape) {
  return {.dtype = dtype, .shape = shape, .data = bytes.data(), .size_bytes = static_cast<int64_t>(bytes.size())};
}

class EngineParametersTest : public engine_test::EngineFixture {
 protected:
  // A session of the spec with these parameters.
  void CreateSessionWith(const std::string& id, const NormSpec& spec, const OwnedParameters& parameters) {
    Session session = session_test::NewSession(id, spec, 0);
    session.parameters = std::make_shared<const OwnedParameters>(parameters);
    EXPECT_TRUE(engine_.ValidateNewSession(session).ok()) << engine_.ValidateNewSession(session);
    EXPECT_TRUE(session_test::Create(store_, session).ok());
  }

  std::string Y(Call call) {
    const absl::StatusOr<CallReply> reply = Run(std::move(call));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? BytesOf(reply->outputs[0]) : "";
  }
};

// Every method that takes a weight_offset, without a weight; with and without a bias.
std::vector<Case> CasesWithoutWeight() {
  std::vector<Case> cases;
  for (const Method method : kAllMethods) {
    if (method == Method::kLpNorm) continue;
    for (const DType dtype : kAllDTypes) {
      for (const CastOrder order : {CastOrder::kAffineThenCast, CastOrder::kCastThenAffine}) {
        Case c = {.spec = SpecOf(method, Layout::kChannelsFirst), .shape = {3, 6, 4}, .dtype = dtype};
        if (method == Method::kLayerNorm) SetNormalizedShape(&c.spec, {4});
        if (method == Method::kPRmsNorm) c.spec.attributes = PRmsNormSpec{.k = 3};
        SetNumGroups(&c.spec, 2);
        if (c.spec.HasState()) c.options.mode = Mode::kTraining;
        c.spec.cast_order = order;
        c.spec.weight_offset = 1;
        cases.push_back(c);
        c.bias = dtype;
        if (method != Method::kScaleNorm && method != Method::kPRmsNorm) cases.push_back(c);
      }
    }
  }
  return cases;
}

TEST_F(EngineParametersTest, AnAbsentWeightIsOneWhateverTheWeightOffset) {
  int number = 0;
  for (const Case& c : CasesWithoutWeight()) {
    const NormPlan plan = *PlanOf(c);
    const CaseData data = MakeData(c, plan, 0);
    const oracle::Result want = oracle::Compute(OracleSpec(c), OracleInput(c, data));
    const auto wrong = [&](const std::string& y) {
      if (y.size() != data.x.size()) return std::string("no answer");
      return oracle::CompareY(c.Name(), OracleSpec(c), BoundOf(plan, c.dtype), OracleType(c.dtype), y.data(), want);
    };
    const TensorView x = ViewOf(data.x, c.dtype, plan.shape);
    Call call = CallTo(c.spec, x, c.options.mode);
    OwnedParameters parameters;
    if (c.bias.has_value()) {
      call.parameters.bias = ViewOf(data.bias, *c.bias, {plan.parameter_length});
      parameters.bias = OwnedTensor{.dtype = *c.bias, .shape = {plan.parameter_length}, .bytes = data.bias};
    }
    EXPECT_EQ(wrong(Y(std::move(call))), "");
    if (c.spec.HasState()) continue;
    const std::string id = "s" + std::to_string(++number);
    CreateSessionWith(id, c.spec, parameters);
    // Converted, then from the cache.
    for (int time = 0; time < 2; ++time) EXPECT_EQ(wrong(Y(CallTo(id, x))), "");
  }
  EXPECT_GT(number, 40);
}

// A prepared call takes its own tensors, and converts the parameters that come with it.
TEST_F(EngineParametersTest, APreparedCallHasItsOwnParameters) {
  const NormSpec spec = {.attributes = RmsNormSpec()};
  const Floats x = {.shape = {2, 4}, .elements = {1, 2, 3, 4, -1, 0, 5, 1}};
  const Floats ones = {.shape = {4}, .elements = {1, 1, 1, 1}}, weight = {.shape = {4}, .elements = {1, 2, 3, 4}};
  Call call = CallTo(spec, x.View());
  call.parameters.weight = ones.View();
  const std::shared_ptr<const PreparedCall> prepared = Run(call)->prepared;
  ASSERT_TRUE(prepared->runs_inline);
  call.parameters.weight = weight.View();
  const std::string want = Y(call);
  call.target = NormSpec();  // it is not looked at
  call.prepared = prepared;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(BytesOf(reply->outputs[0]), want);
  EXPECT_EQ(reply->applied.method, Method::kRmsNorm);
  EXPECT_EQ(reply->prepared, prepared);
}

TEST_F(EngineParametersTest, APreparedCallIsNotComputedAfterItsDeadline) {
  const Floats x = {.shape = {1, 2}, .elements = {3, 4}};
  Call call = CallTo(NormSpec{.attributes = RmsNormSpec()}, x.View());
  call.prepared = Run(call)->prepared;
  backend_.TakeJobLists();
  call.deadline = SteadyNow() - absl::Seconds(1);
  EXPECT_EQ(Run(call).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(backend_.TakeJobLists().empty());
}

TEST_F(EngineParametersTest, ASessionWithNewParametersIsPreparedAnew) {
  const Floats x = {.shape = {1, 2}, .elements = {3, 4}};
  OwnedParameters parameters;
  const std::string w = MakeValues(Data::kNormal, DType::kF32, 2, 1);
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {2}, .bytes = w};
  CreateSessionWith("rms", {.attributes = RmsNormSpec()}, parameters);
  Call call = CallTo("rms", x.View());
  call.prepared = Run(CallTo("rms", x.View()))->prepared;
  EXPECT_EQ(Run(call)->prepared, call.prepared);
  SessionPatch patch;
  patch.weight.emplace(std::nullopt);
  absl::Status patched = absl::UnknownError("");
  store_.Update("rms", std::move(patch),
                [&patched](const absl::StatusOr<SessionPtr>& session) { patched = session.status(); });
  ASSERT_TRUE(patched.ok()) << patched;
  const absl::StatusOr<CallReply> reply = Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_NE(reply->prepared, call.prepared);
  EXPECT_EQ(BytesOf(reply->outputs[0]), Y(CallTo(NormSpec{.attributes = RmsNormSpec()}, x.View())));
}

// A flat weight fits x of several shapes, and lies otherwise in each.
TEST_F(EngineParametersTest, AFlatWeightFollowsTheAxesOfEachShape) {
  const NormSpec spec = {.attributes = LayerNormSpec{.axes = {2, 1}}};
  const std::string w = MakeValues(Data::kNormal, DType::kF32, 24, 1);
  const std::string b = MakeValues(Data::kNormal, DType::kF32, 24, 2);
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {24}, .bytes = w};
  parameters.bias = OwnedTensor{.dtype = DType::kF32, .shape = {24}, .bytes = b};
  CreateSessionWith("flat", spec, parameters);
  const std::string x = MakeValues(Data::kNormal, DType::kF32, 48, 3);
  const int before = backend_.prepared;
  for (const Shape& shape : {Shape{2, 4, 6}, Shape{2, 6, 4}, Shape{2, 24, 1}, Shape{2, 4, 6}, Shape{2, 6, 4}}) {
    const Case c = {.spec = spec,
                    .shape = {shape.begin(), shape.end()},
                    .dtype = DType::kF32,
                    .weight = DType::kF32,
                    .bias = DType::kF32};
    CaseData data;
    data.x = x;
    data.weight = w;
    data.bias = b;
    const absl::StatusOr<Outputs> want = RunCase(*MakeCpuBackend({}), c, data);
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_EQ(Y(CallTo("flat", ViewOf(x, DType::kF32, shape))), want->y) << c.Name();
  }
  EXPECT_EQ(backend_.prepared - before, 3) << "once for each order";
}

// A trainer may send its layer's phi with every call; what a call does not use is no mistake.
TEST_F(EngineParametersTest, APowerNormCallMayCarryAPhiThatItDoesNotUse) {
  const Floats x = {.shape = {2, 4}, .elements = {1, 2, 3, 4, -1, 0, 5, 1}};
  const Floats phi = {.shape = {4}, .elements = {1, 1, 1, 1}};
  const Call without = CallTo(NormSpec{.attributes = PowerNormSpec()}, x.View(), Mode::kTraining);
  Call with = without;
  with.running_var = phi.View();
  EXPECT_EQ(Y(std::move(with)), Y(without));
}

}  // namespace
}  // namespace normd
