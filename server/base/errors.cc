#include "server/base/errors.h"

#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

constexpr ErrorReason kLimitExceeded = ServerReason("LIMIT_EXCEEDED");
constexpr ErrorReason kStoreFull = ServerReason("STORE_FULL");

// "would be 9, over the limit of 8 (set by --max_sessions)".
std::string OverLimit(int64_t value, int64_t limit, const LimitNote& note) {
  std::string text = note.unit.empty() ? Concat("would be ", value) : Concat("would have ", value, " ", note.unit);
  text += Concat(", over the limit of ", limit);
  if (!note.option.empty()) text += Concat(" (set by ", note.option, " of the server)");
  return text;
}

FieldViolation OverLimitViolation(std::string_view field, int64_t value, int64_t limit) {
  return {.field = std::string(field), .value = Concat(value), .limit = Concat("at most ", limit)};
}

}  // namespace

absl::Status SessionNotFoundError(std::string_view id) {
  const std::string name = Concat("sessions/", id);
  return MakeError(ServerReason("SESSION_NOT_FOUND"),
                   {.field = "session", .value = name, .limit = "an existing session"},
                   Concat(name, " does not exist"));
}

absl::Status SessionExistsError(std::string_view id) {
  const std::string name = Concat("sessions/", id);
  return MakeError(ServerReason("SESSION_EXISTS"), {.field = "session_id", .value = name, .limit = "an id not in use"},
                   Concat("is taken: ", name, " exists already"));
}

absl::Status VersionMismatchError(uint64_t expected, uint64_t actual) {
  return MakeError(
      ServerReason("VERSION_MISMATCH"),
      {.field = "expected_version", .value = Concat(expected), .limit = Concat(actual, ", the session's version")},
      Concat("is ", expected, ", but the session has moved on to version ", actual));
}

absl::Status StepTooOldError(std::string_view client_id, uint64_t sequence, uint64_t last) {
  const std::string limit = Concat("above ", last, " or one of the latest steps of client ", client_id);
  return MakeError(ServerReason("STEP_TOO_OLD"), {.field = "step.sequence", .value = Concat(sequence), .limit = limit},
                   Concat("is ", sequence, ", older than the replay window; it must be ", limit));
}

absl::Status StepReusedError(std::string_view client_id, uint64_t sequence) {
  const std::string limit = Concat("a new sequence of client ", client_id, " for new data");
  return MakeError(ServerReason("STEP_REUSED"), {.field = "step.sequence", .value = Concat(sequence), .limit = limit},
                   Concat("is ", sequence, ", which was applied with other data; it must be ", limit));
}

absl::Status LimitExceededError(std::string_view field, int64_t value, int64_t limit, const LimitNote& note) {
  return MakeError(kLimitExceeded, OverLimitViolation(field, value, limit), OverLimit(value, limit, note));
}

absl::Status NoRoomError(std::string_view field, int64_t value, int64_t limit, const LimitNote& note) {
  return MakeError(ServerReason("NO_ROOM"), OverLimitViolation(field, value, limit),
                   Concat(OverLimit(value, limit, note), ", until other calls are done; nothing was changed"));
}

absl::Status IdleStreamError(std::string_view field, int64_t value, int64_t most, int64_t limit) {
  const std::string at_most = Concat("at most ", most, " while streams wait without a message");
  return MakeError(ServerReason("NO_ROOM"), {.field = std::string(field), .value = Concat(value), .limit = at_most},
                   Concat("is ", value, ", over three quarters of the limit of ", limit,
                          ", so the streams that have waited longest for a message are ended; open one again when "
                          "there is a message to send"));
}

absl::Status QueueAgeError(absl::Duration age, absl::Duration limit) {
  const std::string waited = absl::FormatDuration(age);
  const std::string most = Concat("at most ", absl::FormatDuration(limit));
  return MakeError(ServerReason("QUEUE_AGE"), {.field = "queue_age", .value = waited, .limit = most},
                   Concat("is ", waited, "; it must be ", most, "; nothing was changed"));
}

absl::Status DataLossError(std::string_view what) {
  return MakeError(ServerReason("DATA_LOSS"),
                   {.field = "record", .value = std::string(what), .limit = "an intact record"},
                   Concat("is damaged: ", what));
}

absl::Status UnimplementedError(std::string_view field, std::string_view what) {
  return MakeError(ServerReason("UNIMPLEMENTED"),
                   {.field = std::string(field), .value = std::string(what), .limit = "absent"},
                   Concat("asks for ", what, ", which this server does not do"));
}

absl::Status UnknownMethodError(std::string_view path, std::string_view services) {
  const std::string_view name = path.starts_with('/') ? path.substr(1) : path;
  return MakeError(ServerReason("UNIMPLEMENTED"),
                   {.field = "method", .value = std::string(path), .limit = Concat("one of ", services)},
                   Concat(name, " is not served here; this server speaks ", services));
}

absl::Status CallerGoneError() {
  return MakeError(ServerReason("CALLER_GONE"), {.field = "call", .value = "cancelled", .limit = "a caller that waits"},
                   "was cancelled; nothing was changed");
}

absl::Status DeadlinePassedError() {
  return MakeError(ServerReason("DEADLINE_PASSED"),
                   {.field = "call", .value = "late", .limit = "started before its deadline"},
                   "was late: its deadline passed before the work began; nothing was changed");
}

absl::Status CudaEventPendingError(absl::Duration waited, absl::Duration limit) {
  const std::string late = Concat("not complete after ", absl::FormatDuration(waited));
  const std::string most = Concat("complete within ", absl::FormatDuration(limit));
  return MakeError(ServerReason("CUDA_EVENT_PENDING"), {.field = "cuda.event_handle", .value = late, .limit = most},
                   Concat("names an event that was ", late, "; it must be ", most, "; nothing was changed"));
}

absl::Status SlowMessageError(absl::Duration elapsed, int64_t bytes_per_second) {
  const std::string late = Concat("not complete after ", absl::FormatDuration(elapsed));
  const std::string least = Concat("at least ", bytes_per_second, " bytes a second");
  return MakeError(ServerReason("MESSAGE_TOO_SLOW"), {.field = "message", .value = late, .limit = least},
                   Concat("came too slowly: it was ", late, "; it must come with ", least));
}

absl::Status NoCredentialsError(std::string_view accepted) {
  return MakeError(ServerReason("CREDENTIALS_MISSING"),
                   {.field = "credentials", .value = "", .limit = std::string(accepted)},
                   Concat("are missing; give ", accepted));
}

absl::Status MalformedCredentialsError() {
  constexpr std::string_view kForm = "one header of the form \"authorization: Bearer TOKEN\"";
  return MakeError(ServerReason("CREDENTIALS_FORM"),
                   {.field = "authorization", .value = "not of this form", .limit = std::string(kForm)},
                   Concat("does not have its form; send ", kForm));
}

absl::Status UnknownTokenError() {
  return MakeError(ServerReason("TOKEN_UNKNOWN"),
                   {.field = "authorization", .value = "an unknown token", .limit = "a bearer token of this server"},
                   "has a token that this server does not know; give a bearer token of this server");
}

absl::Status ExpiredTokenError() {
  return MakeError(ServerReason("TOKEN_EXPIRED"),
                   {.field = "authorization", .value = "an expired token", .limit = "a token that has not expired"},
                   "has a token that has expired; give a new bearer token");
}

absl::Status TokenInPlainTextError() {
  return MakeError(
      ServerReason("TOKEN_IN_PLAIN_TEXT"),
      {.field = "authorization", .value = "a token in plain text", .limit = "a token over TLS or the Unix socket"},
      "came in plain text, so others may have read it; replace the token, and send it over TLS or the Unix socket");
}

absl::Status MethodDeniedError(std::string_view identity, std::string_view path) {
  return MakeError(ServerReason("METHOD_DENIED"),
                   {.field = "method", .value = std::string(path), .limit = "a method that the policy allows"},
                   Concat(path, " is not allowed to ", identity, " by this server's policy"));
}

absl::Status DrainingError() {
  return MakeError(ServerReason("DRAINING"), {.field = "server", .value = "draining", .limit = "serving"},
                   "is draining and takes no new requests; try another, or try again when it is back");
}

absl::Status StoreFullError(std::string_view what) {
  return MakeError(kStoreFull, {.field = "session store", .value = std::string(what), .limit = "a disk with room"},
                   Concat("has a full disk (", what, "); nothing was changed"));
}

absl::Status StoreUnavailableError(std::string_view what) {
  return MakeError(
      ServerReason("STORE_UNAVAILABLE"),
      {.field = "session store", .value = std::string(what), .limit = "a store that can be read and written"},
      Concat("cannot be used now (", what, "); try again"));
}

absl::Status StoreFailedError() {
  return MakeError(
      ServerReason("STORE_FAILED"),
      {.field = "session store", .value = "a flush to disk failed", .limit = "a store whose flushes succeed"},
      "failed to flush to its disk; this server takes no more changes");
}

absl::Status RegionNotFoundError() {
  return MakeError(
      ServerReason("REGION_NOT_FOUND"),
      {.field = "region", .value = "an unknown name", .limit = "a region that is registered with this server"},
      "has an unknown name; it must be a region that is registered with this server");
}

absl::Status RegionTruncatedError() {
  return MakeError(ServerReason("REGION_TRUNCATED"),
                   {.field = "region",
                    .value = "shorter than was registered, or without memory for a page",
                    .limit = "as long as it is registered"},
                   "was truncated while in use, or the system had no memory for one of its pages");
}

absl::Status CudaNotAvailableError(std::string_view field) {
  return MakeError(KernelReason("CUDA_NOT_AVAILABLE"),
                   {.field = std::string(field), .value = "CUDA memory", .limit = "memory of the host"},
                   "is CUDA memory, but this server uses no CUDA device; it must be memory of the host");
}

absl::Status DeviceNotAvailableError(std::string_view why) {
  return MakeError(ServerReason("DEVICE_NOT_AVAILABLE"),
                   {.field = "device", .value = "DEVICE_CUDA", .limit = "DEVICE_AUTO or DEVICE_CPU"},
                   Concat("is DEVICE_CUDA, but ", why, "; it must be DEVICE_AUTO or DEVICE_CPU"));
}

absl::Status InCudaMemoryError(std::string_view field) {
  return MakeError(ServerReason("IN_CUDA_MEMORY"),
                   {.field = std::string(field),
                    .value = "a range of a region of a CUDA device",
                    .limit = "in the host's memory; x, residual.tensor, Y and H alone may lie there"},
                   "lies in CUDA memory, where only x, residual.tensor, Y and H may lie");
}

bool MayPassLater(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  if (!absl::IsResourceExhausted(status)) return false;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return !detail.has_value() || (detail->reason != kLimitExceeded.name() && detail->reason != kStoreFull.name());
}

}  // namespace normd
