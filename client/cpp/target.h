// The target of a Client, checked before gRPC sees it: gRPC takes nearly every text for a name to look up, and then
// says "domain name not found". Pure functions.
#ifndef NORMD_CLIENT_CPP_TARGET_H_
#define NORMD_CLIENT_CPP_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace normd::client {

// The port of a target that names none: the server's default.
inline constexpr absl::string_view kDefaultPort = "8001";

// `target` with the default port where it names none: "127.0.0.1" is "127.0.0.1:8001". INVALID_ARGUMENT for what is no
// target, in one sentence that names `field`, where the target comes from, and says what was probably meant.
absl::StatusOr<std::string> CompleteTarget(absl::string_view field, absl::string_view target);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_TARGET_H_
