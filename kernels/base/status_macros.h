// Early returns on errors, which this release of Abseil does not have.
#ifndef NORMD_KERNELS_BASE_STATUS_MACROS_H_
#define NORMD_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define NORMD_CONCAT_INNER(a, b) a##b
#define NORMD_CONCAT(a, b) NORMD_CONCAT_INNER(a, b)

// NORMD_RETURN_IF_ERROR(CheckThis(x));
#define NORMD_RETURN_IF_ERROR(expression)                                                                     \
  do {                                                                                                        \
    if (absl::Status NORMD_CONCAT(status_, __LINE__) = (expression); !NORMD_CONCAT(status_, __LINE__).ok()) { \
      return NORMD_CONCAT(status_, __LINE__);                                                                 \
    }                                                                                                         \
  } while (false)

// NORMD_ASSIGN_OR_RETURN(const NormPlan plan, MakePlan(...)); a comma on the left side needs parentheses, so avoid it.
#define NORMD_ASSIGN_OR_RETURN(left, expression) \
  NORMD_ASSIGN_OR_RETURN_INNER(NORMD_CONCAT(status_or_, __LINE__), left, expression)

#define NORMD_ASSIGN_OR_RETURN_INNER(status_or, left, expression) \
  auto status_or = (expression);                                  \
  if (!status_or.ok()) return std::move(status_or).status();      \
  left = *std::move(status_or)

#endif  // NORMD_KERNELS_BASE_STATUS_MACROS_H_
