// Accepts connections from listening sockets, and goes on when the process runs out of descriptors: it keeps a spare
// one, which it closes to accept one connection more.
// In the path: between a listener and its owner: the RPC side, the admin listener, the registrar of shared memory.
// Ownership: owns the listening sockets; borrows the loop and the owner, which must outlive it.
// Threads: the loop's thread only, but for Open, which comes before the loop starts, and is_short_of_descriptors.
#ifndef NORMD_SERVER_NET_ACCEPTOR_H_
#define NORMD_SERVER_NET_ACCEPTOR_H_

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/unique_fd.h"
#include "server/net/event_loop.h"
#include "server/net/listening_socket.h"
#include "server/net/timer_heap.h"

namespace normd::net {

class Acceptor {
 public:
  // Who gets the connections.
  class Owner {
   public:
    virtual ~Owner() = default;

    // Takes a connection, whose descriptor does not block. `peer` is its address.
    virtual void OnAccepted(UniqueFd fd, const sockaddr_storage& peer, const ListeningSocket& listener) = 0;
    // A connection was accepted and will be closed at once, because no descriptor is left for it: its peer learns of
    // that instead of waiting.
    virtual void OnRefused() {}
    // Closes one of the owner's connections in favour of another. Returns whether there was one to close.
    virtual bool MakeRoom() { return false; }
  };

  struct Options {
    // The most connections that are accepted before the loop looks at its other handlers again.
    int at_once = 1;
    // Whether the connection that has the spare descriptor is served, as those of an operator are; otherwise it is
    // closed at once.
    bool serves_last = false;
  };

  Acceptor(EventLoop* loop, Owner* owner, const Options& options);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Starts accepting. Returns UNAVAILABLE if the system does not let the loop watch the listeners.
  absl::Status Open(std::vector<ListeningSocket> listeners);
  // Stops accepting, and closes the listeners. Idempotent.
  void Close();

  // Whether a connection found no descriptor in the last two seconds, or none would now.
  bool is_short_of_descriptors() const;

 private:
  class Listener;

  void AcceptFrom(const ListeningSocket& listener);
  void AcceptWithoutDescriptor(const ListeningSocket& listener);
  // Accepts one connection. With none, `fd` is invalid and errno says why.
  static UniqueFd AcceptOne(const ListeningSocket& listener, sockaddr_storage* peer);
  // Looks at no listener for a moment: the listeners stay ready while the system has no room for a connection.
  void Pause();
  void Resume();

  EventLoop* const loop_;
  Owner* const owner_;
  const Options options_;
  std::vector<std::shared_ptr<Listener>> listeners_;
  UniqueFd spare_;
  Timer resume_timer_;
  std::atomic<int64_t> last_shortage_ns_{0};
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_ACCEPTOR_H_
