// Finds the name that a misspelled name probably means, for "did you mean". Pure function.
#ifndef NORMD_SERVER_BASE_NEAREST_NAME_H_
#define NORMD_SERVER_BASE_NEAREST_NAME_H_

#include <string_view>

#include "absl/types/span.h"

namespace normd {

// Returns the entry of `names` with the fewest characters inserted, removed or replaced to make `written`; of several,
// the first. Returns an empty name when more than a third of the characters differ, or `written` has over 64.
std::string_view NearestName(std::string_view written, absl::Span<const std::string_view> names);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_NEAREST_NAME_H_
