// Tells the service manager that started normd (systemd, Type=notify) what normd does: the protocol of sd_notify(3).
// In the path: called by main only. Threads: safe from any thread.
#ifndef NORMD_SERVER_SERVICE_MANAGER_H_
#define NORMD_SERVER_SERVICE_MANAGER_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace normd {

// Sends `state` ("READY=1") to `socket`, the value of NOTIFY_SOCKET: the path of a Unix socket, or "@NAME" for an
// abstract one. Does nothing if `socket` is empty. Never blocks.
absl::Status NotifyServiceManager(const std::string& socket, std::string_view state);

// The state to send before a reload; READY=1 ends the reload.
std::string ReloadingState();

}  // namespace normd

#endif  // NORMD_SERVER_SERVICE_MANAGER_H_
