// The environment variables of the process. Pure reading; safe from any thread while no thread changes them.
#ifndef NORMD_CLIENT_CLI_ENVIRONMENT_H_
#define NORMD_CLIENT_CLI_ENVIRONMENT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace normd::client {

// The value of a variable; nullopt if it is not set.
std::optional<std::string> Environment(absl::string_view name);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_ENVIRONMENT_H_
