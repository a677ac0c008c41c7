// What somebody meant who wrote the name of a flag or of a command wrongly. Pure function.
#ifndef NORMD_CLIENT_CLI_DID_YOU_MEAN_H_
#define NORMD_CLIENT_CLI_DID_YOU_MEAN_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace normd::client {

// ": did you mean layer-norm?" for "LayerNorm", "layernorm" and "layer-nrm": the first of the `names` that take the
// fewest edits of single letters, case and dashes apart. Empty where even those are more than a third of the letters.
std::string DidYouMean(absl::string_view written, absl::Span<const std::string> names);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_DID_YOU_MEAN_H_
