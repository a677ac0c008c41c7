// Shared statistics through the wire: contributions, reads, names of channels, frozen sessions, digests.
#include <openssl/sha.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "tests/e2e/sessions_fixture.h"
#include "tests/support/eventually.h"

namespace normd::e2e {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void SetF64(const std::vector<double>& values, v1::Tensor* tensor) {
  tensor->set_dtype(v1::DTYPE_F64);
  tensor->clear_shape();
  tensor->add_shape(static_cast<int64_t>(values.size()));
  tensor->set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)));
}

class StatisticsTest : public SessionsTest {
 protected:
  StatisticsTest() {
    v1::CreateSessionRequest request;
    request.set_session_id("stats");
    v1::Session* const session = request.mutable_session();
    v1::BatchNorm* const batch_norm = session->mutable_spec()->mutable_batch_norm();
    batch_norm->set_layout(v1::LAYOUT_CHANNELS_LAST);
    batch_norm->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
    batch_norm->mutable_running()->set_prior_count(1e-4);
    session->set_num_channels(2);
    session->add_channel_names("speed");
    session->add_channel_names("angle");
    v1::Session created;
    const grpc::Status status = Create(request, &created);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  // Two samples of each channel: mean - 1 and mean + 1.
  static v1::CommitMomentsRequest Contribution(uint64_t sequence, const std::vector<double>& means) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/stats");
    request.mutable_step()->set_client_id("actor");
    request.mutable_step()->set_sequence(sequence);
    request.set_want_state(true);
    v1::Moments* const moments = request.add_moments();
    SetF64(std::vector<double>(means.size(), 2), moments->mutable_count());
    SetF64(means, moments->mutable_mean());
    SetF64(std::vector<double>(means.size(), 2), moments->mutable_m2());
    return request;
  }
};

TEST_F(StatisticsTest, AFlushIsOneRoundTrip) {
  v1::StateResult result;
  grpc::Status status = Commit(Contribution(1, {1, 10}), &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  status = Commit(Contribution(2, {1, 30}), &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(result.state_version(), 2u);
  EXPECT_THAT(Values<double>(result.state().count()), ElementsAre(DoubleEq(4.0001), DoubleEq(4.0001)));
  EXPECT_THAT(Values<double>(result.state().mean()), ElementsAre(DoubleEq(0.9999750006249843), DoubleEq(80 / 4.0001)));
  EXPECT_EQ(result.state().num_batches(), 2u);
  v1::StateResult again;
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &again).ok());
  EXPECT_TRUE(again.replayed());
  EXPECT_EQ(again.version(), 1u);
  EXPECT_EQ(again.state_version(), 2u) << "the newest state";
  EXPECT_EQ(again.state().count().data(), result.state().count().data());
  v1::CommitMomentsRequest plain = Contribution(3, {1, 1});
  plain.clear_want_state();
  ASSERT_TRUE(Commit(plain, &result).ok());
  EXPECT_FALSE(result.has_state());
}

TEST_F(StatisticsTest, BadContributionsChangeNothingAndLeaveTheirStepUnused) {
  const auto refusal = [this](const v1::CommitMomentsRequest& request) {
    v1::StateResult result;
    const grpc::Status status = Commit(request, &result);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  v1::CommitMomentsRequest request = Contribution(1, {1, 1});
  SetF64({2, -1}, request.mutable_moments(0)->mutable_count());
  EXPECT_THAT(refusal(request), HasSubstr("moments[0].count is -1"));
  request = Contribution(1, {1, 1});
  SetF64({2, -2}, request.mutable_moments(0)->mutable_m2());
  EXPECT_THAT(refusal(request), HasSubstr("moments[0].m2 is -2"));
  EXPECT_THAT(refusal(Contribution(1, {1, 1, 1})), HasSubstr("3"));
  request = Contribution(1, {1, 1});
  SetF64({0, 0}, request.mutable_moments(0)->mutable_min());
  EXPECT_THAT(refusal(request), HasSubstr("moments[0].max is missing"));
  request = Contribution(1, {1, 1});
  SetF64({2}, request.mutable_moments(0)->mutable_samples());
  EXPECT_THAT(refusal(request), HasSubstr("moments[0].samples has 1"));
  SetF64({2, 1}, request.mutable_moments(0)->mutable_samples());
  EXPECT_THAT(refusal(request), HasSubstr("moments.samples[1] is 1; it must be between moments.count[1], 2, and 1e18"));
  request = Contribution(1, {1, 1});
  request.add_channel_names("speed");
  request.add_channel_names("angel");
  EXPECT_THAT(refusal(request), HasSubstr("the session's channel \"angle\""));
  EXPECT_EQ(Get("stats").version(), 0u);
  v1::StateResult result;
  ASSERT_TRUE(Commit(Contribution(1, {5, 5}), &result).ok());
  EXPECT_FALSE(result.replayed());
}

TEST_F(StatisticsTest, AFrozenForkKeepsItsVersionForGood) {
  v1::StateResult result;
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &result).ok());
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/stats");
  fork.set_session_id("stats-7");
  fork.set_frozen(true);
  v1::Session frozen;
  {
    grpc::ClientContext context;
    const grpc::Status status = server_.sessions().ForkSession(&context, fork, &frozen);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_TRUE(frozen.frozen());
  v1::CommitMomentsRequest late = Contribution(2, {1, 10});
  late.set_session("sessions/stats-7");
  const grpc::Status status = Commit(late, &result);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "SESSION_FROZEN");
  EXPECT_EQ(Get("stats-7").digest(), Get("stats").digest()) << "equal content, whatever the id";
  ASSERT_TRUE(Commit(Contribution(2, {1, 10}), &result).ok());
  EXPECT_NE(Get("stats-7").digest(), Get("stats").digest());
}

TEST_F(StatisticsTest, AFrozenSessionIsNotThawed) {
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/stats");
  update.mutable_update_mask()->add_paths("frozen");
  v1::Session session;
  EXPECT_THAT(Update(update, &session).error_message(),
              HasSubstr("session.frozen is given, but a session is frozen for good"));
  update.mutable_session()->set_frozen(true);
  ASSERT_TRUE(Update(update, &session).ok());
  EXPECT_TRUE(session.frozen());
  EXPECT_TRUE(Get("stats").frozen());
}

TEST_F(StatisticsTest, TheDigestIsThatOfTheContentAsDocumented) {
  const v1::Session session = Get("stats");
  v1::Session content;
  *content.mutable_spec() = session.spec();
  content.set_num_channels(session.num_channels());
  *content.mutable_parameters() = session.parameters();
  *content.mutable_state() = session.state();
  *content.mutable_channel_names() = session.channel_names();
  const std::string bytes = content.SerializeAsString();
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  EXPECT_EQ(session.digest(), absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)}));
  EXPECT_THAT(session.channel_names(), ElementsAre("speed", "angle"));
}

TEST_F(StatisticsTest, AReaderThatKnowsTheVersionGetsNoTensors) {
  v1::StateResult result;
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &result).ok());
  const auto read = [this](uint64_t known) {
    v1::GetSessionRequest request;
    request.set_name("sessions/stats");
    request.set_view(v1::SESSION_VIEW_FULL);
    request.set_newer_than_version(known);
    v1::Session session;
    grpc::ClientContext context;
    EXPECT_TRUE(server_.sessions().GetSession(&context, request, &session).ok());
    return session;
  };
  EXPECT_TRUE(read(0).has_state());
  EXPECT_FALSE(read(1).has_state());
  EXPECT_EQ(read(1).version(), 1u);
}

TEST_F(StatisticsTest, ASessionIsCreatedWithTheStateOfAnother) {
  v1::StateResult result;
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &result).ok());
  const v1::Session stats = Get("stats");
  v1::CreateSessionRequest request;
  request.set_session_id("copy");
  *request.mutable_session() = stats;
  v1::Session copy;
  const grpc::Status status = Create(request, &copy);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Get("copy").digest(), stats.digest());
}

// A stream of WatchSession on "stats".
class Watch {
 public:
  Watch(TestServer& server, std::optional<uint64_t> after_version) {
    v1::WatchSessionRequest request;
    request.set_name("sessions/stats");
    if (after_version.has_value()) request.set_after_version(*after_version);
    reader_ = server.sessions().WatchSession(&context_, request);
  }
  ~Watch() { context_.TryCancel(); }

  // The next version, or -1 when the stream has ended.
  int64_t Next() {
    v1::Session session;
    if (!reader_->Read(&session)) return -1;
    EXPECT_TRUE(session.has_state());
    return static_cast<int64_t>(session.version());
  }
  grpc::Status Finish() { return reader_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Session>> reader_;
};

TEST_F(StatisticsTest, AWatcherGetsTheNewestVersionAndThenEachLaterOne) {
  v1::StateResult result;
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &result).ok());
  Watch first(server_, std::nullopt);
  EXPECT_EQ(first.Next(), 1);
  Watch second(server_, 1);  // has it already
  ASSERT_TRUE(Commit(Contribution(2, {1, 10}), &result).ok());
  EXPECT_EQ(first.Next(), 2);
  EXPECT_EQ(second.Next(), 2);
  ASSERT_TRUE(Commit(Contribution(1, {1, 10}), &result).ok()) << "a replay is no version";
  v1::ResetSessionRequest reset;
  reset.set_name("sessions/stats");
  v1::Session session;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.sessions().ResetSession(&context, reset, &session).ok());
  EXPECT_EQ(first.Next(), 3);
  EXPECT_EQ(second.Next(), 3);
  EXPECT_TRUE(Eventually([this] { return awaited_versions_sent_ == 3; })) << "2 and 3 to the first, 3 to the second";
}

TEST_F(StatisticsTest, WatchersAreCountedWhileTheyWatch) {
  const auto watchers = [this](int64_t count) {
    return Eventually([this, count] { return server_.server().TakeQueueStats().watchers == count; });
  };
  EXPECT_TRUE(watchers(0));
  {
    Watch first(server_, std::nullopt);
    Watch second(server_, std::nullopt);
    EXPECT_EQ(first.Next(), 0);
    EXPECT_TRUE(watchers(2));
  }
  EXPECT_TRUE(watchers(0));
}

TEST_F(StatisticsTest, WhatComputeMomentsGivesIsWhatCommitMomentsTakes) {
  v1::ComputeMomentsRequest compute;
  v1::BatchNorm* const batch_norm = compute.mutable_spec()->mutable_batch_norm();
  batch_norm->set_layout(v1::LAYOUT_CHANNELS_LAST);
  batch_norm->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
  batch_norm->mutable_running()->set_nan_policy(v1::NAN_POLICY_SKIP);
  SetF64({1, std::nan(""), 3, 10, 5, 20}, compute.mutable_x());
  compute.mutable_x()->clear_shape();
  compute.mutable_x()->add_shape(3);
  compute.mutable_x()->add_shape(2);
  v1::ComputeMomentsResponse computed;
  grpc::ClientContext context;
  const grpc::Status status = server_.normalizer().ComputeMoments(&context, compute, &computed);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Values<double>(computed.moments().count()), ElementsAre(3, 2));
  EXPECT_THAT(Values<double>(computed.moments().min()), ElementsAre(1, 10));
  v1::CommitMomentsRequest request = Contribution(1, {});
  request.clear_moments();
  *request.add_moments() = computed.moments();
  v1::StateResult result;
  ASSERT_TRUE(Commit(request, &result).ok());
  EXPECT_THAT(Values<double>(result.state().min()), ElementsAre(1, 10));
  EXPECT_THAT(Values<double>(result.state().max()), ElementsAre(5, 20));
}

TEST_F(StatisticsTest, ASlowWatcherMissesVersionsButNotTheNewest) {
  Watch watch(server_, std::nullopt);
  EXPECT_EQ(watch.Next(), 0);
  constexpr int kSteps = 200;
  v1::StateResult result;
  for (uint64_t i = 1; i <= kSteps; ++i) ASSERT_TRUE(Commit(Contribution(i, {1, 10}), &result).ok());
  int64_t last = 0;
  while (last < kSteps) {
    const int64_t next = watch.Next();
    ASSERT_GT(next, last);
    last = next;
  }
  EXPECT_EQ(last, kSteps);
}

TEST_F(StatisticsTest, AWatchEndsWithItsSession) {
  Watch watch(server_, std::nullopt);
  EXPECT_EQ(watch.Next(), 0);
  v1::DeleteSessionRequest request;
  request.set_name("sessions/stats");
  google::protobuf::Empty empty;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.sessions().DeleteSession(&context, request, &empty).ok());
  EXPECT_EQ(watch.Next(), -1);
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  Watch late(server_, std::nullopt);
  EXPECT_EQ(late.Next(), -1);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StatisticsTest, AWatchEndsWhenTheServerDrains) {
  Watch watch(server_, std::nullopt);
  EXPECT_EQ(watch.Next(), 0);
  server_.server().Shutdown(absl::Seconds(5));
  EXPECT_EQ(watch.Next(), -1);
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StatisticsTest, FieldsOfStepsAreRefusedWithSamples) {
  v1::CreateSessionRequest request;
  request.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  v1::RunningStatistics* const running =
      request.mutable_session()->mutable_spec()->mutable_batch_norm()->mutable_running();
  request.mutable_session()->set_num_channels(2);
  running->set_weighting(v1::WEIGHTING_SAMPLES);
  running->set_momentum(0.1);
  v1::Session session;
  EXPECT_THAT(Create(request, &session).error_message(), HasSubstr("session.spec.batch_norm.running.momentum"));
  running->clear_momentum();
  running->set_decay(2);
  EXPECT_THAT(Create(request, &session).error_message(), HasSubstr("session.spec.batch_norm.running.decay is 2"));
  running->clear_decay();
  running->set_clip(0);
  EXPECT_THAT(Create(request, &session).error_message(), HasSubstr("session.spec.batch_norm.running.clip is 0"));
  running->clear_clip();
  running->set_nan_policy(static_cast<v1::NanPolicy>(7));
  EXPECT_THAT(Create(request, &session).error_message(), HasSubstr("session.spec.batch_norm.running.nan_policy is 7"));
}

}  // namespace
}  // namespace normd::e2e
