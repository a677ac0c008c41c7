// The user-visible errors about tensors and specs: the caller's mistakes, each named once. All are INVALID_ARGUMENT
// unless their reason says otherwise; the message names field, value and limit, and the same three travel as status
// payloads for google.rpc.BadRequest and ErrorInfo.
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
  std::string value;  // what was sent
  std::string limit;  // what would have been right
};

// What was wrong, in machine-readable form.
struct ErrorDetail {
  std::string field, value, limit;  // as in FieldViolation
  std::string reason;               // an ErrorReason's name: "EPS_OUT_OF_RANGE"
};

// A status of the reason's code whose message is "<field>: <what>: <value>; must be <limit>" and whose payload is an
// ErrorDetail of `reason` and `violation`.
absl::Status MakeError(ErrorReason reason, const FieldViolation& violation, std::string_view what);

// The detail of a status made by MakeError, nothing for others.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

// The same status with `prefix` and a point put before the field's path (in the message too): with "items[3]", "x"
// becomes "items[3].x".
// Other statuses are returned unchanged.
absl::Status PrefixField(const absl::Status& status, std::string_view prefix);

// Every class of mistake the kernels layer can find.
absl::Status EpsError(std::string_view field, double eps);
absl::Status MomentumError(std::string_view field, double momentum);
absl::Status OutOfRangeError(std::string_view field, std::string_view value, std::string_view limit,
                             ErrorReason reason);
absl::Status ParameterLengthError(std::string_view field, int64_t got, int64_t want);
absl::Status ShapeMismatchError(std::string_view field, std::string_view got, std::string_view want);
absl::Status ByteCountError(std::string_view field, int64_t got, int64_t want);
absl::Status RankError(std::string_view field, int64_t rank, int64_t min_rank, int64_t max_rank);
absl::Status DimensionError(std::string_view field, int64_t dimension);
absl::Status ShapeOverflowError(std::string_view field, std::string_view shape);
absl::Status DTypeError(std::string_view field, std::string_view value);
absl::Status MissingError(std::string_view field, std::string_view needed);
absl::Status NotAllowedError(std::string_view field, std::string_view why);

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_ERRORS_H_
