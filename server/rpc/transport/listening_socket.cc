#include "server/rpc/transport/listening_socket.h"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"

namespace normd::rpc {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status ListenError(const std::string& address, const std::string& why) {
  return absl::UnavailableError(Concat("cannot listen on ", address, ": ", why));
}

absl::Status SystemError(const std::string& address) {
  return ListenError(address, std::system_category().message(errno));
}

void SetOption(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

absl::StatusOr<ListeningSocket> ListenUnix(const std::string& address) {
  const std::string path = address.substr(kUnixPrefix.size());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) return ListenError(address, "no path of 1 to 107 bytes");
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  // A socket file that exists is the leftover of a dead server: the caller has checked that (PrepareUnixSocket).
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  ListeningSocket socket(::socket(AF_UNIX, kSocketFlags, 0), /*is_unix=*/true);
  if (socket.fd() < 0 || bind(socket.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    return SystemError(address);
  }
  return socket;
}

absl::StatusOr<ListeningSocket> ListenTcp(const std::string& address, const addrinfo& info, int port) {
  sockaddr_storage name{};
  std::memcpy(&name, info.ai_addr, info.ai_addrlen);
  if (port != 0) {
    if (name.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(name).sin6_port = htons(port);
    if (name.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(name).sin_port = htons(port);
  }
  ListeningSocket socket(::socket(info.ai_family, kSocketFlags, 0), /*is_unix=*/false);
  if (socket.fd() < 0) return SystemError(address);
  // SO_REUSEPORT is not set, because a port in use by another process is an error and must not be shared.
  SetOption(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);  // accepted connections inherit the option
  if (info.ai_family == AF_INET6) SetOption(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&name), info.ai_addrlen) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    return SystemError(address);
  }
  return socket;
}

}  // namespace

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

int ListeningSocket::port() const {
  if (is_unix_) return 1;
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound);
  return ntohs(bound.ss_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
}

absl::StatusOr<std::vector<ListeningSocket>> Listen(const std::string& address) {
  std::vector<ListeningSocket> sockets;
  if (address.starts_with(kUnixPrefix)) {
    NORMD_ASSIGN_OR_RETURN(ListeningSocket socket, ListenUnix(address));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return ListenError(address, "not host:port");
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return ListenError(address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> infos(found, freeaddrinfo);
  for (const addrinfo* info = infos.get(); info != nullptr; info = info->ai_next) {
    absl::StatusOr<ListeningSocket> socket = ListenTcp(address, *info, sockets.empty() ? 0 : sockets.front().port());
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else if (info->ai_next == nullptr && sockets.empty()) {
      return socket.status();
    }
  }
  return sockets;
}

}  // namespace normd::rpc
