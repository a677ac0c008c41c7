// The names of services and methods, as the .proto files declare them, and the check at the start that each method has
// a route. In the path: around it, at the start. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_
#define NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// The path of a method: "/normd.v1.Normalizer/Normalize".
std::string MethodPath(std::string_view service, std::string_view method);

// The methods that metrics count, which are those of normd.v1, as records name them: "Normalizer/Normalize".
std::vector<std::string> CountedMethods();

// The paths of all methods of normd.v1, of health and of reflection.
std::vector<std::string> AllMethodPaths();

// OK if `routes` are exactly the methods of normd.v1 and of health; otherwise INTERNAL, naming the first method that is
// missing, unknown or declared twice.
absl::Status CheckRoutes(const std::vector<Route>& routes);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_METHOD_NAMES_H_
