// Sees to it that messages get on: one that has begun and does not, in either direction, ends its call, and so does one
// that is far larger than it may be. Without it a peer could hold memory and calls for as long as it likes.
// In the path: beside the streams. Threads: one of its own; Start and Stop are called from one thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TRANSFER_WATCH_H_
#define NORMD_SERVER_RPC_TRANSPORT_TRANSFER_WATCH_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/base/periodic_thread.h"
#include "server/rpc/transport/admission.h"
#include "server/rpc/transport/read_limiter.h"
#include "server/rpc/transport/stream.h"

namespace normd::rpc {

struct TransferLimits {
  absl::Duration grace;          // how long a message may make no progress
  int64_t bytes_per_second = 0;  // and how fast it must be after that
};

// Whether a message of at most `bytes` that began `elapsed` ago is slower than it may be. `moved_bytes` is what its
// connection has carried since; without it only the time in all is judged.
bool IsTooSlow(const TransferLimits& limits, absl::Duration elapsed, int64_t bytes, std::optional<int64_t> moved_bytes);

class TransferWatch {
 public:
  struct Options {
    TransferLimits limits;
    int64_t max_message_bytes = 0;
    int64_t max_held_bytes = 0;  // of messages that gRPC has not delivered and of those that were admitted, together
    int64_t max_growth_bytes =
        0;  // of the process; beyond it doubts about what a connection holds are decided against it
  };

  TransferWatch(const Options& options, LiveStreams* live, const Admission* admission, ReadLimiter* gate)
      : options_(options), live_(live), admission_(admission), limiter_(gate) {}
  ~TransferWatch() { Stop(); }

  void Start();
  void Stop();

  // From now on a call whose message makes no progress is not waited for: it ends with UNAVAILABLE.
  void Drain() { draining_ = true; }

  // Looks at all streams once, and at those who wait at the gate. Public for tests.
  void Look();

 private:
  using Streams = std::vector<std::shared_ptr<Stream>>;

  // What is allowed now: less patience where the budget is nearly spent.
  TransferLimits CurrentLimits() const;
  void EndSlow(const Streams& streams) const;
  // gRPC 1.51 takes a message whole before it compares its size with the limit, and counts nothing: the connections do.
  void EndOversized(const Streams& streams) const;
  // What gRPC holds of the messages of `streams`, which are all that one connection has on their way.
  static int64_t UndeliveredBytes(Connection& connection, const Streams& streams, bool short_of_memory);

  const Options options_;
  LiveStreams* const live_;
  const Admission* const admission_;
  ReadLimiter* const limiter_;
  std::atomic<bool> draining_{false};

  int64_t bytes_at_start_ = 0;  // of the process

  std::optional<PeriodicThread> thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TRANSFER_WATCH_H_
