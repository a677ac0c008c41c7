#include "server/base/version.h"

namespace normd {

std::string_view Version() { return NORMD_VERSION; }

}  // namespace normd
