// The user-visible errors about tensors and specs: the caller's mistakes, each named once.
// In the path: kernels, codec, sessions and options make them; rpc turns ErrorDetail into google.rpc.BadRequest and
// ErrorInfo. Every function but MakeError returns INVALID_ARGUMENT unless its reason says otherwise. The message is one
// sentence for a person, which begins with the field, and names its value and its limit; the payload has the same three
// and the reason, for programs. Each kind of mistake has its own form of sentence, and thus its own function. Pure
// functions, safe from any thread.
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
  std::string value;  // the value that was sent; empty if the field was absent, or if its presence is the mistake
  std::string limit;  // the values that are accepted
};

// A mistake in machine-readable form.
struct ErrorDetail {
  std::string field, value, limit;  // as in FieldViolation
  std::string reason;               // an ErrorReason's name: "EPS_OUT_OF_RANGE"
};

// Returns a status of the reason's code with the message "<field> <predicate>" and an ErrorDetail of `reason` and
// `violation` as its payload. `predicate` completes the sentence without a full stop: "is -1; it must be at least 0".
absl::Status MakeError(ErrorReason reason, const FieldViolation& violation, std::string_view predicate);

// The detail of a status that MakeError made; nothing for other statuses.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

// Returns the status with `prefix` and a dot in front of the field's path, in the message too: with the prefix
// "items[3]", "x" becomes "items[3].x". Statuses that MakeError did not make are returned unchanged.
absl::Status PrefixField(const absl::Status& status, std::string_view prefix);

// ---- The mistakes. `field` is the path of the field, relative to the message that is checked ----
// "spec.layer_norm.eps is -1; it must be finite and at least 0"
absl::Status EpsError(std::string_view field, double eps);
// "spec.batch_norm.running.momentum is 2; it must be between 0 and 1"
absl::Status MomentumError(std::string_view field, double momentum);
// "spec.p_rms_norm.k is 0; it must be at least 1"
absl::Status OutOfRangeError(std::string_view field, std::string_view value, std::string_view limit,
                             ErrorReason reason);
// "labels has 70 labels; it must have at most 64": for fields that hold a number of things.
absl::Status AmountError(std::string_view field, std::string_view value, std::string_view limit, ErrorReason reason);
// "session is "bn"; write sessions/{id}": for texts that have a form.
absl::Status FormError(std::string_view field, std::string_view text, std::string_view form, ErrorReason reason);
// "parameters.weight has 4 values; it must have 8": for a vector (w, b, running statistics, moments).
absl::Status ParameterLengthError(std::string_view field, int64_t got, int64_t want);
// "residual.tensor has shape [2]; it must have [3]" for the field residual.tensor or residual.tensor.shape.
absl::Status ShapeMismatchError(std::string_view field, std::string_view got, std::string_view want);
// "x.data has 12 bytes; dtype f32 and shape [2,4] make 32"; an empty `dtype` stands for one byte a value.
absl::Status ByteCountError(std::string_view field, int64_t got, int64_t want, std::string_view dtype,
                            std::string_view shape);
// "x has rank 0; the rank must be between 1 and 8" for the field x.shape.
absl::Status RankError(std::string_view field, int64_t rank, int64_t min_rank, int64_t max_rank);
// "x.shape[2] is -3; it must be at least 0"
absl::Status DimensionError(std::string_view field, int64_t dimension);
// "x has shape [...]; it must have a product of its non-zero dimensions below 2^60"
absl::Status ShapeOverflowError(std::string_view field, std::string_view shape);
// "x.dtype is 9; it must be f32, f16, bf16 or f64"
absl::Status DTypeError(std::string_view field, std::string_view value);
// "x is missing; give a tensor"
absl::Status MissingError(std::string_view field, std::string_view needed);
// "mask is given, but layer_norm takes no mask; leave it out": `why` is a clause.
absl::Status NotAllowedError(std::string_view field, std::string_view why);
// "spec.p_rms_norm.k and p are both given; give one of them": `other` is the name of a field of the same message.
absl::Status ExclusiveError(std::string_view field, std::string_view other);

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_ERRORS_H_
