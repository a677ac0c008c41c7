// Sessions that count samples, through the engine: pooled contributions and training steps.
#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/engine/fixtures.h"

namespace normd {
namespace {

using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::ElementsOf;
using session_test::BatchSpec;
using session_test::CountingSpec;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class SampleSessionsTest : public engine_test::EngineFixture {
 protected:
  void CreateNamed(const std::string& id, std::vector<std::string> names, const NormSpec& spec = CountingSpec()) {
    Session session = session_test::NewSession(id, spec, static_cast<int64_t>(names.size()));
    session.channel_names = std::make_shared<const std::vector<std::string>>(std::move(names));
    std::promise<absl::Status> created;
    engine_.CreateSession(std::move(session), /*reserve=*/nullptr,
                          [&created](const absl::StatusOr<SessionPtr>& made) { created.set_value(made.status()); });
    const absl::Status status = created.get_future().get();
    ASSERT_TRUE(status.ok()) << status;
  }

  // A step of one part: two samples in each channel, of these means.
  static PooledStep StepOf(const std::string& session, const std::vector<double>& means,
                           std::vector<std::string> names = {}) {
    PooledStep step = {.session = session, .channel_names = std::move(names), .want_state = true};
    MomentsPart part;
    for (const double mean : means) {
      part.moments.push_back({.count = 2, .mean = mean, .m2 = 2});
      part.details.extremes.min.push_back(mean - 1);
      part.details.extremes.max.push_back(mean + 1);
    }
    step.parts.push_back(std::move(part));
    return step;
  }

  const RunningState State(const std::string& id) { return (*session_test::Get(store_, id))->state; }
};

TEST_F(SampleSessionsTest, AContributionIsAnsweredWithTheMergedState) {
  CreateSession("s", CountingSpec(), 1);
  ASSERT_TRUE(Commit(StepOf("s", {2})).ok());
  PooledStep step = StepOf("s", {7});
  step.parts.push_back({.moments = {{.count = 1, .mean = 20, .m2 = 0}}, .details = {{.min = {20}, .max = {20}}, {}}});
  const absl::StatusOr<PooledReply> reply = Commit(step);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_NE(reply->session, nullptr);
  EXPECT_EQ(reply->session->version, 2);
  EXPECT_THAT(reply->session->state.count, ElementsAre(5));
  EXPECT_THAT(reply->session->state.mean, ElementsAre(DoubleEq(38.0 / 5)));
  EXPECT_THAT(reply->session->state.min, ElementsAre(1));
  EXPECT_THAT(reply->session->state.max, ElementsAre(20));
  step.want_state = false;
  EXPECT_EQ(Commit(step)->session, nullptr);
}

// A store that can lose its connection right after a commit.
class StoreThatForgets : public MemoryStore {
 public:
  using MemoryStore::Get;
  using MemoryStore::MemoryStore;

  void Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) override {
    if (!unreadable.ok()) return done(unreadable);
    MemoryStore::Get(std::move(id), max_staleness, std::move(cancelled), std::move(done));
  }
  void Commit(StateUpdate update, Done<CommitResult> done) override {
    MemoryStore::Commit(std::move(update), [this, done = std::move(done)](absl::StatusOr<CommitResult> result) mutable {
      unreadable = after_commit;
      done(std::move(result));
    });
  }

  absl::Status unreadable, after_commit;
};

// Without its state a reply would say that the session is gone.
TEST_F(SampleSessionsTest, AStateThatCannotBeReadIsAnErrorAndTheStepIsKnown) {
  StoreThatForgets store(SessionLimits(), &clock_);
  Engine engine(&scheduler_, &store, &resources_);
  ASSERT_TRUE(session_test::Create(store, session_test::NewSession("s", CountingSpec(), 1)).ok());
  PooledStep step = StepOf("s", {2});
  step.step = StepId{"worker", 1};
  const auto commit = [&] {
    return session_test::Wait<PooledReply>([&](auto done) { engine.CommitMoments(step, std::move(done)); });
  };
  store.after_commit = absl::UnavailableError("the connection was lost");
  EXPECT_EQ(commit().status(), store.after_commit);
  store.after_commit = store.unreadable = absl::OkStatus();
  const absl::StatusOr<PooledReply> again = commit();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->result.replayed);
  ASSERT_NE(again->session, nullptr);
  EXPECT_EQ(again->session->version, 1);
  step.step = StepId{"worker", 2};
  store.after_commit = absl::NotFoundError("s is gone");
  const absl::StatusOr<PooledReply> gone = commit();
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_TRUE(gone->result.applied);
  EXPECT_EQ(gone->session, nullptr);
}

TEST_F(SampleSessionsTest, PartsWithoutExtremesLeaveThemUnknown) {
  CreateSession("s", CountingSpec(), 2);
  PooledStep step = StepOf("s", {2, 3});
  // A part without a sample in a channel has no say there.
  step.parts.push_back(
      {.moments = {{.count = 2, .mean = 5, .m2 = 1}, {.count = 0, .mean = 0, .m2 = 0}}, .details = {}});
  ASSERT_TRUE(Commit(step).ok());
  EXPECT_THAT(State("s").min, ElementsAre(IsNan(), 2));
  EXPECT_THAT(State("s").max, ElementsAre(IsNan(), 4));
}

TEST_F(SampleSessionsTest, PartsOfAStepAreOneBatchWhateverTheirSamplesAre) {
  CreateSession("s", CountingSpec({.decay = 0.5}), 2);
  ASSERT_TRUE(Commit(StepOf("s", {2, 3})).ok());
  PooledStep step = StepOf("s", {2, 3});  // two samples in each channel
  step.parts.push_back({.moments = {{.count = 1.5, .mean = 5, .m2 = 1}, {.count = 0, .mean = 0, .m2 = 0}},
                        .details = {.extremes = {}, .samples = {2, 0}}});
  ASSERT_TRUE(Commit(step).ok());
  EXPECT_THAT(State("s").count, ElementsAre(2 * 0.0625 + 3.5, 2 * 0.25 + 2));
}

// Added one by one in f64, ten tenths are less than the nearest count of them, and fewer samples than counts are none.
TEST_F(SampleSessionsTest, TheSamplesOfPartsAreRoundedOnceInAnyOrder) {
  CreateSession("s", CountingSpec(), 1);
  std::vector<MomentsPart> parts;
  for (int i = 0; i < 10; ++i) {
    MomentsPart part = {.moments = {{.count = 0.1, .mean = 1.0 + i, .m2 = 0}},
                        .details = {.extremes = {.min = {i % 2 == 0 ? 0.0 : -0.0}, .max = {20}}, .samples = {}}};
    if (i != 3) part.details.samples = {i == 5 ? 3.3 : 0.1};
    parts.push_back(std::move(part));
  }
  PooledStep step = {.session = "s", .parts = parts, .step = StepId{"worker", 1}};
  const absl::StatusOr<PooledReply> reply = Commit(step);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(State("s").count, ElementsAre(1));
  std::reverse(step.parts.begin(), step.parts.end());
  for (int turn = 0; turn < 10; ++turn) {
    std::rotate(step.parts.begin(), step.parts.begin() + 1, step.parts.end());
    const absl::StatusOr<PooledReply> replay = Commit(step);
    ASSERT_TRUE(replay.ok()) << replay.status();
    EXPECT_TRUE(replay->result.replayed) << turn;
  }
}

TEST_F(SampleSessionsTest, SamplesAreMatchedByTheNamesOfTheirChannels) {
  CreateNamed("s", {"speed", "angle"}, CountingSpec({.decay = 0.5}));
  ASSERT_TRUE(Commit(StepOf("s", {2, 3})).ok());
  PooledStep step = StepOf("s", {3, 2}, {"angle", "speed"});
  step.parts[0].details.samples = {4, 2};
  ASSERT_TRUE(Commit(step).ok());
  EXPECT_THAT(State("s").count, ElementsAre(2 * 0.25 + 2, 2 * 0.0625 + 2));
}

TEST_F(SampleSessionsTest, ChannelsAreMatchedByTheirNames) {
  CreateNamed("s", {"speed", "angle", "force"});
  ASSERT_TRUE(Commit(StepOf("s", {30, 10, 20}, {"force", "speed", "angle"})).ok());
  EXPECT_THAT(State("s").mean, ElementsAre(10, 20, 30));
  EXPECT_THAT(State("s").max, ElementsAre(11, 21, 31));
  ASSERT_TRUE(Commit(StepOf("s", {10, 20, 30})).ok()) << "without names: the session's order";
  EXPECT_THAT(State("s").mean, ElementsAre(10, 20, 30));
}

TEST_F(SampleSessionsTest, NamesThatAreNotTheSessionsAreRefused) {
  CreateNamed("s", {"speed", "angle"});
  CreateSession("plain", CountingSpec(), 2);
  const auto refusal = [this](const std::string& id, std::vector<std::string> names) {
    const std::vector<double> means(names.size(), 1.0);
    return std::string(Commit(StepOf(id, means, std::move(names))).status().message());
  };
  EXPECT_THAT(refusal("s", {"speed", "angel"}),
              HasSubstr("channel_names is missing; give the session's channel \"angle\""));
  EXPECT_THAT(refusal("s", {"speed", "angle", "force"}), HasSubstr("channel_names[2] is \"force\""));
  EXPECT_THAT(refusal("s", {"speed", "speed"}), HasSubstr("channel_names[1] is \"speed\""));
  EXPECT_THAT(refusal("plain", {"speed", "angle"}),
              HasSubstr("channel_names is given, but the session's channels have no names"));
  PooledStep step = StepOf("s", {1}, {"speed", "angle"});
  EXPECT_THAT(Commit(step).status().message(), HasSubstr("channel_names has 2 values"));
  EXPECT_EQ((*session_test::Get(store_, "s"))->version, 0);
}

TEST_F(SampleSessionsTest, FractionalCountsAreForSamplesAlone) {
  CreateSession("s", CountingSpec(), 1);
  CreateSession("bn", BatchSpec(), 1);
  PooledStep step = StepOf("s", {2});
  step.parts[0].moments[0].count = 0.5;
  EXPECT_TRUE(Commit(step).ok());
  EXPECT_THAT(State("s").count, ElementsAre(0.5));
  step.session = "bn";
  EXPECT_THAT(Commit(step).status().message(), HasSubstr("moments[0].count is 0.5; it must be a whole number"));
}

TEST_F(SampleSessionsTest, ATrainingStepIsNormalisedWithTheStateAfterIt) {
  RunningSpec running = CountingSpec().running();
  running.normalize_with = NormalizeWith::kRunning;
  NormSpec spec = BatchSpec(running);
  spec.eps = 0;
  CreateSession("s", spec, 1);
  const Doubles first = {.shape = {2, 1}, .elements = {1, 3}};
  const Doubles second = {.shape = {2, 1}, .elements = {5, 9}};
  ASSERT_TRUE(Run(CallTo("s", first.View(), Mode::kTraining)).ok());
  Call step = CallTo("s", second.View(), Mode::kTraining);
  step.step = StepId{"actor", 1};
  const absl::StatusOr<CallReply> trained = Run(step);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(State("s").mean, ElementsAre(4.5));
  EXPECT_THAT(ElementsOf<double>(trained->outputs[0]),
              ElementsAre(DoubleEq(0.5 / std::sqrt(8.75)), DoubleEq(4.5 / std::sqrt(8.75))));
  EXPECT_EQ(ElementsOf<double>(trained->outputs[0]), ElementsOf<double>(Run(CallTo("s", second.View()))->outputs[0]))
      << "the bits of inference";
  const absl::StatusOr<CallReply> replayed = Run(step);
  EXPECT_EQ(ElementsOf<double>(replayed->outputs[0]), ElementsOf<double>(trained->outputs[0]));
  ASSERT_TRUE(Run(CallTo("s", first.View(), Mode::kTraining)).ok());
  const absl::StatusOr<CallReply> late = Run(step);
  EXPECT_TRUE(late->state->result.replayed);
  EXPECT_FALSE(late->state->output_available) << "the state after that step is gone";
  EXPECT_THAT(late->outputs, IsEmpty());
}

TEST_F(SampleSessionsTest, ATrainingStepMayUseItsOwnStatistics) {
  NormSpec spec = CountingSpec();
  spec.eps = 0;
  CreateSession("s", spec, 1);
  const Doubles x = {.shape = {2, 1}, .elements = {5, 9}};
  EXPECT_THAT(ElementsOf<double>(Run(CallTo("s", x.View(), Mode::kTraining))->outputs[0]), ElementsAre(-1, 1));
}

TEST_F(SampleSessionsTest, OneSampleAtATimeIsTaken) {
  CreateSession("s", CountingSpec(), 1);
  for (const double value : {1.0, 3.0, 5.0, 9.0}) {
    const Doubles x = {.shape = {1, 1}, .elements = {value}};
    ASSERT_TRUE(Run(CallTo("s", x.View(), Mode::kTraining)).ok());
  }
  EXPECT_THAT(State("s").mean, ElementsAre(4.5));
  EXPECT_THAT(State("s").var, ElementsAre(8.75));
}

// Sessions whose y is made with the statistics after the step, without eps.
NormSpec RunningSamples(NanPolicy nan_policy, std::optional<double> clip = {}) {
  RunningSpec running = CountingSpec().running();
  running.normalize_with = NormalizeWith::kRunning;
  running.nan_policy = nan_policy;
  running.clip = clip;
  NormSpec spec = BatchSpec(running);
  spec.eps = 0;
  return spec;
}

TEST_F(SampleSessionsTest, TrainingStepsKeepTheExtremes) {
  CreateSession("s", RunningSamples(NanPolicy::kPropagate), 2);
  for (const std::vector<double>& x : {std::vector<double>{1, -5, 4, 2}, std::vector<double>{0, 7, 9, 3}}) {
    const Doubles batch = {.shape = {2, 2}, .elements = x};
    ASSERT_TRUE(Run(CallTo("s", batch.View(), Mode::kTraining)).ok());
  }
  EXPECT_THAT(State("s").min, ElementsAre(0, -5));
  EXPECT_THAT(State("s").max, ElementsAre(9, 7));
  // In place: x is where y goes.
  CreateSession("batch", CountingSpec(), 2);
  const Doubles batch = {.shape = {2, 2}, .elements = {1, -5, 4, 2}};
  ASSERT_TRUE(Run(CallTo("batch", batch.View(), Mode::kTraining)).ok());
  EXPECT_THAT(State("batch").min, ElementsAre(1, -5));
}

TEST_F(SampleSessionsTest, ANanIsNoSampleWhereThePolicySaysSo) {
  const Doubles x = {.shape = {3, 2}, .elements = {1, kNan, 3, 10, 5, 20}};
  CreateSession("skips", RunningSamples(NanPolicy::kSkip), 2);
  const absl::StatusOr<CallReply> reply = Run(CallTo("skips", x.View(), Mode::kTraining));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(State("skips").count, ElementsAre(3, 2));
  EXPECT_THAT(State("skips").mean, ElementsAre(3, 15));
  EXPECT_THAT(State("skips").var, ElementsAre(DoubleEq(8.0 / 3), 25));
  EXPECT_THAT(State("skips").min, ElementsAre(1, 10));
  const std::vector<double> y = ElementsOf<double>(reply->outputs[0]);
  EXPECT_THAT(y[1], IsNan());
  EXPECT_EQ(y[3], -1);
  EXPECT_EQ(y[5], 1);
  CreateSession("propagates", RunningSamples(NanPolicy::kPropagate), 2);
  ASSERT_TRUE(Run(CallTo("propagates", x.View(), Mode::kTraining)).ok());
  EXPECT_THAT(State("propagates").count, ElementsAre(3, 0));
}

TEST_F(SampleSessionsTest, MomentsOfSamplesHaveTheirExtremes) {
  const Doubles x = {.shape = {3, 2}, .elements = {1, kNan, 3, 10, 5, 20}};
  Call call = CallTo(RunningSamples(NanPolicy::kSkip), x.View());
  call.moments_only = true;
  call.outputs = {OutputKind::kMoments};
  const absl::StatusOr<CallReply> reply = Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ((*reply->moments)[1].count, 2);
  EXPECT_EQ((*reply->moments)[1].mean, 15);
  EXPECT_THAT(reply->extremes.min, ElementsAre(1, 10));
  EXPECT_THAT(reply->extremes.max, ElementsAre(5, 20));
}

TEST_F(SampleSessionsTest, AClipLimitsTrainingAndInference) {
  CreateSession("s", RunningSamples(NanPolicy::kPropagate, 0.5), 1);
  const Doubles x = {.shape = {2, 1}, .elements = {5, 9}};
  EXPECT_THAT(ElementsOf<double>(Run(CallTo("s", x.View(), Mode::kTraining))->outputs[0]), ElementsAre(-0.5, 0.5));
  const Doubles later = {.shape = {3, 1}, .elements = {7, 1000, 7.5}};
  EXPECT_THAT(ElementsOf<double>(Run(CallTo("s", later.View()))->outputs[0]), ElementsAre(0, 0.5, 0.25));
  EXPECT_THAT(State("s").max, ElementsAre(9)) << "of x, and not of y";
}

TEST_F(SampleSessionsTest, AGivenStateMayLeaveOutItsExtremesAndNothingElse) {
  Session session = session_test::NewSession("s", CountingSpec(), 1);
  session.state.count = {4};
  session.state.mean = {4.5};
  EXPECT_THAT(engine_.ValidateNewSession(session).message(), HasSubstr("state.var has 0 values"));
  session.state.m2 = {35};
  EXPECT_TRUE(engine_.ValidateNewSession(session).ok());
  session.state.count = {-1};
  EXPECT_THAT(engine_.ValidateNewSession(session).message(), HasSubstr("state.count[0] is -1"));
}

}  // namespace
}  // namespace normd
