// Ends streams that wait for a message, when there are so many calls that new ones would soon find no place. A stream
// may otherwise wait for as long as it likes: it costs little, and a client that pauses looks the same as a peer that
// wants to take up all places. In the path: beside the streams. Ownership: borrows the places and the streams. Threads:
// Look is called by one thread at a time.
#ifndef NORMD_SERVER_RPC_EDGE_IDLE_STREAMS_H_
#define NORMD_SERVER_RPC_EDGE_IDLE_STREAMS_H_

#include <atomic>
#include <cstdint>

#include "server/rpc/edge/call_places.h"
#include "server/rpc/edge/live_calls.h"

namespace normd::rpc {

class IdleStreams {
 public:
  IdleStreams(CallPlaces* places, LiveCalls* live) : places_(places), live_(live) {}

  // Ends as many waiting streams as needed: of a peer with too many calls, the streams that have waited longest; if
  // there are too many calls in all, first the streams of the peers with the most calls. To be called at short
  // intervals.
  void Look();

  // The streams ended so far. Safe from any thread.
  int64_t ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  CallPlaces* const places_;
  LiveCalls* const live_;
  std::atomic<int64_t> ended_{0};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_IDLE_STREAMS_H_
