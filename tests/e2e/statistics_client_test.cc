// Shared statistics through the C++ client: what is asked and answered, and watches that outlive their server.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/running_moments.h"
#include "tests/e2e/restarting_server.h"
#include "tests/support/oracle_state.h"

namespace normd::e2e {
namespace {

using client::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StatisticsClientTest : public testing::Test {
 protected:
  StatisticsClientTest() {
    v1::CreateSessionRequest request;
    request.set_session_id("stats");
    v1::Session& session = *request.mutable_session();
    v1::BatchNorm& batch_norm = *session.mutable_spec()->mutable_batch_norm();
    batch_norm.set_layout(v1::LAYOUT_CHANNELS_LAST);
    batch_norm.mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
    session.set_num_channels(2);
    for (const char* name : {"speed", "angle"}) session.add_channel_names(name);
    const auto created = client_->CreateSession(request);
    EXPECT_TRUE(created.ok()) << created.status();
  }

  // Two samples of each channel: mean - 1 and mean + 1.
  static v1::CommitMomentsRequest Contribution(uint64_t sequence, const std::vector<double>& means) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/stats");
    request.mutable_step()->set_client_id("actor");
    request.mutable_step()->set_sequence(sequence);
    v1::Moments& moments = *request.add_moments();
    SetF64(std::vector<double>(means.size(), 2), moments.mutable_count());
    SetF64(means, moments.mutable_mean());
    SetF64(std::vector<double>(means.size(), 2), moments.mutable_m2());
    return request;
  }
  void Commit(uint64_t sequence) {
    const auto result = client_->CommitMoments(Contribution(sequence, {1, 10}));
    ASSERT_TRUE(result.ok()) << result.status();
  }

  RestartingServer server_;
  std::unique_ptr<Client> client_ = server_.NewClient();
};

TEST_F(StatisticsClientTest, AReaderPaysForWhatIsNewAlone) {
  Commit(1);
  const auto newer = client_->GetSession("sessions/stats", v1::SESSION_VIEW_FULL, 0);
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_TRUE(newer->has_state());
  EXPECT_EQ(newer->digest().size(), 64u);
  const auto known = client_->GetSession("sessions/stats", v1::SESSION_VIEW_FULL, 1);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->version(), 1u);
  EXPECT_FALSE(known->has_state());
}

TEST_F(StatisticsClientTest, ACommitReturnsTheStateAndKnowsChannelsByTheirNames) {
  v1::CommitMomentsRequest request = Contribution(1, {10, 1});
  request.set_want_state(true);
  for (const char* name : {"angle", "speed"}) request.add_channel_names(name);
  const auto result = client_->CommitMoments(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->state_version(), 1u);
  EXPECT_THAT(Tensor::FromProto(result->state().mean())->ToDoubles(), ElementsAre(1, 10));
  request.mutable_step()->set_sequence(2);
  request.set_channel_names(1, "sped");
  const auto refused = client_->CommitMoments(request);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("speed"));
}

TEST_F(StatisticsClientTest, FreezingTwiceIsFreezing) {
  for (int i = 0; i < 2; ++i) {
    const auto frozen = client_->FreezeSession("sessions/stats");
    ASSERT_TRUE(frozen.ok()) << frozen.status();
    EXPECT_TRUE(frozen->frozen());
    EXPECT_EQ(frozen->version(), 1u);
  }
  const absl::Status refused = client_->CommitMoments(Contribution(1, {1, 10})).status();
  ASSERT_TRUE(client::GetErrorInfo(refused).has_value()) << refused;
  EXPECT_EQ(client::GetErrorInfo(refused)->reason, "SESSION_FROZEN");
}

TEST_F(StatisticsClientTest, AFrozenForkIsAVersionForGood) {
  Commit(1);
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/stats");
  fork.set_session_id("stats-1");
  fork.set_frozen(true);
  ASSERT_TRUE(client_->ForkSession(fork).ok());
  Commit(2);
  const auto kept = client_->GetSession("sessions/stats-1", v1::SESSION_VIEW_FULL);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(kept->frozen());
  EXPECT_THAT(Tensor::FromProto(kept->state().count())->ToDoubles(), ElementsAre(2, 2));
}

// Batches of several sizes, sent one by one and all at once: both are what the oracle says.
TEST_F(StatisticsClientTest, DecayDoesNotDependOnWhenSamplesAreSent) {
  constexpr double kDecay = 0.9;
  const RunningMomentsOptions options = {.prior_count = 1, .decay = kDecay, .flush_interval = absl::Hours(1)};
  const auto often = RunningMoments::Open(*client_, "often", 1, options);
  const auto seldom = RunningMoments::Open(*client_, "seldom", 1, options);
  ASSERT_TRUE(often.ok() && seldom.ok()) << often.status() << seldom.status();
  oracle::SampleHistory history({.count = 1, .mean = 0, .variance = 1}, kDecay);
  for (int step = 0; step < 40; ++step) {
    std::vector<double> batch;
    for (int i = 0; i <= step % 4; ++i) batch.push_back(std::sin(7.0 * step + i) + 3);
    history.Add(batch);
    ASSERT_TRUE((*often)->Update(batch).ok());
    ASSERT_TRUE((*often)->Flush(absl::Seconds(30)).ok());
    ASSERT_TRUE((*seldom)->Update(batch).ok());
  }
  const auto before = (*seldom)->snapshot();
  ASSERT_TRUE((*seldom)->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ((*often)->snapshot()->version, 40u);
  EXPECT_EQ((*seldom)->snapshot()->version, 1u);
  const oracle::SampleHistory::Statistics truth = history.Now();
  const auto count = static_cast<double>(truth.count), mean = static_cast<double>(truth.mean);
  const auto variance = static_cast<double>(truth.m2 / truth.count);
  for (const auto& snapshot : {(*often)->snapshot(), before, (*seldom)->snapshot()}) {
    EXPECT_NEAR(snapshot->count[0], count, 1e-13 * count) << snapshot->version;
    EXPECT_NEAR(snapshot->mean[0], mean, 1e-13 * mean) << snapshot->version;
    EXPECT_NEAR(snapshot->var[0], variance, 1e-13 * variance) << snapshot->version;
  }
}

TEST_F(StatisticsClientTest, AWatchSeesWhatComesAfterItsServerWasAway) {
  const std::unique_ptr<Client> watcher = server_.NewClient();
  const auto watch = watcher->WatchSession("sessions/stats");
  auto seen = watch->Next();
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->version(), 0u);
  for (uint64_t step = 1; step <= 2; ++step) {
    server_.Stop();
    std::thread comes_back([&] {
      absl::SleepFor(absl::Milliseconds(200));  // so that the watch is at its next try
      server_.Start();
      Commit(step);
    });
    seen = watch->Next();
    comes_back.join();
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(seen->version(), step);
    EXPECT_THAT(Tensor::FromProto(seen->state().mean())->ToDoubles(), ElementsAre(1, 10));
  }
}

TEST_F(StatisticsClientTest, AWatchEndsWithItsSession) {
  const auto watch = client_->WatchSession("sessions/stats", {.after_version = 0});
  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/stats");
  ASSERT_TRUE(client_->DeleteSession(remove).ok());
  EXPECT_TRUE(absl::IsNotFound(watch->Next().status()));
}

}  // namespace
}  // namespace normd::e2e
