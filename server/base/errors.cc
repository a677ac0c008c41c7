#include "server/base/errors.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

constexpr ErrorReason kLimitExceeded = ServerReason("LIMIT_EXCEEDED");
constexpr ErrorReason kStoreFull = ServerReason("STORE_FULL");

}  // namespace

absl::Status SessionNotFoundError(std::string_view id) {
  return MakeError(
      ServerReason("SESSION_NOT_FOUND"),
      {.field = "session", .value = absl::StrCat("sessions/", std::string(id)), .limit = "an existing session"},
      "no such session");
}

absl::Status SessionExistsError(std::string_view id) {
  return MakeError(
      ServerReason("SESSION_EXISTS"),
      {.field = "session_id", .value = absl::StrCat("sessions/", std::string(id)), .limit = "an id not in use"},
      "session exists");
}

absl::Status VersionMismatchError(uint64_t expected, uint64_t actual) {
  return MakeError(ServerReason("VERSION_MISMATCH"),
                   {.field = "expected_version",
                    .value = absl::StrCat(expected),
                    .limit = absl::StrCat(actual, ", the session's version")},
                   "the session has moved on");
}

absl::Status StepTooOldError(std::string_view client_id, uint64_t sequence, uint64_t last) {
  return MakeError(
      ServerReason("STEP_TOO_OLD"),
      {.field = "step.sequence",
       .value = absl::StrCat(sequence),
       .limit = absl::StrCat("above ", last, " or one of the latest steps of client ", std::string(client_id))},
      "older than the replay window");
}

absl::Status StepReusedError(std::string_view client_id, uint64_t sequence) {
  return MakeError(ServerReason("STEP_REUSED"),
                   {.field = "step.sequence",
                    .value = absl::StrCat(sequence),
                    .limit = absl::StrCat("a new sequence of client ", std::string(client_id), " for new data")},
                   "this step was applied with other data");
}

absl::Status LimitExceededError(std::string_view field, int64_t value, int64_t limit) {
  return MakeError(
      kLimitExceeded,
      {.field = std::string(field), .value = absl::StrCat(value), .limit = absl::StrCat("at most ", limit)},
      "over the limit");
}

absl::Status NoRoomError(std::string_view field, int64_t value, int64_t limit) {
  return MakeError(
      ServerReason("NO_ROOM"),
      {.field = std::string(field), .value = absl::StrCat(value), .limit = absl::StrCat("at most ", limit)},
      "no room now; nothing was changed");
}

absl::Status QueueAgeError(absl::Duration age, absl::Duration limit) {
  return MakeError(ServerReason("QUEUE_AGE"),
                   {.field = "queue_age",
                    .value = absl::FormatDuration(age),
                    .limit = absl::StrCat("at most ", absl::FormatDuration(limit))},
                   "waited too long; nothing was changed");
}

absl::Status DataLossError(std::string_view what) {
  return MakeError(ServerReason("DATA_LOSS"),
                   {.field = "record", .value = std::string(what), .limit = "an intact record"},
                   "damaged session record");
}

absl::Status UnimplementedError(std::string_view field, std::string_view what) {
  return MakeError(ServerReason("UNIMPLEMENTED"),
                   {.field = std::string(field), .value = std::string(what), .limit = "absent"}, "not in this version");
}

absl::Status CallerGoneError() {
  return MakeError(ServerReason("CALLER_GONE"), {.field = "call", .value = "cancelled", .limit = "a caller that waits"},
                   "nothing was changed");
}

absl::Status DeadlinePassedError() {
  return MakeError(ServerReason("DEADLINE_PASSED"),
                   {.field = "call", .value = "late", .limit = "started before its deadline"}, "nothing was changed");
}

absl::Status SlowMessageError(absl::Duration elapsed, int64_t bytes_per_second) {
  return MakeError(ServerReason("MESSAGE_TOO_SLOW"),
                   {.field = "message",
                    .value = absl::StrCat("not complete after ", absl::FormatDuration(elapsed)),
                    .limit = absl::StrCat("at least ", bytes_per_second, " bytes a second")},
                   "the message came too slowly");
}

absl::Status DrainingError() {
  return MakeError(ServerReason("DRAINING"), {.field = "server", .value = "draining", .limit = "serving"},
                   "no new requests are taken");
}

absl::Status StoreFullError(std::string_view what) {
  return MakeError(kStoreFull, {.field = "session store", .value = std::string(what), .limit = "a disk with room"},
                   "the disk is full; nothing was changed");
}

absl::Status StoreUnavailableError(std::string_view what) {
  return MakeError(
      ServerReason("STORE_UNAVAILABLE"),
      {.field = "session store", .value = std::string(what), .limit = "a store that can be read and written"},
      "try again");
}

absl::Status StoreFailedError() {
  return MakeError(
      ServerReason("STORE_FAILED"),
      {.field = "session store", .value = "a flush to disk failed", .limit = "a store whose flushes succeed"},
      "this server takes no more changes");
}

absl::Status RegionNotFoundError() {
  return MakeError(
      ServerReason("REGION_NOT_FOUND"),
      {.field = "region", .value = "an unknown name", .limit = "a region that is registered with this server"},
      "no such region");
}

absl::Status RegionTruncatedError() {
  return MakeError(ServerReason("REGION_TRUNCATED"),
                   {.field = "region",
                    .value = "shorter than was registered, or without memory for a page",
                    .limit = "as long as it is registered"},
                   "the shared-memory region was truncated while in use");
}

absl::Status CudaNotAvailableError(std::string_view field) {
  return MakeError(KernelReason("CUDA_NOT_AVAILABLE"),
                   {.field = std::string(field), .value = "CUDA memory", .limit = "memory of the host"},
                   "this server uses no CUDA device");
}

absl::Status DeviceNotAvailableError(std::string_view why) {
  return MakeError(ServerReason("DEVICE_NOT_AVAILABLE"),
                   {.field = "device", .value = "DEVICE_CUDA", .limit = "DEVICE_AUTO or DEVICE_CPU"}, why);
}

absl::Status InCudaMemoryError(std::string_view field) {
  return MakeError(ServerReason("IN_CUDA_MEMORY"),
                   {.field = std::string(field),
                    .value = "a range of a region of a CUDA device",
                    .limit = "in the host's memory; x, residual.tensor, Y and H alone may lie there"},
                   "cannot lie in CUDA memory");
}

bool MayPassLater(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  if (!absl::IsResourceExhausted(status)) return false;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return !detail.has_value() || (detail->reason != kLimitExceeded.name() && detail->reason != kStoreFull.name());
}

}  // namespace normd
