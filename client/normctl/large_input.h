// Finds by the header of a large .npy that the server will not take its tensor, before the file is read.
#ifndef NORMD_CLIENT_NORMCTL_LARGE_INPUT_H_
#define NORMD_CLIENT_NORMCTL_LARGE_INPUT_H_

#include <string>

#include "absl/status/status.h"
#include "client/cli/args.h"

namespace normd::client {

// INVALID_ARGUMENT if the INPUT of `normctl METHOD` is a .npy whose tensor can neither be cut nor be sent in chunks nor
// be shared as a whole. OK for everything else, including what is wrong in another way, and for files below 64 MiB,
// without a call. `method` is the name of a NormSpec field; empty for a session.
absl::Status CheckLargeInput(const std::string& method, const ParsedArgs& args);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_LARGE_INPUT_H_
