// What several methods share: descriptions of attributes, checks of their values, and the choice of axes.
// In the path: ValidateSpec and the `validate` and `lower` functions of the methods call it, nothing else does. All
// checks return OK, or INVALID_ARGUMENT with field, value and limit. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_METHODS_COMMON_H_
#define NORMD_KERNELS_METHODS_COMMON_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "kernels/plan.h"

namespace normd::methods {

// The path of a field of the spec's method: relative to NormSpec ("layer_norm.eps"), and relative to the request
// ("spec.layer_norm.eps"). ValidateSpec uses the first, lowering the second.
std::string SpecPath(const NormSpec& spec, std::string_view field);
std::string PlanPath(const NormSpec& spec, std::string_view field);

// Checks that `value` is an enumerator. REQUIRES: the enumerators are 1 to `last`; `names` lists them for the message.
template <typename Enum>
absl::Status CheckEnum(const NormSpec& spec, std::string_view field, Enum value, Enum last, std::string_view names) {
  const int number = static_cast<int>(value);
  if (number >= 1 && number <= static_cast<int>(last)) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, field), Concat(number), names, KernelReason("UNKNOWN_ENUM_VALUE"));
}

// The layout is given, and is one of the two.
absl::Status CheckLayout(const NormSpec& spec);
// CheckLayout, and the fields of spec.running() are in range and exclude each other as RunningSpec says.
absl::Status CheckLayoutAndRunning(const NormSpec& spec);
// CheckGroups: num_groups is at least 1. CheckGroupsOf: num_groups is at most `most` and divides `channels`.
absl::Status CheckGroups(const NormSpec& spec);
absl::Status CheckGroupsOf(const NormSpec& spec, int64_t channels, int64_t most);
// The axis exists for some rank: it is in [-kMaxRank, kMaxRank).
absl::Status CheckAxis(const NormSpec& spec, std::string_view field, int64_t axis);
// At most one of normalized_shape and axes is given, and it can be satisfied by some x.
absl::Status CheckShapeOrAxes(const NormSpec& spec);

// Returns the axis counted from the front. INVALID_ARGUMENT naming `path` if `rank` has no such axis.
absl::StatusOr<int64_t> ResolveAxis(std::string_view path, int64_t axis, int64_t rank);

// Lowers the plan with LowerAxes over normalized_shape, over axes, or over the last axis if both are empty.
// INVALID_ARGUMENT if x does not have them.
absl::Status LowerShapeOrAxes(const NormSpec& spec, NormPlan* plan);
// Lowers the plan with LowerAxes over the last axis.
void LowerLastAxis(NormPlan* plan);

}  // namespace normd::methods

#endif  // NORMD_KERNELS_METHODS_COMMON_H_
