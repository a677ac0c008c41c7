// Suggests the name that a misspelt flag or command was meant to be. Pure function.
#ifndef NORMD_CLIENT_CLI_DID_YOU_MEAN_H_
#define NORMD_CLIENT_CLI_DID_YOU_MEAN_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace normd::client {

// ": did you mean layer-norm?" for "LayerNorm", "layernorm" and "layer-nrm": the first of the `names` that the fewest
// single-letter edits reach, ignoring case and dashes. Empty if even that name needs edits for more than a third of its
// letters.
std::string DidYouMean(absl::string_view written, absl::Span<const std::string> names);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_DID_YOU_MEAN_H_
