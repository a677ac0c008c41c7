// The version of the server, as CMake's project() declares it.
#ifndef NORMD_SERVER_BASE_VERSION_H_
#define NORMD_SERVER_BASE_VERSION_H_

#include <string_view>

namespace normd {

// "0.1.0"
std::string_view Version();

}  // namespace normd

#endif  // NORMD_SERVER_BASE_VERSION_H_
