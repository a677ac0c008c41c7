#include "server/net/listen_tcp.h"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace normd::net {
namespace {

void SetOption(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

// A socket that listens on `address`, on `port` unless that is 0. Without one, errno says why.
UniqueFd Listen(const addrinfo& address, int port) {
  sockaddr_storage name{};
  std::memcpy(&name, address.ai_addr, address.ai_addrlen);
  if (port != 0 && name.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(name).sin6_port = htons(port);
  if (port != 0 && name.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(name).sin_port = htons(port);
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fd;
  // SO_REUSEADDR lets a restarted server bind its port again. SO_REUSEPORT would let two servers silently share a port.
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);  // accepted connections inherit the option
  if (address.ai_family == AF_INET6) SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), address.ai_addrlen) == 0 &&
      listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  fd.Close();
  errno = error;
  return fd;
}

// Whether the resolver has named `address` before, as it does where several lines of /etc/hosts have the name.
bool IsRepeated(const addrinfo* first, const addrinfo* address) {
  for (const addrinfo* other = first; other != address; other = other->ai_next) {
    if (other->ai_addrlen == address->ai_addrlen &&
        std::memcmp(other->ai_addr, address->ai_addr, address->ai_addrlen) == 0) {
      return true;
    }
  }
  return false;
}

absl::Status SystemError(int error) { return absl::UnavailableError(std::system_category().message(error)); }

}  // namespace

uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return address.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port) : 0;
}

int BoundPort(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0 ? PortOf(bound) : 0;
}

absl::StatusOr<std::vector<UniqueFd>> ListenTcp(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  std::vector<UniqueFd> sockets;
  int error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (IsRepeated(found, address)) continue;
    UniqueFd fd = Listen(*address, sockets.empty() ? 0 : BoundPort(sockets.front().get()));
    if (fd.valid()) {
      sockets.push_back(std::move(fd));
      continue;
    }
    error = errno;
    if (error == EADDRINUSE) return SystemError(error);
  }
  if (!sockets.empty()) return sockets;
  // A system that was started without IPv6.
  if (host == "::" && error == EAFNOSUPPORT) return ListenTcp("0.0.0.0", port);
  return SystemError(error);
}

}  // namespace normd::net
