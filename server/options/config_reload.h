// Reads the options again after a SIGHUP, without taking a file of options that is half written.
// In the path: beside it, on the main thread. Threads: safe from any thread.
#ifndef NORMD_SERVER_OPTIONS_CONFIG_RELOAD_H_
#define NORMD_SERVER_OPTIONS_CONFIG_RELOAD_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/options/config.h"
#include "server/security/content_memory.h"

namespace normd {

// What `read` returns, which parses the options and the file of --config, at `path`, among them; an empty `path`: there
// is none. Reads until the file is still the same kSettleTime later, for which it blocks, or for some of them. Returns
// UNAVAILABLE, reason FILE_CHANGING, if the file keeps changing.
absl::StatusOr<Config> ReadConfigAgain(const std::string& path, const std::function<absl::StatusOr<Config>()>& read,
                                       const Settling& settling = {});

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_CONFIG_RELOAD_H_
