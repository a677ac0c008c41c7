#include "server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "kernels/base/strings.h"
#include "server/base/unique_fd.h"

namespace normd {
namespace {

absl::Status NotifyError(std::string_view problem) {
  return absl::UnavailableError(Concat("NOTIFY_SOCKET: ", problem));
}

}  // namespace

absl::Status NotifyServiceManager(const std::string& socket, std::string_view state) {
  if (socket.empty()) return absl::OkStatus();
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const bool has_form = socket[0] == '/' || socket[0] == '@';
  if (!has_form || socket.size() >= sizeof(address.sun_path)) return NotifyError("no address of a Unix socket");
  std::copy(socket.begin(), socket.end(), address.sun_path);
  if (socket[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const ssize_t sent =
      sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
  if (sent == static_cast<ssize_t>(state.size())) return absl::OkStatus();
  return NotifyError(std::generic_category().message(errno));
}

std::string ReloadingState() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Concat("RELOADING=1\nMONOTONIC_USEC=", int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000);
}

}  // namespace normd
