// What a request of normctl METHOD or normctl verify normalises with: the spec of its flags, or the session of
// --session. In the path: between the reading of the files and the call. Asks the server for the session.
#ifndef NORMD_CLIENT_NORMCTL_TARGET_H_
#define NORMD_CLIENT_NORMCTL_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cpp/client.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Sets the target of the request, which has its x, and returns the target's spec. `method` is the name of a NormSpec
// field; empty for a session of any method. UsageError for flags of a spec beside --session, and for a session of
// another method.
absl::StatusOr<v1::NormSpec> SetTarget(Client& client, const std::string& method, const ParsedArgs& args,
                                       v1::NormalizeRequest& request);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_TARGET_H_
