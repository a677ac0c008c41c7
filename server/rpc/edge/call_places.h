// The places that calls take, from their headers to their end: a limit for all, half of it for one peer, and some
// places that only callers of the Unix socket may take. Without such bounds one peer's calls, which need not even send
// a message, could keep everybody out.
// In the path: the dispatcher takes a place at each call's headers, but for calls that are always served.
// Ownership: must outlive all places. Threads: everything is safe from any thread, without a lock.
#ifndef NORMD_SERVER_RPC_EDGE_CALL_PLACES_H_
#define NORMD_SERVER_RPC_EDGE_CALL_PLACES_H_

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "server/rpc/edge/connection.h"

namespace normd::rpc {

class CallPlaces;

// The place of one call, given back on destruction. The call's connection must outlive it.
class CallPlace {
 public:
  CallPlace() = default;
  CallPlace(CallPlace&& other) noexcept { *this = std::move(other); }
  CallPlace& operator=(CallPlace&& other) noexcept {
    std::swap(places_, other.places_);
    std::swap(peer_, other.peer_);
    return *this;
  }
  ~CallPlace();

 private:
  friend class CallPlaces;

  CallPlaces* places_ = nullptr;
  PeerCalls* peer_ = nullptr;
};

class CallPlaces {
 public:
  struct Limits {
    int max_calls = 0;
    int max_calls_per_peer = 0;
    int kept_for_unix = 0;  // of max_calls
  };

  explicit CallPlaces(const Limits& limits) : limits_(limits) {}
  CallPlaces(const CallPlaces&) = delete;
  CallPlaces& operator=(const CallPlaces&) = delete;

  // Takes a place for a call of `connection`. Returns RESOURCE_EXHAUSTED, reason NO_ROOM, if there is none.
  absl::Status Take(const Connection& connection, CallPlace* place);

  // From this many calls on, of `limit`, waiting streams are ended until Relieved(limit) calls are left: see
  // IdleStreams. The difference is room for new calls meanwhile.
  static int Crowded(int limit) { return limit - limit / 4; }
  static int Relieved(int limit) { return Crowded(limit) - limit / 16; }

  const Limits& limits() const { return limits_; }
  int held() const { return held_.load(std::memory_order_relaxed); }
  // Whether a call was taken, since the last call of this, when all calls or those of its peer were Crowded.
  bool TakeCrowded();

 private:
  friend class CallPlace;

  const Limits limits_;
  std::atomic<bool> crowded_{false};
  alignas(64) std::atomic<int> held_{0};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_CALL_PLACES_H_
