// What moves a session's state through the wire: training steps, batches of them, pooled moments.
#include <cmath>
#include <functional>

#include "tests/e2e/sessions_fixture.h"

namespace normd::e2e {
namespace {

using SessionStepsTest = SessionsTest;

TEST_F(SessionStepsTest, AStepIsAppliedOnceHoweverOftenItIsSent) {
  v1::NormalizeResponse first;
  grpc::Status status = server_.Normalize(Step(1), &first);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(first.state().applied());
  EXPECT_EQ(first.state().reason(), v1::REASON_APPLIED);
  EXPECT_EQ(first.state().version(), 1u);
  EXPECT_EQ(first.state().epoch(), created_.uid());
  EXPECT_TRUE(first.state().output_available());
  EXPECT_EQ(first.state().durability(), v1::DURABILITY_MEMORY);
  v1::NormalizeResponse second;
  ASSERT_TRUE(server_.Normalize(Step(1), &second).ok());
  EXPECT_TRUE(second.state().replayed());
  EXPECT_EQ(second.state().version(), 1u);
  EXPECT_EQ(second.outputs(0).tensor().data(), first.outputs(0).tensor().data());
  v1::NormalizeRequest other = Step(1);
  SetTensor({2, 2}, {1, 10, 5, 30}, other.mutable_x());
  status = server_.Normalize(other, &second);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "STEP_REUSED");
  const v1::Session session = Get("bn");
  EXPECT_EQ(session.version(), 1u);
  EXPECT_EQ(session.state().num_batches(), 1u);
  const std::vector<double> mean = Values<double>(session.state().mean());
  EXPECT_NEAR(mean[0], 0.1 * 2, 1e-15);
  EXPECT_NEAR(mean[1], 0.1 * 20, 1e-15);
}

TEST_F(SessionStepsTest, InferenceUsesTheRunningStatisticsAndSaysWhichVersion) {
  v1::NormalizeResponse response;
  ASSERT_TRUE(server_.Normalize(Step(1), &response).ok());
  v1::NormalizeRequest request = Step(1);
  request.clear_step();
  request.set_mode(v1::MODE_INFERENCE);
  const grpc::Status status = server_.Normalize(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.applied().session_version(), 1u);
  EXPECT_EQ(response.state().reason(), v1::REASON_INFERENCE);
  EXPECT_FALSE(response.state().applied());
  const double var = 0.9 * 1 + 0.1 * 2;
  EXPECT_NEAR(Values<float>(response.outputs(0).tensor())[0], (1 - 0.2) / std::sqrt(var + 1e-5), 1e-6);
  request.set_expected_version(7);
  EXPECT_EQ(server_.Normalize(request, &response).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(SessionStepsTest, ABatchCommitsItsStepsInItemOrder) {
  v1::BatchNormalizeRequest request;
  for (uint64_t i = 1; i <= 5; ++i) *request.add_items() = Step(i);
  v1::BatchNormalizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.normalizer().BatchNormalize(&context, request, &response).ok());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(response.items(i).response().state().version(), static_cast<uint64_t>(i) + 1);
  }
}

TEST_F(SessionStepsTest, PooledMomentsAreOneStep) {
  v1::CommitMomentsRequest request;
  request.set_session("sessions/bn");
  for (const double offset : {0.0, 4.0}) {  // [1, 3] and [5, 9] of semantics: mean 4.5, unbiased variance 35 / 3
    v1::Moments* const moments = request.add_moments();
    SetF64({2, 2}, moments->mutable_count());
    SetF64({2 + offset * 1.25, 2}, moments->mutable_mean());
    SetF64({offset == 0 ? 2.0 : 8.0, 2}, moments->mutable_m2());
  }
  request.mutable_step()->set_client_id("pool");
  request.mutable_step()->set_sequence(5);
  v1::StateResult result;
  grpc::Status status = Commit(request, &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(result.applied());
  EXPECT_EQ(result.version(), 1u);
  EXPECT_EQ(result.num_batches(), 1u);
  ASSERT_TRUE(Commit(request, &result).ok());
  EXPECT_TRUE(result.replayed());
  const v1::Session session = Get("bn");
  EXPECT_EQ(session.state().num_batches(), 1u);
  EXPECT_NEAR(Values<double>(session.state().mean())[0], 0.1 * 4.5, 1e-15);
  EXPECT_NEAR(Values<double>(session.state().var())[0], 0.9 + 0.1 * 35 / 3, 1e-14);
}

TEST_F(SessionStepsTest, CommitNamesTheFieldOfEveryMistake) {
  struct Mistake {
    std::string field;
    std::function<void(v1::CommitMomentsRequest&)> spoil;
  };
  const std::vector<Mistake> mistakes = {
      {"session", [](auto& r) { r.set_session("bn"); }},
      {"moments", [](auto& r) { r.clear_moments(); }},
      {"moments[0].count",
       [](auto& r) {
         SetF64({2.5, 2}, r.mutable_moments(0)->mutable_count());
       }},
      {"moments[0].count",
       [](auto& r) {
         SetF64({-1, 2}, r.mutable_moments(0)->mutable_count());
       }},
      {"moments[0].m2",
       [](auto& r) {
         SetF64({-1, 2}, r.mutable_moments(0)->mutable_m2());
       }},
      {"moments[0].mean", [](auto& r) { SetF64({1}, r.mutable_moments(0)->mutable_mean()); }},
      {"moments[0].mean.dtype",
       [](auto& r) {
         SetTensor({2}, {1, 2}, r.mutable_moments(0)->mutable_mean());
       }},
      {"moments[0].m2.dtype", [](auto& r) { r.mutable_moments(0)->clear_m2(); }},
      {"moments[1]",
       [](auto& r) {
         v1::Moments* const more = r.add_moments();
         for (v1::Tensor* tensor : {more->mutable_count(), more->mutable_mean(), more->mutable_m2()})
           SetF64({2}, tensor);
       }},
      {"step.sequence", [](auto& r) { r.mutable_step()->set_client_id("a"); }},
  };
  for (const Mistake& mistake : mistakes) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/bn");
    v1::Moments* const moments = request.add_moments();
    for (v1::Tensor* tensor : {moments->mutable_count(), moments->mutable_mean(), moments->mutable_m2()}) {
      SetF64({2, 2}, tensor);
    }
    mistake.spoil(request);
    v1::StateResult result;
    const grpc::Status status = Commit(request, &result);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << mistake.field;
    EXPECT_EQ(FieldOf(status), mistake.field) << status.error_message();
  }
  EXPECT_EQ(Get("bn").version(), 0u);
}

}  // namespace
}  // namespace normd::e2e
