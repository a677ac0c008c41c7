#include "server/rpc/transport/listener_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kernels/base/strings.h"
#include "server/base/listen_tcp.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/http2.h"
#include "server/rpc/transport/listening_socket.h"
#include "server/security/client_hello.h"

namespace normd::rpc {
namespace {

constexpr absl::Duration kProbeInterval = absl::Seconds(2);
constexpr absl::Duration kTimeout = absl::Seconds(1);
// A SETTINGS frame without settings, on stream 0.
constexpr std::string_view kEmptySettings("\0\0\0\4\0\0\0\0\0", http2::kFrameHeaderBytes);

// Closes its descriptor at the end of the scope.
struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
};

bool WaitFor(int fd, short events, absl::Time end) {  // NOLINT(google-runtime-int): poll's own type
  pollfd poll_fd = {.fd = fd, .events = events, .revents = 0};
  const absl::Duration left = end - SteadyNow();
  return left > absl::ZeroDuration() && poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) == 1;
}

// Sends `question` and returns the first `size` bytes of the answer, or less where they do not come by `end`.
std::string Exchange(int fd, const std::string& question, size_t size, absl::Time end) {
  if (send(fd, question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size())) return "";
  std::string answer(size, '\0');
  size_t got = 0;
  while (got < size && WaitFor(fd, POLLIN, end)) {
    const ssize_t count = recv(fd, answer.data() + got, size - got, 0);
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  answer.resize(got);
  return answer;
}

// Sends the client's half of the set-up and waits for the server's SETTINGS, which prove that the connection was
// accepted and is served.
bool ServesHttp2(int fd, absl::Time end) {
  const std::string setup = std::string(http2::kMagic).append(kEmptySettings);
  const std::string frame = Exchange(fd, setup, http2::kFrameHeaderBytes, end);
  return frame.size() == http2::kFrameHeaderBytes && frame[3] == char{http2::kSettingsType};
}

// The same with TLS: the server's first message proves it, before any certificate is exchanged.
bool ServesTls(int fd, absl::Time end) {
  const std::string answer = Exchange(fd, MakeClientHello(), kServerHelloHeadBytes, end);
  return answer.size() == kServerHelloHeadBytes && IsServerHello(answer);
}

bool Connect(int fd, const sockaddr* address, socklen_t size, absl::Time end) {
  if (connect(fd, address, size) == 0) return true;
  if (errno != EINPROGRESS || !WaitFor(fd, POLLOUT, end)) return false;
  int error = 0;
  socklen_t error_size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 && error == 0;
}

bool AskUnix(const std::string& path, absl::Time end) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Socket socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  return socket.fd >= 0 && Connect(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address), end) &&
         ServesHttp2(socket.fd, end);
}

}  // namespace

void ListenerProbe::Start(std::vector<std::string> listeners, std::vector<int> ports) {
  listeners_ = std::move(listeners);
  ports_ = std::move(ports);
  thread_.emplace(kProbeInterval, [this] { AskAll(); });
}

void ListenerProbe::Stop() { thread_.reset(); }

void ListenerProbe::AskAll() {
  bool all = true;
  for (size_t i = 0; i < listeners_.size(); ++i) all = Ask(listeners_[i], ports_[i]) && all;
  answers_.store(all, std::memory_order_relaxed);
}

bool ListenerProbe::Ask(const std::string& listener, int port) {
  const absl::Time end = SteadyNow() + kTimeout;
  if (listener.compare(0, kUnixPrefix.size(), kUnixPrefix) == 0) {
    return AskUnix(listener.substr(kUnixPrefix.size()), end);
  }
  std::string host = listener.substr(0, listener.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (AskHost(host, port, end)) return true;
  // Where IPv6 is off, this is IPv4's wildcard.
  return host == "::" && AskHost("0.0.0.0", port, end);
}

bool ListenerProbe::AskHost(const std::string& host, int port, absl::Time end) {
  // Connecting to a wildcard address reaches this host.
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), Concat(port).c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> infos(found, freeaddrinfo);
  // A name may have an address that this machine does not have, and that is not listened on.
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (AskAddress(*info, end)) return true;
  }
  return false;
}

bool ListenerProbe::AskAddress(const addrinfo& info, absl::Time end) {
  const Socket socket{::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (socket.fd < 0) return false;
  // The socket is bound before it connects, so that the accept loop knows the source port in advance.
  sockaddr_storage own{};
  own.ss_family = static_cast<sa_family_t>(info.ai_family);
  socklen_t size = sizeof(own);
  if (bind(socket.fd, reinterpret_cast<const sockaddr*>(&own), info.ai_addrlen) != 0 ||
      getsockname(socket.fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return false;
  }
  announce_(PortOf(own));
  const bool served = Connect(socket.fd, info.ai_addr, info.ai_addrlen, end) &&
                      (tls_ ? ServesTls(socket.fd, end) : ServesHttp2(socket.fd, end));
  announce_(0);
  return served;
}

}  // namespace normd::rpc
