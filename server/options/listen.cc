#include "server/options/listen.h"

#include <arpa/inet.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/net/listening_socket.h"

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

// Gives `path` a mode and the group of `access`.
absl::Status SetAccess(const std::string& path, mode_t mode, const UnixSocketAccess& access, std::string_view what) {
  // The group first, because a change of it takes away bits of the mode.
  if (access.group.has_value() && chown(path.c_str(), static_cast<uid_t>(-1), *access.group) != 0) {
    return SystemError(absl::StatusCode::kFailedPrecondition, Concat("cannot give --unix_socket_group to ", what),
                       path);
  }
  if (chmod(path.c_str(), mode) == 0) return absl::OkStatus();
  return SystemError(absl::StatusCode::kFailedPrecondition, Concat("cannot set the mode of ", what), path);
}

// Makes the folder, for those who may connect. A folder that exists must be a real one that others cannot write to,
// because they could swap the socket.
absl::Status PrepareFolder(const std::string& folder, const UnixSocketAccess& access) {
  if (mkdir(folder.c_str(), 0700) == 0) {
    const mode_t enter = ((access.mode & S_IWGRP) != 0 ? S_IXGRP : 0) | ((access.mode & S_IWOTH) != 0 ? S_IXOTH : 0);
    if (enter != 0) return SetAccess(folder, 0700 | enter, access, "the folder of the Unix socket");
  } else if (errno != EEXIST) {
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot make the folder of the Unix socket", folder);
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) {
    return SystemError(absl::StatusCode::kFailedPrecondition, "cannot look at the folder of the Unix socket", folder);
  }
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  const bool shared = (info.st_mode & (S_IWGRP | S_IWOTH) & ~access.mode) != 0 && !sticky;
  const bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  if (!S_ISDIR(info.st_mode) || !ours) {
    return absl::FailedPreconditionError(
        Concat(folder, " is not safe for the Unix socket: it must be a folder of this user or of root"));
  }
  if (!shared) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Concat(folder, " is not safe for the Unix socket: others can write to it; name a folder below, as unix:", folder,
             "/normd/normd.sock, which normd makes, or give --unix_socket_mode=",
             (info.st_mode & S_IWOTH) != 0 ? "0666" : "0660", " where all of them are trusted"));
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
  if (address.text.starts_with(net::kUnixPrefix)) {
    address.unix_path = address.text.substr(net::kUnixPrefix.size());
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

absl::StatusOr<UnixSocketAccess> ParseUnixSocketAccess(const std::string& mode, const std::string& group) {
  UnixSocketAccess access;
  access.mode = mode == "0666" ? 0666 : mode == "0660" ? 0660 : 0600;
  if (group.empty()) return access;
  if (gid_t number = 0; absl::SimpleAtoi(group, &number)) {
    access.group = number;
    return access;
  }
  constexpr size_t kMostBytes = size_t{1} << 20;
  std::vector<char> buffer(kMostBytes);
  struct group entry {};
  struct group* found = nullptr;
  getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        Concat("--unix_socket_group is ", group, "; it must be a group of this system, by name or number"));
  }
  access.group = found->gr_gid;
  return access;
}

absl::Status PrepareUnixSocket(const std::string& path, const UnixSocketAccess& access) {
  NORMD_RETURN_IF_ERROR(PrepareFolder(path.substr(0, std::max<size_t>(path.rfind('/'), 1)), access));
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

absl::Status RestrictUnixSocket(const std::string& path, const UnixSocketAccess& access) {
  return SetAccess(path, access.mode, access, "the Unix socket");
}

void RemoveUnixSocket(const std::string& path) { unlink(path.c_str()); }

}  // namespace normd
