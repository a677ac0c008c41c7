// normd::RunningMoments against a server that loses replies, waits and refuses as the test says.
#include "client/cpp/running_moments.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/sample_moments.h"
#include "client/cpp/tensor.h"
#include "normd/v1/sessions.grpc.pb.h"

namespace normd {
namespace {

using client::SampleMoments;
using client::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One session of samples, each step applied once.
class CountingSessions : public v1::Sessions::Service {
 public:
  // Called after a step was applied: what is answered instead, if it is no OK.
  std::function<grpc::Status(int call)> answer = [](int) { return grpc::Status::OK; };
  double max_count = std::numeric_limits<double>::infinity();

  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest* request,
                             v1::Session* session) override {
    const std::lock_guard<std::mutex> lock(mu_);
    if (session_.has_spec()) return {grpc::StatusCode::ALREADY_EXISTS, "exists"};
    session_ = request->session();
    session_.set_name("sessions/" + request->session_id());
    state_ = SampleMoments::None(static_cast<size_t>(session_.num_channels()));
    *session = Full();
    return grpc::Status::OK;
  }
  grpc::Status GetSession(grpc::ServerContext*, const v1::GetSessionRequest* request, v1::Session* session) override {
    const std::lock_guard<std::mutex> lock(mu_);
    *session = Full();
    if (request->has_newer_than_version() && version_ <= request->newer_than_version()) session->clear_state();
    return grpc::Status::OK;
  }
  grpc::Status CommitMoments(grpc::ServerContext*, const v1::CommitMomentsRequest* request,
                             v1::StateResult* result) override {
    int call;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      call = static_cast<int>(steps_.size()) + 1;
      steps_.push_back(*request);
      EXPECT_TRUE(request->want_state());
      const std::string id = absl::StrCat(request->step().client_id(), " ", request->step().sequence());
      const auto [known, is_new] = applied_.emplace(id, request->moments(0).SerializeAsString());
      EXPECT_EQ(known->second, request->moments(0).SerializeAsString()) << "the same step has the same data";
      if (is_new) Apply(request->moments(0));
      result->set_replayed(!is_new);
      result->set_version(version_);
      result->set_state_version(version_);
      *result->mutable_state() = Full().state();
    }
    return answer(call);
  }

  std::vector<v1::CommitMomentsRequest> steps() {
    const std::lock_guard<std::mutex> lock(mu_);
    return steps_;
  }
  double count() {
    const std::lock_guard<std::mutex> lock(mu_);
    return state_.count[0];
  }

 private:
  void Apply(const v1::Moments& moments) {
    v1::RunningState state;
    *state.mutable_count() = moments.count();
    *state.mutable_mean() = moments.mean();
    *state.mutable_m2() = moments.m2();
    *state.mutable_min() = moments.min();
    *state.mutable_max() = moments.max();
    state_.Merge(SampleMoments::FromState(state)->Below(max_count, state_));
    ++version_;
  }
  v1::Session Full() const {
    v1::Session out = session_;
    out.set_version(version_);
    out.set_digest(absl::StrCat("digest of ", version_));
    const v1::Moments moments = state_.ToProto();
    *out.mutable_state()->mutable_count() = moments.count();
    *out.mutable_state()->mutable_mean() = moments.mean();
    *out.mutable_state()->mutable_m2() = moments.m2();
    *out.mutable_state()->mutable_min() = moments.min();
    *out.mutable_state()->mutable_max() = moments.max();
    return out;
  }

  std::mutex mu_;
  v1::Session session_;
  SampleMoments state_;
  uint64_t version_ = 0;
  std::vector<v1::CommitMomentsRequest> steps_;
  std::map<std::string, std::string> applied_;  // the moments of each step
};

class RunningMomentsTest : public testing::Test {
 protected:
  RunningMomentsTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    ClientOptions options;
    options.retry.initial_backoff = options.retry.max_backoff = absl::Milliseconds(1);
    options.retry.budget_tokens = 0;
    client_ = *Client::Connect(absl::StrCat("127.0.0.1:", port_), options);
  }
  ~RunningMomentsTest() override { Stop(); }

  void Stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_ = nullptr;
  }

  std::unique_ptr<RunningMoments> Open(RunningMomentsOptions options = {}) {
    options.prior_count = 0;
    auto moments = RunningMoments::Open(*client_, "obs", 2, options);
    EXPECT_TRUE(moments.ok()) << moments.status();
    return *std::move(moments);
  }

  CountingSessions fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

const std::vector<double> kRows = {1, 10, 3, 30};

TEST_F(RunningMomentsTest, ALostReplyCountsNothingTwice) {
  // More often than the client itself tries again, so that the thread does, too.
  fake_.answer = [](int call) { return call < 12 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "") : grpc::Status(); };
  const auto moments = Open();
  ASSERT_TRUE(moments->Update(kRows).ok());
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  ASSERT_EQ(fake_.steps().size(), 12u);
  EXPECT_EQ(fake_.steps().back().step().sequence(), fake_.steps()[0].step().sequence());
  EXPECT_EQ(fake_.count(), 2);
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(2, 2));
}

TEST_F(RunningMomentsTest, NothingWaitsForTheNetworkAndWhatComesLaterIsAStepOfItsOwn) {
  std::atomic<bool> may_answer{false};
  fake_.answer = [&](int) {
    while (!may_answer) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::OK;
  };
  const auto moments = Open({.flush_samples = 1});
  ASSERT_TRUE(moments->Update(kRows).ok());
  while (fake_.steps().empty()) absl::SleepFor(absl::Milliseconds(1));
  const std::vector<float> later = {5, 50};
  ASSERT_TRUE(moments->Update(later).ok());
  EXPECT_THAT(moments->snapshot()->mean, ElementsAre(3, 30)) << "own samples are shown at once";
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(3, 3));
  EXPECT_TRUE(absl::IsDeadlineExceeded(moments->Flush(absl::Milliseconds(10))));
  may_answer = true;
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  ASSERT_EQ(fake_.steps().size(), 2u);
  EXPECT_GT(fake_.steps()[1].step().sequence(), fake_.steps()[0].step().sequence());
  EXPECT_THAT(Tensor::FromProto(fake_.steps()[1].moments(0).count())->ToDoubles(), ElementsAre(1, 1));
  EXPECT_EQ(fake_.count(), 3);
}

TEST_F(RunningMomentsTest, AnAnswerThatStaysNoIsToldToEveryLaterCall) {
  fake_.answer = [](int) { return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "frozen"); };
  const auto moments = Open();
  ASSERT_TRUE(moments->Update(kRows).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(moments->Flush(absl::Seconds(30))));
  EXPECT_TRUE(absl::IsFailedPrecondition(moments->Update(kRows)));
  EXPECT_EQ(fake_.steps().size(), 1u);
}

// What a session answers to a contributor that it does not know once it has forgotten others.
TEST_F(RunningMomentsTest, ASessionThatHasForgottenContributorsTakesANewOne) {
  const auto earlier = Open();
  ASSERT_TRUE(earlier->Update(kRows).ok());
  ASSERT_TRUE(earlier->Flush(absl::Seconds(30)).ok());
  const uint64_t forgotten = fake_.steps().back().step().sequence();
  absl::SleepFor(absl::Milliseconds(2));
  const auto later = Open();
  ASSERT_TRUE(later->Update(kRows).ok());
  ASSERT_TRUE(later->Flush(absl::Seconds(30)).ok());
  EXPECT_GT(fake_.steps().back().step().sequence(), forgotten);
}

TEST_F(RunningMomentsTest, TheDestructorFlushes) {
  Open()->Update(kRows).IgnoreError();
  EXPECT_EQ(fake_.count(), 2);
}

TEST_F(RunningMomentsTest, TheDestructorGivesUpWithinItsBound) {
  auto moments = Open({.call_deadline = absl::Milliseconds(200), .close_timeout = absl::Milliseconds(100)});
  Stop();
  ASSERT_TRUE(moments->Update(kRows).ok());
  const absl::Time begin = absl::Now();
  moments.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10)) << "with much room for a busy machine";
}

TEST_F(RunningMomentsTest, ManyThreadsLoseNothing) {
  const auto moments = Open({.flush_samples = 8, .flush_interval = absl::Milliseconds(1)});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < 100; ++step) EXPECT_TRUE(moments->Update(kRows).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ(fake_.count(), 800);
  EXPECT_DOUBLE_EQ(moments->snapshot()->mean[1], 20);
}

TEST_F(RunningMomentsTest, ASnapshotStaysAndNormalises) {
  const auto moments = Open({.epsilon = 0, .clip = 1.5});
  ASSERT_TRUE(moments->Update(kRows).ok());
  const auto snapshot = moments->snapshot();
  const std::vector<float> x = {2, 30, 1e6F, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> y(4);
  ASSERT_TRUE(snapshot->Normalize(x, absl::MakeSpan(y)).ok());
  EXPECT_THAT(y, ElementsAre(0, 1, 1.5, ::testing::IsNan()));
  ASSERT_TRUE(moments->Update(std::vector<double>{100, 100}).ok());
  std::vector<float> same(4), other(4);
  ASSERT_TRUE(snapshot->Normalize(x, absl::MakeSpan(same)).ok());
  EXPECT_EQ(same[1], y[1]);
  ASSERT_TRUE(moments->Normalize(x, absl::MakeSpan(other)).ok());
  EXPECT_NE(other[1], y[1]);
  std::vector<double> back(2);
  ASSERT_TRUE(snapshot->Denormalize(std::vector<double>{0, 1}, absl::MakeSpan(back)).ok());
  EXPECT_THAT(back, ElementsAre(2, 30));
  EXPECT_TRUE(absl::IsInvalidArgument(snapshot->Normalize(std::vector<float>(3), absl::MakeSpan(y))));
  EXPECT_TRUE(absl::IsInvalidArgument(snapshot->Normalize(std::vector<float>(2), absl::MakeSpan(y))));
}

TEST_F(RunningMomentsTest, TheDigestIsThatOfTheServersStateAlone) {
  const auto moments = Open();
  EXPECT_EQ(moments->snapshot()->digest, "digest of 0");
  ASSERT_TRUE(moments->Update(kRows).ok());
  EXPECT_EQ(moments->snapshot()->digest, "") << "own samples are part of it";
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  ASSERT_TRUE(moments->Refresh().ok());
  EXPECT_EQ(moments->snapshot()->digest, "digest of 1");
  EXPECT_EQ(moments->snapshot()->version, 1u);
}

TEST_F(RunningMomentsTest, MomentsOfOthersAreSamples) {
  const auto moments = Open();
  const std::vector<double> mean = {2, 20}, var = {1, 100};
  ASSERT_TRUE(moments->UpdateFromMoments(mean, var, 2).ok());
  EXPECT_THAT(moments->snapshot()->var, ElementsAre(1, 100));
  EXPECT_TRUE(std::isnan(moments->snapshot()->min[0]));
  EXPECT_TRUE(absl::IsInvalidArgument(moments->UpdateFromMoments(mean, std::vector<double>{1}, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(moments->UpdateFromMoments(mean, std::vector<double>{1, -1}, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(moments->UpdateFromMoments(mean, var, -1)));
  EXPECT_TRUE(absl::IsInvalidArgument(moments->Update(std::vector<double>(3))));
}

TEST_F(RunningMomentsTest, AChannelThatHasItsCountMovesNoMoreInAnyView) {
  fake_.max_count = 3;
  const auto moments = Open({.max_count = 3, .flush_samples = 1 << 20, .flush_interval = absl::Hours(1)});
  for (const double value : {1.0, 3.0}) {
    ASSERT_TRUE(moments->Update(std::vector<double>{value, value}).ok());
  }
  ASSERT_TRUE(moments->Flush(absl::Seconds(10)).ok());
  // One contribution, which counts wholly.
  ASSERT_TRUE(moments->Update(std::vector<double>{5, 5, 7, 7}).ok());
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(4, 4));
  ASSERT_TRUE(moments->Flush(absl::Seconds(10)).ok());
  ASSERT_TRUE(moments->Update(std::vector<double>{100, 100}).ok());
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(4, 4));
  EXPECT_THAT(moments->snapshot()->mean, ElementsAre(4, 4));
  EXPECT_THAT(moments->snapshot()->max, ElementsAre(7, 7));
  ASSERT_TRUE(moments->Flush(absl::Seconds(10)).ok());
  EXPECT_EQ(fake_.count(), 4);
}

TEST_F(RunningMomentsTest, WhatCannotBeIsRefusedBeforeASessionIsMade) {
  const auto refusal = [this](int64_t channels, const RunningMomentsOptions& options) {
    const absl::Status status = RunningMoments::Open(*client_, "obs", channels, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(0, {}), HasSubstr("channels is 0"));
  EXPECT_THAT(refusal(2, {.channel_names = {"a"}}), HasSubstr("channel_names is 1 names"));
  EXPECT_THAT(refusal(2, {.clip = 0}), HasSubstr("clip is 0"));
  EXPECT_THAT(refusal(2, {.flush_samples = 0}), HasSubstr("flush_samples is 0"));
  EXPECT_THAT(refusal(2, {.flush_interval = absl::ZeroDuration()}), HasSubstr("flush_interval is 0"));
  EXPECT_EQ(Open()->snapshot()->version, 0u) << "the session was not there";
}

TEST_F(RunningMomentsTest, AttributesDifferInTheirLastDigit) {
  Open({.max_count = 1234567});
  const auto refused = RunningMoments::Open(*client_, "obs", 2, {.prior_count = 0, .max_count = 1234568});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("max_count is 1234567 there, and 1234568 here"));
}

TEST_F(RunningMomentsTest, ASessionWithOtherAttributesIsRefused) {
  Open();
  EXPECT_THAT(
      std::string(RunningMoments::Open(*client_, "obs", 2, {.prior_count = 0, .max_count = 9}).status().message()),
      HasSubstr("max_count is absent there, and 9 here"));
  const auto refused = RunningMoments::Open(*client_, "obs", 3, {.prior_count = 1});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("num_channels is 2 there, and 3 here; prior_count is 0 there, and 1 here"));
}

}  // namespace
}  // namespace normd
