// Makes a bearer token and adds its hash to the tokens file, for --make_token. In the path: none; main calls it instead
// of serving.
#ifndef NORMD_SERVER_MAKE_TOKEN_H_
#define NORMD_SERVER_MAKE_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace normd {

// Adds a line for a new token called `name` to the end of the file at `tokens_file`, which is made with mode 0600 if it
// is missing, and returns the token. A server that serves takes the line by itself. Returns INVALID_ARGUMENT, and
// changes nothing, if the name is no name of a token or the file is not one that a server would take.
absl::StatusOr<std::string> MakeToken(const std::string& name, const std::string& tokens_file);

}  // namespace normd

#endif  // NORMD_SERVER_MAKE_TOKEN_H_
