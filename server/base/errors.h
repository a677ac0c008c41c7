// The server's user-visible errors, each a named function with a sentence of its own; kernels/base/errors.h has those
// of tensors and specs. A message names field, value and limit, and the status carries the same three as its
// ErrorDetail.
// Threads: pure functions.
#ifndef NORMD_SERVER_BASE_ERRORS_H_
#define NORMD_SERVER_BASE_ERRORS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace normd {

// NOT_FOUND, reason SESSION_NOT_FOUND. `id` lacks the prefix "sessions/", as everywhere below rpc.
absl::Status SessionNotFoundError(std::string_view id);
// ALREADY_EXISTS, reason SESSION_EXISTS.
absl::Status SessionExistsError(std::string_view id);
// ABORTED, reason VERSION_MISMATCH: the caller's expected_version is not the session's.
absl::Status VersionMismatchError(uint64_t expected, uint64_t actual);
// FAILED_PRECONDITION, reason STEP_TOO_OLD: `sequence` is below the replay window of the client, whose last step is
// `last`.
absl::Status StepTooOldError(std::string_view client_id, uint64_t sequence, uint64_t last);
// INVALID_ARGUMENT, reason STEP_REUSED: the same step id came with other data.
absl::Status StepReusedError(std::string_view client_id, uint64_t sequence);
// RESOURCE_EXHAUSTED, reason QUEUE_AGE: the call waited for `age`, which is over `limit`.
absl::Status QueueAgeError(absl::Duration age, absl::Duration limit);
// The words of a message about a limit.
struct LimitNote {
  std::string_view unit;    // the unit, if the field's name does not show it: "bytes"
  std::string_view option;  // the server's option that sets the limit: "--max_sessions"
};
// RESOURCE_EXHAUSTED, reason LIMIT_EXCEEDED: `value` of `field` is over `limit`, and waiting does not help. For sizes
// and counts.
absl::Status LimitExceededError(std::string_view field, int64_t value, int64_t limit, const LimitNote& note = {});
// RESOURCE_EXHAUSTED, reason NO_ROOM: `value` of `field` would exceed `limit` now, but will fit once other calls are
// done. For budgets and queues.
absl::Status NoRoomError(std::string_view field, int64_t value, int64_t limit, const LimitNote& note = {});
// RESOURCE_EXHAUSTED, reason NO_ROOM: a stream that only waited for a message was ended, because `value` of `field` is
// over `most`, which is three quarters of `limit`.
absl::Status IdleStreamError(std::string_view field, int64_t value, int64_t most, int64_t limit);
// DATA_LOSS, reason DATA_LOSS: a stored or imported record is damaged; `what` says how.
absl::Status DataLossError(std::string_view what);
// UNIMPLEMENTED, reason UNIMPLEMENTED: `field` asks for `what`, which this version does not support.
absl::Status UnimplementedError(std::string_view field, std::string_view what);
// UNIMPLEMENTED, reason UNIMPLEMENTED: the server has no method of this path ("/package.Service/Method"); it has the
// `services`, which are joined by commas.
absl::Status UnknownMethodError(std::string_view path, std::string_view services);
// CANCELLED, reason CALLER_GONE: the caller cancelled, or its deadline passed, before the store took up the change.
absl::Status CallerGoneError();
// DEADLINE_EXCEEDED, reason DEADLINE_PASSED: the caller's deadline passed before the work was started.
absl::Status DeadlinePassedError();
// FAILED_PRECONDITION, reason CUDA_EVENT_PENDING: the event of a region that the call names had not completed after
// `waited`, which is over `limit`.
absl::Status CudaEventPendingError(absl::Duration waited, absl::Duration limit);
// DEADLINE_EXCEEDED, reason MESSAGE_TOO_SLOW: a message that had begun came slower than `bytes_per_second`.
absl::Status SlowMessageError(absl::Duration elapsed, int64_t bytes_per_second);
// UNAUTHENTICATED, as are the next four errors; none of them reveals which names or tokens exist. Reason
// CREDENTIALS_MISSING: the call shows no credentials; `accepted` says which ones the server takes.
absl::Status NoCredentialsError(std::string_view accepted);
// Reason CREDENTIALS_FORM: there is an `authorization`, but it is not "Bearer TOKEN", once.
absl::Status MalformedCredentialsError();
// Reason TOKEN_UNKNOWN.
absl::Status UnknownTokenError();
// Reason TOKEN_EXPIRED.
absl::Status ExpiredTokenError();
// Reason TOKEN_IN_PLAIN_TEXT: the token came over a connection that others may read; it was not compared.
absl::Status TokenInPlainTextError();
// PERMISSION_DENIED, reason METHOD_DENIED: the policy does not let `identity` call the method with this path.
absl::Status MethodDeniedError(std::string_view identity, std::string_view path);
// UNAVAILABLE, reason DRAINING: this server takes no new requests; another server, or this one later, will.
absl::Status DrainingError();

// RESOURCE_EXHAUSTED, reason STORE_FULL: no room on the store's disk for `what`. Nothing was changed.
absl::Status StoreFullError(std::string_view what);
// UNAVAILABLE, reason STORE_UNAVAILABLE: the store could not be read or written now. `what` says why, to logs and
// callers alike, so it names no path and no address. A caller learns the outcome of a step with an id by sending the
// step again.
absl::Status StoreUnavailableError(std::string_view what);
// UNAVAILABLE, reason STORE_FAILED: a flush failed; this server writes no more.
absl::Status StoreFailedError();

// NOT_FOUND, reason REGION_NOT_FOUND. The message leaves out the region's name, because the name is a key.
absl::Status RegionNotFoundError();
// FAILED_PRECONDITION, reason REGION_TRUNCATED: the client truncated the object behind a region, or the system had no
// memory for one of its pages; outputs are not valid.
absl::Status RegionTruncatedError();
// FAILED_PRECONDITION, reason CUDA_NOT_AVAILABLE: this server runs kernels on no CUDA device.
absl::Status CudaNotAvailableError(std::string_view field);
// FAILED_PRECONDITION, reason DEVICE_NOT_AVAILABLE, field "device": the caller asked for CUDA, which is not available;
// `why` is the reason.
absl::Status DeviceNotAvailableError(std::string_view why);
// INVALID_ARGUMENT, reason IN_CUDA_MEMORY: the range that `field` names lies in CUDA memory, but the host would have to
// read or write it.
absl::Status InCudaMemoryError(std::string_view field);

// True if the same request may succeed later: for UNAVAILABLE, and for RESOURCE_EXHAUSTED when the server is full, but
// not for a limit or a full disk. Only these errors tell callers to retry.
bool MayPassLater(const absl::Status& status);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_ERRORS_H_
