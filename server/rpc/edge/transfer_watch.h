// Watches that messages make progress: a message that has begun and makes none, in either direction, ends its call.
// Without the watch, a peer could occupy memory and calls for as long as it likes. The same thread looks for streams
// that only wait, when there are too many: see IdleStreams.
// In the path: beside the calls.
// Threads: has one of its own; Start and Stop are called from one thread, Drain from any.
#ifndef NORMD_SERVER_RPC_EDGE_TRANSFER_WATCH_H_
#define NORMD_SERVER_RPC_EDGE_TRANSFER_WATCH_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/base/periodic_thread.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/idle_streams.h"
#include "server/rpc/edge/read_limiter.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/rpc/edge/transport.h"

namespace normd::rpc {

struct TransferLimits {
  absl::Duration grace;          // how long a message may make no progress
  int64_t bytes_per_second = 0;  // the least rate after that
};

// Whether a message of at most `bytes` that began `elapsed` ago is too slow. `moved_bytes` is the number of bytes that
// its connection has moved since; without it, only the total time is judged.
bool IsTooSlow(const TransferLimits& limits, absl::Duration elapsed, int64_t bytes, std::optional<int64_t> moved_bytes);

class TransferWatch {
 public:
  TransferWatch(const TransferLimits& limits, LiveCalls* live, const Admission* admission, ReadLimiter* limiter,
                CallPlaces* places, RpcTransport* transport)
      : limits_(limits),
        live_(live),
        admission_(admission),
        limiter_(limiter),
        transport_(transport),
        idle_(places, live) {}
  ~TransferWatch() { Stop(); }

  void Start();
  void Stop();

  // From now on, a call whose message makes no progress soon ends with UNAVAILABLE.
  void Drain() { draining_ = true; }

  // Looks once at all calls and at the calls that wait in the read limiter. Public for tests.
  void Look();

  int64_t idle_streams_ended() const { return idle_.ended(); }

 private:
  using Calls = std::vector<std::shared_ptr<RpcCall>>;

  // The limits that apply now; the grace is shorter while the budget is nearly spent or the server drains.
  TransferLimits CurrentLimits() const;
  void EndSlow(const Calls& calls) const;

  const TransferLimits limits_;
  LiveCalls* const live_;
  const Admission* const admission_;
  ReadLimiter* const limiter_;
  RpcTransport* const transport_;
  IdleStreams idle_;
  std::atomic<bool> draining_{false};

  std::optional<PeriodicThread> thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_TRANSFER_WATCH_H_
