// What gRPC holds of messages that are not complete, from what can be seen: the bytes that a connection has received
// and those of the messages that it has delivered. gRPC 1.51 counts nothing of that itself and takes a message whole
// before it compares its size with the limit.
// In the path: one for each connection; streams tell it of messages, the transfer watch asks. Threads: all.
#ifndef NORMD_SERVER_RPC_TRANSPORT_DELIVERY_ACCOUNT_H_
#define NORMD_SERVER_RPC_TRANSPORT_DELIVERY_ACCOUNT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd::rpc {

class DeliveryAccount {
 public:
  // The bytes lie between the two. They are apart when messages were given up while others were on their way: how much
  // of what has come was of those is not known.
  struct Bounds {
    int64_t at_least = 0;
    int64_t at_most = 0;
  };

  // A message is on its way; and it is there, or will never be complete. True: none is left, and Settle is due.
  void Begin() { open_.fetch_add(1, std::memory_order_relaxed); }
  bool End(bool complete, absl::Time now);
  int open() const { return open_.load(std::memory_order_relaxed); }

  // A message of so many bytes is there.
  void Deliver(int64_t bytes);

  // A call ended of which a message may have come that nobody took.
  void Lose(absl::Time now) { lost_at_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }

  // Nothing is held: what has come beyond the messages delivered is frame headers, metadata, and messages that were
  // given up.
  void Settle(int64_t received_bytes, absl::Time now);

  // `received_bytes` is what the connection has carried from the peer so far.
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
  // What was received beyond the messages delivered when nothing was held: for certain, and perhaps.
  int64_t surplus_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t likely_surplus_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_DELIVERY_ACCOUNT_H_
