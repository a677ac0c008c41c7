// The reason of errors about exact sums. It has a list of its own as long as no message carries sums: no caller can
// meet it yet, so that `normd --help=errors` does not list it. Constant data.
#ifndef NORMD_KERNELS_EXACT_SUMS_ERROR_REASON_H_
#define NORMD_KERNELS_EXACT_SUMS_ERROR_REASON_H_

#include "absl/status/status.h"
#include "kernels/base/error_reasons.h"

namespace normd {

inline constexpr ReasonRow kExactSumsReasons[] = {
    {"EXACT_SUMS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "The bytes of exact sums are malformed, no elements have such sums, or they are of too many elements."},
};
inline constexpr ErrorReason kExactSumsReason = ErrorReason(kExactSumsReasons, "EXACT_SUMS_OUT_OF_RANGE");

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_ERROR_REASON_H_
