// Finds the name that a misspelt name probably means, for "did you mean" in servers and clients. Pure function.
#ifndef NORMD_PROTO_TEXT_NEAREST_NAME_H_
#define NORMD_PROTO_TEXT_NEAREST_NAME_H_

#include <string_view>

#include "absl/types/span.h"

namespace normd {

// Returns the entry of `names` with the fewest letters inserted, removed or replaced to make `written`; of several, the
// first. Case, dashes and underscores do not count. Returns an empty name when more than a third of the letters
// differ, or `written` has over 64 characters.
std::string_view NearestName(std::string_view written, absl::Span<const std::string_view> names);

}  // namespace normd

#endif  // NORMD_PROTO_TEXT_NEAREST_NAME_H_
