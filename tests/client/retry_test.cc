#include "client/cpp/retry.h"

#include <gtest/gtest.h>

#include "client/cpp/status.h"
#include "google/rpc/error_details.pb.h"

namespace normd::client {
namespace {

absl::Status WithDetail(absl::StatusCode code, const google::protobuf::Message& detail) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(code));
  proto.set_message("busy");
  proto.add_details()->PackFrom(detail);
  return ToStatus(proto);
}

absl::Status Busy(int64_t seconds) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(seconds);
  return WithDetail(absl::StatusCode::kResourceExhausted, retry);
}

v1::NormalizeRequest Training(const std::string& session, bool step) {
  v1::NormalizeRequest request;
  request.set_mode(v1::MODE_TRAINING);
  if (session.empty()) {
    request.mutable_spec()->mutable_batch_norm();
  } else {
    request.set_session(session);
  }
  if (step) request.mutable_step()->set_sequence(1);
  return request;
}

TEST(Retry, OnlyStepsWithoutAnIdAreUnsafe) {
  EXPECT_FALSE(IsSafeToRetry(Training("sessions/a", false)));
  EXPECT_TRUE(IsSafeToRetry(Training("sessions/a", true)));
  EXPECT_TRUE(IsSafeToRetry(Training("", false)));
  v1::NormalizeRequest inference;
  inference.set_session("sessions/a");
  EXPECT_TRUE(IsSafeToRetry(inference));
  v1::NormalizeRequest checked = Training("sessions/a", false);
  checked.set_validate_only(true);
  EXPECT_TRUE(IsSafeToRetry(checked));
  v1::BatchNormalizeRequest batch;
  *batch.add_items() = inference;
  EXPECT_TRUE(IsSafeToRetry(batch));
  *batch.add_items() = Training("sessions/a", false);
  EXPECT_FALSE(IsSafeToRetry(batch));
  v1::CommitMomentsRequest commit;
  EXPECT_FALSE(IsSafeToRetry(commit));
  commit.mutable_step()->set_sequence(4);
  EXPECT_TRUE(IsSafeToRetry(commit));
}

TEST(Retry, OnlyCapacityErrorsAreTriedAgain) {
  const RetryOptions options;
  const auto wait = [&](const absl::Status& status) {
    return NextWait(options, status, 1, absl::Seconds(30), 0.5).has_value();
  };
  EXPECT_TRUE(wait(absl::UnavailableError("")));
  EXPECT_TRUE(wait(Busy(1)));
  EXPECT_FALSE(wait(absl::ResourceExhaustedError("a message too large")));
  EXPECT_FALSE(wait(absl::InvalidArgumentError("")));
  EXPECT_FALSE(wait(absl::InternalError("")));
  EXPECT_FALSE(wait(absl::DeadlineExceededError("")));
  EXPECT_FALSE(wait(absl::AbortedError("")));
}

TEST(Retry, WaitsGrowWithJitterUpToTheLargest) {
  RetryOptions options;
  options.max_attempts = 100;
  const absl::Status down = absl::UnavailableError("");
  const auto wait = [&](int attempt, double uniform) {
    return *NextWait(options, down, attempt, absl::InfiniteDuration(), uniform);
  };
  EXPECT_EQ(wait(1, 0.5), absl::Milliseconds(100));
  EXPECT_EQ(wait(2, 0.5), absl::Milliseconds(200));
  EXPECT_EQ(wait(4, 0.5), absl::Milliseconds(800));
  EXPECT_EQ(wait(50, 0.5), absl::Seconds(5));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(wait(1, 0)), 80, 1e-6);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(wait(1, 1)), 120, 1e-6);
}

TEST(Retry, TheServersDelayIsALowerBound) {
  EXPECT_EQ(NextWait({}, Busy(3), 1, absl::Seconds(30), 0.5), absl::Seconds(3));
  RetryOptions slow;
  slow.initial_backoff = absl::Seconds(5);
  EXPECT_EQ(NextWait(slow, Busy(3), 1, absl::Seconds(30), 0.5), absl::Seconds(5));
}

TEST(Retry, StopsAtTheAttemptsAndTheDeadline) {
  RetryOptions options;
  options.max_attempts = 3;
  const absl::Status down = absl::UnavailableError("");
  EXPECT_TRUE(NextWait(options, down, 2, absl::Seconds(30), 0.5).has_value());
  EXPECT_FALSE(NextWait(options, down, 3, absl::Seconds(30), 0.5).has_value());
  EXPECT_FALSE(NextWait(options, down, 1, absl::Milliseconds(100), 0.5).has_value());
  EXPECT_FALSE(NextWait(options, Busy(60), 1, absl::Seconds(30), 0.5).has_value());
}

TEST(Retry, WaitsLongerForRoomThanForAServer) {
  const RetryOptions options;
  ASSERT_GT(options.max_attempts_for_room, options.max_attempts);
  EXPECT_FALSE(
      NextWait(options, absl::UnavailableError(""), options.max_attempts, absl::InfiniteDuration(), 0.5).has_value());
  EXPECT_TRUE(NextWait(options, Busy(1), options.max_attempts_for_room - 1, absl::InfiniteDuration(), 0.5).has_value());
  EXPECT_FALSE(NextWait(options, Busy(1), options.max_attempts_for_room, absl::InfiniteDuration(), 0.5).has_value());
  const RetryOptions never = {.max_attempts = 1};
  EXPECT_FALSE(NextWait(never, Busy(1), 1, absl::InfiniteDuration(), 0.5).has_value());
}

TEST(ErrorInfo, ReadsTheServersDetails) {
  google::rpc::Status proto;
  proto.set_code(3);
  proto.set_message("spec.layer_norm.eps: negative: -1; must be >= 0");
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.layer_norm.eps");
  proto.add_details()->PackFrom(bad);
  google::rpc::ErrorInfo info;
  info.set_reason("EPS_OUT_OF_RANGE");
  info.set_domain("normd");
  (*info.mutable_metadata())["value"] = "-1";
  (*info.mutable_metadata())["limit"] = ">= 0";
  proto.add_details()->PackFrom(info);
  const absl::Status status = ToStatus(proto);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  const std::optional<ErrorInfo> read = GetErrorInfo(status);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->field, "spec.layer_norm.eps");
  EXPECT_EQ(read->reason, "EPS_OUT_OF_RANGE");
  EXPECT_EQ(read->value, "-1");
  EXPECT_EQ(read->limit, ">= 0");
  EXPECT_FALSE(read->retry_delay.has_value());
  google::rpc::ResourceInfo resource;
  resource.set_resource_name("sessions/none");
  EXPECT_EQ(GetErrorInfo(WithDetail(absl::StatusCode::kNotFound, resource))->resource, "sessions/none");
}

TEST(RequestId, IsEmptyUnlessTheStatusHasOne) {
  const absl::Status status = absl::UnavailableError("away");
  EXPECT_EQ(GetRequestId(status), "");
  EXPECT_EQ(GetRequestId(WithRequestId(status, "job-7")), "job-7");
  EXPECT_FALSE(GetErrorInfo(WithRequestId(status, "job-7")).has_value());
}

TEST(ErrorInfo, IsAbsentWhereNoServerSpoke) {
  EXPECT_FALSE(GetErrorInfo(absl::UnavailableError("connection refused")).has_value());
  EXPECT_FALSE(GetErrorInfo(absl::OkStatus()).has_value());
  EXPECT_TRUE(ToStatus(google::rpc::Status()).ok());
  const absl::Status garbage = MakeStatus(3, "bad", "\xff\xff\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(garbage));
  EXPECT_FALSE(GetErrorInfo(garbage).has_value());
}

TEST(RetryBudget, EndsWithHalfOfTheTokensAndComesBackWithSuccesses) {
  RetryBudget budget({.budget_tokens = 4, .budget_return = 0.5});
  EXPECT_TRUE(budget.Take());
  EXPECT_TRUE(budget.Take());
  EXPECT_FALSE(budget.Take());
  budget.NoteSuccess();
  EXPECT_TRUE(budget.Take());
  EXPECT_FALSE(budget.Take());
  for (int i = 0; i < 100; ++i) budget.NoteSuccess();
  EXPECT_TRUE(budget.Take());
  EXPECT_TRUE(budget.Take());
  EXPECT_FALSE(budget.Take()) << "no more than it began with comes back";
}

TEST(RetryBudget, OfNoTokensHasNoEnd) {
  RetryBudget budget({.budget_tokens = 0});
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(budget.Take());
}

}  // namespace
}  // namespace normd::client
