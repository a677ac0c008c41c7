// Which values of the Host header the admin listener answers to. A web page of another site could make its own name
// resolve to an address of this machine (DNS rebinding) and read the listener's answers; its browser then sends that
// name as Host. In the path: http_server.cc asks once for each request. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_ADMIN_HOST_HEADER_H_
#define NORMD_SERVER_ADMIN_HOST_HEADER_H_

#include <string>
#include <string_view>
#include <vector>

namespace normd {

// Whether `host`, the value of a Host header ("name", "name:port", "1.2.3.4:port", "[::1]:port"), is an address, which
// no other site can have for a name, "localhost", or one of `names`, which are in lower case.
bool IsOwnHost(std::string_view host, const std::vector<std::string>& names);

// Whether `name` may be one of `names`: 1 to 253 characters of a-z 0-9 . - _
bool HasHostNameForm(std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_HOST_HEADER_H_
