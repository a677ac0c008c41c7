// Batches: one job list, bytes equal to single calls, a result for each item in order.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/parameter_cache.h"
#include "tests/server/engine/fixtures.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::Floats;
using engine_test::LayerSpec;
using session_test::BatchSpec;
using session_test::PowerSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EngineBatchTest : public engine_test::EngineFixture {
 protected:
  EngineBatchTest() {
    for (size_t i = 0; i < large_.elements.size(); ++i) {
      large_.elements[i] = 1e6 + static_cast<double>(i * 2654435761u % 1000) / 7;
    }
  }

  // Mixed methods, shapes, dtypes and targets.
  std::vector<Call> Calls() {
    std::vector<Call> calls;
    calls.push_back(CallTo(LayerSpec({4}), x_.View()));
    calls.push_back(CallTo(NormSpec{.attributes = RmsNormSpec()}, large_.View()));
    calls.push_back(CallTo(BatchSpec(), large_.View(), Mode::kTraining));
    calls.push_back(CallTo(PowerSpec(5), x_.View(), Mode::kTraining));
    calls.push_back(CallTo(NormSpec{.attributes = ScaleNormSpec()}, x_.View()));
    for (Call& call : calls) call.outputs = {OutputKind::kY, OutputKind::kInverseStd};
    return calls;
  }

  const Floats x_ = {.shape = {2, 4}, .elements = {1, 2, 3, 4, 5, 6, 7, 9}};
  Doubles large_ = {.shape = {3, 5, 129}, .elements = std::vector<double>(3 * 5 * 129)};
};

TEST_F(EngineBatchTest, BytesEqualThoseOfSingleCallsInOneJobList) {
  std::vector<std::string> single;
  for (Call& call : Calls()) {
    const absl::StatusOr<CallReply> reply = Run(std::move(call));
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const OutputTensor& output : reply->outputs) single.push_back(BytesOf(output));
  }
  for (const bool on_a_thread : {false, true}) {
    backend_.on_a_thread = on_a_thread;
    backend_.TakeJobLists();
    std::vector<std::string> batch;
    for (const absl::StatusOr<CallReply>& reply : RunBatch(Calls())) {
      ASSERT_TRUE(reply.ok()) << reply.status();
      for (const OutputTensor& output : reply->outputs) batch.push_back(BytesOf(output));
    }
    EXPECT_EQ(batch, single);
    EXPECT_THAT(backend_.TakeJobLists(), ElementsAre(5, 1)) << "one list, and one for PowerNorm's second half";
  }
}

TEST_F(EngineBatchTest, ABadItemFailsAlone) {
  std::vector<Call> calls = Calls();
  calls[1].x.size_bytes -= 1;
  calls[4].target = SessionTarget{"nobody"};
  calls[0].validate_only = true;
  const std::vector<absl::StatusOr<CallReply>> replies = RunBatch(std::move(calls));
  ASSERT_EQ(replies.size(), 5);
  EXPECT_TRUE(replies[0].ok());
  EXPECT_THAT(replies[0]->outputs, IsEmpty());
  EXPECT_EQ(replies[1].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(replies[2].ok());
  EXPECT_TRUE(replies[3].ok());
  EXPECT_EQ(replies[4].status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(backend_.TakeJobLists(), ElementsAre(2, 1));
}

TEST_F(EngineBatchTest, AnEmptyBatchIsAnswered) {
  EXPECT_THAT(RunBatch({}), IsEmpty());
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
}

TEST_F(EngineBatchTest, StepsToOneSessionAreCommittedInItemOrder) {
  CreateSession("bn", BatchSpec(), 4);
  CreateSession("alone", BatchSpec(), 4);
  const Floats other = {.shape = {2, 4}, .elements = {9, 1, 4, 4, 0, 6, 2, 1}};
  std::vector<Call> calls;
  calls.push_back(CallTo("bn", x_.View(), Mode::kTraining));
  calls.push_back(CallTo("bn", x_.View(), Mode::kInference));
  calls.push_back(CallTo("bn", other.View(), Mode::kTraining));
  calls.push_back(CallTo("bn", other.View(), Mode::kTraining));
  calls[3].expected_version = 1;
  const std::vector<absl::StatusOr<CallReply>> replies = RunBatch(std::move(calls));
  EXPECT_EQ(replies[0]->state->result.version, 1);
  EXPECT_EQ(replies[1]->applied.session_version, 0);
  EXPECT_EQ(replies[2]->state->result.version, 2);
  EXPECT_EQ(replies[3].status().code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(Run(CallTo("alone", x_.View(), Mode::kTraining)).ok());
  ASSERT_TRUE(Run(CallTo("alone", other.View(), Mode::kTraining)).ok());
  EXPECT_EQ((*session_test::Get(store_, "bn"))->state.mean, (*session_test::Get(store_, "alone"))->state.mean);
  EXPECT_EQ((*session_test::Get(store_, "bn"))->state.var, (*session_test::Get(store_, "alone"))->state.var);
}

TEST_F(EngineBatchTest, PowerNormStepsOfOneBatchFollowEachOther) {
  CreateSession("batch", PowerSpec(1), 4);
  CreateSession("single", PowerSpec(1), 4);
  std::vector<Call> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(CallTo("batch", x_.View(), Mode::kTraining));
  for (const absl::StatusOr<CallReply>& reply : RunBatch(std::move(calls))) {
    ASSERT_TRUE(reply.ok()) << reply.status();
    const absl::StatusOr<CallReply> single = Run(CallTo("single", x_.View(), Mode::kTraining));
    EXPECT_EQ(BytesOf(reply->outputs[0]), BytesOf(single->outputs[0]));
    EXPECT_EQ(reply->state->result.version, single->state->result.version);
  }
}

TEST(ParameterCacheTest, CountsTheMemoryOfConvertedParameters) {
  engine_test::SpyBackend backend;
  const DeviceScheduler scheduler(&backend);
  ParameterCache cache(&scheduler, /*max_bytes=*/1 << 20);
  Session session = session_test::NewSession("s", LayerSpec({1000}), 0);
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {1000}, .bytes = std::string(4000, '\0')};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  ASSERT_NE(cache.Get(session, *MakePlan(session.spec, DType::kF32, {1, 1000}, {})), nullptr);
  EXPECT_GE(cache.bytes(), 1000 * (8 + 4)) << "as f64 and as f32";
}

TEST(ParameterCacheTest, ASessionWithoutParametersHasNoneAndTakesNothing) {
  engine_test::SpyBackend backend;
  const DeviceScheduler scheduler(&backend);
  ParameterCache cache(&scheduler, /*max_bytes=*/1 << 20);
  Session session = session_test::NewSession("s", LayerSpec({4}), 0);
  session.parameters = std::make_shared<const OwnedParameters>();
  EXPECT_EQ(cache.Get(session, *MakePlan(session.spec, DType::kF32, {1, 4}, {})), nullptr);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(backend.prepared, 0);
}

TEST(ParameterCacheTest, TheLeastRecentlyUsedParametersGoFirst) {
  engine_test::SpyBackend backend;
  const DeviceScheduler scheduler(&backend);
  ParameterCache cache(&scheduler, /*max_bytes=*/2 * (8 * 4 + 300));
  Session session = session_test::NewSession("s", LayerSpec({4}), 0);
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {4}, .bytes = std::string(16, '\0')};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  const NormPlan plan = *MakePlan(session.spec, DType::kF32, {1, 4}, {});
  const auto get = [&](const std::string& uid) {
    session.uid = uid;
    EXPECT_NE(cache.Get(session, plan), nullptr);
    return backend.prepared.load();
  };
  EXPECT_EQ(get("a"), 1);
  EXPECT_EQ(get("b"), 2);
  EXPECT_EQ(get("a"), 2);
  EXPECT_EQ(get("c"), 3);  // b goes
  EXPECT_EQ(get("a"), 3);
  EXPECT_EQ(get("b"), 4);
  EXPECT_LE(cache.bytes(), 2 * (8 * 4 + 300));
}

}  // namespace
}  // namespace normd
