#include "server/base/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

struct Expected {
  absl::Status status;
  absl::StatusCode code;
  std::string reason;
  std::string message;
};

TEST(ServerErrors, AreOneSentenceEachWithCodeAndReason) {
  const Expected cases[] = {
      {SessionNotFoundError("a"), absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
       "session sessions/a does not exist"},
      {SessionExistsError("a"), absl::StatusCode::kAlreadyExists, "SESSION_EXISTS",
       "session_id is taken: sessions/a exists already"},
      {VersionMismatchError(3, 7), absl::StatusCode::kAborted, "VERSION_MISMATCH",
       "expected_version is 3, but the session has moved on to version 7"},
      {StepTooOldError("c", 3, 40), absl::StatusCode::kFailedPrecondition, "STEP_TOO_OLD",
       "step.sequence is 3, older than the replay window; it must be above 40 or one of the latest steps of client c"},
      {StepReusedError("c", 3), absl::StatusCode::kInvalidArgument, "STEP_REUSED",
       "step.sequence is 3, which was applied with other data; it must be a new sequence of client c for new data"},
      {LimitExceededError("x", 9, 8), absl::StatusCode::kResourceExhausted, "LIMIT_EXCEEDED",
       "x would be 9, over the limit of 8"},
      {LimitExceededError("x", 9, 8, {.unit = "bytes", .option = "--max_x"}), absl::StatusCode::kResourceExhausted,
       "LIMIT_EXCEEDED", "x would have 9 bytes, over the limit of 8 (set by --max_x of the server)"},
      {NoRoomError("x", 9, 8), absl::StatusCode::kResourceExhausted, "NO_ROOM",
       "x would be 9, over the limit of 8, until other calls are done; nothing was changed"},
      {IdleStreamError("calls", 7, 6, 8), absl::StatusCode::kResourceExhausted, "NO_ROOM",
       "calls is 7, over three quarters of the limit of 8, so the streams that have waited longest for a message are "
       "ended; open one again when there is a message to send"},
      {DataLossError("checksum"), absl::StatusCode::kDataLoss, "DATA_LOSS", "record is damaged: checksum"},
      {UnimplementedError("x.shared", "memory"), absl::StatusCode::kUnimplemented, "UNIMPLEMENTED",
       "x.shared asks for memory, which this server does not do"},
      {UnknownMethodError("/a.B/C", "d.E, f.G"), absl::StatusCode::kUnimplemented, "UNIMPLEMENTED",
       "method a.B/C is not served here; this server speaks d.E, f.G"},
      {RegionNotFoundError(), absl::StatusCode::kNotFound, "REGION_NOT_FOUND",
       "region has an unknown name; it must be a region that is registered with this server"},
      {RegionTruncatedError(), absl::StatusCode::kFailedPrecondition, "REGION_TRUNCATED",
       "region was truncated while in use, or the system had no memory for one of its pages"},
      {DeadlinePassedError(), absl::StatusCode::kDeadlineExceeded, "DEADLINE_PASSED",
       "call was late: its deadline passed before the work began; nothing was changed"},
      {CudaEventPendingError(absl::Seconds(61), absl::Minutes(1)), absl::StatusCode::kFailedPrecondition,
       "CUDA_EVENT_PENDING",
       "cuda.event_handle names an event that was not complete after 1m1s; it must be complete within 1m; nothing was "
       "changed"},
      {CudaNotAvailableError("cuda"), absl::StatusCode::kFailedPrecondition, "CUDA_NOT_AVAILABLE",
       "cuda is CUDA memory, but this server uses no CUDA device; it must be memory of the host"},
      {InCudaMemoryError("mask.shared"), absl::StatusCode::kInvalidArgument, "IN_CUDA_MEMORY",
       "mask.shared lies in CUDA memory, where only x, residual.tensor, Y and H may lie"},
      {DeviceNotAvailableError("it was lost"), absl::StatusCode::kFailedPrecondition, "DEVICE_NOT_AVAILABLE",
       "device is DEVICE_CUDA, but it was lost; it must be DEVICE_AUTO or DEVICE_CPU"},
      {QueueAgeError(absl::Seconds(2), absl::Seconds(1)), absl::StatusCode::kResourceExhausted, "QUEUE_AGE",
       "queue_age is 2s; it must be at most 1s; nothing was changed"},
      {SlowMessageError(absl::Seconds(2), 5), absl::StatusCode::kDeadlineExceeded, "MESSAGE_TOO_SLOW",
       "message came too slowly: it was not complete after 2s; it must come with at least 5 bytes a second"},
      {StoreFullError("a session"), absl::StatusCode::kResourceExhausted, "STORE_FULL",
       "session store has a full disk (a session); nothing was changed"},
      {StoreUnavailableError("locked"), absl::StatusCode::kUnavailable, "STORE_UNAVAILABLE",
       "session store cannot be used now (locked); try again"},
      {DrainingError(), absl::StatusCode::kUnavailable, "DRAINING",
       "server is draining and takes no new requests; try another, or try again when it is back"},
  };
  for (const Expected& expected : cases) {
    SCOPED_TRACE(expected.reason);
    EXPECT_EQ(expected.status.code(), expected.code);
    const std::optional<ErrorDetail> detail = GetErrorDetail(expected.status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, expected.reason);
    EXPECT_EQ(expected.status.message(), expected.message);
  }
}

TEST(ServerErrors, MayPassLaterWhereWaitingHelps) {
  EXPECT_TRUE(MayPassLater(NoRoomError("bytes_in_flight", 9, 8)));
  EXPECT_TRUE(MayPassLater(QueueAgeError(absl::Seconds(2), absl::Seconds(1))));
  EXPECT_TRUE(MayPassLater(IdleStreamError("calls", 7, 6, 8)));
  EXPECT_TRUE(MayPassLater(DrainingError()));
  EXPECT_FALSE(MayPassLater(LimitExceededError("sessions", 9, 8)));
  EXPECT_FALSE(MayPassLater(StoreFullError("a session")));
  EXPECT_FALSE(MayPassLater(SessionNotFoundError("a")));
  EXPECT_FALSE(MayPassLater(absl::OkStatus()));
}

bool IsUpperSnake(std::string_view name) {
  return name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

TEST(ErrorReasons, AreDeclaredOnceWithAnErrorCodeAMeaningAndARemedy) {
  std::set<std::string_view> names;
  for (const std::span<const ReasonRow> rows : {std::span<const ReasonRow>(kKernelReasons), {kServerReasons}}) {
    for (const ReasonRow& row : rows) {
      SCOPED_TRACE(std::string(row.name));
      EXPECT_TRUE(!row.name.empty() && IsUpperSnake(row.name));
      EXPECT_TRUE(names.insert(row.name).second) << "declared twice";
      EXPECT_NE(row.code, absl::StatusCode::kOk);
      EXPECT_TRUE(row.meaning.ends_with('.'));
      EXPECT_TRUE(row.remedy.ends_with('.'));
    }
  }
}

TEST(ErrorReasons, ArePrintedARowEach) {
  const std::string table = ErrorsMarkdown();
  EXPECT_THAT(table, HasSubstr("| reason | code | meaning | what the caller does |\n|---|---|---|---|\n"));
  EXPECT_THAT(table, HasSubstr("\n| `EPS_OUT_OF_RANGE` | INVALID_ARGUMENT | eps is negative, infinite or NaN. | "
                               "Correct the request. |\n"));
  EXPECT_THAT(table, HasSubstr("\n| `SESSION_EXISTS` | ALREADY_EXISTS | The session id is in use. | "));
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}

absl::StatusOr<int> Quarter(int x) {
  NORMD_ASSIGN_OR_RETURN(const int half, Half(x));
  NORMD_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacros, ReturnTheFirstErrorAndGoOnOtherwise) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

}  // namespace
}  // namespace normd
