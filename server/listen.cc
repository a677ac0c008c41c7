#include "server/listen.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/rpc/transport/listening_socket.h"

namespace normd {
namespace {

absl::Status AddressError(std::string_view option, std::string_view text) {
  return FormError(option, text, "host:port, [v6]:port or unix:/absolute/path, port 0 to 65535",
                   ServerReason("BAD_ADDRESS"));
}

absl::Status SystemError(absl::StatusCode code, std::string_view what, const std::string& path) {
  return absl::Status(code, absl::StrCat(path, ": ", std::string(what), ": ", std::system_category().message(errno)));
}

// Whether a live socket is bound to `path`.
bool SomebodyListens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool listens = result == 0 || errno == EAGAIN || errno == EINPROGRESS ||
                       errno == EPROTOTYPE;  // a live socket of another type, such as a registrar's
  close(fd);
  return listens;
}

// Makes the folder, private to the user. A folder that exists must be a real one that other users cannot write to,
// because they could swap the socket.
absl::Status PrepareFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot make the folder of the Unix socket", folder);
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) {
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot look at the folder of the Unix socket", folder);
  }
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  const bool shared = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky;
  const bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  if (!S_ISDIR(info.st_mode) || !ours || shared) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, " is not safe for the Unix socket: it must be a folder of this user that others cannot write to"));
  }
  return absl::OkStatus();
}

}  // namespace

bool ListenAddress::IsLocal() const {
  if (!unix_path.empty() || host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view option, std::string_view text) {
  ListenAddress address;
  address.text = std::string(text);
  if (address.text.starts_with(rpc::kUnixPrefix)) {
    address.unix_path = address.text.substr(rpc::kUnixPrefix.size());
    if (address.unix_path.size() < 2 || address.unix_path[0] != '/') return AddressError(option, text);
    if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
      return OutOfRangeError(option, text, "a path of at most 107 bytes", ServerReason("PATH_TOO_LONG"));
    }
    return address;
  }
  const size_t colon = address.text.rfind(':');
  if (colon == std::string::npos || colon == 0) return AddressError(option, text);
  address.host = address.text.substr(0, colon);
  const bool brackets = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (brackets) address.host = address.host.substr(1, address.host.size() - 2);
  const bool number = absl::SimpleAtoi(address.text.substr(colon + 1), &address.port);
  const bool colons_fit = brackets == (address.host.find(':') != std::string::npos);
  if (!number || address.port < 0 || address.port > 65535 || !colons_fit) return AddressError(option, text);
  return address;
}

absl::Status PrepareUnixSocket(const std::string& path) {
  NORMD_RETURN_IF_ERROR(PrepareFolder(path.substr(0, std::max<size_t>(path.rfind('/'), 1))));
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot look at the Unix socket", path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": exists and is not a socket"));
  }
  if (SomebodyListens(path)) {
    return absl::UnavailableError(absl::StrCat(path, ": in use: another server listens on this Unix socket"));
  }
  if (unlink(path.c_str()) != 0) {
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot remove the old Unix socket", path);
  }
  return absl::OkStatus();
}

absl::Status RestrictUnixSocket(const std::string& path) {
  if (chmod(path.c_str(), 0600) == 0) return absl::OkStatus();
  return SystemError(absl::StatusCode::kFailedPrecondition, "cannot make the Unix socket private", path);
}

void RemoveUnixSocket(const std::string& path) { unlink(path.c_str()); }

}  // namespace normd
