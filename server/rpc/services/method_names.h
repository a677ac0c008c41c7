// The names of services and their methods, as the .proto files declare them; that each has its route is checked at
// start.
// In the path: around it, at start. Pure functions; safe from any thread.
#ifndef NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_
#define NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// "/normd.v1.Normalizer/Normalize".
std::string MethodPath(std::string_view service, std::string_view method);

// The methods of normd.v1 as records name them ("Normalizer/Normalize"): those that are counted.
std::vector<std::string> CountedMethods();

// INTERNAL unless `routes` are exactly the methods of normd.v1 and of health: names the first one that is missing,
// unknown or there twice.
absl::Status CheckRoutes(const std::vector<Route>& routes);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_
