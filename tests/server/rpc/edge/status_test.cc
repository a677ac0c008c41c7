#include "server/rpc/edge/status.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/base/errors.h"
#include "server/base/errors.h"
#include "server/base/hidden_text.h"

namespace normd::rpc {
namespace {

bool SaysWhenToComeBack(const absl::Status& status) {
  const google::rpc::Status message = ToMessage(status);
  for (const google::protobuf::Any& detail : message.details()) {
    if (detail.Is<google::rpc::RetryInfo>()) return true;
  }
  return false;
}

TEST(Status, SaysWhenToComeBackWhereWaitingHelps) {
  EXPECT_TRUE(SaysWhenToComeBack(NoRoomError("bytes_in_flight", 9, 8)));
  EXPECT_TRUE(SaysWhenToComeBack(QueueAgeError(absl::Seconds(2), absl::Seconds(1))));
  EXPECT_TRUE(SaysWhenToComeBack(absl::ResourceExhaustedError("device memory")));
  EXPECT_TRUE(SaysWhenToComeBack(DrainingError()));
  EXPECT_TRUE(SaysWhenToComeBack(PrefixField(NoRoomError("bytes_in_flight", 9, 8), "items[3]")));
}

TEST(Status, NeverCallsALimitOrAMistakeRetryable) {
  EXPECT_FALSE(SaysWhenToComeBack(LimitExceededError("sessions", 9, 8)));
  EXPECT_FALSE(SaysWhenToComeBack(PrefixField(LimitExceededError("parameters", 9, 8), "session")));
  EXPECT_FALSE(SaysWhenToComeBack(StoreFullError("a session")));
  EXPECT_FALSE(SaysWhenToComeBack(MissingError("x", "a tensor")));
  EXPECT_FALSE(SaysWhenToComeBack(SessionNotFoundError("a")));
}

TEST(Status, InShortIsTheCodeAndTheBeginningOfTheMessage) {
  const absl::Status error = SessionNotFoundError(std::string(300, 'x'));
  const google::rpc::Status whole = ToShortMessage(error, 1000);
  EXPECT_EQ(whole.code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(whole.message(), error.message());
  EXPECT_EQ(whole.details_size(), 0);
  EXPECT_EQ(ToShortMessage(error, 100).message().size(), 100U);
}

TEST(Status, HasTheSameBytesEveryTime) {
  const std::string first = ToRpcStatus(LimitExceededError("sessions", 9, 8)).details_bin;
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(ToRpcStatus(LimitExceededError("sessions", 9, 8)).details_bin, first);
  }
}

TEST(Status, KeepsFieldValueLimitAndReason) {
  google::rpc::Status message;
  ASSERT_TRUE(message.ParseFromString(ToRpcStatus(LimitExceededError("sessions", 9, 8)).details_bin));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(message.details(0).UnpackTo(&info));
  EXPECT_EQ(info.domain(), "normd");
  EXPECT_EQ(info.reason(), "LIMIT_EXCEEDED");
  EXPECT_EQ(info.metadata().at("field"), "sessions");
  EXPECT_EQ(info.metadata().at("value"), "9");
  EXPECT_EQ(info.metadata().at("limit"), "at most 8");
}

// A field that is no UTF-8 would be told on the server's standard error, by protobuf, for each call of a stranger.
TEST(Status, WritesAStrangersBytesAsEscapes) {
  const google::rpc::Status message = ToMessage(SessionNotFoundError("a\xff"));
  EXPECT_TRUE(IsUtf8(message.message())) << message.message();
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(message.details(0).UnpackTo(&info));
  EXPECT_EQ(info.metadata().at("value"), "sessions/a\\xff");
  EXPECT_TRUE(IsUtf8(ToShortMessage(SessionNotFoundError("a\xff"), 100).message()));
}

}  // namespace
}  // namespace normd::rpc
