// Macros that return an error from the enclosing function, for every layer from kernels/ up. The Abseil of Debian 12
// has no such macros.
// In the path: wherever a stage calls a function that returns absl::Status or absl::StatusOr. No state.
#ifndef NORMD_KERNELS_BASE_STATUS_MACROS_H_
#define NORMD_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define NORMD_CONCAT_INNER(a, b) a##b
#define NORMD_CONCAT(a, b) NORMD_CONCAT_INNER(a, b)

// Returns the status from the enclosing function unless it is OK: NORMD_RETURN_IF_ERROR(CheckThis(x));
#define NORMD_RETURN_IF_ERROR(expression)                                                                     \
  do {                                                                                                        \
    if (absl::Status NORMD_CONCAT(status_, __LINE__) = (expression); !NORMD_CONCAT(status_, __LINE__).ok()) { \
      return NORMD_CONCAT(status_, __LINE__);                                                                 \
    }                                                                                                         \
  } while (false)

// Returns the status of a StatusOr, or initialises the left side with its value:
//   NORMD_ASSIGN_OR_RETURN(const NormPlan plan, MakePlan(...));
// The left side must not contain a comma.
#define NORMD_ASSIGN_OR_RETURN(left, expression) \
  NORMD_ASSIGN_OR_RETURN_INNER(NORMD_CONCAT(status_or_, __LINE__), left, expression)

#define NORMD_ASSIGN_OR_RETURN_INNER(status_or, left, expression) \
  auto status_or = (expression);                                  \
  if (!status_or.ok()) return std::move(status_or).status();      \
  left = *std::move(status_or)

#endif  // NORMD_KERNELS_BASE_STATUS_MACROS_H_
