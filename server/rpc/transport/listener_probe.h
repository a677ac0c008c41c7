// Probes our own listeners: it connects to each, sends the client's half of HTTP/2's set-up and waits for the server's
// SETTINGS, or sends a ClientHello of TLS and waits for the ServerHello. From inside the process, a listener from which
// nothing accepts would look healthy.
// In the path: beside it; /readyz reports the result.
// Threads: has one of its own; Start and Stop are called from one thread; answers() is safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_
#define NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_

#include <netdb.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/base/periodic_thread.h"

namespace normd::rpc {

class ListenerProbe {
 public:
  // `announce` gets the source port of the next connection before it is made, and 0 after the connection. `tls` says
  // that TLS is spoken over TCP.
  ListenerProbe(std::function<void(uint16_t port)> announce, bool tls) : announce_(std::move(announce)), tls_(tls) {}
  ~ListenerProbe() { Stop(); }

  // Probes `listeners` periodically until Stop. `ports` are the bound ports, one for each listener.
  void Start(std::vector<std::string> listeners, std::vector<int> ports);
  void Stop();

  // True if every listener served in the last round, and before the first round.
  bool answers() const { return answers_.load(std::memory_order_relaxed); }

 private:
  void AskAll();
  bool Ask(const std::string& listener, int port);
  bool AskHost(const std::string& host, int port, absl::Time end);
  bool AskAddress(const addrinfo& info, absl::Time end);

  const std::function<void(uint16_t port)> announce_;
  const bool tls_;
  std::vector<std::string> listeners_;  // constant after Start
  std::vector<int> ports_;
  std::atomic<bool> answers_{true};
  std::optional<PeriodicThread> thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_
