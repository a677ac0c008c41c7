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
  std::string in_message[2];
};

TEST(ServerErrors, NameCodeReasonFieldAndValue) {
  const Expected cases[] = {
      {SessionNotFoundError("a"), absl::StatusCode::kNotFound, "SESSION_NOT_FOUND", {"session", "sessions/a"}},
      {SessionExistsError("a"), absl::StatusCode::kAlreadyExists, "SESSION_EXISTS", {"session_id", "sessions/a"}},
      {VersionMismatchError(3, 7), absl::StatusCode::kAborted, "VERSION_MISMATCH", {"expected_version", "7"}},
      {StepTooOldError("c", 3, 40), absl::StatusCode::kFailedPrecondition, "STEP_TOO_OLD", {"step.sequence", "40"}},
      {StepReusedError("c", 3), absl::StatusCode::kInvalidArgument, "STEP_REUSED", {"step.sequence", "3"}},
      {LimitExceededError("x", 9, 8), absl::StatusCode::kResourceExhausted, "LIMIT_EXCEEDED", {"9", "at most 8"}},
      {NoRoomError("x", 9, 8), absl::StatusCode::kResourceExhausted, "NO_ROOM", {"9", "at most 8"}},
      {DataLossError("checksum"), absl::StatusCode::kDataLoss, "DATA_LOSS", {"record", "checksum"}},
      {UnimplementedError("x.shared", "memory"),
       absl::StatusCode::kUnimplemented,
       "UNIMPLEMENTED",
       {"x.shared", "memory"}},
      {RegionNotFoundError(), absl::StatusCode::kNotFound, "REGION_NOT_FOUND", {"region", "registered"}},
      {RegionTruncatedError(),
       absl::StatusCode::kFailedPrecondition,
       "REGION_TRUNCATED",
       {"region", "truncated while in use"}},
      {DeadlinePassedError(), absl::StatusCode::kDeadlineExceeded, "DEADLINE_PASSED", {"late", "nothing was changed"}},
      {CudaNotAvailableError("cuda"), absl::StatusCode::kFailedPrecondition, "CUDA_NOT_AVAILABLE", {"cuda", "no CUDA"}},
      {InCudaMemoryError("mask.shared"),
       absl::StatusCode::kInvalidArgument,
       "IN_CUDA_MEMORY",
       {"mask.shared: cannot lie in CUDA memory"}},
      {DrainingError(), absl::StatusCode::kUnavailable, "DRAINING", {"server", "draining"}},
  };
  for (const Expected& expected : cases) {
    SCOPED_TRACE(expected.reason);
    EXPECT_EQ(expected.status.code(), expected.code);
    const std::optional<ErrorDetail> detail = GetErrorDetail(expected.status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, expected.reason);
    for (const std::string& part : expected.in_message) {
      EXPECT_THAT(std::string(expected.status.message()), HasSubstr(part));
    }
  }
}

TEST(ServerErrors, MayPassLaterWhereWaitingHelps) {
  EXPECT_TRUE(MayPassLater(NoRoomError("bytes_in_flight", 9, 8)));
  EXPECT_TRUE(MayPassLater(QueueAgeError(absl::Seconds(2), absl::Seconds(1))));
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
