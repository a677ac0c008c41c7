#include "client/cli/probe_socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <memory>

#include "absl/strings/strip.h"

namespace normd::client {
namespace {

constexpr timeval kPatience = {.tv_sec = 2, .tv_usec = 0};  // of each step

int Connect(int family, int protocol, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));  // bounds connect(), too
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  if (connect(fd, address, size) == 0) return fd;
  close(fd);
  return -1;
}

int ConnectUnix(absl::string_view path) {
  absl::ConsumePrefix(&path, "//");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  return Connect(AF_UNIX, 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

int ConnectTcp(const HostPort& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = Connect(address->ai_family, address->ai_protocol, address->ai_addr, address->ai_addrlen);
    if (fd >= 0) return fd;
  }
  return -1;
}

int ConnectTarget(absl::string_view target) {
  if (absl::ConsumePrefix(&target, "unix:")) return ConnectUnix(target);
  return ConnectTcp(SplitTarget(target));
}

}  // namespace

HostPort SplitTarget(absl::string_view target) {
  for (const absl::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&target, scheme)) break;
  }
  target = target.substr(0, target.find(','));
  const size_t colon = target.rfind(':');
  if (colon == absl::string_view::npos) return {std::string(target), ""};
  absl::string_view host = target.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return {std::string(host), std::string(target.substr(colon + 1))};
}

ProbeSocket::ProbeSocket(const std::string& target) : fd_(ConnectTarget(target)) {}

ProbeSocket::~ProbeSocket() {
  if (fd_ >= 0) close(fd_);
}

NoSigpipe::NoSigpipe() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

NoSigpipe::~NoSigpipe() {
  const timespec now = {};
  sigtimedwait(&pipe_, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace normd::client
