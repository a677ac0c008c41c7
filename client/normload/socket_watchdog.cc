#include "client/normload/socket_watchdog.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

namespace normd::client {
namespace {

bool IsConnectedStream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer = {};
  size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

void ShutDownConnections() {
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    int fd;
    // The standard streams belong to the process that started this one.
    if (!absl::SimpleAtoi(it->path().filename().string(), &fd) || fd <= STDERR_FILENO) continue;
    if (IsConnectedStream(fd)) shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace

SocketWatchdog::SocketWatchdog(absl::Duration after, std::function<bool()> now)
    : thread_([this, after, now = std::move(now)] { Run(after, now); }) {}

SocketWatchdog::~SocketWatchdog() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void SocketWatchdog::Run(absl::Duration after, const std::function<bool()>& now) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const absl::Time start = absl::Now();
  // Repeats, because calls that were waiting for a connection may still make one after the first shutdown.
  while (true) {
    {
      const absl::Duration wait = now == nullptr ? std::max(after - (absl::Now() - start), 2 * kLook) : kLook;
      std::unique_lock<std::mutex> lock(mu_);
      if (ended_.wait_for(lock, absl::ToChronoNanoseconds(wait), [this] { return end_; })) return;
    }
    if (absl::Now() - start >= after || (now != nullptr && now())) ShutDownConnections();
  }
}

}  // namespace normd::client
