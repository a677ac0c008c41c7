// Calls to sessions with running state: training steps, inference, replays, non-finite batches, masks.
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::ElementsOf;
using engine_test::Floats;
using session_test::BatchSpec;
using session_test::PowerSpec;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class EngineStateTest : public engine_test::EngineFixture {
 protected:
  absl::StatusOr<CallReply> Train(const std::string& id, const TensorView& x, std::optional<uint64_t> sequence = {}) {
    Call call = CallTo(id, x, Mode::kTraining);
    if (sequence.has_value()) call.step = StepId{"client", *sequence};
    return Run(std::move(call));
  }

  const RunningState State(const std::string& id) { return (*session_test::Get(store_, id))->state; }

  const Doubles x_ = {.shape = {2, 2}, .elements = {1, 10, 3, 30}};
};

TEST_F(EngineStateTest, ABatchNormStepUsesTheBatchAndMovesTheState) {
  NormSpec spec = BatchSpec();
  spec.eps = 0;
  const SessionPtr session = CreateSession("bn", spec, 2);
  const absl::StatusOr<CallReply> reply = Train("bn", x_.View());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(ElementsOf<double>(reply->outputs[0]), ElementsAre(-1, -1, 1, 1));
  ASSERT_TRUE(reply->state.has_value());
  EXPECT_TRUE(reply->state->result.applied);
  EXPECT_EQ(reply->state->result.reason, Reason::kApplied);
  EXPECT_EQ(reply->state->result.version, 1);
  EXPECT_EQ(reply->state->result.num_batches, 1);
  EXPECT_EQ(reply->state->result.uid, session->uid);
  EXPECT_EQ(reply->state->result.durability, Durability::kMemory);
  EXPECT_TRUE(reply->state->output_available);
  EXPECT_EQ(reply->applied.session_version, 0) << "the version that was read";
  EXPECT_THAT(State("bn").mean, ElementsAre(DoubleEq(0.2), DoubleEq(2)));
  EXPECT_THAT(State("bn").var, ElementsAre(DoubleEq(0.9 + 0.1 * 2), DoubleEq(0.9 + 0.1 * 200)));
}

TEST_F(EngineStateTest, InferenceUsesTheRunningStatisticsAndNeverMovesThem) {
  NormSpec spec = BatchSpec({.momentum = 1});
  spec.eps = 0;
  CreateSession("bn", spec, 2);
  // Before any training: mean 0, variance 1.
  EXPECT_THAT(ElementsOf<double>(Run(CallTo("bn", x_.View()))->outputs[0]), ElementsAreArray(x_.elements));
  ASSERT_TRUE(Train("bn", x_.View()).ok());
  const absl::StatusOr<CallReply> reply = Run(CallTo("bn", x_.View()));
  ASSERT_TRUE(reply.ok()) << reply.status();
  const double r = std::sqrt(0.5);
  EXPECT_THAT(ElementsOf<double>(reply->outputs[0]),
              ElementsAre(DoubleNear(-r, 1e-15), DoubleNear(-r, 1e-15), DoubleNear(r, 1e-15), DoubleNear(r, 1e-15)));
  EXPECT_FALSE(reply->state->result.applied);
  EXPECT_EQ(reply->state->result.reason, Reason::kInference);
  EXPECT_EQ(reply->state->result.version, 1);
  EXPECT_EQ(reply->applied.session_version, 1);
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 1);
}

TEST_F(EngineStateTest, AReplayRecomputesYAndMovesNothing) {
  CreateSession("bn", BatchSpec(), 2);
  const absl::StatusOr<CallReply> fresh = Train("bn", x_.View(), 7);
  const Doubles other = {.shape = {2, 2}, .elements = {5, 6, 7, 9}};
  ASSERT_TRUE(Train("bn", other.View(), 8).ok());
  const RunningState before = State("bn");
  const absl::StatusOr<CallReply> replay = Train("bn", x_.View(), 7);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->state->result.replayed);
  EXPECT_EQ(replay->state->result.version, 1);
  EXPECT_EQ(BytesOf(replay->outputs[0]), BytesOf(fresh->outputs[0]));
  EXPECT_EQ(State("bn").mean, before.mean);
  EXPECT_EQ(Train("bn", x_.View(), 8).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineStateTest, ANonFiniteBatchPropagatesAndLeavesTheState) {
  CreateSession("bn", BatchSpec(), 2);
  ASSERT_TRUE(Train("bn", x_.View()).ok());
  const RunningState before = State("bn");
  const Doubles poisoned = {.shape = {2, 2}, .elements = {1, std::numeric_limits<double>::quiet_NaN(), 3, 30}};
  const absl::StatusOr<CallReply> reply = Train("bn", poisoned.View());
  ASSERT_TRUE(reply.ok()) << reply.status();
  const std::vector<double> y = ElementsOf<double>(reply->outputs[0]);
  EXPECT_TRUE(std::isfinite(y[0]) && std::isfinite(y[2]));
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(y[3]));
  EXPECT_FALSE(reply->state->result.applied);
  EXPECT_EQ(reply->state->result.reason, Reason::kNonFinite);
  EXPECT_EQ(State("bn").mean, before.mean);
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 1);
}

TEST_F(EngineStateTest, AnEmptyBatchIsCounted) {
  CreateSession("bn", BatchSpec(), 2);
  const Doubles none = {.shape = {0, 2}, .elements = {}};
  const absl::StatusOr<CallReply> reply = Train("bn", none.View());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->outputs[0].bytes.size_bytes(), 0);
  EXPECT_EQ(reply->state->result.num_batches, 1);
  EXPECT_EQ(reply->state->result.version, 1);
  EXPECT_THAT(State("bn").var, ElementsAre(1, 1));
}

TEST_F(EngineStateTest, MaskedPositionsAreLeftOutOfTheState) {
  CreateSession("bn", BatchSpec({.momentum = 1}), 2);
  const Doubles x = {.shape = {3, 2}, .elements = {1, 10, 1000, 1000, 3, 30}};
  const uint8_t mask[] = {1, 0, 255};
  Call call = CallTo("bn", x.View(), Mode::kTraining);
  call.mask = {.dtype = DType::kF32, .shape = {3}, .data = mask, .size_bytes = 3};
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(State("bn").mean, ElementsAre(2, 20));
  EXPECT_THAT(State("bn").var, ElementsAre(2, 200));
  EXPECT_GT(ElementsOf<double>(reply->outputs[0])[2], 100) << "masked positions are still normalised";
}

TEST_F(EngineStateTest, AllMaskedIsAnEmptyBatchForTheState) {
  CreateSession("bn", BatchSpec(), 2);
  CreateSession("pn", PowerSpec(5), 2);
  const uint8_t mask[] = {0, 0};
  for (const char* id : {"bn", "pn"}) {
    Call call = CallTo(id, x_.View(), Mode::kTraining);
    call.mask = {.dtype = DType::kF32, .shape = {2}, .data = mask, .size_bytes = 2};
    const absl::StatusOr<CallReply> reply = Run(std::move(call));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->state->result.applied);
    EXPECT_EQ(reply->state->result.num_batches, 1);
    EXPECT_EQ(reply->outputs[0].bytes.size_bytes(), 32);
  }
  EXPECT_THAT(State("bn").mean, ElementsAre(0, 0));
  EXPECT_THAT(State("pn").phi, ElementsAre(1, 1));
}

TEST_F(EngineStateTest, OneValuePerChannelIsRefusedAndLeavesTheState) {
  CreateSession("bn", BatchSpec(), 2);
  const Doubles one = {.shape = {1, 2}, .elements = {1, 10}};
  EXPECT_EQ(RefusedField(CallTo("bn", one.View(), Mode::kTraining)), "x.shape");
  const uint8_t mask[] = {1, 0};
  Call call = CallTo("bn", x_.View(), Mode::kTraining);
  call.mask = {.dtype = DType::kF32, .shape = {2}, .data = mask, .size_bytes = 2};
  EXPECT_EQ(RefusedField(std::move(call)), "mask");
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 0);

  CreateSession("zero", BatchSpec({.momentum = 1, .single_value = SingleValue::kZeroVariance}), 2);
  const absl::StatusOr<CallReply> reply = Train("zero", one.View());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(ElementsOf<double>(reply->outputs[0]), ElementsAre(0, 0));
  EXPECT_THAT(State("zero").mean, ElementsAre(1, 10));
  EXPECT_THAT(State("zero").var, ElementsAre(1, 1));
}

TEST_F(EngineStateTest, CumulativeArrivesAtTheMeanOfTheBatches) {
  CreateSession("bn", BatchSpec({.momentum = {}, .cumulative = true}), 1);
  double sum = 0;
  for (int i = 0; i < 10; ++i) {
    const Doubles x = {.shape = {2, 1}, .elements = {1.0 * i, 3.0 * i}};
    sum += 2.0 * i;
    ASSERT_TRUE(Train("bn", x.View()).ok());
  }
  EXPECT_NEAR(State("bn").mean[0], sum / 10, 1e-13);
}

TEST_F(EngineStateTest, ATrackingInstanceNormTrainsOnInstancesAndInfersOnItsState) {
  const InstanceNormSpec tracking = {
      .layout = Layout::kChannelsFirst, .track_running_statistics = true, .running = {.momentum = 1}};
  CreateSession("in", {.eps = 0, .attributes = tracking}, 1);
  const Doubles x = {.shape = {2, 1, 2}, .elements = {1, 3, 5, 9}};
  const absl::StatusOr<CallReply> trained = Train("in", x.View());
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(ElementsOf<double>(trained->outputs[0]), ElementsAre(-1, 1, -1, 1));
  EXPECT_THAT(State("in").mean, ElementsAre(4.5));
  EXPECT_THAT(State("in").var, ElementsAre(5));
  const std::vector<double> y = ElementsOf<double>(Run(CallTo("in", x.View()))->outputs[0]);
  EXPECT_THAT(y[3], DoubleNear(4.5 / std::sqrt(5.0), 1e-15));
}

TEST_F(EngineStateTest, PowerNormFollowsThePublishedNumbers) {
  const std::vector<Floats> inputs = {{{2, 2}, {1, 2, 3, 4}}, {{2, 2}, {2, 1, 0, 5}}, {{2, 2}, {-1, 3, 2, 2}}};
  const std::vector<std::vector<float>> outputs = {{0.845146f, 1.054088f, 1.133884f, 0.942807f},
                                                   {1.414205f, 0.577347f, 0, 1.290989f},
                                                   {-0.585201f, 1.127465f, 1.308548f, 0.840363f}};
  const std::vector<std::vector<double>> phis = {
      {0.55999891, 1.43999629}, {0.5839987, 1.4159965}, {0.58559869, 1.41439654}};
  CreateSession("pn", PowerSpec(2), 2);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const absl::StatusOr<CallReply> reply = Train("pn", inputs[i].View(), i + 1);
    ASSERT_TRUE(reply.ok()) << reply.status();
    const std::vector<float> y = ElementsOf<float>(reply->outputs[0]);
    for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(y[j], outputs[i][j], 1e-6) << "step " << i << ", element " << j;
    EXPECT_NEAR(State("pn").phi[0], phis[i][0], 1e-8);
    EXPECT_NEAR(State("pn").phi[1], phis[i][1], 1e-8);
  }
  EXPECT_EQ(State("pn").num_batches, 3);
  const std::vector<float> inferred = ElementsOf<float>(Run(CallTo("pn", inputs[0].View()))->outputs[0]);
  const std::vector<float> wanted = {0.826467f, 1.063584f, 1.108823f, 0.9513f};
  for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(inferred[j], wanted[j], 1e-6);
}

// The two passes of a training step are the one pass of the golden norm, bit for bit, also as replays.
TEST_F(EngineStateTest, PowerNormTrainingIsTheNearestValue) {
  Random random(TestSeed() + 31);
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 1});
  for (int round = 0; round < 30; ++round) {
    Doubles x = {.shape = {7, 4}, .elements = {}};
    for (int i = 0; i < 28; ++i) x.elements.push_back(random.Normal());
    const absl::StatusOr<NormPlan> plan = MakePlan(PowerSpec(9), DType::kF64, x.shape, {.mode = Mode::kTraining});
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<double> want(28);
    Job job;
    job.plan = &*plan;
    job.x = x.elements.data();
    job.y = want.data();
    std::promise<absl::Status> done;
    cpu->Submit({job}, [&done](absl::Status status) { done.set_value(std::move(status)); });
    ASSERT_TRUE(done.get_future().get().ok());
    EXPECT_EQ(ElementsOf<double>(Run(CallTo(PowerSpec(9), x.View(), Mode::kTraining))->outputs[0]), want) << round;
    const std::string id = "pn-" + std::to_string(round);
    CreateSession(id, PowerSpec(9), 4);
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(ElementsOf<double>(Train(id, x.View(), 1)->outputs[0]), want) << round << ", turn " << turn;
    }
  }
}

TEST_F(EngineStateTest, APowerNormReplayAfterWarmUpHasItsOutputOnlyForTheLastStep) {
  const std::vector<Floats> inputs = {{{2, 2}, {1, 2, 3, 4}}, {{2, 2}, {2, 1, 0, 5}}, {{2, 2}, {-1, 3, 2, 2}}};
  CreateSession("pn", PowerSpec(1), 2);
  std::vector<std::string> outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    outputs.push_back(BytesOf(Train("pn", inputs[i].View(), i + 1)->outputs[0]));
  }
  const absl::StatusOr<CallReply> last = Train("pn", inputs[2].View(), 3);
  EXPECT_TRUE(last->state->result.replayed);
  EXPECT_EQ(BytesOf(last->outputs[0]), outputs[2]);
  const absl::StatusOr<CallReply> older = Train("pn", inputs[1].View(), 2);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_TRUE(older->state->result.replayed);
  EXPECT_FALSE(older->state->output_available);
  EXPECT_THAT(older->outputs, IsEmpty());
  EXPECT_EQ(older->state->result.version, 2);
  EXPECT_EQ(BytesOf(Train("pn", inputs[0].View(), 1)->outputs[0]), outputs[0]) << "warm-up divides by v";
  EXPECT_EQ((*session_test::Get(store_, "pn"))->version, 3);
}

TEST_F(EngineStateTest, PowerNormReturnsStatisticsMomentsAndH) {
  CreateSession("pn", PowerSpec(2), 2);
  const Floats x = {.shape = {2, 2}, .elements = {1, 2, 3, 4}};
  const Floats r = {.shape = {2, 2}, .elements = {1, 0, 0, 1}};
  Call call = CallTo("pn", x.View(), Mode::kTraining);
  call.residual = r.View();
  call.outputs = {OutputKind::kH, OutputKind::kInverseStd, OutputKind::kMoments, OutputKind::kMean};
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(ElementsOf<float>(reply->outputs[0]), ElementsAre(2, 2, 3, 5));
  ASSERT_TRUE(reply->moments.has_value());
  const double v = (*reply->moments)[0].m2 / 2;
  EXPECT_NEAR(ElementsOf<float>(reply->outputs[1])[0], 1 / std::sqrt(v + 1e-5), 1e-6);
  EXPECT_THAT(ElementsOf<float>(reply->outputs[2]), ElementsAre(0, 0));
}

TEST_F(EngineStateTest, ValidateOnlyTouchesNothing) {
  CreateSession("bn", BatchSpec(), 2);
  Call call = CallTo("bn", x_.View(), Mode::kTraining);
  call.step = StepId{"client", 1};
  call.validate_only = true;
  const absl::StatusOr<CallReply> reply = Run(std::move(call));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->state->result.reason, Reason::kValidateOnly);
  EXPECT_FALSE(reply->state->result.applied);
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, 0);
  EXPECT_FALSE(Train("bn", x_.View(), 1)->state->result.replayed) << "the step id was not taken";
}

TEST_F(EngineStateTest, ExpectedVersionsHoldForTrainingInferenceAndValidation) {
  CreateSession("bn", BatchSpec(), 2);
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    for (const bool validate_only : {false, true}) {
      Call call = CallTo("bn", x_.View(), mode);
      call.expected_version = 1;
      call.validate_only = validate_only;
      EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kAborted);
    }
  }
  Call call = CallTo("bn", x_.View(), Mode::kTraining);
  call.expected_version = 0;
  EXPECT_TRUE(Run(std::move(call)).ok());
}

TEST_F(EngineStateTest, AMethodWithoutStateAnswersTrainingAsInference) {
  CreateSession("ln", engine_test::LayerSpec({2}), 0);
  const absl::StatusOr<CallReply> inference = Run(CallTo("ln", x_.View()));
  const absl::StatusOr<CallReply> training = Train("ln", x_.View());
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_EQ(BytesOf(training->outputs[0]), BytesOf(inference->outputs[0]));
  EXPECT_FALSE(training->state->result.applied);
  EXPECT_EQ((*session_test::Get(store_, "ln"))->version, 0);
}

// Steps of several clients, each sent twice, on the backend's threads: every one is applied once.
TEST_F(EngineStateTest, ConcurrentStepsAreAppliedOnceEach) {
  CreateSession("bn", BatchSpec({.momentum = {}, .cumulative = true}), 1);
  constexpr int kClients = 3;
  constexpr int kSteps = 20;
  std::vector<std::thread> threads;
  for (int client = 0; client < kClients; ++client) {
    for (int copy = 0; copy < 2; ++copy) {
      threads.emplace_back([this, client] {
        for (int i = 1; i <= kSteps; ++i) {
          const Doubles x = {.shape = {2, 1}, .elements = {1.0 * i, 3.0 * i}};
          Call call = CallTo("bn", x.View(), Mode::kTraining);
          call.step = StepId{"client" + std::to_string(client), static_cast<uint64_t>(i)};
          const absl::StatusOr<CallReply> reply = Run(std::move(call));
          EXPECT_TRUE(reply.ok() || reply.status().code() == absl::StatusCode::kFailedPrecondition) << reply.status();
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*session_test::Get(store_, "bn"))->version, kClients * kSteps);
  EXPECT_NEAR(State("bn").mean[0], kSteps + 1, 1e-12) << "the mean of 2, 4, ..., 40";
}

class EngineObserverTest : public EngineStateTest {
 protected:
  // What a step reports, as text.
  static std::string Text(const StepReport& step) {
    std::string text(step.session);
    if (step.replayed) text += " replayed";
    if (step.reason == Reason::kNonFinite) text += " not finite";
    if (step.drift.has_value()) text += " drift " + std::to_string(std::lround(*step.drift * 100));
    return text;
  }

  absl::StatusOr<CallReply> RunObserved(Call call) {
    absl::StatusOr<CallReply> result;
    observed_.Submit(std::move(call), [&result](absl::StatusOr<CallReply> reply) { result = std::move(reply); });
    return result;
  }
  void TrainObserved(const std::vector<double>& x, std::optional<uint64_t> sequence = {}) {
    const Doubles batch = {.shape = {2, 2}, .elements = x};
    Call call = CallTo("bn", batch.View(), Mode::kTraining);
    if (sequence.has_value()) call.step = StepId{"client", *sequence};
    EXPECT_TRUE(RunObserved(std::move(call)).ok());
  }

  std::vector<std::string> steps_;
  int not_finite_ = 0;
  Engine observed_{&scheduler_,
                   &store_,
                   &resources_,
                   {.observer = {.on_step = [this](const StepReport& step) { steps_.push_back(Text(step)); },
                                 .on_not_finite = [this] { ++not_finite_; }}}};
  const double nan_ = std::numeric_limits<double>::quiet_NaN();
};

TEST_F(EngineObserverTest, HearsOfStepsReplaysAndDrift) {
  NormSpec spec = BatchSpec({.momentum = 1});
  spec.eps = 0;
  CreateSession("bn", spec, 2);
  TrainObserved({1, 10, 3, 30}, 1);  // the running mean is then 2, 20 and the running variance 2, 200
  TrainObserved({4, 10, 6, 30}, 2);
  TrainObserved({4, 10, 6, 30}, 2);
  TrainObserved({nan_, 10, 6, 30}, 3);
  EXPECT_THAT(steps_, ElementsAre("bn", "bn drift 212", "bn replayed", "bn not finite"))
      << "3 / sqrt(2), known after the first batch only";
  EXPECT_EQ(not_finite_, 1);
}

TEST_F(EngineObserverTest, HearsOfNonFiniteMomentsOnly) {
  const Doubles good = {.shape = {2, 2}, .elements = {1, 2, 3, 4}};
  const Doubles bad = {.shape = {2, 2}, .elements = {1, 2, nan_, 4}};
  Call moments = CallTo(engine_test::LayerSpec({2}), good.View());
  moments.moments_only = true;
  ASSERT_TRUE(RunObserved(moments).ok());
  ASSERT_TRUE(RunObserved(CallTo(engine_test::LayerSpec({2}), bad.View())).ok()) << "no moments were asked for";
  EXPECT_EQ(not_finite_, 0);
  moments.x = bad.View();
  ASSERT_TRUE(RunObserved(moments).ok());
  EXPECT_EQ(not_finite_, 1);
  EXPECT_THAT(steps_, IsEmpty());
}

TEST_F(EngineObserverTest, HearsOfPooledSteps) {
  NormSpec spec = BatchSpec({.momentum = 1});
  spec.eps = 0;
  CreateSession("bn", spec, 1);
  const auto commit = [this](double mean) {
    PooledStep step = {.session = "bn"};
    step.parts = {{.moments = {{.count = 4, .mean = mean, .m2 = 12}}, .details = {}}};
    observed_.CommitMoments(std::move(step), [](const absl::StatusOr<PooledReply>& reply) { EXPECT_TRUE(reply.ok()); });
  };
  commit(1);
  commit(5);
  commit(nan_);
  EXPECT_THAT(steps_, ElementsAre("bn", "bn drift 200", "bn not finite"));
  EXPECT_EQ(not_finite_, 1);
}

}  // namespace
}  // namespace normd
