// Asks our own listeners whether they serve: a connection to each, HTTP/2's set-up, the server's SETTINGS. A listener
// that nobody accepts from looks healthy from inside the process.
// In the path: beside it; /readyz says what it found. Threads: one of its own; answers() is safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_
#define NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/base/periodic_thread.h"

namespace normd::rpc {

class ListenerProbe {
 public:
  // `announce` hears the port that the next connection comes from, before it comes.
  explicit ListenerProbe(std::function<void(uint16_t port)> announce) : announce_(std::move(announce)) {}
  ~ListenerProbe() { Stop(); }

  // `ports` as bound, one for each listener.
  void Start(std::vector<std::string> listeners, std::vector<int> ports);
  void Stop();

  // What the last round found; true before the first.
  bool answers() const { return answers_.load(std::memory_order_relaxed); }

 private:
  void AskAll();
  bool Ask(const std::string& listener, int port);

  const std::function<void(uint16_t port)> announce_;
  std::vector<std::string> listeners_;  // constant after Start
  std::vector<int> ports_;
  std::atomic<bool> answers_{true};
  std::optional<PeriodicThread> thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_LISTENER_PROBE_H_
