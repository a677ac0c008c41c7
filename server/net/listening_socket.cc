#include "server/net/listening_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/numbers.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/net/listen_tcp.h"

namespace normd::net {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status ListenError(const std::string& address, const std::string& why) {
  return absl::UnavailableError(Concat("cannot listen on ", address, ": ", why));
}

absl::Status SystemError(const std::string& address) {
  return ListenError(address, std::system_category().message(errno));
}

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

}  // namespace

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat info {};
  if (lstat(path_.c_str(), &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

bool SocketFile::IsThere() const {
  struct stat info {};
  return lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

int ListeningSocket::port() const { return is_unix_ ? 1 : BoundPort(fd_); }

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
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port)) return ListenError(address, "not host:port");
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  absl::StatusOr<std::vector<UniqueFd>> bound = ListenTcp(host, port);
  if (!bound.ok()) return ListenError(address, std::string(bound.status().message()));
  for (UniqueFd& fd : *bound) sockets.emplace_back(fd.Release(), /*is_unix=*/false);
  return sockets;
}

}  // namespace normd::net
