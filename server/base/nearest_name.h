// The name that somebody meant who wrote another one: for "did you mean". Pure function.
#ifndef NORMD_SERVER_BASE_NEAREST_NAME_H_
#define NORMD_SERVER_BASE_NEAREST_NAME_H_

#include <string_view>

#include "absl/types/span.h"

namespace normd {

// The one of `names` that `written` differs from by the fewest inserted, removed or replaced characters; the first of
// several. Empty when even that one differs in more than a third of its characters, or `written` is over 64 long.
std::string_view NearestName(std::string_view written, absl::Span<const std::string_view> names);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_NEAREST_NAME_H_
