#include "client/cpp/local_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"
#include "proto/wire/http_proxy.h"

namespace normd::client {
namespace {

bool IsOwn(const std::string& path, mode_t type) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IFMT) == type && found.st_uid == geteuid();
}

// True if the kernel's list has a socket of this network namespace that listens at `path`.
bool IsListedAsListening(const std::string& path) {
  constexpr unsigned kListens = 1U << 16;  // __SO_ACCEPTCON
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    // Num: RefCount Protocol Flags Type St Inode Path
    if (!absl::EndsWith(line, absl::StrCat(" ", path))) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    unsigned flags = 0;
    if (fields.size() > 3 && absl::SimpleHexAtoi(fields[3], &flags) && (flags & kListens) != 0) return true;
  }
  return false;
}

// False for the socket of a server that has ended. Connects only where the kernel's list does not have the socket, as
// that of a container: a server counts a connection that comes to nothing.
bool Accepts(const std::string& path) {
  if (IsListedAsListening(path)) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

absl::StatusOr<v1::DescribeResponse> Ask(const std::string& target, ClientOptions options) {
  options.prefer_unix_socket = false;
  options.shared_memory = false;
  options.retry.max_attempts = 1;
  options.deadline = std::min(options.deadline, absl::Seconds(1));
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(target, options);
  if (!client.ok()) return client.status();
  return (*client)->Describe();
}

}  // namespace

bool IsLocal(const std::string& target) { return wire::IsLoopbackTarget(target); }

std::optional<std::string> FindUnixSocket(const std::string& runtime_folder) {
  for (const std::string& folder : {runtime_folder, absl::StrCat("/tmp/normd-", geteuid())}) {
    const std::string path = absl::StrCat(folder, "/normd.sock");
    if (folder.empty() || !IsOwn(folder, S_IFDIR) || !IsOwn(path, S_IFSOCK)) continue;
    if (Accepts(path)) return absl::StrCat("unix:", path);
  }
  return std::nullopt;
}

std::optional<std::string> FindUnixSocketOf(const std::string& target, const ClientOptions& options) {
  if (IsUnixSocket(target) || !IsLocal(target) || UsesTls(options.security) || options.balance) return std::nullopt;
  const absl::StatusOr<v1::DescribeResponse> server = Ask(target, options);
  if (!server.ok() || server->unix_socket().empty() || server->server_uid().empty()) return std::nullopt;
  // The path may be one of another machine or container, behind a forwarded port.
  if (!Accepts(server->unix_socket())) return std::nullopt;
  std::string socket = absl::StrCat("unix:", server->unix_socket());
  const absl::StatusOr<v1::DescribeResponse> behind = Ask(socket, options);
  if (!behind.ok() || behind->server_uid() != server->server_uid()) return std::nullopt;
  return socket;
}

}  // namespace normd::client
