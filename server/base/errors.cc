#include "server/base/errors.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"

namespace normd {
namespace {

constexpr std::string_view kLimitExceeded = "LIMIT_EXCEEDED";
constexpr std::string_view kStoreFull = "STORE_FULL";

}  // namespace

absl::Status SessionNotFoundError(std::string_view id) {
  return MakeError(absl::StatusCode::kNotFound,
                   {.field = "session",
                    .value = absl::StrCat("sessions/", std::string(id)),
                    .limit = "an existing session",
                    .reason = "SESSION_NOT_FOUND"},
                   "no such session");
}

absl::Status SessionExistsError(std::string_view id) {
  return MakeError(absl::StatusCode::kAlreadyExists,
                   {.field = "session_id",
                    .value = absl::StrCat("sessions/", std::string(id)),
                    .limit = "an id not in use",
                    .reason = "SESSION_EXISTS"},
                   "session exists");
}

absl::Status VersionMismatchError(uint64_t expected, uint64_t actual) {
  return MakeError(absl::StatusCode::kAborted,
                   {.field = "expected_version",
                    .value = absl::StrCat(expected),
                    .limit = absl::StrCat(actual, ", the session's version"),
                    .reason = "VERSION_MISMATCH"},
                   "the session has moved on");
}

absl::Status StepTooOldError(std::string_view client_id, uint64_t sequence, uint64_t last) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {.field = "step.sequence",
       .value = absl::StrCat(sequence),
       .limit = absl::StrCat("above ", last, " or one of the latest steps of client ", std::string(client_id)),
       .reason = "STEP_TOO_OLD"},
      "older than the replay window");
}

absl::Status StepReusedError(std::string_view client_id, uint64_t sequence) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.field = "step.sequence",
                    .value = absl::StrCat(sequence),
                    .limit = absl::StrCat("a new sequence of client ", std::string(client_id), " for new data"),
                    .reason = "STEP_REUSED"},
                   "this step was applied with other data");
}

absl::Status LimitExceededError(std::string_view field, int64_t value, int64_t limit) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {.field = std::string(field),
                    .value = absl::StrCat(value),
                    .limit = absl::StrCat("at most ", limit),
                    .reason = std::string(kLimitExceeded)},
                   "over the limit");
}

absl::Status NoRoomError(std::string_view field, int64_t value, int64_t limit) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {.field = std::string(field),
                    .value = absl::StrCat(value),
                    .limit = absl::StrCat("at most ", limit),
                    .reason = "NO_ROOM"},
                   "no room now; nothing was changed");
}

absl::Status QueueAgeError(absl::Duration age, absl::Duration limit) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {.field = "queue_age",
                    .value = absl::FormatDuration(age),
                    .limit = absl::StrCat("at most ", absl::FormatDuration(limit)),
                    .reason = "QUEUE_AGE"},
                   "waited too long; nothing was changed");
}

absl::Status DataLossError(std::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss,
                   {.field = "record", .value = std::string(what), .limit = "an intact record", .reason = "DATA_LOSS"},
                   "damaged session record");
}

absl::Status UnimplementedError(std::string_view field, std::string_view what) {
  return MakeError(
      absl::StatusCode::kUnimplemented,
      {.field = std::string(field), .value = std::string(what), .limit = "absent", .reason = "UNIMPLEMENTED"},
      "not in this version");
}

absl::Status CallerGoneError() {
  return MakeError(absl::StatusCode::kCancelled,
                   {.field = "call", .value = "cancelled", .limit = "a caller that waits", .reason = "CALLER_GONE"},
                   "nothing was changed");
}

absl::Status DeadlinePassedError() {
  return MakeError(
      absl::StatusCode::kDeadlineExceeded,
      {.field = "call", .value = "late", .limit = "started before its deadline", .reason = "DEADLINE_PASSED"},
      "nothing was changed");
}

absl::Status SlowMessageError(absl::Duration elapsed, int64_t bytes_per_second) {
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   {.field = "message",
                    .value = absl::StrCat("not complete after ", absl::FormatDuration(elapsed)),
                    .limit = absl::StrCat("at least ", bytes_per_second, " bytes a second"),
                    .reason = "MESSAGE_TOO_SLOW"},
                   "the message came too slowly");
}

absl::Status DrainingError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.field = "server", .value = "draining", .limit = "serving", .reason = "DRAINING"},
                   "no new requests are taken");
}

absl::Status StoreFullError(std::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {.field = "session store",
                    .value = std::string(what),
                    .limit = "a disk with room",
                    .reason = std::string(kStoreFull)},
                   "the disk is full; nothing was changed");
}

absl::Status StoreUnavailableError(std::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.field = "session store",
                    .value = std::string(what),
                    .limit = "a store that can be read and written",
                    .reason = "STORE_UNAVAILABLE"},
                   "try again");
}

absl::Status StoreFailedError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.field = "session store",
                    .value = "a flush to disk failed",
                    .limit = "a store whose flushes succeed",
                    .reason = "STORE_FAILED"},
                   "this server takes no more changes");
}

absl::Status RegionNotFoundError() {
  return MakeError(absl::StatusCode::kNotFound,
                   {.field = "region",
                    .value = "an unknown name",
                    .limit = "a region that is registered with this server",
                    .reason = "REGION_NOT_FOUND"},
                   "no such region");
}

absl::Status RegionTruncatedError() {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = "region",
                    .value = "shorter than was registered, or without memory for a page",
                    .limit = "as long as it is registered",
                    .reason = "REGION_TRUNCATED"},
                   "the shared-memory region was truncated while in use");
}

absl::Status CudaNotAvailableError(std::string_view field) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = std::string(field),
                    .value = "CUDA memory",
                    .limit = "memory of the host",
                    .reason = "CUDA_NOT_AVAILABLE"},
                   "this server uses no CUDA device");
}

absl::Status DeviceNotAvailableError(std::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = "device",
                    .value = "DEVICE_CUDA",
                    .limit = "DEVICE_AUTO or DEVICE_CPU",
                    .reason = "DEVICE_NOT_AVAILABLE"},
                   why);
}

absl::Status InCudaMemoryError(std::string_view field) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.field = std::string(field),
                    .value = "a range of a region of a CUDA device",
                    .limit = "in the host's memory; x, residual.tensor, Y and H alone may lie there",
                    .reason = "IN_CUDA_MEMORY"},
                   "cannot lie in CUDA memory");
}

bool MayPassLater(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  if (!absl::IsResourceExhausted(status)) return false;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return !detail.has_value() || (detail->reason != kLimitExceeded && detail->reason != kStoreFull);
}

}  // namespace normd
