// The user-visible errors about tensors and specs: the caller's mistakes, each named once.
// In the path: kernels, codec, sessions and options make them; rpc turns ErrorDetail into google.rpc.BadRequest and
// ErrorInfo. Every function but MakeError returns INVALID_ARGUMENT unless its reason says otherwise. The message names
// field, value and limit, and the payload has the same three and the reason. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_BASE_ERRORS_H_
#define NORMD_KERNELS_BASE_ERRORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/error_reasons.h"

namespace normd {

struct FieldViolation {
  std::string field;  // path as in the .proto, relative to the request: "spec.layer_norm.eps"
  std::string value;  // the value that was sent
  std::string limit;  // the values that are accepted
};

// A mistake in machine-readable form.
struct ErrorDetail {
  std::string field, value, limit;  // as in FieldViolation
  std::string reason;               // an ErrorReason's name: "EPS_OUT_OF_RANGE"
};

// Returns a status of the reason's code with the message "<field>: <what>: <value>; must be <limit>" and an ErrorDetail
// of `reason` and `violation` as its payload.
absl::Status MakeError(ErrorReason reason, const FieldViolation& violation, std::string_view what);

// The detail of a status that MakeError made; nothing for other statuses.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

// Returns the status with `prefix` and a dot in front of the field's path, in the message too: with the prefix
// "items[3]", "x" becomes "items[3].x". Statuses that MakeError did not make are returned unchanged.
absl::Status PrefixField(const absl::Status& status, std::string_view prefix);

// ---- The mistakes. `field` is the path of the field, relative to the message that is checked ----
absl::Status EpsError(std::string_view field, double eps);
// A momentum must be between 0 and 1.
absl::Status MomentumError(std::string_view field, double momentum);
// `value` is outside `limit`, which completes "must be ": "at least 1".
absl::Status OutOfRangeError(std::string_view field, std::string_view value, std::string_view limit,
                             ErrorReason reason);
// A vector (w, b, running statistics, moments) has `got` elements instead of `want`.
absl::Status ParameterLengthError(std::string_view field, int64_t got, int64_t want);
// A shape is `got` instead of `want`.
absl::Status ShapeMismatchError(std::string_view field, std::string_view got, std::string_view want);
// A payload has `got` bytes, but its dtype and shape make `want`.
absl::Status ByteCountError(std::string_view field, int64_t got, int64_t want);
// A rank is outside [min_rank, max_rank].
absl::Status RankError(std::string_view field, int64_t rank, int64_t min_rank, int64_t max_rank);
// A dimension is negative.
absl::Status DimensionError(std::string_view field, int64_t dimension);
// The product of the non-zero dimensions of `shape` overflows.
absl::Status ShapeOverflowError(std::string_view field, std::string_view shape);
// The dtype is none of f32, f16, bf16 and f64.
absl::Status DTypeError(std::string_view field, std::string_view value);
// A field is absent; `needed` completes "must be ".
absl::Status MissingError(std::string_view field, std::string_view needed);
// A field is given that must be absent; `why` says why.
absl::Status NotAllowedError(std::string_view field, std::string_view why);

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_ERRORS_H_
