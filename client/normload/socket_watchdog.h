// Ends calls that their deadline does not end. gRPC's blocking calls return only after the bytes that they wrote have
// left the process: a stopped server, or a machine that is gone, leaves them in a full socket for ever, deadline or
// not. At a given time, or when it is told to, a SocketWatchdog shuts down all connected stream sockets of this
// process, again and again until it is destroyed; the calls then fail as UNAVAILABLE. This is right only for a load
// generator, which has no other connections. Threads: it owns one thread.
#ifndef NORMD_CLIENT_NORMLOAD_SOCKET_WATCHDOG_H_
#define NORMD_CLIENT_NORMLOAD_SOCKET_WATCHDOG_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace normd::client {

class SocketWatchdog {
 public:
  // Acts after `after`, or as soon as `now`, which it asks ten times a second, says so.
  explicit SocketWatchdog(absl::Duration after, std::function<bool()> now = nullptr);
  ~SocketWatchdog();  // no socket is shut down after this
  SocketWatchdog(const SocketWatchdog&) = delete;
  SocketWatchdog& operator=(const SocketWatchdog&) = delete;

 private:
  void Run(absl::Duration after, const std::function<bool()>& now);

  std::mutex mu_;
  std::condition_variable ended_;
  bool end_ = false;  // guarded by mu_
  std::thread thread_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_SOCKET_WATCHDOG_H_
