#include "client/cpp/local_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"

namespace normd::client {
namespace {

bool IsOwn(const std::string& path, mode_t type) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IFMT) == type && found.st_uid == geteuid();
}

// False for the socket of a server that has ended.
bool Accepts(const std::string& path) {
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

bool IsLocal(const std::string& target) {
  if (absl::StartsWith(target, "unix:")) return true;
  std::string host = target.substr(0, target.rfind(':'));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  // "127." alone would also match "127.example.org": only digits and dots make an address.
  const bool loopback = absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return loopback || host == "localhost" || host == "::1";
}

std::optional<std::string> FindUnixSocket(const std::string& runtime_folder) {
  for (const std::string& folder : {runtime_folder, absl::StrCat("/tmp/normd-", geteuid())}) {
    const std::string path = absl::StrCat(folder, "/normd.sock");
    if (folder.empty() || !IsOwn(folder, S_IFDIR) || !IsOwn(path, S_IFSOCK)) continue;
    if (Accepts(path)) return absl::StrCat("unix:", path);
  }
  return std::nullopt;
}

std::optional<std::string> FindUnixSocketOf(const std::string& target, const ClientOptions& options) {
  if (IsUnixSocket(target) || !IsLocal(target) || UsesTls(options.security)) return std::nullopt;
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
