// Estimates how many bytes of incomplete messages gRPC holds for a connection: the bytes that the connection has
// received, less those of the messages that it has delivered. gRPC 1.51 does not count these bytes, and receives a
// whole message before it compares the size with the limit.
// In the path: beside it; each connection has one, streams report messages, and the transfer watch reads the estimate.
// Threads: every method is safe from any thread.
#ifndef NORMD_SERVER_RPC_GRPC_DELIVERY_ACCOUNT_H_
#define NORMD_SERVER_RPC_GRPC_DELIVERY_ACCOUNT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd::rpc {

class DeliveryAccount {
 public:
  // Bounds of the estimate. They differ when messages were abandoned while others were on their way, because it is
  // unknown how many of the received bytes belonged to the abandoned ones.
  struct Bounds {
    int64_t at_least = 0;
    int64_t at_most = 0;
  };

  // Begin: a message is on its way. End: the message has arrived (`complete`), or never will; returns true if no other
  // is on its way and Settle is due.
  void Begin() { open_.fetch_add(1, std::memory_order_relaxed); }
  bool End(bool complete, absl::Time now);
  int open() const { return open_.load(std::memory_order_relaxed); }

  // A message of `bytes` was delivered.
  void Deliver(int64_t bytes);

  // A call ended, and parts of a message that nobody took may have arrived.
  void Lose(absl::Time now) { lost_at_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }

  // gRPC holds no message now, so all bytes received beyond the delivered messages are frame headers, metadata and
  // abandoned messages.
  void Settle(int64_t received_bytes, absl::Time now);

  // Returns the estimate. `received_bytes` is the number of bytes that the connection has received so far.
  Bounds Undelivered(int64_t received_bytes, absl::Time now);

 private:
  int64_t Surplus(int64_t received_bytes) const {
    return received_bytes - delivered_bytes_.load(std::memory_order_relaxed);
  }

  std::atomic<int> open_{0};
  std::atomic<int64_t> delivered_bytes_{0};
  std::atomic<int64_t> lost_at_ns_{0};
  std::atomic<int64_t> settled_at_ns_{0};

  Mutex mu_;
  // Bytes received beyond the delivered messages when gRPC held nothing: those certain, and those likely.
  int64_t surplus_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t likely_surplus_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_DELIVERY_ACCOUNT_H_
